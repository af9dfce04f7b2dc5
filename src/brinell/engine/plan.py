"""From a request to a plan: the stages that will run, those that cannot, and the largest cost.

No attack runs here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from brinell.core.class_names import check_unique
from brinell.core.contracts import (
    BringsSurrogates,
    ChoosesData,
    Dataset,
    KnowsClasses,
    TriesInputs,
    check_complete,
)
from brinell.core.criterion import WrittenCriterion
from brinell.core.domain import Domain
from brinell.core.eot import question_cost
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.core.threat import Distance, Threat
from brinell.engine.cascade import Stage, attacks_title, build_stages
from brinell.engine.class_counts import check_classes
from brinell.engine.eps_grid import Budgets, SampleBudgets, check_budgets, parse_eps
from brinell.engine.request import Request
from brinell.engine.selection import Select, Selection, choose_samples, missing_class_notes
from brinell.engine.sources import build_source, open_data
from brinell.engine.spelling import expand_spec
from brinell.engine.surrogates import check_class_names, check_gradients, surrogate_notes
from brinell.engine.targeting import (
    Targeting,
    attackable_samples,
    parse_reject_class,
    parse_targeting,
)
from brinell.engine.texts import norm_advice
from brinell.engine.thresholds import check_threshold, resolve_threshold
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
    skipped: dict[str, str]
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

    @property
    def levels(self) -> Array:
        """(levels,) float64: the positive budgets; eps 0 is the first check."""
        return np.array([value for value in self.budgets.values if value > 0])

    @property
    def group_size(self) -> int:
        """Samples per group: a few full batches, within the memory allowed."""
        size = 4 * int(np.prod(self.dataset.domain.shape))
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
        """Largest number of forwards and backwards of a stage: all samples at all budgets."""
        if stage.name in model.skipped:
            return 0, 0
        forwards, backwards = self.cost_once(model, stage)
        runs = 1 if stage.attack.family == "minimal" else len(self.levels)
        shrinking = stage.eot * int(np.ceil(np.log2(len(self.levels) + 1))) if runs > 1 else 0
        return len(self.ids) * runs * (forwards + shrinking), len(self.ids) * runs * backwards

    def cost_once(self, model: ModelSource, stage: Stage) -> tuple[int, int]:
        """Largest number of forwards and backwards of a stage on one sample at one budget."""
        forwards, backwards = (
            stage.eot * passes for passes in stage.attack.cost(model.facts["classes"])
        )
        repeated = min(forwards, backwards) if self.request.precision != "float32" else 0
        forwards, backwards = forwards + repeated, backwards + repeated
        return forwards if self.request.queries is None else min(
            forwards, self.request.queries
        ), backwards


def make_plan(
    request: Request,
    *,
    dataset: Dataset | None = None,
    models: tuple[Model, ...] = (),
    recommended: SampleBudgets | None = None,
) -> Plan:
    """Resolve a request; raise for anything that does not fit before any computation.

    Data and models in memory take the place of those that the request names, and `recommended`
    budgets of its eps.
    """
    stages = _drop_unused_surrogates(build_stages(request.attack), request)
    for stage in stages:
        minimum = question_cost(stage.eot, request.precision)
        if request.queries is not None and request.queries < minimum:
            raise RequestError(
                f"queries is {request.queries}, and {stage.name} spends {minimum} "
                "on one question: allow as many or more"
            )
    distance = open_distance(request.norm)
    device = choose_device(request.device)
    dataset = open_data(request.data) if dataset is None else dataset
    request = request.model_copy(
        update={"eps": request.eps or usual_eps(dataset.domain, distance.name)}
    )
    if isinstance(distance, ChoosesData):
        distance.check(dataset.domain)
    for stage in stages:
        if isinstance(stage.attack, ChoosesData) and dataset.domain.kind in stage.attack.domains:
            stage.attack.check(dataset.domain.free)
    labels, classes = np.asarray(dataset.labels(), dtype=np.int64), tuple(dataset.classes)
    selection = select_samples(request, dataset)
    target, threshold = (
        parse_targeting(request.targeted, classes),
        resolve_threshold(request, classes),
    )
    ids = selection.ids[attackable_samples(labels[selection.ids], target, threshold)]
    unreadable = unreadable_samples(
        dataset, ids.tolist()
    )  # refused if none is readable; others fail one by one
    budgets, units, provenance = recommended or SampleBudgets(
        parse_eps(str(request.eps)), np.ones(len(labels)), None
    )
    surrogates = tuple(
        _surrogate_source(spec, model_opener(spec, dataset)) for spec in request.surrogate
    )
    for source in surrogates:
        check_gradients(source.open())
    brought = _brought_surrogates(stages, dataset)
    if recommended is None:
        check_budgets(budgets, distance, dataset.domain)
    openers = (
        [
            (spec, opener, opener)
            for spec in request.model
            for opener in [model_opener(spec, dataset)]
        ]
        if not models
        else [("", _constant_opener(model), model_copier(model)) for model in models]
    )
    notes = missing_class_notes(labels[selection.ids], classes)
    readable = [sample for sample in ids.tolist() if sample not in unreadable]
    notes += _input_notes(
        stages, dataset, readable, distance, max(budgets.values) * float(np.median(units[ids]))
    )
    shared = distance, stages, target is not None
    sources = tuple(
        _make_source(spec, opener, copy, dataset, *shared, request)
        for spec, opener, copy in openers
    )
    check_names([source.name for source in sources])
    count = max(len(classes), int(labels.max(initial=0)) + 1)
    notes += [
        f"{source.name} tells {count + 1} classes apart, and the data has "
        f"{count}: if it rejects inputs by class {count}, add "
        f"{option('reject_class', str(count))}, and such an input is no success"
        for source in sources
        if source.reject is None and count > 1 and source.facts["classes"] == count + 1
    ]
    notes += surrogate_notes(
        *(
            [(entry.name, entry.facts) for entry in part]
            for part in ((*surrogates, *brought), sources)
        )
    )
    if target is not None:
        for source in sources:
            target.check(source.name, source.facts["classes"])
    if threshold is not None:
        for source in sources:
            check_threshold(threshold, source.name, source.facts["classes"], source.facts["access"])
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
    )


def _input_notes(
    stages: tuple[Stage, ...], dataset: Dataset, readable: list[int], distance: Distance, eps: float
) -> list[str]:
    attacks = [stage.attack for stage in stages if dataset.domain.kind in stage.attack.domains]
    trying = [
        attack
        for attack in attacks
        if isinstance(attack, TriesInputs) and distance.name in attack.distances
    ]
    if not trying:
        return []
    samples = readable[:: max(1, len(readable) // TRIAL_SAMPLES)][:TRIAL_SAMPLES]
    x = dataset.domain.part(dataset.load(samples))
    threat = Threat(distance=distance, eps=torch.full((len(x),), eps), domain=dataset.domain.free)
    return [line for attack in trying for line in attack.try_on(x, threat)]


def _drop_unused_surrogates(stages: tuple[Stage, ...], request: Request) -> tuple[Stage, ...]:
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
    return tuple(stage for stage in stages if stage.gradient != "surrogate" or request.surrogate)


def _surrogate_source(spec: str, opener: Callable[[], Model]) -> ModelSource:
    model: Model = check_complete(Model, opener())
    return ModelSource(
        name=model.name, spec=spec, open=opener, copy=opener, facts=model_facts(model), skipped={}
    )


def _brought_surrogates(stages: tuple[Stage, ...], dataset: Dataset) -> tuple[ModelSource, ...]:
    """The surrogates that the attacks bring with them, each once."""
    sources: dict[str, ModelSource] = {}
    for attack in (stage.attack for stage in stages):
        for model in attack.surrogates() if isinstance(attack, BringsSurrogates) else ():
            check_class_names(model, tuple(dataset.classes), dataset.name)
            source = _surrogate_source("", _constant_opener(model))
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
    if (
        domain.kind != "image"
        or (domain.low, domain.high) != (0.0, 1.0)
        or distance not in ("linf", "l2")
    ):
        example = "0:20:5 (numbers of values)" if distance == "l0" else "0:0.1:9"
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
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        gpus = [
            f"cuda:{number}"
            for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
        ]
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
    plugin = build_source("model", spec)

    def open_model() -> Model:
        model: Model = (
            plugin.open_for(dataset.domain, len(dataset.classes) or None)
            if isinstance(plugin, KnowsClasses)
            else plugin(dataset.domain)
        )
        return in_order_of(model, dataset, class_names)

    return open_model


def _constant_opener(model: Model) -> Callable[[], Model]:
    return lambda: model


def _make_source(
    spec: str,
    opener: Callable[[], Model],
    copy: Callable[[], Model],
    dataset: Dataset,
    distance: Distance,
    stages: tuple[Stage, ...],
    targeted: bool,
    request: Request,
) -> ModelSource:
    model: Model = check_complete(Model, opener())
    check_classes(model, np.asarray(dataset.labels(), dtype=np.int64), dataset)
    facts = model_facts(model)
    skipped: dict[str, str] = {}
    for stage in stages:
        is_first = (stage.turn.within, stage.turn.last) != (None, None) and len(
            skipped
        ) == stages.index(stage)
        if reason := skip_reason(stage, model, distance, targeted=targeted) or (
            NO_EARLIER_ATTACK if is_first else ""
        ):
            skipped[stage.name] = reason
    if len(skipped) == len(stages):
        raise RequestError(_no_stage_message(stages, skipped, model, distance))
    reject = parse_reject_class(
        request.reject_class, tuple(dataset.classes), facts["classes"], targeted
    )
    facts |= {} if reject is None else {"reject_class": reject}
    return ModelSource(
        name=model.name,
        spec=spec,
        open=opener,
        copy=copy,
        facts=facts,
        skipped=skipped,
        reject=reject,
    )


def split_class_names(spec: str) -> tuple[str, tuple[str, ...]]:
    """A model's spec without the option `class_names`, which every model takes, and the names that
    it states.
    """
    body, mark, query = spec.partition("?")
    pairs = query.split("&") if mark else []
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
    reasons = {
        reason: [name for name in skipped if skipped[name] == reason] for reason in skipped.values()
    }
    listing = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    line = f"no attack can run on {model.name} ({listing})"
    blind = model.access < Access.GRADIENTS and any(
        stage.attack.access > model.access for stage in stages
    )
    if not blind:
        distances = [
            stage.attack.distances
            for stage in stages
            if distance.name not in stage.attack.distances
        ]
        return f"{line}{norm_advice({name for names in distances for name in names})}"
    if model.access == Access.LABELS:
        return f"{line}: ask for {option('attack', 'hop-skip-jump')}, which needs labels only"
    alternative = (
        f", or name the model as {model.info.gradients} for attacks by gradients"
        if model.info.gradients
        else ""
    )
    return f"{line}: ask for {option('attack', 'black-box')}, which needs scores only{alternative}"


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
