"""Carries out `brinell export`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from brinell.analysis.folder_result import Result
from brinell.analysis.results import AuditResult
from brinell.analysis.robust_accuracy import summarise
from brinell.core.errors import RequestError, option
from brinell.core.record import Records
from brinell.pages import html
from brinell.store.run import Run
from brinell.studies.export import every_eval
from brinell.studies.export.entries import hub_entry, robustbench_entry
from brinell.studies.export.request import ExportRequest
from brinell.studies.export.targets import Exported, to_csv, to_mlflow, to_tensorboard, written
from brinell.studies.kit import Call, fresh_folder


class ExportAnswer(Result):
    """`brinell export --json`."""

    run: str
    """The run folder."""
    to: str
    """Target of the export."""
    where: str
    """The folder, or the address of the server."""
    metrics: int
    """Values that were written; 0 for RobustBench, whose entries hold a few fields."""
    files: tuple[str, ...]
    """Files that were written or uploaded, relative to `where`, without event files."""
    notes: tuple[str, ...]
    """What is missing from it, or keeps it from comparison with others."""


def export(request: ExportRequest, out: Path | None, fresh: Path) -> ExportAnswer:
    """Write a run for another tool.

    Args:
        request: what is asked for.
        out: the folder that was named, if any.
        fresh: the folder where none was.

    Raises:
        RequestError: no such run, a tool that is not installed or cannot be reached, files that are there already, or settings
            that belong to another tool.
    """
    if request.to != "robustbench" and request.eps is not None:
        raise RequestError(f"{option('eps')} belongs to {option('to', 'robustbench')}: leave it out")
    if request.to in ("csv", "tensorboard", "mlflow") and request.about:
        raise RequestError(
            f"{option('about')} belongs to {option('to')} robustbench, huggingface and every-eval-ever: leave it out"
        )
    run = Run.open(request.run)
    records = run.records()
    result = summarise(run.manifest, records, request.run)
    if request.to in ("robustbench", "huggingface", "every-eval-ever"):
        return _entries(request, run, records, result, out or fresh)
    page, tables = html.render_all(run.path)
    exported = Exported(run=run, records=records, result=result, page=page, tables=tables)
    if request.to == "mlflow":
        where, files = to_mlflow(exported, out)
    else:
        write = to_csv if request.to == "csv" else to_tensorboard
        where, files = write(exported, out or fresh)
    count = sum(len(values) for values in exported.metrics.values())
    notes = () if result.complete else ("the run is not finished: its figures may still fall",)
    return ExportAnswer(run=request.run, to=request.to, where=where, metrics=count, files=files, notes=notes)


def _entries(request: ExportRequest, run: Run, records: Records, result: AuditResult, folder: Path) -> ExportAnswer:
    """An entry for each model."""
    entries: list[tuple[dict[str, str], Sequence[str]]] = []
    for model in result.models:
        if request.to == "every-eval-ever":
            entries.append(every_eval.record(model, run.manifest, records, request.about))
            continue
        if request.to == "huggingface":
            path, text, missing = hub_entry(model, run.manifest, request.about)
        else:
            path, text, missing = robustbench_entry(model, run.manifest, request.eps, request.about)
        entries.append(({path: text}, missing))
    where, files = written(folder, {path: text for texts, _ in entries for path, text in texts.items()})
    several_models = len(entries) > 1
    notes = [
        f"{model.model}: {note}" if several_models else note
        for model, (_, missing) in zip(result.models, entries, strict=True)
        for note in missing
    ]
    return ExportAnswer(run=request.run, to=request.to, where=where, metrics=0, files=files, notes=tuple(notes))


def carry_out(call: Call) -> ExportAnswer:
    """Write a run for another tool.

    Raises:
        RequestError: what cannot be carried out.
    """
    request: ExportRequest = call.request
    return export(request, call.out, fresh_folder(Path(request.run).name, request.to))


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    for note in result.notes:
        yield f"note: {note}"
    metrics_text = f"{result.metrics:,} metrics and " if result.metrics else ""
    yield f"{result.to}: {metrics_text}{len(result.files)} files in {result.where}"
