"""Training an agent: the choice of surrogates, the prior on random probes, the network on episodes,
and what all this is worth.

A tenth of the inputs is set aside: by their answers surrogates are chosen, and the network and the
prior are kept only where they save queries there. A fifth is held out: on them the agent, greedy,
the default and peers run the same episodes; an input counts with its queries until the first
success, the one about the clean input included, and one that was not fooled with the whole budget.
The ledger counts every query. These queries are the cost of the agent, not of an attack with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from brinell.core.attack import attack, open_questions
from brinell.core.contracts import Attack
from brinell.core.errors import RequestError
from brinell.core.intervals import CONFIDENCE, deviations
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch, Oracle
from brinell.core.record import Array
from brinell.core.settings import Checked, Count, Positive, Whole
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.agent import DEFAULT, GREEDY, OWN, Agent, choose_policy, find_agent
from brinell.rlab.distort import FULL, pair_options, strengths
from brinell.rlab.dqn import DQN, DQNSettings
from brinell.rlab.episodes import Outcomes, Placement
from brinell.rlab.networks import SmallNetwork
from brinell.rlab.policy import PatchNetwork
from brinell.rlab.prior import Prior, Probes, fit, probe
from brinell.rlab.ratios import ratio
from brinell.rlab.search import PatchSearch, run_episodes
from brinell.rlab.sensitivity import class_weights

ADVANTAGE = 0.02
"""Factor of DQN's outputs: a typical advantage, as a share of the clean input's margin."""
PURPOSES = ("selection", "probes", "steps", "validation")
"""Queries and passes serve these purposes."""
FEWEST = 8
"""Correctly classified inputs that there must be."""
HELD_OUT, SET_ASIDE, MOST = 0.2, 0.1, 100
"""Shares of the inputs for the validation and for the choice of surrogates; how many of them are
used at most."""
PROBES = 16
"""Random distortions of each input by which surrogates are chosen."""
CLOSE = 0.25
"""Their distance in budgets: an answer to a larger change says little about a gradient, since
the model is not linear."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """How an agent is trained."""

    probes: Whole = 16
    """Random distortions of each input for the prior; 0 leaves it as it is."""
    fits: Count = 800
    """Gradient steps on the prior."""
    seconds: Positive = 600.0
    """Wall time that the network may learn for."""
    steps: int | None = None
    """Steps of single slots that it may learn for; None for no such end, 0 to fit the prior
    alone."""
    papers: bool = False
    """Train the papers' own agent: a network alone, which is paid by dilution and chooses
    without predictions."""
    slots: Count = 64
    """Episodes that run at once, or as many as there are inputs."""
    seed: int = 0
    """Of everything random."""


class Candidate(NamedTuple):
    """A network that may become a surrogate."""

    network: SmallNetwork
    """Trained on other inputs than those on which it is judged (`set_aside`)."""
    facts: Mapping[str, Any]
    """How it was made, as JSON."""


def held_out(count: int) -> int:
    """How many of so many inputs, the last ones, nothing is learned from."""
    return int(HELD_OUT * count)


def set_aside(count: int) -> range:
    """The rows of so many inputs by which surrogates are chosen: those before the ones of the
    validation.
    """
    last = count - held_out(count)
    return range(last - int(SET_ASIDE * count), last)


def train(
    model: Model,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    config: TrainConfig,
    *,
    batch_size: int = 128,
    tell: Callable[[str, Mapping[str, Any]], None] = lambda stage, figures: None,
    candidates: Sequence[Candidate] = (),
    peers: Mapping[str, Attack] | None = None,
) -> Agent:
    """An agent that has learned on these correctly classified inputs, by the scores of the model
    alone.

    Prior and slots of the placement are those of the training. `tell` is called with a stage and
    its figures. Of the `candidates` those that explain the model's answers become surrogates. With
    the `peers` the agent is compared at the end.
    """
    if len(batch) < FEWEST:
        raise RequestError(
            f"{len(batch)} correctly classified inputs are too few to train on: "
            f"give at least {FEWEST}"
        )
    anything = replace(threat, eps=torch.full_like(threat.eps, torch.inf))
    ledger = open_questions(model, batch, anything, access=Access.SCORES, batch_size=batch_size)
    free = replace(threat, domain=ledger.threat.domain, criterion=ledger.threat.criterion)
    device = batch.x.device
    rng = Streams.of(config.seed, batch.ids)
    costs = _Costs(ledger)
    agent = Agent(
        prior=Prior(placement.grid.channels, config.seed),
        domain=threat.domain,
        reward="dilution" if config.papers else "margin",
    ).to(device)
    placement = replace(placement, prior=agent.prior, slots=min(config.slots, len(batch)))
    span = set_aside(len(batch))
    learning, aside, held = torch.arange(len(batch), device=device).tensor_split(
        [span.start, span.stop]
    )
    aside = aside[:MOST]
    held = held[:MOST]
    about: dict[str, Any] = {
        "config": asdict(config),
        "rules": asdict(agent.rules(placement.rules)),
        "patch": list(placement.grid.patch),
        "distortions": sorted(
            {type(variant.distortion).__name__ for variant in placement.variants}
        ),
        "inputs": len(batch),
        "surrogates": [],
        "curve": [],
    }

    def part(rows: Tensor) -> tuple[Batch, Threat, Placement, Streams]:
        return ledger.batch.select(rows), free.select(rows), placement, rng.select(rows)

    if candidates:
        winner, about["surrogates"] = _choose(candidates, ledger.oracle(), *part(aside))
        agent = replace(agent, surrogates=winner)
        tell("surrogates", {"trained": len(candidates), "kept": len(winner)})
        costs.book("selection")
    if config.probes and not config.papers:
        _fit(agent.prior, ledger, part(learning), config, tell)
        costs.book("probes")
    if config.steps is None or config.steps > 0:
        subset, budgets, start, streams = part(learning)
        start = replace(start, rules=agent.rules(start.rules))
        environment = PatchSearch(
            ledger.oracle().follow(agent.surrogates), subset, budgets, start, streams, cycle=True
        )
        network = PatchNetwork(
            pair_options(placement.variants), scale=ADVANTAGE, seed=config.seed
        ).to(device)
        settings = DQNSettings(warm_up=10 * placement.slots)
        trainer = DQN(settings, network, environment, config.seed)
        for progress in trainer.learn(
            steps=config.steps, seconds=config.seconds, interval=20 * placement.slots
        ):
            about["curve"].append({**progress, "queries": int(ledger.costs.forwards.sum())})
            tell("dqn", about["curve"][-1])
        agent = replace(agent, network=network)
        costs.book("steps")
    agent, about["kept"] = _save_queries(agent, ledger.oracle(), *part(aside))
    costs.book("selection")
    rivals = (
        {name: _attack(attack, model, *part(held)) for name, attack in (peers or {}).items()}
        if len(held)
        else {}
    )
    about["validation"] = validate(
        agent,
        ledger.oracle(),
        *part(held),
        peers={name: costs for name, (costs, _) in rivals.items()},
    )
    costs.book("validation")
    costs.queries["validation"] += sum(cost for _, cost in rivals.values())
    return replace(
        agent, about=about | {"training_queries": costs.queries, "surrogate_passes": costs.passes}
    )


class _Costs:
    """Queries of the model and passes of surrogates by what they were for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.queries = dict.fromkeys(PURPOSES, 0)
        self.passes = dict.fromkeys(PURPOSES, 0)

    def book(self, purpose: str) -> None:
        """Add what the ledger has counted since the last call."""
        for booked, counts in (
            (self.queries, self._ledger.costs.forwards),
            (self.passes, self._ledger.costs.surrogate_passes),
        ):
            booked[purpose] += int(counts.sum()) - sum(booked.values())


def _choose(
    candidates: Sequence[Candidate],
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    rng: Streams,
) -> tuple[tuple[SmallNetwork, ...], list[dict[str, Any]]]:
    """The candidates whose gradients explain answers to probes of inputs set aside, and how well
    each of them does.
    """
    rng = rng.fold("selection")
    oracle = oracle.follow([candidate.network for candidate in candidates])
    logits = oracle.scores(batch.ids, batch.x)
    weights = class_weights(
        lambda values: threat.criterion.margin(values, batch.y, batch.x),
        logits,
        rng.fold("weights"),
    )
    slopes = oracle.slopes(batch.ids, batch.x, weights)
    scale = CLOSE * threat.eps
    settings: dict[str, Any] = {
        "probes": PROBES,
        "group_size": len(placement.grid),
        "scale": scale,
        "slopes": slopes,
    }
    probes = probe(oracle, batch, threat, placement.grid, placement.variants, rng, **settings)
    means, lows = correlations(probes.effect, probes.prediction)
    ends = list(zip(candidates, means.tolist(), lows.tolist(), strict=True))
    surrogates = tuple(candidate.network for candidate, _, low in ends if low > 0)
    return surrogates, [
        {**one.facts, "correlation": mean, "low": low, "kept": low > 0} for one, mean, low in ends
    ]


def correlations(effect: Tensor, prediction: Tensor) -> tuple[Tensor, Tensor]:
    """(surrogates,) each: mean cosine of the effects (n, probes) and of what surrogates let expect
    (n, probes, surrogates).

    The second is the lower end of its normal interval over inputs, -1 for fewer than two of them.
    """
    products = torch.einsum("np,nps->ns", effect, prediction)
    norms = effect.norm(dim=1)[:, None] * prediction.norm(dim=1)
    cosines = torch.where(norms > 0, products / norms.clamp_min(1e-30), 0.0)
    means = cosines.mean(0).nan_to_num()
    if len(cosines) < 2:
        return means, torch.full_like(means, -1)
    return means, means - deviations(CONFIDENCE) * cosines.std(0) / len(cosines) ** 0.5


def _fit(
    prior: Prior,
    ledger: Ledger,
    learned: tuple[Batch, Threat, Placement, Streams],
    config: TrainConfig,
    tell: Callable[[str, Mapping[str, Any]], None],
) -> None:
    (batch, threat, placement, rng) = learned
    oracle = ledger.oracle()
    parts = []
    rng = rng.fold("probes")
    for part in torch.split(torch.arange(len(batch), device=batch.x.device), placement.slots):
        subset = batch.select(part)
        limits = threat.select(part)
        parts.append(
            probe(
                oracle,
                subset,
                limits,
                placement.grid,
                placement.variants,
                rng.select(part),
                probes=config.probes,
            )
        )
        tell("prior", {"inputs": int(part[-1]) + 1, "queries": int(ledger.costs.forwards.sum())})
    probes = Probes(*(torch.cat(column) for column in zip(*parts, strict=True)))
    fit(prior, probes, torch.Generator().manual_seed(config.seed), steps=config.fits)


def _queries(
    player: Agent, oracle: Oracle, batch: Batch, threat: Threat, placement: Placement, rng: Streams
) -> tuple[Array, Outcomes]:
    """(n,) the queries of an agent on each input, and its outcomes."""
    start = replace(placement, rules=player.rules(placement.rules), prior=player.prior)
    following = oracle.follow(player.surrogates) if player.surrogates else oracle
    outcomes = run_episodes(
        following, batch, threat, start, rng.fold("validation"), player.policy(start.choices)
    )
    return (
        1 + torch.where(outcomes.success, outcomes.steps, start.rules.steps)
    ).double().cpu().numpy(), outcomes


def _save_queries(
    agent: Agent, oracle: Oracle, batch: Batch, threat: Threat, placement: Placement, rng: Streams
) -> tuple[Agent, str]:
    """The agent, or what is left of it without its network, or greedy, whichever needs the fewest
    queries; and which it is.
    """
    if not len(batch) or agent.reward == "dilution":
        return agent, "all"
    players = {
        "prior": replace(agent, network=None),
        GREEDY: Agent(prior=Prior(), domain=agent.domain).to(batch.x.device),
    }
    players |= {} if agent.network is None else {"network": agent}
    means = {
        name: float(_queries(player, oracle, batch, threat, placement, rng)[0].mean())
        for name, player in players.items()
    }
    kept = min(means, key=means.__getitem__)
    return players[kept], kept


def _attack(
    method: Attack, model: Model, batch: Batch, threat: Threat, placement: Placement, rng: Streams
) -> tuple[Array, int]:
    """(n,) the queries of another attack until its first success, the one about the clean input
    included; and all of them.
    """
    budget = 1 + placement.rules.steps
    numbered = Batch.of(batch.x, batch.y, batch.start)

    ledger, _ = attack(model, numbered, threat, method, rng, queries=budget - 1)
    costs = (
        torch.where(ledger.fooled, 1.0 + ledger.best.first_success, torch.inf)
        .double()
        .clamp_max(budget)
    )
    return costs.cpu().numpy(), int(ledger.costs.forwards.sum())


def validate(
    agent: Agent,
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    rng: Streams,
    peers: Mapping[str, Array] | None = None,
) -> dict[str, Any] | None:
    """Play on inputs, and say in JSON what came of it; None without inputs.

    `peers` are the queries (n,) of others, by name.

    Returns:
        `inputs`; `budget` in queries; `fooled`, how many inputs the agent fooled; `cause`, why it
            failed on most, empty where it
        did not; `queries`, the mean of each player; and `ratios`, the mean of the agent over that
            of each other player, with the
        ends of its 95 % interval over inputs.
    """
    if not len(batch):
        return None
    usual = choose_policy(DEFAULT, threat.domain.kind).name
    players = {GREEDY: find_agent(GREEDY)} | (
        {} if usual == GREEDY else {DEFAULT: find_agent(usual)}
    )
    own, outcomes = _queries(agent, oracle, batch, threat, placement, rng)
    queries = {
        name: _queries(player, oracle, batch, threat, placement, rng)[0]
        for name, player in players.items()
    }
    queries |= peers or {}
    ratios = {name: ratio(own, costs) for name, costs in queries.items()}
    return {
        "inputs": len(batch),
        "budget": 1 + placement.rules.steps,
        "fooled": int(outcomes.success.sum()),
        "cause": _cause(outcomes, threat, strengths(placement.variants, batch.x, threat, rng)[1]),
        "queries": {name: float(costs.mean()) for name, costs in ({OWN: own} | queries).items()},
        "ratios": {name: [value, *interval] for name, (value, interval) in ratios.items()},
    }


def _cause(
    outcomes: Outcomes, threat: Threat, fills: Tensor
) -> Literal["", "strength", "eps", "queries"]:
    """Why episodes failed where most did: distortions that cannot fill the budget, a budget that
    was full, too few queries.
    """
    failed = ~outcomes.success
    if 2 * int(failed.sum()) <= len(failed):
        return ""
    if len(fills) and float(fills.max()) < FULL:
        return "strength"
    return (
        "eps"
        if bool(((outcomes.size >= FULL * threat.eps)[failed].float().mean() > 0.5).item())
        else "queries"
    )
