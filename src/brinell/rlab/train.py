"""Training an agent: its surrogates, its prior, its network, and what all this is worth.

Surrogates are chosen, the prior is fitted to random probes, the network learns on episodes.

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
from brinell.rlab.episodes import EpisodeOutcomes, Placement
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
    """The rows of so many inputs by which surrogates are chosen: before those of the validation."""
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
    """An agent that has learned on these correctly classified inputs, by scores alone.

    Prior and slots of the placement are those of the training. `tell` is called with a stage and
    its figures. Of the `candidates` those that explain the model's answers become surrogates. With
    the `peers` the agent is compared at the end.
    """
    if len(batch) < FEWEST:
        raise RequestError(
            f"{len(batch)} correctly classified inputs are too few to train on: "
            f"give at least {FEWEST}"
        )

    # Probes may leave the budget, so the ledger allows any input.
    anything = replace(threat, eps=torch.full_like(threat.eps, torch.inf))
    ledger = open_questions(model, batch, anything, access=Access.SCORES, batch_size=batch_size)
    # The budgets of the caller, with data and criterion as the ledger has prepared them.
    free = replace(threat, domain=ledger.threat.domain, criterion=ledger.threat.criterion)
    device = batch.x.device
    rng = Streams.of(config.seed, batch.ids)
    # Every question from here on goes by this ledger, so its counts are the cost of the agent.
    costs = _Costs(ledger)
    agent = Agent(
        prior=Prior(placement.grid.channels, config.seed),
        domain=threat.domain,
        reward="dilution" if config.papers else "margin",
    ).to(device)
    # More slots than inputs would only wait.
    placement = replace(placement, prior=agent.prior, slots=min(config.slots, len(batch)))

    # Three parts without overlap: to learn from, to choose by, and to validate on.
    span = set_aside(len(batch))
    everything = torch.arange(len(batch), device=device)
    learning, aside, held = everything.tensor_split([span.start, span.stop])
    # More inputs would cost queries and hardly narrow the intervals.
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
        winners, about["surrogates"] = _choose(candidates, ledger.oracle(), *part(aside))
        agent = replace(agent, surrogates=winners)
        tell("surrogates", {"trained": len(candidates), "kept": len(winners)})
        costs.book("selection")

    if config.probes and not config.papers:
        _fit(agent.prior, ledger, part(learning), config, tell)
        costs.book("probes")

    if config.steps is None or config.steps > 0:
        network, about["curve"] = _learn(agent, ledger, part(learning), config, tell)
        agent = replace(agent, network=network)
        costs.book("steps")

    agent, about["kept"] = _save_queries(agent, ledger.oracle(), *part(aside))
    costs.book("selection")

    # Peers ask the model by ledgers of their own, so their queries are added by hand.
    rivals: dict[str, tuple[Array, int]] = {}
    if len(held):
        rivals = {
            name: _attack(attack, model, *part(held)) for name, attack in (peers or {}).items()
        }
    peer_queries = {name: queries for name, (queries, _) in rivals.items()}
    about["validation"] = validate(agent, ledger.oracle(), *part(held), peers=peer_queries)
    costs.book("validation")
    costs.queries["validation"] += sum(cost for _, cost in rivals.values())

    about |= {"training_queries": costs.queries, "surrogate_passes": costs.passes}
    return replace(agent, about=about)


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
            # What was booked before went to other purposes.
            booked[purpose] += int(counts.sum()) - sum(booked.values())


def _choose(
    candidates: Sequence[Candidate],
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    rng: Streams,
) -> tuple[tuple[SmallNetwork, ...], list[dict[str, Any]]]:
    """The candidates whose gradients explain answers to probes of inputs set aside.

    Also, for each candidate, how well it does.
    """
    rng = rng.fold("selection")
    oracle = oracle.follow([candidate.network for candidate in candidates])
    logits = oracle.scores(batch.ids, batch.x)
    # Gradients are those of the sum of scores with the weights that they have in the margin.
    weights = class_weights(
        lambda values: threat.criterion.margin(values, batch.y, batch.x),
        logits,
        rng.fold("weights"),
    )
    slopes = oracle.slopes(batch.ids, batch.x, weights)
    probes = probe(
        oracle,
        batch,
        threat,
        placement.grid,
        placement.variants,
        rng,
        probes=PROBES,
        slopes=slopes,
        group_size=len(placement.grid),
        scale=CLOSE * threat.eps,
    )

    # A surrogate must explain answers beyond chance, or it would mislead the search.
    means, lows = correlations(probes.effect, probes.prediction)
    surrogates = []
    facts = []
    for candidate, mean, low in zip(candidates, means.tolist(), lows.tolist(), strict=True):
        facts.append({**candidate.facts, "correlation": mean, "low": low, "kept": low > 0})
        if low > 0:
            surrogates.append(candidate.network)
    return tuple(surrogates), facts


def correlations(effect: Tensor, prediction: Tensor) -> tuple[Tensor, Tensor]:
    """(surrogates,) each: mean cosine of effects and predictions, and the low end of its interval.

    `effect` (n, probes) is what probes did, `prediction` (n, probes, surrogates) what surrogates
    let expect. The interval is the normal one over inputs; -1 for fewer than two of them.
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
    """Fit the prior to probes of the inputs to learn from."""
    batch, threat, placement, rng = learned
    oracle = ledger.oracle()
    rng = rng.fold("probes")

    parts = []
    # As many at once as the agent has slots, so that the memory is that of the training.
    for part in torch.split(torch.arange(len(batch), device=batch.x.device), placement.slots):
        probes = probe(
            oracle,
            batch.select(part),
            threat.select(part),
            placement.grid,
            placement.variants,
            rng.select(part),
            probes=config.probes,
        )
        parts.append(probes)
        tell("prior", {"inputs": int(part[-1]) + 1, "queries": int(ledger.costs.forwards.sum())})

    columns = zip(*parts, strict=True)
    probes = Probes(*(torch.cat(column) for column in columns))
    fit(prior, probes, torch.Generator().manual_seed(config.seed), steps=config.fits)


def _learn(
    agent: Agent,
    ledger: Ledger,
    learned: tuple[Batch, Threat, Placement, Streams],
    config: TrainConfig,
    tell: Callable[[str, Mapping[str, Any]], None],
) -> tuple[PatchNetwork, list[dict[str, Any]]]:
    """A network that learned on episodes, and its training curve."""
    batch, threat, placement, rng = learned
    placement = replace(placement, rules=agent.rules(placement.rules))
    oracle = ledger.oracle().follow(agent.surrogates)
    # Samples come again until the training ends.
    environment = PatchSearch(oracle, batch, threat, placement, rng, cycle=True)

    options = pair_options(placement.variants)
    network = PatchNetwork(options, scale=ADVANTAGE, seed=config.seed).to(batch.x.device)
    # Ten rounds before the first update, so that transitions of several states are there.
    settings = DQNSettings(warm_up=10 * placement.slots)
    trainer = DQN(settings, network, environment, config.seed)

    curve: list[dict[str, Any]] = []
    for progress in trainer.learn(
        steps=config.steps, seconds=config.seconds, interval=20 * placement.slots
    ):
        curve.append({**progress, "queries": int(ledger.costs.forwards.sum())})
        tell("dqn", curve[-1])
    return network, curve


def _queries(
    player: Agent, oracle: Oracle, batch: Batch, threat: Threat, placement: Placement, rng: Streams
) -> tuple[Array, EpisodeOutcomes]:
    """(n,) the queries of an agent on each input, and its outcomes."""
    start = replace(placement, rules=player.rules(placement.rules), prior=player.prior)
    following = oracle.follow(player.surrogates) if player.surrogates else oracle
    # Players get the same random numbers, so their queries are compared in pairs.
    outcomes = run_episodes(
        following, batch, threat, start, rng.fold("validation"), player.policy(start.choices)
    )
    # The query about the clean input counts too; a failure counts with the whole budget.
    queries = 1 + torch.where(outcomes.success, outcomes.steps, start.rules.steps)
    return queries.double().cpu().numpy(), outcomes


def _save_queries(
    agent: Agent, oracle: Oracle, batch: Batch, threat: Threat, placement: Placement, rng: Streams
) -> tuple[Agent, str]:
    """The agent, it without its network, or greedy: whichever needs the fewest queries.

    Also which it is.
    """
    if not len(batch) or agent.reward == "dilution":
        return agent, "all"

    players = {
        "prior": replace(agent, network=None),
        GREEDY: Agent(prior=Prior(), domain=agent.domain).to(batch.x.device),
    }
    if agent.network is not None:
        players["network"] = agent

    means = {}
    for name, player in players.items():
        queries, _ = _queries(player, oracle, batch, threat, placement, rng)
        means[name] = float(queries.mean())
    # A network that does not save queries on inputs it has not seen is not kept.
    kept = min(means, key=means.__getitem__)
    return players[kept], kept


def _attack(
    method: Attack, model: Model, batch: Batch, threat: Threat, placement: Placement, rng: Streams
) -> tuple[Array, int]:
    """(n,) the queries of another attack until its first success, and all of them.

    The one about the clean input is included.
    """
    budget = 1 + placement.rules.steps
    # A ledger of its own counts rows from 0.
    numbered = Batch.of(batch.x, batch.y, batch.start)
    ledger, _ = attack(model, numbered, threat, method, rng, queries=budget - 1)

    # An input that was not fooled counts with the whole budget.
    until = torch.where(ledger.fooled, 1.0 + ledger.best.first_success, torch.inf)
    costs = until.double().clamp_max(budget)
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
            failed on most, empty where it did not; `queries`, the mean of each player; and
            `ratios`, the mean of the agent over that of each other player, with the ends of its
            95 % interval over inputs, None for too few that differ.
    """
    if not len(batch):
        return None
    # The comparison is with what a user would have without the training.
    usual = choose_policy(DEFAULT, threat.domain.kind).name
    players = {GREEDY: find_agent(GREEDY)}
    if usual != GREEDY:
        players[DEFAULT] = find_agent(usual)

    own, outcomes = _queries(agent, oracle, batch, threat, placement, rng)
    queries = {
        name: _queries(player, oracle, batch, threat, placement, rng)[0]
        for name, player in players.items()
    }
    queries |= peers or {}
    ratios = {name: ratio(own, costs) for name, costs in queries.items()}

    _, fills = strengths(placement.variants, batch.x, threat, rng)
    means = {name: float(costs.mean()) for name, costs in ({OWN: own} | queries).items()}
    return {
        "inputs": len(batch),
        "budget": 1 + placement.rules.steps,
        "fooled": int(outcomes.success.sum()),
        "cause": _cause(outcomes, threat, fills),
        "queries": means,
        "ratios": {
            name: [value, *(interval or (None, None))] for name, (value, interval) in ratios.items()
        },
    }


def _cause(
    outcomes: EpisodeOutcomes, threat: Threat, fills: Tensor
) -> Literal["", "strength", "eps", "queries"]:
    """Why episodes failed where most did; empty where they did not."""
    failed = ~outcomes.success
    if 2 * int(failed.sum()) <= len(failed):
        return ""
    # Distortions that cannot fill the budget, a budget that was full, or too few queries.
    if len(fills) and float(fills.max()) < FULL:
        return "strength"
    full = (outcomes.size >= FULL * threat.eps)[failed].float().mean() > 0.5
    return "eps" if bool(full.item()) else "queries"
