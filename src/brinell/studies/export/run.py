"""Carries out `brinell export`."""

from pathlib import Path

from brinell.analysis.results import AuditResult
from brinell.analysis.robust_accuracy import summarise
from brinell.core.errors import RequestError
from brinell.report import html
from brinell.store.run import Run
from brinell.studies.export import robustbench
from brinell.studies.export.answer import ExportAnswer
from brinell.studies.export.request import ExportRequest
from brinell.studies.export.targets import Exported, to_csv, to_mlflow, to_tensorboard, written


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
    if request.to != "robustbench" and (request.eps is not None or request.about):
        raise RequestError("--eps and --about belong to --to robustbench: leave them out")
    run = Run.open(request.run)
    records = run.records()
    result = summarise(run.manifest, records, request.run)
    if request.to == "robustbench":
        return _entries(request, run, result, out or fresh)
    page, tables = html.made(run.path)
    exported = Exported(run=run, records=records, result=result, page=page, tables=tables)
    if request.to == "mlflow":
        where, files = to_mlflow(exported, out)
    else:
        write = to_csv if request.to == "csv" else to_tensorboard
        where, files = write(exported, out or fresh)
    count = sum(len(found) for found in exported.metrics.values())
    notes = () if result.complete else ("the run is not finished: its figures may still fall",)
    return ExportAnswer(run=request.run, to=request.to, where=where, metrics=count, files=files, notes=notes)


def _entries(request: ExportRequest, run: Run, result: AuditResult, folder: Path) -> ExportAnswer:
    """An entry for each model."""
    found = [robustbench.entry(one, run.manifest, request.eps, request.about) for one in result.models]
    where, files = written(folder, {path: text for path, text, _ in found})
    several = len(found) > 1
    notes = [
        f"{one.model}: {note}" if several else note
        for one, (_, _, missing) in zip(result.models, found, strict=True)
        for note in missing
    ]
    return ExportAnswer(run=request.run, to=request.to, where=where, metrics=0, files=files, notes=tuple(notes))
