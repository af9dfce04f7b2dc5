"""From a request to a plan: everything that will run, everything that cannot, and what it costs at most. No attack runs here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from brinell import plugins
from brinell.core.contracts import ChoosesData, Dataset, TriesInputs, complete
from brinell.core.domain import Domain
from brinell.core.eot import Precision, question_cost
from brinell.core.errors import ModelError, RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.core.threat import Distance
from brinell.engine.cascade import Stage, build_stages, called
from brinell.engine.eps_grid import Budgets, SampleBudgets, doubts, parse_eps
from brinell.engine.request import IN_MEMORY, Request
from brinell.engine.selection import Selection, choose, missing
from brinell.engine.spelling import spelled
from brinell.engine.targeting import Targeting, others, reject_class, targeting
from brinell.models._answers import classes_of

ALONE = "no attack before it can run, so it would be kept from every sample"
TRIED = 4
"""Samples on which an attack tries what it places."""
BATCHES = 4
"""Full batches that one shard may hold."""
GROUP_BYTES = 32 * 2**20
"""About how much input one shard may hold; its attack needs some ten times that."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model of the plan, built when its turn comes."""

    name: str
    spec: str
    open: Callable[[], Model]
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
    """The samples that were asked for; those of the target class itself are left out of `ids`."""
    ids: Array
    """(n,) int64, ascending: the samples, as positions in the data set."""
    labels: Array
    """(n,) int64: their labels."""
    targeting: Targeting | None
    """How target classes are chosen; None where any wrong class counts."""
    budgets: Budgets
    units: Array
    """(n,) float64: what the budgets of each sample are multiples of: 1, or its recommended eps."""
    recommended: dict[str, Any] | None
    """For the manifest, where budgets were recommended: how."""
    distance: Distance
    stages: tuple[Stage, ...]
    models: tuple[ModelSource, ...]
    doubts: tuple[str, ...] = ()
    """What is odd about budgets or labels, each in a line that the run prints."""
    surrogate: ModelSource | None = None
    """The model whose gradients some stages follow."""
    device: torch.device

    @property
    def levels(self) -> Array:
        """(levels,) float64: the positive budgets; eps 0 is the first check."""
        return np.array([value for value in self.budgets.values if value > 0])

    @property
    def group_size(self) -> int:
        """Samples per shard: a few full batches, within the memory allowed."""
        size = 4 * int(np.prod(self.dataset.domain.shape))
        return max(1, min(BATCHES * self.request.batch_size, GROUP_BYTES // size))

    @property
    def called(self) -> str:
        """What people call the attacks."""
        return called(self.request.attack, self.stages)

    @property
    def eot(self) -> int:
        """Evaluations by whose mean the first check judges an input: as many as the stage that takes most."""
        return max((stage.eot for stage in self.stages if not stage.waits), default=1)

    def cost(self, model: ModelSource, stage: Stage) -> tuple[int, int]:
        """The most forwards and backwards that a stage can cost: every budget fought to the end on every sample."""
        if stage.name in model.skipped:
            return 0, 0
        forwards, backwards = self.cost_once(model, stage)
        runs = 1 if stage.attack.family == "minimal" else len(self.levels)
        shrinking = stage.eot * int(np.ceil(np.log2(len(self.levels) + 1))) if runs > 1 else 0
        return len(self.ids) * runs * (forwards + shrinking), len(self.ids) * runs * backwards

    def cost_once(self, model: ModelSource, stage: Stage) -> tuple[int, int]:
        """The most forwards and backwards that a stage can cost on one sample at one budget."""
        forwards, backwards = (stage.eot * passes for passes in stage.attack.cost(model.facts["classes"]))
        again = min(forwards, backwards) if self.request.precision != "float32" else 0
        forwards, backwards = forwards + again, backwards + again
        return forwards if self.request.queries is None else min(forwards, self.request.queries), backwards


def make_plan(
    request: Request, *, dataset: Dataset | None = None, models: tuple[Model, ...] = (), recommended: SampleBudgets | None = None
) -> Plan:
    """Resolve a request, naming whatever does not fit before anything is computed.

    Args:
        request: what is asked for.
        dataset: data already in memory, in place of `request.data`.
        models: models already in memory, in place of `request.model`.
        recommended: each sample's own budgets, where `request.eps` names them instead of giving numbers.

    Raises:
        RequestError: any part that cannot be carried out.
    """
    stages = _following(build_stages(request.attack, isolate=request.isolate), request)
    for stage in stages:
        _check_queries(stage, request)
    distance = open_distance(request.norm)
    device = choose_device(request.device)
    dataset = open_data(request.data) if dataset is None else dataset
    request = request.model_copy(update={"eps": request.eps or usual_eps(dataset.domain, distance.name)})
    if isinstance(distance, ChoosesData):
        distance.check(dataset.domain)
    for stage in stages:
        if isinstance(stage.attack, ChoosesData) and dataset.domain.kind in stage.attack.domains:
            stage.attack.check(dataset.domain.free)
    labels, classes = np.asarray(dataset.labels(), dtype=np.int64), tuple(dataset.classes)
    selection = select(request, dataset)
    towards = targeting(request.targeted, classes)
    ids = selection.ids[others(labels[selection.ids], towards)]
    lost = gaps(dataset, ids.tolist())  # refused here where nothing can be read; the others fail one by one
    budgets, units, about = recommended or SampleBudgets(parse_eps(str(request.eps)), np.ones(len(labels)), None)
    surrogate = None if request.surrogate is None else _surrogate(request.surrogate, dataset)
    odd = [] if recommended is not None else doubts(budgets, distance, dataset.domain)
    openers = [(spec, opener_of(spec, dataset)) for spec in request.model] if not models else [("", _given(t)) for t in models]
    odd += missing(labels[selection.ids], labels, classes)
    odd += _tried(stages, dataset, [sample for sample in ids.tolist() if sample not in lost])
    fixed = labels, classes, distance, stages, request.precision, towards is not None
    sources = tuple(_describe(spec, opener, *fixed) for spec, opener in openers)
    sources = tuple(_rejecting(source, request, classes) for source in sources)
    check_names([source.name for source in sources])
    if towards is not None:
        for source in sources:
            towards.check(source.name, source.facts["classes"])
    return Plan(
        request=request,
        dataset=dataset,
        data_digest=dataset.digest(),
        selection=selection,
        ids=ids,
        labels=labels[ids],
        targeting=towards,
        budgets=budgets,
        units=units[ids],
        recommended=about,
        distance=distance,
        stages=stages,
        models=sources,
        surrogate=surrogate,
        doubts=tuple(odd),
        device=device,
    )


def _tried(stages: tuple[Stage, ...], dataset: Dataset, readable: list[int]) -> list[str]:
    """What is odd where attacks try what they place on a few of these samples, in a line each."""
    fitting: list[object] = [stage.attack for stage in stages if dataset.domain.kind in stage.attack.domains]
    trying = [attack for attack in fitting if isinstance(attack, TriesInputs)]
    if not trying:
        return []
    some = readable[:: max(1, len(readable) // TRIED)][:TRIED]
    x = dataset.domain.part(dataset.load(some))
    return [line for attack in trying for line in attack.try_on(x, dataset.domain.free)]


def _following(stages: tuple[Stage, ...], request: Request) -> tuple[Stage, ...]:
    """The stages without those of a cascade that follow a surrogate, where there is none."""
    named = [stage.name for stage in stages if stage.gradient == "surrogate"]
    asked = [name for name in named if name in request.attack]
    if asked and request.surrogate is None:
        raise RequestError(f"attack {asked[0]} follows a surrogate, and none is named: add {option('surrogate', 'MODEL')}")
    if request.surrogate is not None and not named:
        raise RequestError(
            f"{option('surrogate')} is named, and no attack follows it: ask for {option('attack', 'fast')}, or "
            "write ?gradient=surrogate behind an attack"
        )
    return tuple(stage for stage in stages if stage.gradient != "surrogate" or request.surrogate is not None)


def _surrogate(spec: str, dataset: Dataset) -> ModelSource:
    opener = opener_of(spec, dataset)
    model: Model = complete(Model, opener())
    if model.access < Access.GRADIENTS:
        raise RequestError(f"the surrogate {model.name} gives {model.access.name.lower()} only: name one that gives gradients")
    return ModelSource(name=model.name, spec=spec, open=opener, facts=facts_of(model), skipped={})


def select(request: Request, dataset: Dataset) -> Selection:
    """The samples of an audit. Recommended budgets are known of the first ones, which are taken unless the request says how."""
    return choose(request, dataset, usual="first" if str(request.eps).startswith("recommended") else "stratified")


def usual_eps(domain: Domain, distance: str) -> str:
    """The budgets that the field uses where nobody chose any: up to 8/255 or 0.2 in Linf, up to 1 in L2, in eight steps.

    Data for which there is no such custom are refused.
    """
    if domain.kind != "image" or (domain.low, domain.high) != (0.0, 1.0) or distance not in ("linf", "l2"):
        example = "0:20:5 (numbers of values)" if distance == "l0" else "0:0.1:9"
        raise RequestError(f"there is no usual eps for {domain.kind} data in {distance}: give {option('eps')}, such as {example}")
    if distance == "l2":
        return "0:1:9"
    return "0:8/255:9" if domain.levels == 256 else "0:0.2:9"


def open_distance(spec: str) -> Distance:
    """The distance that a spec names, such as l2 or embedding:FILE."""
    distance: Distance = _built("distance", spec)
    return distance


def open_data(spec: str) -> Dataset:
    """The data set that a spec names."""
    dataset: Dataset = _built("dataset", spelled("dataset", spec))()
    return dataset


def _built(kind: str, spec: str) -> Any:
    if spec.startswith(f"{IN_MEMORY}:"):
        raise RequestError(f"{kind} {spec!r} was given in memory, from Python: repeat it there, with the same objects")
    name, path, options = plugins.parse(spec)
    return plugins.build(kind, name, options | ({"path": path} if path else {}))


def gaps(dataset: Dataset, ids: Sequence[int]) -> Mapping[int, str]:
    """Which of these samples cannot be read, and why; refuses data of which none can."""
    lost = dataset.info.unreadable(ids)
    if len(ids) and len(lost) == len(ids):
        why = next(iter(lost.values()))
        raise RequestError(f"none of the {len(ids)} samples of {dataset.name} can be read; the first: {why}")
    return lost


def choose_device(name: str) -> torch.device:
    """The device of this name; auto takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(f"device {name!r} cannot be used ({reason}): choose cpu, or auto") from None
    return device


def _check_queries(stage: Stage, request: Request) -> None:
    least = question_cost(stage.eot, request.precision)
    if request.queries is not None and request.queries < least:
        raise RequestError(
            f"queries is {request.queries}, and {stage.name} spends {least} on one question: allow as many or more"
        )


def opener_of(spec: str, dataset: Dataset) -> Callable[[], Model]:
    """Opens the model that a spec names, over the domain of the data; `engine.answers.settled` turns its answers into logits."""
    plugin = _built("model", spelled("model", spec))

    def open_model() -> Model:
        model: Model = plugin(dataset.domain)
        return model

    return open_model


def _given(model: Model) -> Callable[[], Model]:
    return lambda: model


def _describe(
    spec: str,
    opener: Callable[[], Model],
    labels: Array,
    classes: tuple[str, ...],
    distance: Distance,
    stages: tuple[Stage, ...],
    precision: Precision,
    targeted: bool,
) -> ModelSource:
    model: Model = complete(Model, opener())
    check_classes(model, labels, classes)
    if precision != "float32" and not model.info.bf16:
        raise RequestError(
            f"precision {precision} is for torch modules, and {model.name} is none: leave {option('precision')} out"
        )
    facts = facts_of(model)
    skipped: dict[str, str] = {}
    for stage in stages:
        alone = (stage.turn.within, stage.turn.last) != (None, None) and len(skipped) == stages.index(stage)
        if reason := _misfit(stage, model, distance, targeted=targeted) or (ALONE if alone else ""):
            skipped[stage.name] = reason
    if len(skipped) == len(stages):
        raise RequestError(_nothing_runs(stages, skipped, model))
    return ModelSource(name=model.name, spec=spec, open=opener, facts=facts, skipped=skipped)


def _rejecting(source: ModelSource, request: Request, names: tuple[str, ...]) -> ModelSource:
    """The source with its reject class, which the manifest keeps with the facts."""
    reject = reject_class(request.reject_class, names, source.facts["classes"], request.targeted is not None)
    return source if reject is None else replace(source, reject=reject, facts=source.facts | {"reject_class": reject})


def check_classes(model: Model, labels: Array, names: tuple[str, ...] = ()) -> None:
    """Refuse a model that does not know the labels (n,), or that names other classes than the data does, or in another order."""
    own = model.info.class_names
    unnamed = names == tuple(map(str, range(len(names)))) and not all(map(str.isdigit, own))
    if own and own[: len(names)] != names and not unnamed:
        raise ModelError(
            f"model {model.name} tells the classes {', '.join(own[:6])} apart, and those of the data are "
            f"{', '.join(names[:6])}: choose the model made for this data, or name the classes of a table in the model's order, "
            f"classes={'+'.join(own[:6])}"
        )
    known = classes_of(model)
    if labels.max(initial=0) == known and labels.min(initial=known) == 1:
        raise ModelError(
            f"model {model.name} tells {known} classes apart, and the labels of the data run from 1 to {known}: they are counted "
            "from 1; take 1 from each"
        )
    if labels.max(initial=0) >= known or labels.min(initial=0) < 0:
        raise ModelError(
            f"model {model.name} tells {known} classes apart, and the data has labels from {labels.min()} to "
            f"{labels.max()}: choose the model made for this data"
        )
    if known < 2:
        raise ModelError(
            f"model {model.name} tells one class apart: give one logit per class, or say what the one number is by "
            "answers=logit or answers=probability"
        )


def facts_of(model: Model) -> dict[str, Any]:
    """What a manifest says of a model."""
    info = model.info
    return {
        "digest": model.digest(),
        "architecture": info.architecture,
        "parameters": info.parameters,
        "classes": classes_of(model),
        "access": model.access.name.lower(),
        "notes": list(info.notes),
    } | ({"served": dict(info.server.served)} if info.server else {})


def _nothing_runs(stages: tuple[Stage, ...], skipped: dict[str, str], model: Model) -> str:
    reasons = {reason: [name for name in skipped if skipped[name] == reason] for reason in skipped.values()}
    listed = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    line = f"no attack can run on {model.name} ({listed})"
    blind = model.access < Access.GRADIENTS and any(stage.attack.access > model.access for stage in stages)
    if not blind:
        return line
    if model.access == Access.LABELS:
        return f"{line}: ask for {option('attack', 'hop-skip-jump')}, which needs labels only"
    return f"{line}: ask for {option('attack', 'black-box')}, which needs scores only"


def _misfit(stage: Stage, model: Model, distance: Distance, *, targeted: bool = False) -> str:
    attack = stage.attack
    if stage.gradient == "surrogate" and model.access < Access.SCORES:
        return "it follows a surrogate, and needs the model's scores besides"
    if stage.gradient != "surrogate" and attack.access > model.access:
        return f"it needs {attack.access.name.lower()}, and the model gives {model.access.name.lower()} only"
    if targeted and not attack.targeted:
        return "it cannot be led to a target class"
    if distance.name not in attack.distances:
        return f"it works in {', '.join(sorted(attack.distances))}, not in {distance.name}"
    if model.domain.kind not in attack.domains:
        return f"it works on {', '.join(sorted(attack.domains))} inputs, not on a {model.domain.kind}"
    return ""


def check_names(names: Sequence[str]) -> None:
    """Refuse two models of one name."""
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"two models are called {name!r}: give one of them another name with the option name=")
