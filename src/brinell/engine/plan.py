"""From a request to a plan: the stages that will run, those that cannot, and the largest cost.

No attack runs here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from brinell.core.class_names import check_unique
from brinell.core.contracts import (
    BringsSurrogates,
    ChoosesData,
    Dataset,
    TriesInputs,
    check_complete,
)
from brinell.core.criterion import WrittenCriterion
from brinell.core.domain import Domain
from brinell.core.eot import question_cost
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.core.threat import COUNTS, Distance, Threat
from brinell.engine.cascade import Stage, attacks_title, build_stages
from brinell.engine.class_counts import check_classes
from brinell.engine.criteria import (
    Targeting,
    attackable_samples,
    check_threshold,
    parse_reject_class,
    parse_targeting,
    resolve_threshold,
)
from brinell.engine.eps_grid import Budgets, BudgetsBySample, check_budgets, parse_eps
from brinell.engine.model_process import open_model
from brinell.engine.request import CASCADES_OF_COUNTS, Request
from brinell.engine.selection import Select, Selection, choose_samples, missing_class_notes
from brinell.engine.sources import build_source, open_data
from brinell.engine.spelling import expand_spec
from brinell.engine.surrogates import check_class_names, check_gradients, surrogate_notes
from brinell.engine.texts import norm_advice
from brinell.engine.waves import draw_waves
from brinell.models._answers import count_classes
from brinell.models._class_order import in_order_of
from brinell.models._content import model_copier

CLASS_NAMES = "class_names"
"""The option by which a spec of any model names its classes, in the order of the model's
answers."""
NO_EARLIER_ATTACK = "no attack before it can run, so it would be kept from every sample"
TRIAL_SAMPLES = 4
"""Number of samples on which an attack tests what it places."""
BATCHES = 4
"""Largest number of full batches in one group."""
GROUP_BYTES = 32 * 2**20
"""Approximate limit on the bytes of inputs in one group; the attack needs about ten times as
much."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model of the plan, built when its audit begins."""

    name: str
    spec: str
    open: Callable[[], Model]
    copy: Callable[[], Model]
    """Returns a copy of the model that has answered nothing of the audit; raises ModelError if
    there is none."""
    facts: dict[str, Any]
    """For the manifest: digest, architecture, parameters, classes, access."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Stage name to the reason why it cannot run on this model."""
    reject: int | None = None
    """The class by which it rejects inputs."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that determines a run's records."""

    request: Request
    dataset: Dataset
    data_digest: str
    selection: Selection
    """The requested samples; `ids` leaves out those of the target class."""
    ids: Array
    """(n,) int64, ascending: the samples, as positions in the data set."""
    labels: Array
    """(n,) int64: their labels."""
    targeting: Targeting | None
    """Rule for target classes; None if any wrong class counts."""
    threshold: WrittenCriterion | None
    """The criterion of probability; None if classes decide."""
    budgets: Budgets
    units: Array
    """(n,) float64: unit of each sample's budgets: 1, or its recommended eps."""
    recommended: dict[str, Any] | None
    """Source of recommended budgets, for the manifest."""
    distance: Distance
    stages: tuple[Stage, ...]
    models: tuple[ModelSource, ...]
    notes: tuple[str, ...] = ()
    """Notes on unusual budgets or labels, which the run prints."""
    surrogates: tuple[ModelSource, ...] = ()
    """The networks whose gradients some stages follow."""
    brought: tuple[ModelSource, ...] = ()
    """The surrogates of policy files, each of which only the stages of its file follow."""
    device: torch.device
    waves: Array | None = None
    """(n,) int64: the wave in which each sample is attacked; None for a run of one wave."""
    whole: Array | None = None
    """The ids of all waves, where `ids` are those of the first ones."""
    grows: bool = False
    """True where further waves may follow, to which the checks of the end are left."""

    @property
    def all_ids(self) -> Array:
        """The samples of all waves."""
        return self.ids if self.whole is None else self.whole

    @property
    def wave_positions(self) -> list[Array]:
        """The positions of the samples of each wave, in order; all at once without waves."""
        if self.waves is None:
            return [np.arange(len(self.ids))]
        return [np.flatnonzero(self.waves == wave) for wave in np.unique(self.waves)]

    def first_waves(self, count: int, *, grows: bool = False) -> "Plan":
        """The plan of the samples of the first waves; it `grows` where others may follow."""
        assert self.waves is not None
        rows = self.waves < count
        return replace(
            self,
            ids=self.ids[rows],
            labels=self.labels[rows],
            units=self.units[rows],
            waves=self.waves[rows],
            whole=self.all_ids,
            grows=grows,
        )

    @property
    def levels(self) -> Array:
        """(levels,) float64: the positive budgets; eps 0 is the first check."""
        return np.array([value for value in self.budgets.values if value > 0])

    @property
    def group_size(self) -> int:
        """Samples per group: a few full batches, within the memory allowed."""
        size = 4 * int(np.prod(self.dataset.domain.shape))  # bytes of an input in float32
        return max(1, min(BATCHES * self.request.batch_size, GROUP_BYTES // size))

    @property
    def attacks_title(self) -> str:
        """Readable name of the attacks."""
        return attacks_title(self.request.attack, self.stages)

    @property
    def eot(self) -> int:
        """Number of answers that the clean check averages: the largest eot of the stages without a
        condition.
        """
        return max((stage.eot for stage in self.stages if not stage.waits), default=1)

    def cost(self, model: ModelSource, stage: Stage) -> tuple[int, int]:
        """Largest number of forwards and backwards of a stage: all samples, all budgets above 0."""
        if stage.name in model.skipped or not len(self.levels):
            return 0, 0
        forwards, backwards = self.cost_once(model, stage)
        runs = len(self.ids)
        if stage.attack.family != "minimal":
            runs *= len(self.levels)
            if len(self.levels) > 1:  # the examples are shrunk by bisection over the levels
                forwards += stage.eot * int(np.ceil(np.log2(len(self.levels) + 1)))
        return runs * forwards, runs * backwards

    def cost_once(self, model: ModelSource, stage: Stage) -> tuple[int, int]:
        """Largest number of forwards and backwards of a stage on one sample at one budget."""
        forwards, backwards = stage.attack.cost(model.facts["classes"])
        # In TF32 a gradient may be computed a second time.
        if self.request.precision != "float32":
            repeated = min(forwards, backwards)
            forwards += repeated
            backwards += repeated
        most = self.request.queries or math.inf
        return int(min(stage.eot * forwards, most)), stage.eot * backwards


def make_plan(
    request: Request,
    *,
    dataset: Dataset | None = None,
    models: tuple[Model, ...] = (),
    recommended: BudgetsBySample | None = None,
) -> Plan:
    """Resolve a request; raise for anything that does not fit before any computation.

    Data and models in memory take the place of those that the request names, and `recommended`
    budgets of its eps.
    """
    stages = _stages_of(request)
    distance = open_distance(request.norm)
    device = choose_device(request.device)
    dataset = open_data(request.data) if dataset is None else dataset
    eps = request.eps or usual_eps(dataset.domain, distance.name)
    request = request.model_copy(update={"eps": eps})
    _check_domain(dataset.domain, distance, stages)

    # The samples, the budget of each, and what counts as a success.
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    classes = tuple(dataset.classes)
    selection = select_samples(request, dataset)
    target = parse_targeting(request.targeted, classes)
    threshold = resolve_threshold(request, classes)
    ids = selection.ids[attackable_samples(labels[selection.ids], target, threshold)]
    unreadable = unreadable_samples(dataset, ids.tolist())  # some fail one by one, all are refused
    budgets, units, provenance = recommended or BudgetsBySample(
        parse_eps(str(eps)), np.ones(len(labels)), provenance=None
    )
    if recommended is None:
        check_budgets(budgets, distance, dataset.domain)

    # The networks: those whose gradients are followed, then those under test.
    surrogates = tuple(
        _surrogate_source(spec, model_opener(spec, dataset)) for spec in request.surrogate
    )
    for source in surrogates:
        check_gradients(source.open())
    brought = _brought_surrogates(stages, dataset)
    notes = missing_class_notes(labels[selection.ids], classes)
    readable = [sample for sample in ids.tolist() if sample not in unreadable]
    largest = max(budgets.values) * float(np.median(units[ids]))
    notes += _input_notes(stages, dataset, readable, distance, largest)
    sources = _model_sources(request, dataset, models, distance, stages)
    _check_criterion(sources, target, threshold)
    # Data may name fewer classes than they have labels, or none.
    notes += _reject_notes(sources, max(len(classes), int(labels.max(initial=0)) + 1))
    notes += surrogate_notes((*surrogates, *brought), sources)
    if request.until is not None and len(sources) > 1:
        raise RequestError(
            f"{option('until')} ends the audit of one model, and {len(sources)} are named: audit "
            "each by itself"
        )

    return Plan(
        request=request,
        dataset=dataset,
        data_digest=dataset.digest(),
        selection=selection,
        ids=ids,
        labels=labels[ids],
        targeting=target,
        threshold=threshold,
        budgets=budgets,
        units=units[ids],
        recommended=provenance,
        distance=distance,
        stages=stages,
        models=sources,
        surrogates=surrogates,
        brought=brought,
        notes=tuple(notes),
        device=device,
        waves=None if request.until is None else draw_waves(ids, request.seed),
    )


def _stages_of(request: Request) -> tuple[Stage, ...]:
    """The stages of a request, without those that follow surrogates where it names none."""
    stages = build_stages(request.attack)
    followers = [stage.name for stage in stages if stage.gradient == "surrogate"]
    requested = [name for name in followers if name in request.attack]
    if requested and not request.surrogate:
        raise RequestError(
            f"attack {requested[0]} follows a surrogate, and none is named: add "
            f"{option('surrogate', 'MODEL')}"
        )
    if request.surrogate and not any(stage.follows_surrogates for stage in stages):
        raise RequestError(
            f"{option('surrogate')} is named, and no attack follows it: ask for "
            f"{option('attack', 'rlab')} or "
            f"{option('attack', 'fast')}, or write ?gradient=surrogate behind an attack"
        )

    if not request.surrogate:
        stages = tuple(stage for stage in stages if stage.gradient != "surrogate")
    for stage in stages:
        least = question_cost(stage.eot, request.precision)
        if request.queries is not None and request.queries < least:
            raise RequestError(
                f"queries is {request.queries}, and {stage.name} spends {least} "
                "on one question: allow as many or more"
            )
    return stages


def _check_domain(domain: Domain, distance: Distance, stages: tuple[Stage, ...]) -> None:
    """Refuse data that the settings of the distance or of an attack do not fit."""
    if isinstance(distance, ChoosesData):
        distance.check(domain)
    for stage in stages:
        if isinstance(stage.attack, ChoosesData) and domain.kind in stage.attack.domains:
            stage.attack.check(domain.free)


def _check_criterion(
    sources: tuple[ModelSource, ...],
    target: Targeting | None,
    threshold: WrittenCriterion | None,
) -> None:
    """Refuse a target class or a criterion that a model does not know."""
    for source in sources:
        classes = source.facts["classes"]
        if target is not None:
            target.check(source.name, classes)
        if threshold is not None:
            check_threshold(threshold, source.name, classes, source.facts["access"])


def _reject_notes(sources: tuple[ModelSource, ...], classes: int) -> list[str]:
    """Notes on models with one class more than the data, by which they may reject inputs."""
    return [
        f"{source.name} tells {classes + 1} classes apart, and the data has "
        f"{classes}: if it rejects inputs by class {classes}, add "
        f"{option('reject_class', str(classes))}, and such an input is no success"
        for source in sources
        if source.reject is None and classes > 1 and source.facts["classes"] == classes + 1
    ]


def _input_notes(
    stages: tuple[Stage, ...], dataset: Dataset, readable: list[int], distance: Distance, eps: float
) -> list[str]:
    """Notes of the attacks that are tried on a few real inputs."""
    trying = [
        stage.attack
        for stage in stages
        if isinstance(stage.attack, TriesInputs)
        and dataset.domain.kind in stage.attack.domains
        and distance.name in stage.attack.distances
    ]
    if not trying:
        return []

    samples = readable[:: max(1, len(readable) // TRIAL_SAMPLES)][:TRIAL_SAMPLES]
    x = dataset.domain.part(dataset.load(samples))
    threat = Threat(distance=distance, eps=torch.full((len(x),), eps), domain=dataset.domain.free)
    return [line for attack in trying for line in attack.try_on(x, threat)]


def _surrogate_source(spec: str, opener: Callable[[], Model]) -> ModelSource:
    model: Model = check_complete(Model, opener())
    return ModelSource(
        name=model.name, spec=spec, open=opener, copy=opener, facts=model_facts(model)
    )


def _brought_surrogates(stages: tuple[Stage, ...], dataset: Dataset) -> tuple[ModelSource, ...]:
    """The surrogates that the attacks bring with them, each once."""
    sources: dict[str, ModelSource] = {}
    for attack in (stage.attack for stage in stages):
        for model in attack.surrogates() if isinstance(attack, BringsSurrogates) else ():
            check_class_names(model, tuple(dataset.classes), dataset.name)
            source = _surrogate_source(spec="", opener=_constant_opener(model))
            sources[source.facts["digest"]] = source
    return tuple(sources.values())


def select_samples(request: Request, dataset: Dataset) -> Selection:
    """The samples of an audit.

    Recommended budgets are known of the first ones, which are taken unless the request says how.
    """
    default: Select = "first" if str(request.eps).startswith("recommended") else "stratified"
    return choose_samples(request.samples, request.seed, dataset, default=default)


def usual_eps(domain: Domain, distance: str) -> str:
    """The field's usual budgets: up to 8/255 or 0.2 in Linf, up to 1 in L2, in eight steps; other
    data have none.
    """
    is_usual = domain.kind == "image" and (domain.low, domain.high) == (0.0, 1.0)
    if not is_usual or distance not in ("linf", "l2"):
        example = f"0:20:5 (numbers of {COUNTS[distance]})" if distance in COUNTS else "0:0.1:9"
        raise RequestError(
            f"there is no usual eps for {domain.kind} data in {distance}: give "
            f"{option('eps')}, such as {example}"
        )

    if distance == "l2":
        return "0:1:9"
    return "0:8/255:9" if domain.levels == 256 else "0:0.2:9"


def open_distance(spec: str) -> Distance:
    """The distance that a spec names, such as l2 or embedding:FILE."""
    distance: Distance = build_source("distance", spec)
    return distance


def unreadable_samples(dataset: Dataset, ids: Sequence[int]) -> Mapping[int, str]:
    """Reasons of the samples that cannot be read, by id; raises RequestError if none can."""
    unreadable = dataset.info.unreadable(ids)
    if len(ids) and len(unreadable) == len(ids):
        reason = next(iter(unreadable.values()))
        raise RequestError(
            f"none of the {len(ids)} samples of {dataset.name} can be read; the first: {reason}"
        )
    return unreadable


def choose_device(name: str) -> torch.device:
    """The device of this name; auto takes a GPU if there is one."""
    has_cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if has_cuda else "cpu")

    # A device may exist by its name alone, so something is computed there.
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count() * has_cuda)]
        devices = ", ".join(["cpu", *gpus, *["mps"] * torch.backends.mps.is_available()])
        raise RequestError(
            f"device {name!r} cannot be used ({reason}): choose {devices}, or auto"
        ) from None
    return device


def model_opener(spec: str, dataset: Dataset) -> Callable[[], Model]:
    """Return a function that opens the model a spec names; `engine.answers.with_logits` turns its
    answers into logits.
    """
    spec, class_names = split_class_names(expand_spec("model", spec))

    def open_named() -> Model:
        model = open_model(spec, dataset.domain, len(dataset.classes) or None)
        return in_order_of(model, dataset, class_names)

    return open_named


def _constant_opener(model: Model) -> Callable[[], Model]:
    return lambda: model


def _model_sources(
    request: Request,
    dataset: Dataset,
    models: tuple[Model, ...],
    distance: Distance,
    stages: tuple[Stage, ...],
) -> tuple[ModelSource, ...]:
    """The models under test: those in memory, or those that the request names."""
    # The spec, how a model is opened, and how it is copied; an object in memory has no spec.
    openers = [("", _constant_opener(model), model_copier(model)) for model in models]
    for spec in () if models else request.model:
        opener = model_opener(spec, dataset)
        openers.append((spec, opener, opener))

    sources = [_source_of(*entry, request, dataset, distance, stages) for entry in openers]
    check_names([source.name for source in sources])
    return tuple(sources)


def _source_of(
    spec: str,
    opener: Callable[[], Model],
    copy: Callable[[], Model],
    request: Request,
    dataset: Dataset,
    distance: Distance,
    stages: tuple[Stage, ...],
) -> ModelSource:
    """A model under test, which fits the labels of the data, with the stages that it skips."""
    model: Model = check_complete(Model, opener())
    check_classes(model, np.asarray(dataset.labels(), dtype=np.int64), dataset)
    facts = model_facts(model)
    is_targeted = request.targeted is not None
    skipped = _skipped_stages(model, stages, distance, targeted=is_targeted)
    reject = parse_reject_class(
        request.reject_class,
        tuple(dataset.classes),
        facts["classes"],
        targeted=is_targeted,
    )

    if reject is not None:
        facts["reject_class"] = reject
    return ModelSource(
        name=model.name,
        spec=spec,
        open=opener,
        copy=copy,
        facts=facts,
        skipped=skipped,
        reject=reject,
    )


def _skipped_stages(
    model: Model, stages: tuple[Stage, ...], distance: Distance, *, targeted: bool
) -> dict[str, str]:
    """The stages that cannot run on a model, by name, each with the reason; all are refused."""
    skipped: dict[str, str] = {}
    for number, stage in enumerate(stages):
        reason = skip_reason(stage, model, distance, targeted=targeted)
        is_refining = (stage.turn.within, stage.turn.last) != (None, None)
        # All stages before it are skipped.
        if not reason and is_refining and len(skipped) == number:
            reason = NO_EARLIER_ATTACK
        if reason:
            skipped[stage.name] = reason

    if len(skipped) == len(stages):
        raise RequestError(_no_stage_message(stages, skipped, model, distance))
    return skipped


def split_class_names(spec: str) -> tuple[str, tuple[str, ...]]:
    """A model's spec without the option `class_names`, which every model takes, and the names that
    it states.
    """
    body, _, query = spec.partition("?")
    pairs = query.split("&")
    stated = [pair.partition("=")[2] for pair in pairs if pair.startswith(f"{CLASS_NAMES}=")]
    if not stated:
        return spec, ()

    if len(stated) > 1 or not stated[0]:
        raise RequestError(
            f"{spec!r} names its classes "
            f"{'twice' if stated[0] else 'by nothing'}: write "
            f"{CLASS_NAMES}=NAME+NAME"
        )
    names = tuple(stated[0].split("+"))
    check_unique(names, f"the option {CLASS_NAMES}=")
    options = "&".join(pair for pair in pairs if not pair.startswith(f"{CLASS_NAMES}="))
    return f"{body}?{options}" if options else body, names


def model_facts(model: Model) -> dict[str, Any]:
    """Facts about a model, for the manifest."""
    info = model.info
    return {
        "digest": model.digest(),
        "architecture": info.architecture,
        "parameters": info.parameters,
        "classes": count_classes(model),
        "access": model.access.name.lower(),
        "notes": list(info.notes),
        **({"class_order": list(info.class_order)} if info.class_order else {}),
        **({"served": dict(info.server.served)} if info.server else {}),
    }


def _no_stage_message(
    stages: tuple[Stage, ...], skipped: dict[str, str], model: Model, distance: Distance
) -> str:
    """The error about a model that no stage fits: the reasons, and what would fit."""
    cascade = CASCADES_OF_COUNTS.get(distance.name)
    if cascade and not any(distance.name in stage.attack.distances for stage in stages):
        return (
            f"none of the attacks that are named works in {distance.name}: ask for "
            f"{option('attack', cascade)}"
        )

    reasons = {
        reason: [name for name in skipped if skipped[name] == reason] for reason in skipped.values()
    }
    listing = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    line = f"no attack can run on {model.name} ({listing})"

    is_blind = any(stage.attack.access > model.access for stage in stages)
    if not is_blind:
        distances = set[str]()
        for stage in stages:
            if distance.name not in stage.attack.distances:
                distances |= stage.attack.distances
        return f"{line}{norm_advice(distances)}"
    if model.access == Access.LABELS:
        return f"{line}: ask for {option('attack', 'hop-skip-jump')}, which needs labels only"

    line += f": ask for {option('attack', 'black-box')}, which needs scores only"
    if model.info.gradients:
        line += f", or name the model as {model.info.gradients} for attacks by gradients"
    return line


def skip_reason(stage: Stage, model: Model, distance: Distance, *, targeted: bool = False) -> str:
    """Reason why a stage cannot run on a model; empty if it can."""
    attack = stage.attack
    if stage.gradient != "surrogate" and attack.access > model.access:
        return (
            f"it needs {attack.access.name.lower()}, and the model gives "
            f"{model.access.name.lower()} only"
        )

    if targeted and not attack.targeted:
        return "it cannot be led to a target class"
    if distance.name not in attack.distances:
        return f"it works in {', '.join(sorted(attack.distances))}, not in {distance.name}"
    if model.domain.kind not in attack.domains:
        return (
            f"it works on {', '.join(sorted(attack.domains))} inputs, not on a {model.domain.kind}"
        )
    return ""


def check_names(names: Sequence[str]) -> None:
    """Raise RequestError if two models have the same name."""
    for name in names:
        if names.count(name) > 1:
            raise RequestError(
                f"two models are called {name!r}: give one of them another name "
                "with the option name="
            )
