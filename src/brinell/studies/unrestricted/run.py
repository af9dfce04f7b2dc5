"""The unrestricted attack: what is asked for, whether it can be done, what is done (design/0014-unrestricted.md)."""

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
from brinell.core.contracts import Dataset
from brinell.core.criterion import MISCLASSIFIED, Targeted
from brinell.core.errors import RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.neighbours import Neighbours, Reference
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.core.version import VERSION
from brinell.engine.answers import settled
from brinell.engine.cells import cell
from brinell.engine.plan import check_classes, check_names, choose_device, facts_of, open_data, opener_of
from brinell.engine.progress import Progress
from brinell.engine.shard import predict, session
from brinell.models._answers import classes_of
from brinell.runners import provenance
from brinell.runners.loop import Job, carry_out, each_part
from brinell.studies.generator.generator import Kept, load
from brinell.studies.kit import Call
from brinell.studies.unrestricted import page
from brinell.studies.unrestricted.analysis import UnrestrictedResult, summarise
from brinell.studies.unrestricted.records import LAYOUT, NORMS, Outcome, UnrestrictedRun
from brinell.studies.unrestricted.request import UnrestrictedRequest
from brinell.studies.unrestricted.search import Found, errs, search, sees, stored

SEARCH = {"steps", "rate", "noise", "radius", "hold", "keep", "sure"}
"""What of the request the searches depend on."""
BLOCK = 128
"""Attempts that are searched, judged and written together."""


@dataclass(frozen=True, kw_only=True)
class UnrestrictedPlan:
    """Everything that determines the records."""

    request: UnrestrictedRequest
    dataset: Dataset
    data_digest: str
    kept: Kept
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
        """How many blocks there are."""
        return math.ceil(len(self.intended) / BLOCK)

    @property
    def cell(self) -> str:
        """Hash of all that the content depends on."""
        return cell(
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
    """Resolve a request, naming whatever does not fit before any query is spent; what is in memory stands in place of specs.

    Raises:
        RequestError: any part that cannot be carried out.
    """
    if not request.generator:
        raise RequestError(
            "no generator is named: brinell train-generator --out generator.safetensors makes one; add --generator"
        )
    kept = load(Path(request.generator))
    dataset = open_data(request.data) if dataset is None else dataset
    device = choose_device(request.device)
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    kept.check(dataset.domain, len(dataset.classes))
    if missing := sorted(set(range(len(dataset.classes))) - set(labels.tolist())):
        raise RequestError(f"class {dataset.classes[missing[0]]!r} has no sample in {dataset.name}: give data with all classes")
    models = models or tuple(opener_of(spec, dataset)() for spec in request.model)
    judges = judges or tuple(opener_of(spec, dataset)() for spec in request.judge)
    for model in (*models, *judges):
        check_classes(model, labels)
        if (known := classes_of(model)) != len(dataset.classes):
            raise RequestError(f"model {model.name} tells {known} classes apart, and the data has {len(dataset.classes)}")
    for model in models:
        if model.access < Access.GRADIENTS:
            raise RequestError(
                f"model {model.name} answers {model.access.name.lower()} only, and a search needs gradients: "
                f"make it a {option('judge')}"
            )
    for asked in (models, judges):
        check_names([model.name for model in asked])
    target = None if request.towards is None else _class(request.towards, dataset.classes)
    sources = [number for number in range(len(dataset.classes)) if number != target]
    return UnrestrictedPlan(
        request=request,
        dataset=dataset,
        data_digest=dataset.digest(),
        kept=kept,
        generator_digest=kept.digest(),
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
    raise RequestError(f"there is no class {name!r}{plugins.nearest(name, classes)}: name one, or give its number")


class Seen(NamedTuple):
    """What everybody but the model says of some inputs, and how far they are from the training data."""

    aux: Tensor
    """(n, classes) logits of the auxiliary classifier."""
    kept: Tensor
    """(n,) bool: it sees the intended class, as surely as was asked for."""
    judges: Tensor
    """(n, judges) int64."""
    clear: Tensor
    """(n,) bool: the auxiliary classifier and every judge see the intended class."""
    nearest: dict[str, Neighbours]
    anchors: dict[str, Neighbours]
    """Neighbours of the nearest training sample of the intended class."""


class Trial(NamedTuple):
    """A search and all that was said of what it ended at."""

    found: Found
    z0: Tensor
    plain: Tensor
    logits: Tensor
    errs: Tensor
    seen: Seen
    ledger: Ledger
    seconds: float


class Engine:
    """Carries a plan out, a block at a time; a context manager, in which the models are in evaluation mode on their device."""

    def __init__(self, plan: UnrestrictedPlan, on_pass: Callable[[int, int], None]) -> None:
        self.plan, self.on_pass, self._held = plan, on_pass, ExitStack()

    def __enter__(self) -> "Engine":
        plan = self.plan
        for model in (*plan.models, *plan.judges):
            self._held.enter_context(session(model, plan.device))
        plan.kept.generator.to(plan.device)
        plan.kept.classifier.to(plan.device)
        self.x = plan.dataset.load(range(len(plan.dataset))).to(plan.device)
        self.reference = Reference(self.x.flatten(1).numpy(force=True), np.asarray(plan.dataset.labels(), dtype=np.int64))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def block(self, number: int) -> tuple[list[dict[str, Any]], dict[str, Array]]:
        """The rows and arrays of the attempts from `number` * BLOCK on."""
        plan = self.plan
        ids = torch.arange(number * BLOCK, min((number + 1) * BLOCK, len(plan.intended)), device=plan.device)
        y = plan.intended.to(plan.device)[ids]
        z0 = Streams.of(plan.request.seed, ids).fold("latent").normal(plan.kept.generator.latent)
        with torch.no_grad():
            plain = stored(plan.kept.generator(z0, y), plan.dataset.domain)
        seen = self._look(plain, y)
        rows: list[dict[str, Any]] = []
        arrays: dict[str, Array] = {}
        for model in plan.models:
            first = predict(model, plain, plan.request.batch_size)
            start = seen.clear & (first.argmax(1) == y)
            for variant, settings in plan.variants.items():
                at = start.nonzero()[:, 0]
                trial = self._search(model, settings, plain[at], z0[at], y[at])
                made = _rows(self, ids, y, first, seen, at, trial)
                rows += [{"model": model.name, "variant": variant} | row for row in made]
                arrays |= self._kept(ids, plain, made, f"{model.name}/{variant}", at, trial)
        return rows, arrays

    def _search(self, model: Model, settings: UnrestrictedRequest, plain: Tensor, z0: Tensor, y: Tensor) -> Trial | None:
        """Every attempt of a block whose plain sample is clear and right, behind the oracle of a ledger without a norm ball."""
        if not len(y):
            return None
        plan, domain = self.plan, self.plan.dataset.domain
        low, high = domain.bounds(plain)
        everything = torch.full((len(y),), float((high - low).max()), device=y.device)
        criterion = MISCLASSIFIED if plan.target is None else Targeted(torch.full_like(y, plan.target))
        threat = Threat(distance=plugins.build("distance", "linf", {}), eps=everything, domain=domain, criterion=criterion)
        batch = Batch(ids=torch.arange(len(y), device=y.device), x=plain, y=y)
        ledger = Ledger(model, batch, threat, batch_size=plan.request.batch_size, minimal=True, on_pass=self.on_pass)
        started = time.perf_counter()
        found = search(ledger.oracle(), plan.kept.generator, plan.kept.classifier, z0, y, domain, settings, criterion)
        seconds = time.perf_counter() - started
        logits = predict(model, found.x, plan.request.batch_size)
        return Trial(found, z0, plain, logits, errs(criterion, logits, y, found.x), self._look(found.x, y), ledger, seconds)

    def _look(self, x: Tensor, y: Tensor) -> Seen:
        plan = self.plan
        with torch.no_grad():
            aux = plan.kept.classifier(x)
        judges = [predict(judge, x, plan.request.batch_size).argmax(1) for judge in plan.judges]
        stacked = torch.stack(judges, 1) if judges else torch.zeros(len(x), 0, dtype=torch.int64, device=x.device)
        kept = sees(aux, y, plan.request.sure)
        clear = kept & (stacked == y[:, None]).all(1)
        values, labels = x.flatten(1).numpy(force=True), y.numpy(force=True)
        near = {norm: self.reference.nearest(norm, values, labels) for norm in NORMS}
        anchors = {}
        for norm, found in near.items():
            changed = self.x[torch.from_numpy(found.same_at).to(x.device)].flatten(1).numpy(force=True)
            anchors[norm] = self.reference.nearest(norm, changed, labels, itself=found.same_at)
        return Seen(aux, kept, stacked, clear, near, anchors)

    def _kept(
        self, ids: Tensor, plain: Tensor, rows: list[dict[str, Any]], name: str, at: Tensor, trial: Trial | None
    ) -> dict[str, Array]:
        """The inputs on which the model errs, searched or plain, and the training samples nearest to them."""
        place = {row: number for number, row in enumerate(at.tolist())}
        arrays = {}
        for row, held in enumerate(rows):
            if held["outcome"] in (Outcome.UNCLEAR, Outcome.SURVIVED):
                continue
            attempt = int(ids[row])
            arrays[f"{attempt}/plain"] = plain[row].numpy(force=True)
            searched = held["outcome"] != Outcome.GENERALISATION
            if searched and trial is not None:
                arrays[f"{attempt}/{name}"] = trial.found.x[place[row]].numpy(force=True)
                arrays[f"{attempt}/{name}/latent"] = trial.found.z[place[row]].numpy(force=True)
            for side in ("l2_same_at", "l2_other_at"):
                where = held[side] if searched else held[f"plain_{side}"]
                arrays[f"reference/{where}"] = self.x[where].numpy(force=True)
        return arrays


def _rows(
    engine: Engine, ids: Tensor, y: Tensor, first: Tensor, seen: Seen, at: Tensor, trial: Trial | None
) -> list[dict[str, Any]]:
    """A row for each attempt of a block; `at` are those that were searched."""
    plain = {f"plain_{name}": values for name, values in _said(first, seen, y).items()}
    found = _ended(trial, y[at]) if trial is not None else {}
    place = {row: number for number, row in enumerate(at.tolist())}
    rows = []
    for row, attempt in enumerate(ids.tolist()):
        held: dict[str, Any] = {"attempt": attempt, "intended": int(y[row]), "target": engine.plan.target}
        held |= {name: values[row] for name, values in plain.items()}
        if row in place:
            held |= {name: values[place[row]] for name, values in found.items()}
        else:
            held |= {"forwards": 0, "backwards": 0, "judge_forwards": 1, "seconds": 0.0}
            held["outcome"] = str(Outcome.GENERALISATION if bool(seen.clear[row]) else Outcome.UNCLEAR)
        rows.append(held)
    return rows


def _said(logits: Tensor, seen: Seen, y: Tensor) -> dict[str, list[Any]]:
    """What model, auxiliary classifier, judges and neighbours say of some inputs, column by column."""
    top = logits.softmax(1).max(1)
    columns: dict[str, list[Any]] = {
        "pred": top.indices.tolist(),
        "confidence": top.values.tolist(),
        "aux": seen.aux.argmax(1).tolist(),
        "aux_probability": seen.aux.softmax(1).gather(1, y[:, None])[:, 0].tolist(),
        "judges": seen.judges.tolist(),
    }
    for norm in NORMS:
        columns |= {f"{norm}_{name}": values.tolist() for name, values in vars(seen.nearest[norm]).items()}
        columns |= {f"{norm}_anchor_{name}": getattr(seen.anchors[norm], name).tolist() for name in ("same", "other")}
    return columns


def _ended(trial: Trial, y: Tensor) -> dict[str, list[Any]]:
    """The columns of the attempts that were searched."""
    moved, latent = (trial.found.x - trial.plain).flatten(1), trial.found.z - trial.z0
    outcome = [
        str(Outcome.SURVIVED if not (wrong and aux) else Outcome.FOOLED if clear else Outcome.CONTESTED)
        for wrong, aux, clear in zip(trial.errs.tolist(), trial.seen.kept.tolist(), trial.seen.clear.tolist(), strict=True)
    ]
    ledger = trial.ledger
    work = (ledger.costs.forwards + ledger.costs.backwards).double()
    return _said(trial.logits, trial.seen, y) | {
        "outcome": outcome,
        "latent_l2": latent.norm(dim=1).tolist(),
        "latent_linf": latent.abs().amax(1).tolist(),
        "moved_l2": moved.norm(dim=1).tolist(),
        "moved_linf": moved.abs().amax(1).tolist(),
        "forwards": ledger.costs.forwards.tolist(),
        "backwards": ledger.costs.backwards.tolist(),
        "queries_to_success": [value or None for value in ledger.best.first_success.tolist()],
        "judge_forwards": [2] * len(y),
        "seconds": (trial.seconds * work / work.sum()).tolist(),
    }


def make(plan: UnrestrictedPlan, out: Path, progress: Progress, *, command: str, resume: bool = False) -> UnrestrictedRun:
    """Carry out a plan in the folder `out`, or with `resume` what is missing of it.

    Args and errors are those of `runners.local.run`.
    """
    inputs = "the data, the generator, the weights of a model"
    job = Job(
        LAYOUT,
        out,
        plan.request,
        about=_about(plan),
        inputs=inputs,
        device=plan.device,
        command=command,
        kept={"seconds": 0.0, "answers": {}, "probes": {}},
    )
    with carry_out(job, resume=resume) as manifest:
        folder = UnrestrictedRun(out, manifest)
        missing = [number for number in range(plan.parts) if not folder.has_part(number)]
        sizes = {number: len(plan.intended[number * BLOCK : (number + 1) * BLOCK]) for number in missing}
        names = ", ".join(model.name for model in plan.models)
        forwards = plan.request.steps * len(plan.variants) * len(plan.models)
        if missing:
            with Engine(_settled(plan, manifest), progress.passes) as engine:
                LAYOUT.save(out, manifest)

                def make_part(number: int) -> int:
                    rows, arrays = engine.block(number)
                    folder.save_part(number, rows, arrays)
                    return len({row["attempt"] for row in rows if row["outcome"] == Outcome.FOOLED})

                each_part(manifest, sizes, make_part, progress, model=names, stage="unrestricted", forwards=forwards)
    return folder


def _settled(plan: UnrestrictedPlan, manifest: dict[str, Any]) -> UnrestrictedPlan:
    """The plan, the answers of its models and judges as logits. A judge may have the name of a model."""
    models = tuple(settled(model, plan.dataset, manifest) for model in plan.models)
    judges = tuple(settled(judge, plan.dataset, manifest, name=f"judge {judge.name}") for judge in plan.judges)
    return replace(plan, models=models, judges=judges)


def _about(plan: UnrestrictedPlan) -> dict[str, Any]:
    about = plan.kept.about
    return {
        "cell": plan.cell,
        "parts": plan.parts,
        "attempts": len(plan.intended),
        "data": provenance.data(plan.request.data, plan.dataset, plan.data_digest, len(plan.dataset), "all"),
        "models": [{"name": model.name, **facts_of(model)} for model in plan.models],
        "judges": [{"name": judge.name, **facts_of(judge)} for judge in plan.judges],
        "variants": {name: {"noise": settings.noise} for name, settings in plan.variants.items()},
        "target": plan.target,
        "generator": {
            "file": plan.request.generator,
            "digest": plan.generator_digest,
            "same_data": about.get("data_digest") == plan.data_digest,
            "about": about,
        },
    }


def carry_out_call(call: Call) -> UnrestrictedResult:
    """Search for examples made from scratch on which models err, and write the folder and its page.

    Raises:
        RequestError: what cannot be carried out.
        StoppedError: the folder cannot be written.
    """
    plan = make_plan(call.request, dataset=call.dataset(), models=call.models(), judges=call.models("judge"))
    folder = call.folder(plan.request.data)
    made = make(plan, folder, call.progress, command=call.command, resume=call.resume)
    page.write(folder)
    return summarise(made.manifest, made.rows(), str(folder))


def open_result(folder: Path) -> UnrestrictedResult:
    """What a folder of unrestricted examples says, from its records alone."""
    made = UnrestrictedRun.open(folder)
    return summarise(made.manifest, made.rows(), str(folder))
