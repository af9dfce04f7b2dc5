"""Carries out `brinell export`: the CSV files of a run, the entries of its models, and what the hub
gets.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.results import AuditResult
from brinell.analysis.robust_accuracy import summarise
from brinell.core.errors import RequestError, option
from brinell.core.record import COLUMNS, Records
from brinell.reports.csv import csv_files as tables_of
from brinell.reports.csv import csv_text
from brinell.reports.html import page
from brinell.store.files import write_text
from brinell.store.folder import verb_of
from brinell.store.run import Run
from brinell.studies import register
from brinell.studies.export import ExportRequest, hub
from brinell.studies.export.entries import robustbench_entry
from brinell.studies.kit import Call, fresh_folder


class ExportAnswer(Result):
    """`brinell export --json`."""

    printed: ClassVar[dict[str, str]] = {
        "export": "run:ExportAnswer",
        "robustness": "brinell.analysis.robustness_field:RobustnessField",
    }

    run: str
    """The run folder."""
    to: str
    """Target of the export."""
    where: str
    """The folder."""
    files: tuple[str, ...]
    """Files that were written, relative to `where`."""
    notes: tuple[str, ...]
    """What is missing from it, or keeps it from comparison with others."""
    pushed: str | None
    """The address of what the hub took; null if nothing was sent."""

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The result line by line."""
        yield from (f"note: {note}" for note in self.notes)
        yield f"{self.to}: {len(self.files)} files in {self.where}"
        if self.pushed:
            yield f"pushed: {self.pushed}"


def carry_out(call: Call) -> ExportAnswer:
    """Write a run for another tool; refuses to write over a file, but for those of the same export
    that was stopped.
    """
    request: ExportRequest = call.request
    if request.push and request.to != "hub":
        raise RequestError(f"{option('push')} is for the hub: add {option('to')} hub")
    source = Path(request.run)
    is_set = request.to == "hub" and verb_of(source) == "benchmark"
    files, notes = (
        ({hub.CARD: (source / hub.CARD).read_text(encoding="utf-8")}, [])
        if is_set
        else _files(request)
    )

    folder = call.out or fresh_folder(source.name, request.to)
    for name, text in files.items():
        if (folder / name).exists() and (folder / name).read_bytes() != text.encode():
            raise RequestError(f"{folder / name} exists: name another {option('out')}")
    for name, text in files.items():
        write_text(folder / name, text)

    pushed = None
    if request.push:
        # Of a benchmark set the whole folder is sent, of a run the files that were made for it.
        kind, sent = ("dataset", source) if is_set else ("model", folder)
        pushed = hub.push(request.push, sent, kind, None if is_set else list(files))
    return ExportAnswer(
        run=request.run,
        to=request.to,
        where=str(folder),
        files=tuple(files),
        notes=tuple(notes),
        pushed=pushed,
    )


def _files(request: ExportRequest) -> tuple[dict[str, str], list[str]]:
    """Files of a run by path, and notes."""
    run = Run.open(request.run)
    records = run.rows
    result = summarise(run.manifest, records, request.run)
    if request.to == "csv":
        return csv_files(run, records, result)
    if request.to == "hub":
        return hub.files_of(result, run.manifest, run.path)

    files: dict[str, str] = {}
    notes: list[str] = []
    for model in result.models:
        path, files[path], missing = robustbench_entry(model, run.manifest)
        notes += [f"{model.name}: {note}" if len(result.models) > 1 else note for note in missing]
    return files, notes


def csv_files(run: Run, records: Records, result: AuditResult) -> tuple[dict[str, str], list[str]]:
    """Rows, tables and report by path, and notes."""
    report = register.open_folder(run.path).report()
    columns = [np.ma.asarray(getattr(records, name)).tolist() for name in COLUMNS]
    files = {"report.html": page(report)} | {
        f"tables/{name}": text for name, text in tables_of(report).items()
    }
    files["rows.csv"] = csv_text(tuple(COLUMNS), zip(*columns, strict=True))
    return files, [] if result.complete else ["the run is not finished: its figures may still fall"]
