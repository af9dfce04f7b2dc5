"""Carries out `brinell transfer`: makes or reads each source's examples, and evaluates every model on them."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.analysis.attainable import sentences
from brinell.core.model import Model
from brinell.core.norms import l2, linf
from brinell.core.record import Array
from brinell.engine import parts
from brinell.engine.answers import with_logits
from brinell.engine.job import Job
from brinell.engine.progress import Progress
from brinell.engine.shard import predict, session
from brinell.store import parquet, rows
from brinell.store.files import read_arrays, write_arrays
from brinell.studies.kit import Call
from brinell.studies.transfer.analysis import families, summarise
from brinell.studies.transfer.examples import (
    Examples,
    check_sets,
    clean_origin,
    load_clean,
    make_slice,
    read_run,
    read_set,
    sample_ids,
)
from brinell.studies.transfer.plan import Source, TransferPlan, make_plan
from brinell.studies.transfer.records import LAYOUT, TABLE, Answers, save_examples
from brinell.studies.transfer.report import write
from brinell.studies.transfer.results import TransferResult


def make(plan: TransferPlan, call: Call) -> TransferResult:
    """Make or read every source's examples, evaluate every model on them, and write the folder, alone or with other processes.

    Raises:
        RequestError: the folder holds another transfer, or the data of a source differ from the data of the models.
        StoppedError: the folder cannot be written.
    """
    job = Job(
        LAYOUT,
        call.folder(plan.data),
        plan.request,
        about={"cell": plan.cell},
        identity=lambda manifest: manifest.get("cell"),
        inputs="the data, the weights, a source",
        device=plan.device,
        command=call.command,
    )

    def work(makers: parts.PartMaker) -> Callable[[Path], None]:
        """Make the parts; returns how the folder is finished."""
        with ExitStack() as stack:
            opened: dict[str, Model] = {}
            for entry in plan.models:
                opened[entry.name] = entry.open()
                stack.enter_context(session(opened[entry.name], plan.device))

            def check_answers() -> dict[str, Any]:
                """Find out what kind of answers each model gives."""
                record: dict[str, Any] = {"batches": plan.request.batch_size}
                for name, model in opened.items():
                    with_logits(model, plan.dataset, record, plan.device, name=name)
                return record

            answers = makers.make_once("answers", check_answers)
            models = {name: with_logits(model, plan.dataset, answers, plan.device, name=name) for name, model in opened.items()}
            check_sets(plan)
            cells = Cells(plan, models, answers["batches"], makers.folder, call.progress)
            results = makers.make(cells.list_parts())
        return lambda folder: _finish(plan, cells, results, folder, job)

    parts.make_folder(job, work, resume=call.resume, pool=call.pool())
    return summarise(TABLE.read(job.path)).model_copy(update={"folder": str(job.path)})


class Cells:
    """The parts of a transfer: slices of made examples, answers to clean inputs, and a cell for each source and model.

    Args:
        plan: the plan.
        models: models by name, in a `session`.
        batches: samples per batch in the process that started the transfer, which determines the slices.
        folder: the folder of the parts.
        progress: receives progress messages.
    """

    def __init__(self, plan: TransferPlan, models: Mapping[str, Model], batches: int, folder: Path, progress: Progress) -> None:
        self.slices = {slice_name(rows): rows for rows in _slices(len(plan.ids), batches)}
        self._plan, self._models, self._folder, self._progress = plan, models, folder, progress
        self._last_examples: Examples | None = None
        """Examples of the source that was read last."""
        self._announced_sources: set[str] = set()
        """Sources whose start was reported."""

    def list_parts(self) -> list[parts.Part]:
        """All parts, in an order in which they can run: per source the examples, then the clean answers and cells."""
        by_name: dict[str, parts.Part] = {}
        for source in self._plan.sources:
            slices = self.slices if source.kind == "made" else {}
            examples = {
                name: self._part(self.example_name(source, name), partial(self._make_slice, source, rows))
                for name, rows in slices.items()
            }
            by_name |= {part.name: part for part in examples.values()}
            for model in self._models:
                clean = self._part(self._clean_name(source, model), partial(self._predict_clean, source, model))
                by_name.setdefault(clean.name, clean)
                needs = (clean.name, *(part.name for part in examples.values()))
                cell = self._part(self.cell_name(source, model), partial(self._evaluate, source, model), needs)
                by_name[cell.name] = cell
        return list(by_name.values())

    def _part(self, name: str, make: Callable[[str], dict[str, Any]], needs: tuple[str, ...] = ()) -> parts.Part:
        """A part that writes one file."""
        return parts.Part(name=name, files=(part_file(name),), make=partial(make, part_file(name)), needs=needs)

    def example_name(self, source: Source, name: str) -> str:
        """Name of the part that makes a slice of a source's examples."""
        return f"made-{self._plan.sources.index(source):03d}-{name}"

    def cell_name(self, source: Source, model: str) -> str:
        """Name of the part that evaluates a model on a source."""
        return f"cell-{self._plan.sources.index(source):03d}-{list(self._models).index(model):03d}"

    def _clean_name(self, source: Source, model: str) -> str:
        first = next(number for number, peer in enumerate(self._plan.sources) if clean_origin(peer) == clean_origin(source))
        return f"clean-{first:03d}-{list(self._models).index(model):03d}"

    def _make_slice(self, source: Source, rows: slice, file: str) -> dict[str, Any]:
        self._announce(source)
        started = time.perf_counter()
        x, cost = make_slice(self._plan, source, self._models, rows)
        write_arrays(self._folder / file, {"x": x.cpu().numpy()})
        return cost | {"seconds": time.perf_counter() - started}

    def _predict_clean(self, source: Source, model: str, file: str) -> dict[str, Any]:
        """Predict the clean inputs of all sources that share them, each input once."""
        started, peers = time.perf_counter(), [peer for peer in self._plan.sources if clean_origin(peer) == clean_origin(source)]
        ids = np.unique(np.concatenate([sample_ids(self._plan, peer) for peer in peers]))
        labels = np.asarray(self._plan.dataset.labels(), dtype=np.int64)[ids] if source.kind != "set" else None
        answers = _ask(self._models[model], load_clean(self._plan, source, ids), labels, self._plan)
        write_arrays(self._folder / file, {"sample_id": ids, **answers})
        return {"passes": len(ids), "seconds": time.perf_counter() - started}

    def _evaluate(self, source: Source, model: str, file: str) -> dict[str, Any]:
        started = time.perf_counter()
        if self._last_examples is None or self._last_examples.source is not source:
            self._announce(source)
            self._last_examples = self._examples(source)
        examples, clean = self._last_examples, read_arrays(self._folder / part_file(self._clean_name(source, model)))
        answers = _evaluate_examples(self._plan, examples, model, self._models[model], clean)
        parquet.write_table(self._folder / file, parquet.to_table(answers))
        seconds = time.perf_counter() - started
        return {"passes": len(answers), "n": len(answers), "missing": examples.missing, "seconds": seconds}

    def _examples(self, source: Source) -> Examples:
        if source.kind != "made":
            return read_set(source) if source.kind == "set" else read_run(self._plan, source)
        clean = self._plan.dataset.load(self._plan.ids.tolist())
        return Examples(
            source=source,
            sample_id=self._plan.ids,
            label=self._plan.labels,
            distortion=[""] * len(self._plan.ids),
            clean=clean,
            x=self.join_slices(source, self._folder),
        )

    def join_slices(self, source: Source, folder: Path) -> Tensor:
        """Join the slices of a source's examples in a folder to one tensor, (n, *shape)."""
        arrays = [read_arrays(folder / part_file(self.example_name(source, name)))["x"] for name in self.slices]
        return torch.as_tensor(np.concatenate(arrays))

    def _announce(self, source: Source) -> None:
        """Print the name of a source once."""
        if source.name not in self._announced_sources:
            self._announced_sources.add(source.name)
            self._progress.note(f"source {self._plan.sources.index(source) + 1} of {len(self._plan.sources)}: {source.name}")


def part_file(part: str) -> str:
    """Path of a part's file, relative to the folder."""
    return f"{parts.PARTS}/{part}.{'parquet' if part.startswith('cell') else 'safetensors'}"


def slice_name(rows: slice) -> str:
    """Name of a slice of samples."""
    return f"{rows.start:08d}-{rows.stop:08d}"


def _finish(plan: TransferPlan, cells: Cells, results: Mapping[str, Any], folder: Path, job: Job) -> None:
    """Write the examples, rows, manifest and page from the files of all parts."""
    names = [cells.cell_name(source, model.name) for source in plan.sources for model in plan.models]
    answers = [parquet.load_rows(Answers, folder / part_file(name)) for name in names]
    for number, source in enumerate(plan.sources):
        if source.kind == "made":
            x = cells.join_slices(source, folder).numpy()
            save_examples(folder, number, {str(sample): example for sample, example in zip(plan.ids.tolist(), x, strict=True)})
    request = plan.request.model_dump(mode="json")
    about = {
        "request": request,
        "command": job.command,
        "cell": plan.cell,
        "data": {"name": plan.dataset.name, "classes": list(plan.dataset.classes)},
        "criterion": None if plan.threshold is None else plan.threshold.text,
        "distance": plan.distance.name,
        "eps": plan.eps,
        "eps_text": plan.eps_text,
        "attack": plan.stage.name if plan.stage else None,
        "title": plan.stage.title if plan.stage else None,
        "sources": [_source_facts(plan, cells, source, results) for source in plan.sources],
        "models": [{"name": entry.name, **entry.facts} for entry in plan.models],
        "passes": sum(result.get("passes", 0) for result in results.values()),
        "seconds": sum(result["seconds"] for result in results.values()),
    }
    TABLE.write(folder, about, rows.concatenate(answers))
    write(folder)


def _source_facts(plan: TransferPlan, cells: Cells, source: Source, results: Mapping[str, Any]) -> dict[str, Any]:
    digests = {entry.name: entry.facts["digest"] for entry in plan.models}
    # Digests distinguish a retrained model of the same name. A set also compares names: its inputs have another domain than the
    # data of its model, and the domain is part of a digest.
    source_digests = set(source.digests) or {digests[name] for name in source.members}
    names = set(source.members) if source.kind == "set" else set()
    first_cell = results[cells.cell_name(source, plan.models[0].name)]
    costs = [results[cells.example_name(source, name)] for name in cells.slices] if source.kind == "made" else []
    return {
        "name": source.name,
        "kind": source.kind,
        "members": list(source.members),
        "white_box": [name for name, digest in digests.items() if digest in source_digests or name in names],
        "level": source.level,
        "n": first_cell["n"],
        "missing": first_cell["missing"],
        "folder": None if source.folder is None else str(source.folder),
        **{key: sum(cost[key] for cost in costs) for key in ("forwards", "backwards", "seconds")},
    }


def _evaluate_examples(plan: TransferPlan, examples: Examples, name: str, model: Model, clean: Mapping[str, Array]) -> Answers:
    """Evaluate a model on a source's examples; `clean` holds its answers to clean inputs (`sample_id` and those of `_ask`)."""
    change = examples.x.cpu() - examples.clean.cpu()
    rows_of_clean = np.searchsorted(clean["sample_id"], examples.sample_id)
    answers = _ask(model, examples.x, examples.label, plan)
    before, after = (part.get("margin") for part in (clean, answers))
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
        clean_pred=clean["pred"][rows_of_clean],
        pred=answers["pred"],
        **({} if before is None or after is None else {"clean_margin": before[rows_of_clean], "margin": after}),
    )


def _ask(model: Model, x: Tensor, labels: Array | None, plan: TransferPlan) -> dict[str, Array]:
    """Answers of a model to inputs: `pred` (n,) int64 classes, and `margin` (n,) to a criterion of probability."""
    logits = predict(model, x.to(plan.device), plan.request.batch_size)
    answers: dict[str, Array] = {"pred": logits.argmax(1).cpu().numpy()}
    if plan.threshold is not None:
        y = torch.as_tensor(labels, device=logits.device).long()
        answers["margin"] = plan.threshold.margin(logits, y, x).cpu().numpy()
    return answers


def _slices(n: int, size: int) -> Iterator[slice]:
    """Slices of four batches each, which limits the memory of a ledger."""
    step = 4 * size
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def carry_out(call: Call) -> TransferResult:
    """Make or read every source's examples, evaluate every model on them, and write the folder.

    Raises:
        RequestError: the request is invalid.
        StoppedError: the folder cannot be written.
    """
    plan = make_plan(call.request, dataset=call.dataset(), models=call.models())
    made = sum(source.kind == "made" for source in plan.sources)
    for sentence in sentences(
        families(
            made, len(plan.models) if made else 0, len(plan.sources) * len(plan.models), len(plan.ids), plan.request.criterion
        )
    ):
        call.progress.note(sentence)
    return make(plan, call)
