"""Training an agent: the choice of surrogates, the prior on random probes, the network on episodes, and what all this is worth.

A fifth of the inputs is held out. On them all players, the agent, greedy and the default among them, run the same episodes with
the same random numbers; an input counts with its queries until the first success, the one about the clean input included, and one
that was not fooled with the whole budget. The ledger counts every query. These queries are the cost of the agent, not of an
attack with it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from brinell.core.contracts import Attack
from brinell.core.criterion import Criterion
from brinell.core.eot import EOT
from brinell.core.errors import RequestError
from brinell.core.intervals import CONFIDENCE, deviations
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch, Oracle
from brinell.core.settings import Checked, Count, Positive, Whole
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.agent import CONTROL, DEFAULT, GREEDY, OWN, Agent, choose_policy, find_agent
from brinell.rlab.distort import DistortedInputs, pair_options, wholes
from brinell.rlab.dqn import DQN, DQNSettings
from brinell.rlab.episodes import FULL, Outcomes, Placement
from brinell.rlab.networks import SmallNetwork
from brinell.rlab.policy import PatchNetwork
from brinell.rlab.prior import Prior, Probes, fit, likelihood, probe
from brinell.rlab.ratios import ratio
from brinell.rlab.search import PatchSearch, run_episodes
from brinell.rlab.sensitivity import class_weights

ADVANTAGE = 0.02
"""Factor of DQN's outputs: a typical advantage, as a share of the clean input's margin."""
ADDED = ("seconds", "steps", "updates", "episodes", "queries")
"""Counters that a resumed training continues."""
PURPOSES = ("selection", "probes", "steps", "validation")
"""Queries and passes serve these purposes."""
FEWEST = 8
"""Correctly classified inputs that there must be."""
HELD_OUT, SET_ASIDE, MOST = 0.2, 0.1, 100
"""Shares of the inputs for the validation and for the choice of surrogates; how many of them are used at most."""
PROBES = 16
"""Random distortions of each input by which surrogates are chosen."""
CLOSE = 0.25
"""Their distance in budgets: an answer to a larger change says little about a gradient, since the model is not linear."""
Peer = Callable[[Tensor], Tensor]
"""Another attack: rows (n,) of the inputs to its queries (n,) until the first success, infinite for none."""


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
    """Steps of single slots that it may learn for; None for no such end, 0 to fit the prior alone."""
    slots: Count = 64
    """Episodes that run at once, or as many as there are inputs."""
    seed: int = 0
    """Of everything random."""


class Report(NamedTuple):
    """A point of the training curve."""

    stage: str
    """surrogates, prior or dqn."""
    values: dict[str, Any]
    """Figures at this point, by name."""


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
    """The rows of so many inputs by which surrogates are chosen: those before the ones of the validation."""
    last = count - held_out(count)
    return range(last - int(SET_ASIDE * count), last)


def not_met(model: Model, batch: Batch, criterion: Criterion, batch_size: int) -> Tensor:
    """(n,) bool: which inputs do not meet a criterion yet; one query each."""
    eot, flags = EOT(model), []
    with torch.no_grad():
        for rows in torch.split(torch.arange(len(batch), device=batch.x.device), batch_size):
            logits, part, y = eot.mean(batch.x[rows]), criterion.select(rows), batch.y[rows]
            flags.append(~part.is_met(part.margin(logits, y, batch.x[rows]), logits, y))
    return torch.cat(flags)


def train(
    model: Model,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    config: TrainConfig,
    *,
    batch_size: int = 128,
    tell: Callable[[Report], None] = lambda report: None,
    keep: Callable[[Agent], object] = lambda agent: None,
    start: Agent | None = None,
    candidates: Sequence[Candidate] = (),
    peers: Mapping[str, Attack] | None = None,
) -> Agent:
    """An agent that has learned on these correctly classified inputs, by the scores of the model alone.

    Prior and slots of the placement are those of the training. `tell` is called with points of the training curve, and `keep`
    with the agent as it is then. `start` is what an earlier training on the same inputs kept: its prior and surrogates are taken
    as they are, its network learns on, in fresh episodes, and its queries, steps and seconds count. Of the `candidates` those
    that explain the model's answers become surrogates. With the `peers` the agent is compared at the end.
    """
    if len(batch) < FEWEST:
        raise RequestError(f"{len(batch)} correctly classified inputs are too few to train on: give at least {FEWEST}")
    anything = replace(threat, eps=torch.full_like(threat.eps, torch.inf))
    ledger = Ledger(model, batch, anything, access=Access.SCORES, batch_size=batch_size, minimal=True)
    free = replace(threat, domain=ledger.threat.domain, criterion=ledger.threat.criterion)
    record = start.about or {} if start else {}
    agent = (start or Agent(prior=Prior(placement.grid.channels, config.seed))).to(batch.x.device)
    agent = replace(agent, domain=threat.domain)
    placement = replace(placement, prior=agent.prior, slots=min(config.slots, len(batch)))
    rng, costs = Streams.of(config.seed, batch.ids), _Costs(ledger, record)
    about: dict[str, Any] = {
        "config": asdict(config),
        "rules": asdict(placement.rules),
        "patch": list(placement.grid.patch),
        "distortions": sorted({type(variant.distortion).__name__ for variant in placement.variants}),
        "inputs": len(batch),
        "surrogates": list(record.get("surrogates", ())),
        "curve": list(record.get("curve", ())),
    }

    def now(purpose: str, validation: Any = None) -> Agent:
        costs.book(purpose)
        expenses = {"training_queries": dict(costs.queries), "surrogate_passes": dict(costs.passes), "validation": validation}
        return replace(agent, about=about | expenses)

    if candidates and not start:
        winner, about["surrogates"] = _choose(candidates, ledger, free, placement, rng.fold("selection"))
        agent = replace(agent, surrogates=winner)
        tell(Report("surrogates", {"trained": len(candidates), "kept": len(winner)}))
    costs.book("selection")
    if config.probes and not start:
        for report in _fit(agent.prior, ledger, placement, config, rng.fold("probes")):
            tell(report)
    costs.book("probes")
    last_point = about["curve"][-1] if about["curve"] else {}
    remaining = None if config.steps is None else config.steps - last_point.get("steps", 0)
    learning, rows = torch.arange(len(batch), device=batch.x.device).tensor_split([len(batch) - held_out(len(batch))])
    if remaining is None or remaining > 0:
        keep(now("steps"))
        if last_point:  # other episodes than those that were played
            rng = rng.fold(f"after {len(about['curve'])} reports")
        oracle = ledger.oracle().follow(agent.surrogates)
        subset = ledger.batch.select(learning), free.select(learning)
        environment = PatchSearch(oracle, *subset, placement, rng.select(learning), cycle=True)
        network = agent.network or PatchNetwork(pair_options(placement.variants), scale=ADVANTAGE, seed=config.seed)
        agent = replace(agent, network=network.to(batch.x.device))
        settings = DQNSettings(temperature=network.scale, warm_up=10 * placement.slots)
        trainer = DQN(settings, network, environment, config.seed + len(about["curve"]))
        for progress in trainer.learn(steps=remaining, seconds=config.seconds, interval=20 * placement.slots):
            point = {**progress, "queries": int(ledger.costs.forwards.sum())}
            point |= {name: point[name] + last_point.get(name, 0) for name in ADDED}
            about["curve"].append(point)
            tell(Report("dqn", point))
            keep(now("steps"))
    elif record.get("validation"):
        return now("steps", record["validation"])
    costs.book("steps")
    streams = Streams.of(config.seed, batch.ids).fold("validation").select(rows)
    attacked = batch.select(rows), threat.select(rows), streams, placement.rules.steps, costs
    rivals = {name: partial(_attack, attack, model, *attacked) for name, attack in (peers or {}).items()}
    subset = ledger.batch.select(rows), free.select(rows)
    return now("validation", validate(agent, ledger.oracle(), *subset, placement, streams, rivals))


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
    """The candidates whose gradients explain answers to probes of inputs set aside, and how well each of them does."""
    rows = torch.tensor(set_aside(len(ledger.batch))[:MOST], dtype=torch.int64, device=ledger.batch.x.device)
    batch, threat, rng = ledger.batch.select(rows), threat.select(rows), rng.select(rows)
    oracle = ledger.oracle().follow([candidate.network for candidate in candidates])
    logits = oracle.scores(batch.ids, batch.x)
    weights = class_weights(lambda values: threat.criterion.margin(values, batch.y, batch.x), logits, rng.fold("weights"))
    slopes, scale = oracle.slopes(batch.ids, batch.x, weights), CLOSE * threat.eps
    settings: dict[str, Any] = {"probes": PROBES, "group_size": len(placement.grid), "scale": scale, "slopes": slopes}
    probes = probe(oracle, batch, threat, placement.grid, placement.variants, rng, **settings)
    explained = [interval_of(column) for column in correlations(probes.effect, probes.prediction).unbind(1)]
    surrogates = tuple(candidate.network for candidate, (_, low) in zip(candidates, explained, strict=True) if low > 0)
    return surrogates, [
        {**candidate.facts, "correlation": correlation, "low": low, "kept": low > 0}
        for candidate, (correlation, low) in zip(candidates, explained, strict=True)
    ]


def correlations(effect: Tensor, prediction: Tensor) -> Tensor:
    """(n, surrogates): cosines of the effects (n, probes) and of what surrogates let expect (n, probes, surrogates)."""
    products = torch.einsum("np,nps->ns", effect, prediction)
    norms = effect.norm(dim=1)[:, None] * prediction.norm(dim=1)
    return torch.where(norms > 0, products / norms.clamp_min(1e-30), 0.0)


def interval_of(values: Tensor) -> tuple[float, float]:
    """The mean (n,) and the lower end of its normal interval, -1 for fewer than two values."""
    if len(values) < 2:
        return float(values.sum()), -1.0
    mean = float(values.mean())
    return mean, mean - deviations(CONFIDENCE) * float(values.std()) / math.sqrt(len(values))


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


def _attack(
    attack: Attack, model: Model, batch: Batch, threat: Threat, rng: Streams, budget: int, costs: _Costs, rows: Tensor
) -> Tensor:
    """(n,): queries of another attack until its first success on some rows, the one about the clean input included."""
    subset = replace(batch.select(rows), ids=torch.arange(len(rows), device=rows.device))
    ledger = Ledger(model, subset, threat.select(rows), access=attack.access, queries=budget, minimal=attack.family == "minimal")
    attack(ledger.oracle(), ledger.batch, ledger.threat, rng.select(rows))
    costs.queries["validation"] += int(ledger.costs.forwards.sum())
    return torch.where(ledger.fooled, 1.0 + ledger.best.first_success, torch.inf)


def validate(
    agent: Agent,
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    rng: Streams,
    peers: Mapping[str, Peer] | None = None,
) -> dict[str, Any] | None:
    """Play on the first `MOST` inputs, and say in JSON what came of it; None without inputs. The peers are named.

    Returns:
        `inputs`; `budget` in queries; `fooled`, how many inputs the agent fooled; `cause`, why it failed on most, empty where it
        did not; `queries`, the mean of each player; and `ratios`, the mean of the agent over that of each other player, with the
        ends of its 95 % interval over inputs.
    """
    if not len(batch):
        return None
    rows = torch.arange(min(MOST, len(batch)), device=batch.x.device)
    batch, threat, rng = batch.select(rows), threat.select(rows), rng.select(rows)
    players = {OWN: agent, GREEDY: find_agent(GREEDY)}
    usual = choose_policy(DEFAULT, threat.domain.kind).name
    players |= {} if usual == GREEDY else {DEFAULT: find_agent(usual)}
    players |= {} if agent.network is None else {"its prior": Agent(prior=agent.prior)}
    players |= {CONTROL: replace(agent, surrogates=())} if agent.surrogates else {}
    queries, played = {}, {}
    for name, player in players.items():
        start = replace(placement, rules=player.rules(placement.rules), prior=player.prior)
        following = oracle.follow(player.surrogates) if player.surrogates else oracle
        played[name] = outcomes = run_episodes(following, batch, threat, start, rng, player.policy(start.choices))
        queries[name] = (1 + torch.where(outcomes.success, outcomes.steps, start.rules.steps)).double().cpu().numpy()
    for name, peer in (peers or {}).items():
        queries[name] = peer(rows).double().clamp_max(1 + placement.rules.steps).cpu().numpy()
    ratios = {name: ratio(queries[OWN], costs) for name, costs in queries.items() if name != OWN}
    return {
        "inputs": len(batch),
        "budget": 1 + placement.rules.steps,
        "fooled": int(played[OWN].success.sum()),
        "cause": _cause(played[OWN], batch, threat, placement, rng),
        "queries": {name: float(costs.mean()) for name, costs in queries.items()},
        "ratios": {name: [value, *interval] for name, (value, interval) in ratios.items()},
    }


def _cause(
    outcomes: Outcomes, batch: Batch, threat: Threat, placement: Placement, rng: Streams
) -> Literal["", "strength", "eps", "queries"]:
    """Why episodes failed where most did: distortions that cannot fill the budget, a budget that was full, too few queries."""
    failed = ~outcomes.success
    if 2 * int(failed.sum()) <= len(failed):
        return ""
    rows = torch.arange(len(batch), device=batch.x.device)
    strongest = tuple(placement.variants[number] for number in wholes(placement.variants).tolist())
    inputs = DistortedInputs(len(batch), threat.domain, strongest, batch.x.device)
    inputs.put(rows, batch.x, rng.fold("filters"))
    sizes = [threat.distance.size(inputs.inputs(rows, torch.full_like(rows, index)) - batch.x) for index in range(len(strongest))]
    fills = torch.stack(sizes).amax(0) >= FULL * threat.eps
    if bool((fills[failed].float().mean() < 0.5).item()):
        return "strength"
    return "eps" if bool(((outcomes.size >= FULL * threat.eps)[failed].float().mean() > 0.5).item()) else "queries"
