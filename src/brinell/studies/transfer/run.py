"""Carries out `brinell transfer`: makes or reads each source's examples, and shows them to every model."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from brinell.core.model import Model
from brinell.core.norms import l2, linf
from brinell.core.record import Array
from brinell.engine import trust
from brinell.engine.answers import settled
from brinell.engine.progress import Progress
from brinell.engine.shard import predict, session
from brinell.runners import parts
from brinell.runners.loop import Job
from brinell.runners.meeting import Shard
from brinell.store import parquet, rows
from brinell.store.files import read_arrays, write_arrays
from brinell.store.table import ROWS, Folder
from brinell.studies.kit import Call
from brinell.studies.transfer import page
from brinell.studies.transfer.analysis import summarise
from brinell.studies.transfer.examples import Examples, check_sets, clean_of, ids_of, make_slice, of_run, of_set, place_of
from brinell.studies.transfer.plan import Source, TransferPlan, make_plan
from brinell.studies.transfer.records import LAYOUT, TABLE, Answers, save_examples
from brinell.studies.transfer.results import TransferResult

Answer = TypeVar("Answer")


def make(
    plan: TransferPlan,
    out: Path,
    progress: Progress,
    *,
    command: str,
    page: Callable[[Path], object],
    answer: Callable[[Folder[Answers], str], Answer],
    resume: bool = False,
    shard: Shard | None = None,
) -> Answer:
    """Make or read every source's examples, show them to every model, and write the folder, alone or with other processes.

    Args:
        plan: what to do.
        out: the folder; with a shard also the address of one (`store.shared`).
        progress: told what goes on.
        command: the command line that repeats it, for the manifest.
        page: writes the page of a whole transfer into its folder.
        answer: what is made of the whole transfer and the name of its folder; where the store is no folder, it holds no examples.
        resume: whether to go on with what is there.
        shard: where this process begins among those that meet in `out`; none works alone, if `out` is a folder.

    Raises:
        RequestError: the folder holds another transfer, or a source's data are not these models' data.
        StoppedError: the folder cannot be written.
    """
    job = Job(
        LAYOUT,
        out,
        plan.request,
        about={"cell": plan.cell},
        identity=lambda manifest: manifest.get("cell"),
        inputs="the data, the weights, a source",
        device=plan.device,
        command=command,
    )

    def work(makers: parts.Makers) -> Callable[[Path], None]:
        with ExitStack() as stack:
            opened: dict[str, Model] = {}
            for shown in plan.models:
                opened[shown.name] = shown.open()
                stack.enter_context(session(opened[shown.name], plan.device))

            def settle() -> dict[str, Any]:
                found: dict[str, Any] = {"batches": plan.request.batch_size}
                for name, model in opened.items():
                    settled(model, plan.dataset, found, plan.device, name=name)
                return found

            begun = makers.once("answers", settle)
            models = {name: settled(model, plan.dataset, begun, plan.device, name=name) for name, model in opened.items()}
            check_sets(plan)
            cells = Cells(plan, models, begun["batches"], makers.folder, progress)
            told = makers.make(cells.listed())
        return lambda whole: _finish(plan, cells, told, whole, command, page)

    def answered(folder: Path, name: str) -> Answer:
        return answer(TABLE.read(folder), name)

    return parts.run(job, shard, work, resume=resume, needed=(ROWS,), answer=answered, message=progress.note)


class Cells:
    """The parts of a transfer: slices of made examples, answers to clean inputs, and a cell for each source and model.

    Args:
        plan: what to do.
        models: ready to be asked, by name.
        batches: samples of a batch, by which made examples are cut into slices: that of the process that began.
        folder: where parts are written.
        progress: told what goes on.
    """

    def __init__(self, plan: TransferPlan, models: Mapping[str, Model], batches: int, folder: Path, progress: Progress) -> None:
        self.slices = {slice_name(at): at for at in _slices(len(plan.ids), batches)}
        self._plan, self._models, self._folder, self._progress = plan, models, folder, progress
        self._last: Examples | None = None
        """Those of the source that was read last."""
        self._named: set[str] = set()
        """The sources that were told of."""

    def listed(self) -> list[parts.Part]:
        """All of them, source after source."""
        found: dict[str, parts.Part] = {}
        for source in self._plan.sources:
            slices = self.slices if source.kind == "made" else {}
            made = {
                name: self._part(self.made(source, name), partial(self._make_slice, source, at)) for name, at in slices.items()
            }
            found |= {one.name: one for one in made.values()}
            for model in self._models:
                clean = self._part(self._clean(source, model), partial(self._ask_clean, source, model))
                found.setdefault(clean.name, clean)
                needs = (clean.name, *(one.name for one in made.values()))
                one = self._part(self.cell(source, model), partial(self._show, source, model), needs)
                found[one.name] = one
        return list(found.values())

    def _part(self, name: str, make: Callable[[str], dict[str, Any]], needs: tuple[str, ...] = ()) -> parts.Part:
        return parts.Part(name=name, files=(file_of(name),), make=partial(make, file_of(name)), needs=needs)

    def made(self, source: Source, name: str) -> str:
        """The part of a slice of a source's examples."""
        return f"made-{self._plan.sources.index(source):03d}-{name}"

    def cell(self, source: Source, model: str) -> str:
        """The part of what a model makes of a source."""
        return f"cell-{self._plan.sources.index(source):03d}-{list(self._models).index(model):03d}"

    def _clean(self, source: Source, model: str) -> str:
        """The part of what a model makes of the clean inputs of a source, which it may share with others."""
        first = next(at for at, one in enumerate(self._plan.sources) if place_of(one) == place_of(source))
        return f"clean-{first:03d}-{list(self._models).index(model):03d}"

    def _make_slice(self, source: Source, at: slice, file: str) -> dict[str, Any]:
        self._tell(source)
        started = time.perf_counter()
        x, cost = make_slice(self._plan, source, self._models, at)
        write_arrays(self._folder / file, {"x": x.cpu().numpy()})
        return cost | {"seconds": time.perf_counter() - started}

    def _ask_clean(self, source: Source, model: str, file: str) -> dict[str, Any]:
        """Every clean input that some source has in the same place is asked about once."""
        started, same = time.perf_counter(), [one for one in self._plan.sources if place_of(one) == place_of(source)]
        ids = np.unique(np.concatenate([ids_of(self._plan, one) for one in same]))
        predicted = _classes(self._models[model], clean_of(self._plan, source, ids), self._plan)
        write_arrays(self._folder / file, {"sample_id": ids, "pred": predicted})
        return {"passes": len(ids), "seconds": time.perf_counter() - started}

    def _show(self, source: Source, model: str, file: str) -> dict[str, Any]:
        started = time.perf_counter()
        if self._last is None or self._last.source is not source:
            self._tell(source)
            self._last = self._examples(source)
        examples, known = self._last, read_arrays(self._folder / file_of(self._clean(source, model)))
        answers = _answered(self._plan, examples, model, self._models[model], known)
        parquet.write_table(self._folder / file, parquet.to_table(answers))
        seconds = time.perf_counter() - started
        return {"passes": len(answers), "n": len(answers), "missing": examples.missing, "seconds": seconds}

    def _examples(self, source: Source) -> Examples:
        if source.kind != "made":
            return of_set(source) if source.kind == "set" else of_run(self._plan, source)
        clean = self._plan.dataset.load(self._plan.ids.tolist())
        return Examples(
            source=source,
            sample_id=self._plan.ids,
            label=self._plan.labels,
            distortion=[""] * len(self._plan.ids),
            clean=clean,
            x=self.joined(source, self._folder),
        )

    def joined(self, source: Source, folder: Path) -> Tensor:
        """(n, *shape): the made examples of a source, whose slices lie in a folder."""
        held = [read_arrays(folder / file_of(self.made(source, name)))["x"] for name in self.slices]
        return torch.as_tensor(np.concatenate(held))

    def _tell(self, source: Source) -> None:
        if source.name not in self._named:
            self._named.add(source.name)
            self._progress.note(f"source {self._plan.sources.index(source) + 1} of {len(self._plan.sources)}: {source.name}")


def file_of(part: str) -> str:
    """The file of a part, by its path in the folder."""
    return f"{parts.KEPT}/{part}.{'parquet' if part.startswith('cell') else 'safetensors'}"


def slice_name(at: slice) -> str:
    """How a slice of samples is called."""
    return f"{at.start:08d}-{at.stop:08d}"


def _finish(
    plan: TransferPlan, cells: Cells, told: Mapping[str, Any], folder: Path, command: str, page: Callable[[Path], object]
) -> None:
    """Put a folder together in which the files of all parts are."""
    names = [cells.cell(source, model.name) for source in plan.sources for model in plan.models]
    answers = [parquet.load_rows(Answers, folder / file_of(name)) for name in names]
    for number, source in enumerate(plan.sources):
        if source.kind == "made":
            x = cells.joined(source, folder).numpy()
            save_examples(folder, number, {str(one): each for one, each in zip(plan.ids.tolist(), x, strict=True)})
    request = plan.request.model_dump(mode="json")
    about = {
        "request": request,
        trust.MARK: trust.mark(request, type(plan.request)),
        "command": command,
        "cell": plan.cell,
        "data": {"name": plan.dataset.name, "classes": list(plan.dataset.classes)},
        "distance": plan.distance.name,
        "eps": plan.eps,
        "eps_text": plan.eps_text,
        "attack": plan.stage.name if plan.stage else None,
        "title": plan.stage.title if plan.stage else None,
        "sources": [_told(plan, cells, source, told) for source in plan.sources],
        "models": [{"name": one.name, **one.facts} for one in plan.models],
        "passes": sum(one.get("passes", 0) for one in told.values()),
        "seconds": sum(one["seconds"] for one in told.values()),
    }
    TABLE.write(folder, about, rows.concatenate(answers))
    page(folder)


def _told(plan: TransferPlan, cells: Cells, source: Source, told: Mapping[str, Any]) -> dict[str, Any]:
    facts = {one.name: one.facts["digest"] for one in plan.models}
    # By the digest, so that a retrained model of the same name is another; of a set, whose exact inputs have no levels any more
    # and so another domain, which is part of a digest, by the name as well.
    known = set(source.digests) or {facts[name] for name in source.members}
    names = set(source.members) if source.kind == "set" else set()
    shown = told[cells.cell(source, plan.models[0].name)]
    spent = [told[cells.made(source, name)] for name in cells.slices] if source.kind == "made" else []
    return {
        "name": source.name,
        "kind": source.kind,
        "members": list(source.members),
        "white_box": [name for name, digest in facts.items() if digest in known or name in names],
        "level": source.level,
        "n": shown["n"],
        "missing": shown["missing"],
        "folder": None if source.folder is None else str(source.folder),
        **{key: sum(one[key] for one in spent) for key in ("forwards", "backwards", "seconds")},
    }


def _answered(plan: TransferPlan, examples: Examples, name: str, model: Model, known: Mapping[str, Array]) -> Answers:
    """What one model makes of a source's examples; `known` says what it makes of clean inputs."""
    change = examples.x.cpu() - examples.clean.cpu()
    return rows.build(
        Answers,
        len(examples.label),
        source=examples.source.name,
        model=name,
        sample_id=examples.sample_id,
        label=examples.label,
        distortion=np.array(examples.distortion, dtype=object),
        linf=linf(change).numpy(),
        l2=l2(change).numpy(),
        clean_pred=known["pred"][np.searchsorted(known["sample_id"], examples.sample_id)],
        pred=_classes(model, examples.x, plan),
    )


def _classes(model: Model, x: Tensor, plan: TransferPlan) -> Array:
    found: Array = predict(model, x.to(plan.device), plan.request.batch_size).argmax(1).cpu().numpy()
    return found


def _slices(n: int, size: int) -> Iterator[slice]:
    """Slices of some batches each, so that a ledger's copies stay small."""
    step = 4 * size
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def carry_out(call: Call) -> TransferResult:
    """Make or read every source's examples, show them to every model, and write the folder.

    Raises:
        RequestError: what cannot be carried out; before any query is spent where that can be told.
        StoppedError: the folder cannot be written.
    """
    plan = make_plan(call.request, dataset=call.dataset(), models=call.models())

    def answer(made: Folder[Answers], name: str) -> TransferResult:
        return summarise(made).model_copy(update={"folder": name})

    return make(
        plan,
        call.folder(plan.data),
        call.progress,
        command=call.command,
        page=page.write,
        answer=answer,
        resume=call.resume,
        shard=call.shard,
    )


def open_result(folder: Path) -> TransferResult:
    """What a transfer's folder says, from its records alone."""
    return summarise(TABLE.read(folder))
