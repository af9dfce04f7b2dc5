"""What a trained agent is worth on inputs that it did not learn from, beside greedy, the default and its own prior.

All play the same episodes with the same random numbers. An input counts with its queries until the first success, the one about
the clean input included, and one that was not fooled with the whole budget.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from brinell.core.domain import Kind
from brinell.core.intervals import CONFIDENCE, ratio
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.agent import DEFAULT, Agent, chosen, named
from brinell.rlab.env import Placement
from brinell.rlab.episodes import run_episodes

SHARE = 0.2
"""Share of the inputs that nothing is learned from."""
MOST = 100
"""Inputs that are played at most."""
OWN, GREEDY, ITS_PRIOR = "policy", "greedy", "its prior"


def held_out(count: int) -> int:
    """How many of so many inputs, the last ones, nothing is learned from; the first `MOST` of them are played."""
    return int(SHARE * count)


def validate(
    agent: Agent,
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    rng: Streams,
) -> dict[str, Any] | None:
    """Play, and say in JSON what came of it; None without inputs.

    Returns:
        `inputs`; `budget` in queries; `queries`, the mean of each player; and `ratios`, the mean of the agent over that of each
        other player, with the ends of its 95 % bootstrap interval over inputs.
    """
    if not len(batch):
        return None
    rows = torch.arange(min(MOST, len(batch)), device=batch.x.device)
    batch, threat, rng = batch.select(rows), threat.select(rows), rng.select(rows)
    players = _players(agent, threat.domain.kind)
    found = {}
    for name, player in players.items():
        own = replace(placement, rules=player.rules(placement.rules), prior=player.prior)
        outcomes = run_episodes(oracle, batch, threat, own, rng, player.policy(own.choices))
        found[name] = (1 + torch.where(outcomes.success, outcomes.steps, own.rules.steps)).double().cpu().numpy()
    ratios = {name: ratio(found[OWN], each) for name, each in found.items() if name != OWN}
    return {
        "inputs": len(batch),
        "budget": 1 + placement.rules.steps,
        "queries": {name: float(each.mean()) for name, each in found.items()},
        "ratios": {name: [value, *interval] for name, (value, interval) in ratios.items()},
    }


def _players(agent: Agent, kind: Kind) -> Mapping[str, Agent]:
    players = {OWN: agent, GREEDY: named(GREEDY)}
    usual = chosen(DEFAULT, kind).name
    if usual != GREEDY:
        players[DEFAULT] = named(usual)
    if agent.network is not None:
        players[ITS_PRIOR] = Agent(prior=agent.prior)
    return players


def verdict(about: Mapping[str, Any] | None) -> str:
    """What the validation of an agent says, in a line; empty where there was none."""
    told = (about or {}).get("validation")
    if not told:
        return ""
    parts = [f"{_ratio(told, name)} {name}'s ({told['queries'][name]:.0f})" for name in told["ratios"]]
    whose = DEFAULT if DEFAULT in told["ratios"] else GREEDY
    _, low, high = told["ratios"][whose]
    judged = "fewer" if high < 1 else "more" if low > 1 else "not measurably fewer"
    return (
        f"on {told['inputs']} inputs that it did not learn from it needs {judged} queries than {whose}: "
        f"{told['queries'][OWN]:.0f} in the mean, {', '.join(parts)} (ratios of means with {CONFIDENCE:.0%} intervals)"
    )


def warning(about: Mapping[str, Any] | None) -> str:
    """What to know before an agent that does worse than greedy is used; empty where it does not, or where nobody looked."""
    told = (about or {}).get("validation")
    if not told or told["ratios"][GREEDY][0] <= 1:
        return ""
    return (
        f"the policy needs {_ratio(told, GREEDY)} greedy's queries on the {told['inputs']} inputs that it was validated on: "
        "use policy=greedy, or train it on more inputs or for longer"
    )


def _ratio(told: Mapping[str, Any], name: str) -> str:
    value, low, high = told["ratios"][name]
    return f"{value:.2f} [{low:.2f}, {high:.2f}] of"
