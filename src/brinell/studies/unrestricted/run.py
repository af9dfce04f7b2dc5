"""Runs an unrestricted attack: plans it, searches block by block, and writes the folder (design/0014-unrestricted.md)."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core import losses
from brinell.core.contracts import Dataset
from brinell.core.criterion import MISCLASSIFIED, Targeted
from brinell.core.errors import RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.neighbours import Neighbours, Reference
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.suggestions import suggestion
from brinell.core.threat import Threat
from brinell.core.version import VERSION
from brinell.engine import provenance
from brinell.engine.answers import with_logits
from brinell.engine.cells import content_hash
from brinell.engine.class_counts import check_classes
from brinell.engine.group_attack import predict, session
from brinell.engine.job import Job, make_parts, manifest_session
from brinell.engine.plan import check_names, choose_device, model_facts, model_opener
from brinell.engine.progress import Progress
from brinell.engine.sources import open_data
from brinell.models._answers import count_classes
from brinell.studies.generator.generator import Kept, load
from brinell.studies.kit import Call
from brinell.studies.unrestricted import page
from brinell.studies.unrestricted.analysis import UnrestrictedResult, summarise
from brinell.studies.unrestricted.records import LAYOUT, NORMS, Outcome, UnrestrictedRun
from brinell.studies.unrestricted.request import UnrestrictedRequest
from brinell.studies.unrestricted.search import SearchResult, errs, quantise, search, sees

SEARCH = {"steps", "rate", "noise", "radius", "hold", "keep", "sure"}
"""Settings that determine the searches."""
BLOCK = 128
"""Number of attempts in a part."""


@dataclass(frozen=True, kw_only=True)
class UnrestrictedPlan:
    """Everything that determines the records."""

    request: UnrestrictedRequest
    dataset: Dataset
    data_digest: str
    stored: Kept
    generator_digest: str
    models: tuple[Model, ...]
    judges: tuple[Model, ...]
    variants: dict[str, UnrestrictedRequest]
    """The settings of each search, by its name."""
    intended: Tensor
    """(attempts,) int64."""
    target: int | None
    device: torch.device

    @property
    def parts(self) -> int:
        """Number of blocks."""
        return math.ceil(len(self.intended) / BLOCK)

    @property
    def cell(self) -> str:
        """Hash of everything that determines the rows."""
        return content_hash(
            format=LAYOUT.version,
            brinell=VERSION,
            models=[[model.name, model.digest()] for model in self.models],
            judges=[[judge.name, judge.digest()] for judge in self.judges],
            generator=self.generator_digest,
            data=self.data_digest,
            search=self.request.model_dump(include=SEARCH),
            intended=self.intended.tolist(),
            target=self.target,
            seed=self.request.seed,
        )


def make_plan(
    request: UnrestrictedRequest,
    *,
    dataset: Dataset | None = None,
    models: tuple[Model, ...] = (),
    judges: tuple[Model, ...] = (),
) -> UnrestrictedPlan:
    """Resolve a request and check every part before any query. Objects in memory override specs.

    Raises:
        RequestError: a part cannot be carried out.
    """
    if not request.generator:
        raise RequestError("--generator is missing: train one with brinell train-generator --out generator.safetensors")
    stored = load(Path(request.generator))
    dataset = open_data(request.data) if dataset is None else dataset
    device = choose_device(request.device)
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    stored.check(dataset.domain, len(dataset.classes))
    if missing := sorted(set(range(len(dataset.classes))) - set(labels.tolist())):
        raise RequestError(
            f"class {dataset.classes[missing[0]]!r} has no sample in {dataset.name}: use data with samples of all classes"
        )
    models = models or tuple(model_opener(spec, dataset)() for spec in request.model)
    judges = judges or tuple(model_opener(spec, dataset)() for spec in request.judge)
    for model in (*models, *judges):
        check_classes(model, labels, dataset)
        if (outputs := count_classes(model)) != len(dataset.classes):
            raise RequestError(f"model {model.name} tells {outputs} classes apart, but the data has {len(dataset.classes)}")
    for model in models:
        if model.access < Access.GRADIENTS:
            raise RequestError(
                f"model {model.name} answers {model.access.name.lower()} only, but a search needs gradients: "
                f"use it as a {option('judge')}"
            )
    for group in (models, judges):
        check_names([model.name for model in group])
    target = None if request.towards is None else _class(request.towards, dataset.classes)
    sources = [number for number in range(len(dataset.classes)) if number != target]
    return UnrestrictedPlan(
        request=request,
        dataset=dataset,
        data_digest=dataset.digest(),
        stored=stored,
        generator_digest=stored.digest(),
        models=models,
        judges=judges,
        variants={"latent": request.model_copy(update={"noise": 0.0})} | ({"noise": request} if request.noise else {}),
        intended=torch.tensor(sources).repeat(request.per_class),
        target=target,
        device=device,
    )


def _class(name: str, classes: tuple[str, ...]) -> int:
    if name in classes:
        return classes.index(name)
    if name.isdigit() and int(name) < len(classes):
        return int(name)
    raise RequestError(f"there is no class {name!r}{suggestion(name, classes)}: name one, or give its number")


class WitnessAnswers(NamedTuple):
    """Answers of the auxiliary classifier and the judges to some inputs, and the distances to the training data."""

    aux: Tensor
    """(n, classes) logits of the auxiliary classifier."""
    aux_agrees: Tensor
    """(n,) bool: the auxiliary classifier sees the intended class with at least the required probability."""
    judges: Tensor
    """(n, judges) int64."""
    clear: Tensor
    """(n,) bool: the auxiliary classifier and every judge see the intended class."""
    nearest: dict[str, Neighbours]
    anchors: dict[str, Neighbours]
    """Neighbours of the nearest training sample of the intended class."""


class Trial(NamedTuple):
    """A search, and the witnesses' answers to its last inputs."""

    result: SearchResult
    z0: Tensor
    plain: Tensor
    logits: Tensor
    errs: Tensor
    witnesses: WitnessAnswers
    ledger: Ledger
    seconds: float


class Engine:
    """Runs a plan block by block. As a context manager it holds the models in evaluation mode on their device."""

    def __init__(self, plan: UnrestrictedPlan, on_pass: Callable[[int, int], None]) -> None:
        self.plan, self.on_pass, self._sessions = plan, on_pass, ExitStack()

    def __enter__(self) -> "Engine":
        plan = self.plan
        for model in (*plan.models, *plan.judges):
            self._sessions.enter_context(session(model, plan.device))
        plan.stored.generator.to(plan.device)
        plan.stored.classifier.to(plan.device)
        self.x = plan.dataset.load(range(len(plan.dataset))).to(plan.device)
        self.reference = Reference(self.x.flatten(1).numpy(force=True), np.asarray(plan.dataset.labels(), dtype=np.int64))
        return self

    def __exit__(self, *_: object) -> None:
        self._sessions.close()

    def block(self, number: int) -> tuple[list[dict[str, Any]], dict[str, Array]]:
        """The rows and arrays of block `number`."""
        plan = self.plan
        ids = torch.arange(number * BLOCK, min((number + 1) * BLOCK, len(plan.intended)), device=plan.device)
        y = plan.intended.to(plan.device)[ids]
        z0 = Streams.of(plan.request.seed, ids).fold("latent").normal(plan.stored.generator.latent)
        with torch.no_grad():
            plain = quantise(plan.stored.generator(z0, y), plan.dataset.domain)
        witnesses = self._ask_witnesses(plain, y)
        rows: list[dict[str, Any]] = []
        arrays: dict[str, Array] = {}
        for model in plan.models:
            first = predict(model, plain, plan.request.batch_size)
            start = witnesses.clear & (first.argmax(1) == y)
            for variant, settings in plan.variants.items():
                index = start.nonzero()[:, 0]
                trial = self._search(model, settings, plain[index], z0[index], y[index])
                model_rows = _rows(self, ids, y, first, witnesses, index, trial)
                rows += [{"model": model.name, "variant": variant} | row for row in model_rows]
                arrays |= self._example_arrays(ids, plain, model_rows, f"{model.name}/{variant}", index, trial)
        return rows, arrays

    def _search(self, model: Model, settings: UnrestrictedRequest, plain: Tensor, z0: Tensor, y: Tensor) -> Trial | None:
        """Search all clear and correctly classified attempts of a block, behind a ledger without a norm ball."""
        if not len(y):
            return None
        plan, domain = self.plan, self.plan.dataset.domain
        low, high = domain.bounds(plain)
        full_range = torch.full((len(y),), float((high - low).max()), device=y.device)
        criterion = MISCLASSIFIED if plan.target is None else Targeted(torch.full_like(y, plan.target))
        threat = Threat(distance=plugins.build("distance", "linf", {}), eps=full_range, domain=domain, criterion=criterion)
        batch = Batch(ids=torch.arange(len(y), device=y.device), x=plain, y=y)
        ledger = Ledger(model, batch, threat, batch_size=plan.request.batch_size, minimal=True, on_pass=self.on_pass)
        start = time.perf_counter()
        result = search(ledger.oracle(), plan.stored.generator, plan.stored.classifier, z0, y, domain, settings, criterion)
        seconds = time.perf_counter() - start
        logits = predict(model, result.x, plan.request.batch_size)
        return Trial(
            result, z0, plain, logits, errs(criterion, logits, y, result.x), self._ask_witnesses(result.x, y), ledger, seconds
        )

    def _ask_witnesses(self, x: Tensor, y: Tensor) -> WitnessAnswers:
        """Answers of the auxiliary classifier and the judges."""
        plan = self.plan
        with torch.no_grad():
            aux = plan.stored.classifier(x)
        judges = [predict(judge, x, plan.request.batch_size).argmax(1) for judge in plan.judges]
        stacked = torch.stack(judges, 1) if judges else torch.zeros(len(x), 0, dtype=torch.int64, device=x.device)
        aux_agrees = sees(aux, y, plan.request.sure)
        clear = aux_agrees & (stacked == y[:, None]).all(1)
        values, labels = x.flatten(1).numpy(force=True), y.numpy(force=True)
        nearest = {norm: self.reference.nearest(norm, values, labels) for norm in NORMS}
        anchors = {}
        for norm, neighbours in nearest.items():
            changed = self.x[torch.from_numpy(neighbours.same_at).to(x.device)].flatten(1).numpy(force=True)
            anchors[norm] = self.reference.nearest(norm, changed, labels, itself=neighbours.same_at)
        return WitnessAnswers(aux, aux_agrees, stacked, clear, nearest, anchors)

    def _example_arrays(
        self, ids: Tensor, plain: Tensor, rows: list[dict[str, Any]], name: str, index: Tensor, trial: Trial | None
    ) -> dict[str, Array]:
        """The inputs on which the model errs, with their plain samples and the nearest training samples."""
        position = {row: number for number, row in enumerate(index.tolist())}
        arrays = {}
        for row, record in enumerate(rows):
            if record["outcome"] in (Outcome.UNCLEAR, Outcome.SURVIVED):
                continue
            attempt = int(ids[row])
            arrays[f"{attempt}/plain"] = plain[row].numpy(force=True)
            searched = record["outcome"] != Outcome.GENERALISATION
            if searched and trial is not None:
                arrays[f"{attempt}/{name}"] = trial.result.x[position[row]].numpy(force=True)
                arrays[f"{attempt}/{name}/latent"] = trial.result.z[position[row]].numpy(force=True)
            for side in ("l2_same_at", "l2_other_at"):
                reference = record[side] if searched else record[f"plain_{side}"]
                arrays[f"reference/{reference}"] = self.x[reference].numpy(force=True)
        return arrays


def _rows(
    engine: Engine, ids: Tensor, y: Tensor, first: Tensor, witnesses: WitnessAnswers, index: Tensor, trial: Trial | None
) -> list[dict[str, Any]]:
    """A row for each attempt of a block. `index` holds the positions of the searched attempts."""
    plain = {f"plain_{name}": values for name, values in _answer_columns(first, witnesses, y).items()}
    columns = _search_columns(trial, y[index]) if trial is not None else {}
    position = {row: number for number, row in enumerate(index.tolist())}
    rows = []
    for row, attempt in enumerate(ids.tolist()):
        record: dict[str, Any] = {"attempt": attempt, "intended": int(y[row]), "target": engine.plan.target}
        record |= {name: values[row] for name, values in plain.items()}
        if row in position:
            record |= {name: values[position[row]] for name, values in columns.items()}
        else:
            record |= {"forwards": 0, "backwards": 0, "judge_forwards": 1, "seconds": 0.0}
            record["outcome"] = str(Outcome.GENERALISATION if bool(witnesses.clear[row]) else Outcome.UNCLEAR)
        rows.append(record)
    return rows


def _answer_columns(logits: Tensor, witnesses: WitnessAnswers, y: Tensor) -> dict[str, list[Any]]:
    """Columns with the answers of model, auxiliary classifier, judges and neighbours to some inputs."""
    confidence, classes = losses.decision(logits)
    columns: dict[str, list[Any]] = {
        "pred": classes.tolist(),
        "confidence": confidence.tolist(),
        "aux": witnesses.aux.argmax(1).tolist(),
        "aux_probability": witnesses.aux.softmax(1).gather(1, y[:, None])[:, 0].tolist(),
        "judges": witnesses.judges.tolist(),
    }
    for norm in NORMS:
        nearest, anchors = witnesses.nearest[norm], witnesses.anchors[norm]
        columns |= {
            f"{norm}_same": nearest.same_class.tolist(),
            f"{norm}_same_at": nearest.same_at.tolist(),
            f"{norm}_other": nearest.other_class.tolist(),
            f"{norm}_other_at": nearest.other_at.tolist(),
            f"{norm}_anchor_same": anchors.same_class.tolist(),
            f"{norm}_anchor_other": anchors.other_class.tolist(),
        }
    return columns


def _search_columns(trial: Trial, y: Tensor) -> dict[str, list[Any]]:
    change, latent = (trial.result.x - trial.plain).flatten(1), trial.result.z - trial.z0
    outcome = [
        str(Outcome.SURVIVED if not (wrong and aux) else Outcome.FOOLED if clear else Outcome.CONTESTED)
        for wrong, aux, clear in zip(
            trial.errs.tolist(), trial.witnesses.aux_agrees.tolist(), trial.witnesses.clear.tolist(), strict=True
        )
    ]
    ledger = trial.ledger
    work = (ledger.costs.forwards + ledger.costs.backwards).double()
    return _answer_columns(trial.logits, trial.witnesses, y) | {
        "outcome": outcome,
        "latent_l2": latent.norm(dim=1).tolist(),
        "latent_linf": latent.abs().amax(1).tolist(),
        "moved_l2": change.norm(dim=1).tolist(),
        "moved_linf": change.abs().amax(1).tolist(),
        "forwards": ledger.costs.forwards.tolist(),
        "backwards": ledger.costs.backwards.tolist(),
        "queries_to_success": [value or None for value in ledger.best.first_success.tolist()],
        "judge_forwards": [2] * len(y),
        "seconds": (trial.seconds * work / work.sum()).tolist(),
    }


def run_plan(plan: UnrestrictedPlan, folder: Path, progress: Progress, *, command: str, resume: bool = False) -> UnrestrictedRun:
    """Run a plan in `folder`, or with `resume` complete an interrupted run.

    Args and errors are those of `engine.audit.run`.
    """
    inputs = "the data, the generator, the weights of a model"
    job = Job(
        LAYOUT,
        folder,
        plan.request,
        about=_manifest_facts(plan),
        inputs=inputs,
        device=plan.device,
        command=command,
        accumulated={"seconds": 0.0, "answers": {}, "probes": {}},
    )
    with manifest_session(job, resume=resume) as manifest:
        run = UnrestrictedRun(folder, manifest)
        missing = [number for number in range(plan.parts) if not run.has_part(number)]
        sizes = {number: len(plan.intended[number * BLOCK : (number + 1) * BLOCK]) for number in missing}
        names = ", ".join(model.name for model in plan.models)
        forwards = plan.request.steps * len(plan.variants) * len(plan.models)
        if missing:
            with Engine(_with_logits(plan, manifest), progress.count_passes) as engine:
                LAYOUT.save(folder, manifest)

                def make_part(number: int) -> int:
                    """Make and save a part; returns the number of attempts with an adversarial input."""
                    rows, arrays = engine.block(number)
                    run.save_part(number, rows, arrays)
                    return len({row["attempt"] for row in rows if row["outcome"] == Outcome.FOOLED})

                make_parts(manifest, sizes, make_part, progress, model=names, stage="unrestricted", forwards=forwards)
    return run


def _with_logits(plan: UnrestrictedPlan, manifest: dict[str, Any]) -> UnrestrictedPlan:
    """The plan with models and judges that answer logits. A judge may share the name of a model."""
    models = tuple(with_logits(model, plan.dataset, manifest) for model in plan.models)
    judges = tuple(with_logits(judge, plan.dataset, manifest, name=f"judge {judge.name}") for judge in plan.judges)
    return replace(plan, models=models, judges=judges)


def _manifest_facts(plan: UnrestrictedPlan) -> dict[str, Any]:
    history = plan.stored.about
    return {
        "cell": plan.cell,
        "parts": plan.parts,
        "attempts": len(plan.intended),
        "data": provenance.data_facts(plan.request.data, plan.dataset, plan.data_digest, len(plan.dataset), "all"),
        "models": [{"name": model.name, **model_facts(model)} for model in plan.models],
        "judges": [{"name": judge.name, **model_facts(judge)} for judge in plan.judges],
        "variants": {name: {"noise": settings.noise} for name, settings in plan.variants.items()},
        "target": plan.target,
        "generator": {
            "file": plan.request.generator,
            "digest": plan.generator_digest,
            "same_data": history.get("data_digest") == plan.data_digest,
            "about": history,
        },
    }


def carry_out_call(call: Call) -> UnrestrictedResult:
    """Run `brinell unrestricted`: search for examples on which models err, and write the folder and its page.

    Raises:
        RequestError: the request cannot be carried out.
        StoppedError: the folder cannot be written.
    """
    plan = make_plan(call.request, dataset=call.dataset(), models=call.models(), judges=call.models("judge"))
    folder = call.folder(plan.request.data)
    run = run_plan(plan, folder, call.progress, command=call.command, resume=call.resume)
    page.write(folder)
    return summarise(run.manifest, run.rows(), str(folder))


def open_result(folder: Path) -> UnrestrictedResult:
    """Summarise a folder of unrestricted examples from its records."""
    run = UnrestrictedRun.open(folder)
    return summarise(run.manifest, run.rows(), str(folder))
