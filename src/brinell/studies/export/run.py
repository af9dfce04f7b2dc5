"""Carries out `brinell export`: the CSV files of a run, and the entries of its models."""

from collections.abc import Iterator
from pathlib import Path

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
from brinell.store.run import Run
from brinell.studies import register
from brinell.studies.export import ExportRequest
from brinell.studies.export.entries import hub_entry, robustbench_entry
from brinell.studies.kit import Call, fresh_folder


class ExportAnswer(Result):
    """`brinell export --json`."""

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

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The self line by line."""
        yield from (f"note: {note}" for note in self.notes)
        yield f"{self.to}: {len(self.files)} files in {self.where}"


def carry_out(call: Call) -> ExportAnswer:
    """Write a run for another tool; refuses to write over a file."""
    request: ExportRequest = call.request
    run = Run.open(request.run)
    records = run.records()
    result = summarise(run.manifest, records, request.run)
    files, notes = (
        csv_files(run, records, result) if request.to == "csv" else entries(request, run, result)
    )
    folder = call.out or fresh_folder(Path(request.run).name, request.to)
    for name in files:
        if (folder / name).exists():
            raise RequestError(f"{folder / name} exists: name another {option('out')}")
    for name, text in files.items():
        write_text(folder / name, text)
    return ExportAnswer(
        run=request.run, to=request.to, where=str(folder), files=tuple(files), notes=tuple(notes)
    )


def entries(
    request: ExportRequest, run: Run, result: AuditResult
) -> tuple[dict[str, str], list[str]]:
    """Files of the entries of all models, by path, and notes."""
    files: dict[str, str] = {}
    notes: list[str] = []
    entry = hub_entry if request.to == "huggingface" else robustbench_entry
    for model in result.models:
        path, files[path], missing = entry(model, run.manifest)
        notes += [f"{model.model}: {note}" if len(result.models) > 1 else note for note in missing]
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
