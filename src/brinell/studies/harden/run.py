"""Runs a hardening: the audit before, the training, both models under changes of the inputs, and
the audit after.
"""

import copy
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core import bounded
from brinell.core.class_names import option_text, own_order
from brinell.core.contracts import Dataset, Distance
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model, ModelInfo
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.splits import stratified
from brinell.core.streams import seeded
from brinell.datasets._duplicates import find_duplicates
from brinell.datasets.bench import manifest_of
from brinell.engine import provenance
from brinell.engine.class_counts import check_classes
from brinell.engine.eps_grid import Budgets, check_budgets, parse_eps
from brinell.engine.plan import make_plan as plan_audit
from brinell.engine.plan import open_distance, split_class_names, usual_eps
from brinell.engine.progress import Progress
from brinell.engine.request import IN_MEMORY, Request, count_samples
from brinell.engine.sources import open_data
from brinell.engine.spelling import expand_spec
from brinell.manifest import DataFacts
from brinell.models._weights import load_weights_file
from brinell.reports.numbers import listed
from brinell.store import parquet, rows
from brinell.store.files import write_atomically
from brinell.store.table import ROWS
from brinell.studies import work
from brinell.studies.audits import run_audit
from brinell.studies.harden import HardenRequest
from brinell.studies.harden.result import (
    AFTER,
    BEFORE,
    CHANGES,
    CHECKPOINT,
    QUERIES,
    SEVERITY,
    STEPS,
    ChangeRows,
    Checks,
    HardenFacts,
    pgd_name,
    rlab_name,
    spec_in,
)
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.register import write_page
from brinell.training.changes import OTHER_NORM, Change, Changes, answers, other_eps
from brinell.training.checkpoint import write
from brinell.training.checks import Checker, is_correct
from brinell.training.data import TrainingSamples
from brinell.training.loop import Loop, Settings, TrainingState
from brinell.training.recipe import Recipe, TrainedNetwork, fitting_distortions

FARTHER = 2
"""The L2 budget of RLAB as a multiple of that of PGD: what places noise by scores alone reaches
less far."""
VALIDATION = 500
"""Most training samples that are set aside, on which the best weights are selected."""


@dataclass(frozen=True, kw_only=True)
class StoredExamples:
    """Stored adversarial or distorted inputs that a defence trains on."""

    dataset: Dataset
    rows: Array
    """(n,) positions in `dataset`, without inputs derived from validation samples."""
    distortions: tuple[str, ...]
    """Names of the distortions that produced the inputs."""


@dataclass(frozen=True, kw_only=True)
class HardenPlan(Plan):
    """A resolved hardening."""

    request: HardenRequest
    audit: Request
    """The request of both audits, that of the model before."""
    facts: HardenFacts
    recipe: Recipe
    examples: Mapping[int, StoredExamples]
    """Stored examples by position of their defence in the recipe."""
    distance: Distance
    train: Dataset
    train_positions: Array
    validation_positions: Array
    """(k,) positions of the validation samples, in the order of evaluation."""
    subject: Model
    """The model as it was opened, which the training leaves as it is."""

    def copied(self, weights: Path | None = None) -> Model:
        """A copy of the model with logits as answers, with other weights if a file is given."""
        (model,) = self.models.values()
        copied = copy.deepcopy(model)
        if weights is not None:
            assert copied.info.module is not None, "the plan refuses a model without one"
            load_weights_file(copied.info.module, str(weights))
        return copied


def make_plan(call: Call) -> HardenPlan:
    """Resolve a request and check every part before training."""
    request: HardenRequest = call.request
    recipe = Recipe.of(request.recipe)
    distance = open_distance(request.norm)
    dataset = call.dataset() or open_data(request.data)
    spec = request.train or (train_split(request.data) if call.dataset("train") is None else "")
    train = call.dataset("train") or open_data(spec)
    check_data(train, dataset)
    recipe = recipe.fit(train.domain, distance)
    _check_options(request, call, train)
    eps = _training_budget(request, dataset, distance)

    # The audits measure the training budget too, whatever budgets were asked for.
    budgets = request.budgets or f"0:{eps.texts[0]}:5"  # five, evenly from 0
    if eps.values[0] not in parse_eps(budgets).values:
        budgets = f"{budgets},{eps.texts[0]}"
    shared = {
        name: getattr(request, name)
        for name in ("data", "norm", "attack", "seed", "batch_size", "device")
    }
    audit = Request(
        model=(request.model,),
        eps=budgets,
        samples=count_samples(request.samples, len(dataset)),
        **shared,
    )

    # The file of a model may draw its first weights where it is opened.
    with seeded(request.seed):
        opened: Plan = work.open_plan(replace(call, request=audit, datasets={"data": dataset}))

    (subject,) = opened.models.values()
    _check_network(subject)
    labels = np.asarray(train.labels(), dtype=np.int64)
    check_classes(subject, labels, train)
    train_positions, validation_positions = split(labels, request)
    _check_batches(request, recipe, len(train_positions))
    examples = {
        index: open_examples(spec, train, dataset, validation_positions)
        for index, spec in recipe.specs().items()
    }
    weights = re.sub(r"[^\w.+-]", "_", subject.name) + "-hardened.safetensors"

    train_facts = provenance.data_facts(
        spec or f"{IN_MEMORY}:{train.name}", train, train.digest(), len(train), "all"
    )
    facts = HardenFacts(
        eps=eps.values[0],
        eps_text=eps.texts[0],
        train=DataFacts.model_validate(train_facts),
        trained_on=len(train_positions),
        validation=len(validation_positions),
        weights=weights,
        spec=with_weights(request.model, Path(weights), subject.info)
        if not call.models()
        else None,
    )
    identity = {"examples": {index: stored.dataset.digest() for index, stored in examples.items()}}
    return HardenPlan(
        **vars(opened) | {"facts": facts, "identity": identity},
        train=train,
        request=request,
        audit=audit,
        recipe=recipe,
        examples=examples,
        distance=distance,
        train_positions=train_positions,
        validation_positions=validation_positions,
        subject=subject,
    )


def _check_options(request: HardenRequest, call: Call, train: Dataset) -> None:
    """Refuse options that a training does not take."""
    if call.on is not None:
        raise RequestError(f"a training runs in one process: leave {option('on')} out")
    if "&" in str(call.out):
        raise RequestError(
            f"{option('out')} {call.out} contains &, which separates the options "
            "of a model spec: rename it"
        )
    if request.augment != "none" and train.domain.kind != "image":
        raise RequestError(
            f"{option('augment')} {request.augment} needs images, but the data is "
            f"of kind {train.domain.kind}: leave it out"
        )


def _training_budget(request: HardenRequest, dataset: Dataset, distance: Distance) -> Budgets:
    """The budget that is trained for; by default the end of the usual range."""
    # The last of the usual budgets, which are written as first:last:number; some data have none.
    eps = parse_eps(request.eps or usual_eps(dataset.domain, distance.name).split(":")[1])
    if len(eps.values) != 1 or not eps.values[0] > 0:
        raise RequestError(
            f"eps {request.eps!r} is not a single budget above 0: give the "
            "training budget, such as 8/255"
        )
    check_budgets(eps, distance, dataset.domain)
    return eps


def _check_network(model: Model) -> None:
    """Refuse a model that no gradient trains, or whose state no file of weights can hold."""
    module, access = model.info.module, model.access
    if access < Access.GRADIENTS or module is None:
        raise RequestError(
            f"model {model.name} gives {access.name.lower()} and no trainable "
            "weights: pass model.py:FACTORY"
        )
    for name, value in module.state_dict().items():
        if not isinstance(value, Tensor):
            raise RequestError(
                f"the state of {model.name} holds {name}, which is not a tensor: "
                "register it as a buffer"
            )


def _check_batches(request: HardenRequest, recipe: Recipe, n: int) -> None:
    """Refuse batches with fewer than two samples for a defence, which batch norm needs."""
    least, size = 2 * len(recipe.parts), min(request.batch_size, n)
    if size < least:
        advice = (
            "add training samples"
            if n <= request.batch_size
            else f"set {option('batch_size', str(least))} or more"
        )
        raise RequestError(
            f"a batch of {size} is too small for {request.recipe}: each defence "
            f"of the recipe needs two samples: {advice}"
        )


def train_split(spec: str) -> str:
    """Spec of the training split of the data set that `spec` names."""
    if spec.partition(":")[0] == IN_MEMORY:
        raise RequestError(
            "data in memory has no training split: pass the training samples as train="
        )
    full = expand_spec("dataset", spec)
    name, _, options = plugins.parse(full)
    fields = getattr(plugins.load("dataset", name), "__dataclass_fields__", {})
    if "split" not in fields or options.get("split") == "train":
        raise RequestError(
            f"{spec} has no training split: name the training data with {option('train')}"
        )
    return plugins.with_options(full, {"split": "train"})


def check_data(train: Dataset, test: Dataset) -> None:
    """Refuse training data of another shape, without a class, or with samples of the test data."""
    work.check_alike(train, test)
    present = set(np.asarray(train.labels()).tolist())
    if absent := [repr(name) for index, name in enumerate(train.classes) if index not in present]:
        raise RequestError(
            f"the training data {train.name} has no sample of class "
            f"{listed(absent)}: a model trained on it "
            "forgets the class; add samples"
        )
    _check_disjoint(train, test)


def _check_disjoint(train: Dataset, test: Dataset) -> None:
    """Refuse inputs to train on that the audit will judge by."""
    if duplicates := find_duplicates(train, test):
        text = listed([f"{train_index} is {test_index}" for train_index, test_index in duplicates])
        raise RequestError(
            f"{len(duplicates)} of the {len(train)} training samples in "
            f"{train.name} also occur in the audit data "
            f"({text}): a model may memorise them; remove them from either data set"
        )


def open_examples(
    spec: str, train: Dataset, test: Dataset, validation_positions: Array
) -> StoredExamples:
    """Open the stored examples of a defence, and reject them if they derive from the audit data.

    Examples of validation samples are left out, so the validation data stays unseen by the
    training.
    """
    name, path, options = plugins.parse(spec)
    if not path:
        raise RequestError(
            "recipe benchmark-set needs a path: write benchmark-set(path=FOLDER) "
            "with a folder of brinell benchmark"
        )
    examples = open_data(spec)
    clean = open_data(f"{name}:{path}?level=clean")
    for dataset in (examples, clean):
        work.check_alike(dataset, train)
        _check_disjoint(dataset, test)

    # A changed input has the name of the clean one that it was made from.
    validating = {
        clean.info.names[index]
        for index, _ in find_duplicates(clean, train, validation_positions.tolist())
    }
    kept = np.array(
        [index for index, sample in enumerate(examples.info.names) if sample not in validating],
        dtype=np.int64,
    )

    if not len(kept):
        raise RequestError(
            f"every input of {path} derives from a validation sample: give a larger benchmark set"
        )

    distortions = plugins.split(
        str(manifest_of(Path(path)).get("request", {}).get("distortions", ""))
    )
    names = tuple(plugins.head(distortion.strip()) for distortion in distortions)
    return StoredExamples(dataset=examples, rows=kept, distortions=names)


def split(labels: Array, request: HardenRequest) -> tuple[Array, Array]:
    """Positions for training and for validation: at most a tenth of each class and `VALIDATION` in
    all.
    """
    train_positions, validation_positions = stratified(
        labels, min(0.1, VALIDATION / len(labels)), request.seed
    )
    if not len(validation_positions) or not len(train_positions):
        raise RequestError(
            f"{len(labels)} training samples are too few for a validation set: "
            "give at least ten of each class"
        )
    # A check takes the first of them, which are to be of all classes.
    return train_positions, np.random.default_rng(request.seed).permutation(validation_positions)


def with_weights(spec: str, file: Path, info: ModelInfo) -> str | None:
    """The spec of the same model with weights from a file; None if its plug-in has no `weights`
    option.

    The spec names the classes if they are in another order than those of the data, since a
    classes.json lies by the old weights.
    """
    spec, stated = split_class_names(expand_spec("model", spec))
    stated = own_order(info.class_names, info.class_order) if info.class_order else stated
    if stated and not option_text(stated):
        return None

    fields = getattr(plugins.load("model", plugins.parse(spec).name), "__dataclass_fields__", {})
    if "weights" not in fields:
        return None
    options = {
        key: value for key, value in (("weights", str(file)), ("name", file.stem)) if key in fields
    }
    return plugins.with_options(spec, options) + (f"&{option_text(stated)}" if stated else "")


def pieces(plan: HardenPlan, call: Call, trained: Path | None = None) -> list[Piece]:
    """The audits, the training and the answers under changes; with `trained`, that of an earlier
    hardening is taken.
    """
    train = (
        partial(_train, plan, call.progress)
        if trained is None
        else partial(_take_training, plan, trained)
    )

    return [
        Piece(name="the audit before", make=partial(_audit, plan, call, BEFORE)),
        Piece(name="the training", make=train, files=(plan.facts.weights, CHECKPOINT)),
        Piece(
            name="changes of the inputs",
            make=partial(_change, plan),
            files=(CHANGES,),
            needs=("the training",),
        ),
        Piece(
            name="the audit after", make=partial(_audit, plan, call, AFTER), needs=("the training",)
        ),
    ]


def repeat(call: Call, folder: Path) -> None:
    """Carry a hardening out again with the weights of a folder, which are not trained again."""
    work.carry_out(call, partial(pieces, trained=folder))


def _audit(plan: HardenPlan, call: Call, name: str) -> None:
    """Audit the model before or after the training into the folder of that name."""
    folder = plan.folder / name
    spec = spec_in(plan.folder, plan.facts)
    specs = plan.audit.model
    # A model is passed as an object where no spec loads it.
    models: tuple[Model, ...] = (plan.subject,) if call.models() else ()
    if name == AFTER:
        models = () if spec else (plan.copied(plan.folder / plan.facts.weights),)
        specs = (spec,) if spec else specs
    # A spec in the manifest would claim that the audit can be repeated by it.
    if models and call.models():
        specs = (f"{IN_MEMORY}:{models[0].name}",)

    with seeded(plan.request.seed):
        audit = plan_audit(
            plan.audit.model_copy(update={"model": specs}), dataset=plan.dataset, models=models
        )
        run_audit(
            audit, folder, call.progress, command=f"brinell harden, the audit {name}", resume=True
        )
    write_page(folder)


def _train(plan: HardenPlan, progress: Progress) -> Checks:
    """Train a copy of the model, or resume the training, and write the weights."""
    request, device = plan.request, plan.device
    model = plan.copied()
    seconds = None if request.minutes is None else 60 * request.minutes
    with model.info.session(device):
        own = TrainingSamples.of(plan.train, plan.train_positions, device)
        aside = TrainingSamples.of(plan.train, plan.validation_positions, device)
        checker = Checker(
            x=aside.load(torch.arange(len(aside), device=device)),
            y=aside.labels,
            distance=plan.distance,
            domain=plan.train.domain,
            batch_size=request.batch_size,
            seed=request.seed,
        )
        stored = {
            index: TrainingSamples.of(examples.dataset, examples.rows, device)
            for index, examples in plan.examples.items()
        }

        loop = Loop(
            TrainedNetwork.of(model),
            own,
            [stored.get(index, own) for index in range(len(plan.recipe.parts))],
            checker,
            plan.recipe,
            plan.distance,
            Settings(**request.settings(Settings) | {"eps": plan.facts.eps, "seconds": seconds}),
            file=plan.folder / CHECKPOINT,
            report=progress.warn,
            on_check=partial(_report_check, progress),
        )
        if loop.resume():
            progress.note(f"resuming the training from step {loop.state.step}")
        stage = f"training by {plan.recipe.text}"
        passes = loop.passes_left()
        progress.stage(f"{plan.subject.name}-hardened", stage, len(own), passes)
        if passes:
            progress.note(f"{stage} takes {passes:,} passes")
            progress.forecast({stage: passes}, models=0)
        weights = loop.run()

    state, curve = loop.state, loop.state.curve
    about = {
        "recipe": state.recipe,
        "eps": plan.facts.eps,
        "norm": request.norm,
        "steps": state.step,
    }
    write(plan.folder / plan.facts.weights, weights, about)

    columns: dict[str, Any] = {name: [check[name] for check in curve] for name in curve[0]}
    # No batch precedes the first check, so it has no loss.
    columns["loss"] = np.ma.masked_invalid(
        [np.nan if loss is None else loss for loss in columns["loss"]]
    )
    columns["events"] = ["\n".join(events) for events in columns["events"]]
    return rows.build(Checks, len(curve), **columns)


def _report_check(progress: Progress, state: TrainingState, done: float) -> None:
    # The curve counts passes from the start of the training; the progress counts those since the
    # check before.
    earlier, last = [{"forwards": 0, "backwards": 0}, *state.curve][-2:]
    progress.count_passes(
        last["forwards"] - earlier["forwards"], last["backwards"] - earlier["backwards"]
    )
    progress.note(
        f"{100 * done:.0f} % of the training, step {last['step']}: of "
        f"{last['samples']} validation samples "
        f"{last['clean']} are right and {last['robust']} robust"
    )


def _take_training(plan: HardenPlan, trained: Path) -> Checks:
    """Copy the weights of an earlier hardening in place of a training; returns its checks."""
    content = bounded.read(trained / plan.facts.weights, bounded.ON_DISK)
    write_atomically(
        plan.folder / plan.facts.weights, lambda temporary: temporary.write_bytes(content)
    )
    return parquet.load_rows(Checks, trained / ROWS)


def _change(plan: HardenPlan) -> None:
    """Answers of both models to the audited samples, without a change and under each.

    The changes are every fitting distortion at one severity, PGD in both norms, and RLAB in L2. PGD
    gives an upper bound on robust accuracy in the other norm. Distortions cover whole inputs.
    """
    models = {BEFORE: plan.copied(), AFTER: plan.copied(plan.folder / plan.facts.weights)}
    changes = _changes(plan)
    parts = []

    with ExitStack() as sessions:
        for model in models.values():
            sessions.enter_context(model.info.session(plan.device))
        count = max(1, len(plan.ids) // plan.request.batch_size)
        for part in np.array_split(np.arange(len(plan.ids)), count):
            ids = plan.ids[part]
            x = plan.dataset.load(ids.tolist()).to(plan.device)
            y = torch.from_numpy(plan.labels[part]).to(plan.device)
            batch = Batch(ids=torch.as_tensor(ids, device=plan.device), x=x, y=y)
            clean = {
                f"clean_{name}": is_correct(TrainedNetwork.of(model), x, y).cpu().numpy()
                for name, model in models.items()
            }
            # The answers to the clean inputs stand in each row: rates are of what was right without
            # a change.
            for title, (seen, change) in changes.items():
                columns = {"change": title, "seen": seen, "sample_id": ids} | clean
                for name, model in models.items():
                    columns |= answers(batch, model, change(batch, model), name)
                parts.append(rows.build(ChangeRows, len(ids), **columns))
    parquet.write_table(plan.folder / CHANGES, parquet.to_table(rows.concatenate(parts)))


def _changes(plan: HardenPlan) -> dict[str, tuple[bool, Change]]:
    """The changes by name, and whether the training used them."""
    norm, domain, eps = plan.request.norm, plan.dataset.domain, plan.facts.eps
    maker = Changes(domain=domain, seed=plan.request.seed)
    changes: dict[str, tuple[bool, Change]] = {}
    learned = {name for stored in plan.examples.values() for name in stored.distortions}
    trained_types = {
        type(distortion)
        for defence in plan.recipe.parts
        for distortion in getattr(defence, "distortions", ())
    }

    for name, distortion in fitting_distortions(domain).items():
        changes[name] = (
            type(distortion) in trained_types or name in learned,
            partial(maker.distort, name=name, distortion=distortion, severity=SEVERITY),
        )
    other = OTHER_NORM[norm]
    radius = other_eps(norm, eps, domain)
    texts = {norm: plan.facts.eps_text, other: f"{radius:.3g}"}
    budgets = {norm: eps, other: radius}
    # Of the defences with a budget RLAB alone asks for scores, and learns no gradient's steps.
    rlab = plugins.load("defence", "rlab")
    by_gradients = any(
        defence.budgeted and not isinstance(defence, rlab) for defence in plan.recipe.parts
    )
    for name, text in texts.items():
        climb = partial(maker.climb, norm=name, eps=budgets[name], steps=STEPS)
        changes[pgd_name(name, text)] = by_gradients and name == norm, climb

    # Benchmark sets hold what RLAB made, of other samples.
    by_rlab = any(isinstance(defence, rlab) for defence in plan.recipe.parts)
    search = partial(maker.search, eps=FARTHER * budgets["l2"], queries=QUERIES)
    changes[rlab_name(f"{FARTHER * budgets['l2']:.3g}")] = bool(plan.examples) or by_rlab, search
    return changes
