"""Validation of a trained agent on held-out inputs against greedy, the default policy, the agent's parts, and other attacks.

All agents play the same episodes with the same random numbers. An input counts with its queries until the first success, the
one about the clean input included, and one that was not fooled with the whole budget.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from brinell.core.domain import Kind
from brinell.core.intervals import CONFIDENCE, Interval
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.agent import DEFAULT, Agent, choose_policy, find_agent
from brinell.rlab.episodes import Placement
from brinell.rlab.ratios import MIN_PAIRS, ratio, ratio_text
from brinell.rlab.search import run_episodes

SHARE = 0.2
"""Share of the inputs that nothing is learned from."""
MOST = 100
"""Inputs that are played at most."""
OWN, GREEDY, ITS_PRIOR, CONTROL = "policy", "greedy", "its prior", "without surrogates"
POSSESSIVES = {CONTROL: "those without surrogates"}
"""Words for the queries of a player whose name takes no possessive."""
Peer = Callable[[Tensor], Tensor]
"""Another attack: rows (n,) of the inputs to its queries (n,) until the first success, infinite for none."""


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
    peers: Mapping[str, Peer] | None = None,
) -> dict[str, Any] | None:
    """Play, and say in JSON what came of it; None without inputs.

    Args:
        agent: the agent.
        oracle: where the agents ask.
        batch: the inputs.
        threat: their threat.
        placement: what is placed where.
        rng: the random numbers.
        peers: other attacks by name.

    Returns:
        `inputs`; `budget` in queries; `queries`, the mean of each player; and `ratios`, the mean of the agent over that of each
        other player, with the ends of its 95 % bootstrap interval over inputs, None for too few inputs.
    """
    if not len(batch):
        return None
    rows = torch.arange(min(MOST, len(batch)), device=batch.x.device)
    batch, threat, rng = batch.select(rows), threat.select(rows), rng.select(rows)
    players = _players(agent, threat.domain.kind)
    queries = {}
    for name, player in players.items():
        placed = replace(placement, rules=player.rules(placement.rules), prior=player.prior)
        following = oracle.follow(player.surrogates) if player.surrogates else oracle
        outcomes = run_episodes(following, batch, threat, placed, rng, player.policy(placed.choices))
        queries[name] = (1 + torch.where(outcomes.success, outcomes.steps, placed.rules.steps)).double().cpu().numpy()
    for name, peer in (peers or {}).items():
        queries[name] = peer(rows).double().clamp_max(1 + placement.rules.steps).cpu().numpy()
    ratios = {name: ratio(queries[OWN], costs) for name, costs in queries.items() if name != OWN}
    return {
        "inputs": len(batch),
        "budget": 1 + placement.rules.steps,
        "queries": {name: float(costs.mean()) for name, costs in queries.items()},
        "ratios": {name: [value, *(interval or (None, None))] for name, (value, interval) in ratios.items()},
    }


def _players(agent: Agent, kind: Kind) -> Mapping[str, Agent]:
    players = {OWN: agent, GREEDY: find_agent(GREEDY)}
    usual = choose_policy(DEFAULT, kind).name
    if usual != GREEDY:
        players[DEFAULT] = find_agent(usual)
    if agent.network is not None:
        players[ITS_PRIOR] = Agent(prior=agent.prior)
    if agent.surrogates:
        players[CONTROL] = replace(agent, surrogates=())
    return players


def verdict(about: Mapping[str, Any] | None) -> str:
    """One-line result of an agent's validation; empty without a validation."""
    validation = (about or {}).get("validation")
    if not validation:
        return ""
    parts = [
        f"{_ratio(validation, name)} {POSSESSIVES.get(name) or name + chr(39) + 's'} ({validation['queries'][name]:.0f})"
        for name in validation["ratios"]
    ]
    baseline = DEFAULT if DEFAULT in validation["ratios"] else GREEDY
    _, low, high = validation["ratios"][baseline]
    if low is None or high is None:
        result = f"cannot be compared with {baseline} (an interval needs {MIN_PAIRS} inputs)"
    else:
        result = f"needs {'fewer' if high < 1 else 'more' if low > 1 else 'not measurably fewer'} queries than {baseline}"
    return (
        f"on {validation['inputs']} inputs that it did not learn from, the policy {result}: "
        f"{validation['queries'][OWN]:.0f} in the mean, {', '.join(parts)} (ratios of means with {CONFIDENCE:.0%} intervals)"
    )


def warning(about: Mapping[str, Any] | None) -> str:
    """Warning about an agent that needs more queries than greedy; empty without one or without a validation."""
    validation = (about or {}).get("validation")
    if not validation or validation["ratios"][GREEDY][0] <= 1:
        return ""
    return (
        f"the policy needs {_ratio(validation, GREEDY)} greedy's queries "
        f"on the {validation['inputs']} inputs that it was validated on: "
        "use policy=greedy, or train it on more inputs or for longer"
    )


def _ratio(validation: Mapping[str, Any], name: str) -> str:
    """A ratio with its interval as text."""
    value, low, high = validation["ratios"][name]
    return f"{ratio_text(value, None if low is None else Interval(low, high))} of"
