"""Training an agent on separate inputs: the choice of surrogates, the prior on random probes, the network on episodes.

The ledger counts every query. These queries are the cost of the agent, not of an attack with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import torch

from brinell.core.contracts import Attack
from brinell.core.criterion import Criterion
from brinell.core.eot import EOT
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.settings import above_zero, at_least, one_of
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab import selection
from brinell.rlab.agent import Agent
from brinell.rlab.distort import pair_options
from brinell.rlab.dqn import DQN, DQNSettings
from brinell.rlab.episodes import Placement
from brinell.rlab.networks import SmallNetwork
from brinell.rlab.policy import PatchNetwork
from brinell.rlab.prior import Prior, Probes, fit, likelihood, probe
from brinell.rlab.search import PatchSearch
from brinell.rlab.validation import held_out, validate

Algorithm = Literal["dqn", "none"]
ADVANTAGE = 0.02
"""Factor of DQN's outputs: a typical advantage, as a share of the clean input's margin."""
ADDED = ("seconds", "steps", "updates", "episodes", "queries")
"""Counters that a resumed training continues."""
PURPOSES = ("selection", "probes", "steps", "validation")
"""Queries and passes serve these purposes."""
FEWEST = 8
"""Correctly classified inputs that there must be."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How an agent is trained."""

    algorithm: Algorithm = "dqn"
    """dqn: the dueling double DQN of the papers; none fits the prior alone."""
    probes: int = 16
    """Random distortions of each input for the prior; 0 leaves it as it is."""
    fits: int = 800
    """Gradient steps on the prior."""
    seconds: float = 600.0
    """Wall time that the network may learn for."""
    steps: int | None = None
    """Steps of single slots that it may learn for; None for no such end."""
    slots: int = 64
    """Episodes that run at once, or as many as there are inputs."""
    seed: int = 0
    """Of everything random."""

    def __post_init__(self) -> None:
        one_of(self, algorithm=get_args(Algorithm))
        at_least(self, probes=0, fits=1, slots=1)
        above_zero(self, "seconds")


class Report(NamedTuple):
    """A point of the training curve."""

    stage: str
    """prior or the algorithm's name."""
    values: dict[str, Any]
    """Figures at this point, by name."""


Tell = Callable[[Report], None]


def not_met(model: Model, batch: Batch, criterion: Criterion, batch_size: int) -> torch.Tensor:
    """(n,) bool: which inputs do not meet a criterion yet; one query each."""
    eot, parts = EOT(model), torch.split(torch.arange(len(batch), device=batch.x.device), batch_size)
    with torch.no_grad():
        flags = []
        for rows in parts:
            logits = eot.mean(batch.x[rows])
            part = criterion.select(rows)
            y = batch.y[rows]
            flags.append(~part.is_met(part.margin(logits, y, batch.x[rows]), logits, y))
    return torch.cat(flags)


class Candidate(NamedTuple):
    """A network that may become a surrogate."""

    network: SmallNetwork
    """Trained on other inputs than those on which it is judged (`selection.set_aside`, `validation.held_out`)."""
    facts: Mapping[str, Any]
    """How it was made, as JSON."""


def train(
    model: Model,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    config: TrainConfig,
    *,
    batch_size: int = 128,
    tell: Tell = lambda report: None,
    keep: Callable[[Agent], object] = lambda agent: None,
    start: Agent | None = None,
    candidates: Sequence[Candidate] = (),
    peers: Mapping[str, Attack] | None = None,
) -> Agent:
    """An agent that has learned on these inputs.

    Args:
        model: the model; only its scores are used.
        batch: correctly classified inputs.
        threat: distance and budget of the episodes.
        placement: what is placed where, and how an episode goes; prior and slots are those of the training.
        config: how it is trained.
        batch_size: the most inputs shown to the model at once.
        tell: called with points of the training curve.
        keep: called with the agent as it is then, at every point of the curve.
        start: what an earlier training on the same inputs kept: its prior and surrogates are taken as they are, its network
            learns on, in fresh episodes, and its queries, steps and seconds count.
        candidates: networks of which those that explain the model's answers become surrogates.
        peers: other attacks, by name, with which the agent is compared at the end.

    Raises:
        RequestError: too few inputs.
    """

    def agent() -> Agent:
        """The agent as it is now."""
        costs.book("steps")
        metadata = {
            "config": asdict(config),
            "rules": asdict(placement.rules),
            "patch": list(placement.grid.patch),
            "distortions": sorted({type(variant.distortion).__name__ for variant in placement.variants}),
            "inputs": len(batch),
            "training_queries": dict(costs.queries),
            "surrogates": list(described),
            "surrogate_passes": dict(costs.passes),
            "curve": curve,
            "validation": None if training else record.get("validation"),
        }
        return Agent(prior=prior, network=network, about=metadata, domain=full_threat.domain, surrogates=surrogates)

    if len(batch) < FEWEST:
        raise RequestError(f"{len(batch)} correctly classified inputs are too few to train on: give at least {FEWEST}")
    slots, device = min(config.slots, len(batch)), batch.x.device
    full_threat, full_batch = threat, batch
    anything = replace(threat, eps=torch.full_like(threat.eps, torch.inf))
    ledger = Ledger(model, batch, anything, access=Access.SCORES, batch_size=batch_size, minimal=True)
    batch, threat = ledger.batch, replace(threat, domain=ledger.threat.domain, criterion=ledger.threat.criterion)
    record = start.about or {} if start else {}
    costs = _Costs(ledger, record)
    curve: list[dict[str, Any]] = list(record.get("curve", ()))
    last_point = curve[-1] if curve else {}
    rng = Streams.of(config.seed, batch.ids)
    origin = (start or Agent(prior=Prior(placement.grid.channels, config.seed))).to(device)
    prior, network = origin.prior, origin.network
    placement = replace(placement, prior=prior, slots=slots)
    surrogates, described = (start.surrogates, record.get("surrogates", ())) if start else ((), ())
    if candidates and not start:
        surrogates, described = _choose(candidates, ledger, threat, placement, rng.fold("selection"))
        tell(Report("surrogates", {"trained": len(described), "kept": len(surrogates)}))
    costs.book("selection")
    if config.probes and not start:
        for report in _fit(prior, ledger, placement, config, rng.fold("probes")):
            tell(report)
    costs.book("probes")
    remaining = None if config.steps is None else config.steps - last_point.get("steps", 0)
    training = config.algorithm != "none" and (remaining is None or remaining > 0)
    oracle = ledger.oracle().follow(surrogates)
    if training:
        keep(agent())
        if last_point:  # other episodes than those that were played
            rng = rng.fold(f"after {len(curve)} reports")
        learning = torch.arange(len(batch) - held_out(len(batch)), device=batch.x.device)
        subset = batch.select(learning), threat.select(learning)
        environment = PatchSearch(oracle, *subset, placement, rng.select(learning), cycle=True)
        network = network or PatchNetwork(pair_options(placement.variants), scale=ADVANTAGE, seed=config.seed).to(device)
        settings = DQNSettings(temperature=network.scale, warm_up=10 * slots)
        trainer = DQN(settings, network, environment, config.seed + len(curve))
        for progress in trainer.learn(steps=remaining, seconds=config.seconds, interval=20 * slots):
            point = {**progress._asdict(), "queries": int(ledger.costs.forwards.sum())}
            point |= {name: point[name] + last_point.get(name, 0) for name in ADDED}
            curve.append(point)
            tell(Report("dqn", point))
            keep(agent())
    elif record.get("validation"):
        return agent()
    trained, streams = agent(), Streams.of(config.seed, batch.ids).fold("validation")
    rows = torch.arange(len(batch) - held_out(len(batch)), len(batch), device=batch.x.device)
    budget = placement.rules.steps
    rivals = {
        name: partial(
            _attack, attack, model, full_batch.select(rows), full_threat.select(rows), streams.select(rows), budget, costs
        )
        for name, attack in (peers or {}).items()
    }
    subset = batch.select(rows), threat.select(rows)
    validation = validate(trained, ledger.oracle(), *subset, placement, streams.select(rows), rivals)
    costs.book("validation")
    metadata = {"validation": validation, "training_queries": costs.queries, "surrogate_passes": costs.passes}
    return replace(trained, about=(trained.about or {}) | metadata)


class _Costs:
    """Queries of the model and passes of surrogates by what they were for; those of an earlier training count too."""

    def __init__(self, ledger: Ledger, record: Mapping[str, Any]) -> None:
        self._ledger, self._counted = ledger, (0, 0)
        queries, passes = (record.get(name, {}) for name in ("training_queries", "surrogate_passes"))
        self.queries = {name: queries.get(name, 0) for name in PURPOSES}
        self.passes = {name: passes.get(name, 0) for name in PURPOSES}

    def book(self, purpose: str) -> None:
        """Add what the ledger has counted since the last call."""
        counts = int(self._ledger.costs.forwards.sum()), int(self._ledger.costs.surrogate_passes.sum())
        self.queries[purpose] += counts[0] - self._counted[0]
        self.passes[purpose] += counts[1] - self._counted[1]
        self._counted = counts


def _choose(
    candidates: Sequence[Candidate], ledger: Ledger, threat: Threat, placement: Placement, rng: Streams
) -> tuple[tuple[SmallNetwork, ...], list[dict[str, Any]]]:
    """The candidates that explain answers to inputs set aside, and how well each of them does."""
    batch = ledger.batch
    rows = torch.tensor(selection.set_aside(len(batch))[: selection.MOST], dtype=torch.int64, device=batch.x.device)
    oracle = ledger.oracle().follow([candidate.network for candidate in candidates])
    explained = selection.explain_answers(oracle, batch.select(rows), threat.select(rows), placement, rng.select(rows))
    pairs = list(zip(candidates, explained, strict=True))
    surrogates = tuple(candidate.network for candidate, result in pairs if result.explains)
    return surrogates, [
        {**candidate.facts, "correlation": result.correlation, "low": result.low, "kept": result.explains}
        for candidate, result in pairs
    ]


def _attack(
    attack: Attack, model: Model, batch: Batch, threat: Threat, rng: Streams, budget: int, costs: _Costs, rows: torch.Tensor
) -> torch.Tensor:
    """(n,): queries of another attack until its first success on some rows, the one about the clean input included."""
    subset = replace(batch.select(rows), ids=torch.arange(len(rows), device=rows.device))
    ledger = Ledger(model, subset, threat.select(rows), access=attack.access, queries=budget, minimal=attack.family == "minimal")
    attack(ledger.oracle(), ledger.batch, ledger.threat, rng.select(rows))
    costs.queries["validation"] += int(ledger.costs.forwards.sum())
    return torch.where(ledger.fooled, 1.0 + ledger.best.first_success, torch.inf)


def _fit(prior: Prior, ledger: Ledger, placement: Placement, config: TrainConfig, rng: Streams) -> Iterator[Report]:
    """Probe, fit, and report the likelihood on the inputs held out."""
    batch, oracle, parts = ledger.batch, ledger.oracle(), []
    for part in torch.split(torch.arange(len(batch), device=batch.x.device), placement.slots):
        subset, threat = batch.select(part), ledger.threat.select(part)
        parts.append(probe(oracle, subset, threat, placement.grid, placement.variants, rng.select(part), probes=config.probes))
        yield Report("prior", {"inputs": int(part[-1]) + 1, "queries": int(ledger.costs.forwards.sum())})
    probes = Probes(*(torch.cat(column) for column in zip(*parts, strict=True)))
    count = len(batch) - held_out(len(batch))
    learn, test = (Probes(*(column[piece] for column in probes)) for piece in (slice(count), slice(count, None)))
    with torch.no_grad():
        before = float(likelihood(prior, test).mean())
        curve = fit(prior, learn, torch.Generator().manual_seed(config.seed), steps=config.fits)
        after = float(likelihood(prior, test).mean())
    yield Report("prior", {"loss_before": before, "loss": after, "curve": curve, "queries": int(ledger.costs.forwards.sum())})
