"""Carries out `brinell export`: the CSV files of a run, and the entries of its models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.results import AuditResult, ModelResult, Rate
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
    """Write a run for another tool.

    Raises:
        RequestError: no such run, files that are there already, or settings that belong to another target.
    """
    request: ExportRequest = call.request
    if request.to != "robustbench" and request.eps is not None:
        raise RequestError(f"{option('eps')} belongs to {option('to', 'robustbench')}: leave it out")
    if request.to == "csv" and request.about:
        raise RequestError(f"{option('about')} belongs to {option('to')} robustbench and huggingface: leave it out")
    run = Run.open(request.run)
    records = run.records()
    result = summarise(run.manifest, records, request.run)
    files, notes = csv_files(run, records, result) if request.to == "csv" else entries(request, run, result)
    folder = call.out or fresh_folder(Path(request.run).name, request.to)
    for name in files:
        if (folder / name).exists():
            raise RequestError(f"{folder / name} exists: name another {option('out')}")
    for name, text in files.items():
        write_text(folder / name, text)
    return ExportAnswer(run=request.run, to=request.to, where=str(folder), files=tuple(files), notes=tuple(notes))


def entries(request: ExportRequest, run: Run, result: AuditResult) -> tuple[dict[str, str], list[str]]:
    """Files of the entries of all models, by path, and notes."""
    files: dict[str, str] = {}
    notes: list[str] = []
    for model in result.models:
        if request.to == "huggingface":
            path, text, missing = hub_entry(model, run.manifest, request.about)
        else:
            path, text, missing = robustbench_entry(model, run.manifest, request.eps, request.about)
        files[path] = text
        notes += [f"{model.model}: {note}" if len(result.models) > 1 else note for note in missing]
    return files, notes


@dataclass(frozen=True)
class Metric:
    """One value of one model."""

    name: str
    step: int
    """Position of the eps among those of the run, counted from 0; 0 for what belongs to no eps."""
    value: float


def csv_files(run: Run, records: Records, result: AuditResult) -> tuple[dict[str, str], list[str]]:
    """Metrics, settings, rows, tables and report by path, and notes."""
    report = register.open_folder(run.path).report()
    values = [(model.model, metric.name, metric.step, metric.value) for model in result.models for metric in metrics(model)]
    pairs = [(model.model, *pair) for model in result.models for pair in settings(run.manifest, model).items()]
    columns = [np.ma.asarray(getattr(records, name)).tolist() for name in COLUMNS]
    files = {"report.html": page(report)} | {f"tables/{name}": text for name, text in tables_of(report).items()}
    files |= {
        "metrics.csv": csv_text(("model", "metric", "step", "value"), values),
        "settings.csv": csv_text(("model", "setting", "value"), pairs),
        "rows.csv": csv_text(tuple(COLUMNS), zip(*columns, strict=True)),
    }
    return files, [] if result.complete else ["the run is not finished: its figures may still fall"]


def metrics(result: ModelResult) -> list[Metric]:
    """Every numeric figure of a model. Unknown figures are left out, not set to zero.

    Series over eps have the same name at each step: `eps` tells which one a step is.
    """
    series = [*_rate("clean_accuracy", 0, result.clean_accuracy)]
    for step, rate in enumerate(result.robust_accuracy):
        series.append(Metric("eps", step, rate.eps))
        series += _rate("robust_accuracy", step, rate)
        known = [value for group in result.per_class if (value := group.robust[step].value) is not None]
        if known:
            series.append(Metric("worst_class_accuracy", step, min(known)))
        for group in result.per_class:
            if (value := group.robust[step].value) is not None:
                series.append(Metric(f"robust_accuracy_of_class/{group.name}", step, value))
    for step, rate in enumerate(result.quantised_robust_accuracy or []):
        series += _rate("quantised_robust_accuracy", step, rate)
    states = [check.passed for check in result.checks]
    counts = {"passed": states.count(True), "failed": states.count(False), "not_made": states.count(None)}
    series += [Metric(f"checks/{name}", 0, float(count)) for name, count in counts.items()]
    series += [
        Metric(f"cost/{kind}", 0, float(sum(getattr(stage, kind) for stage in result.stages)))
        for kind in ("forwards", "backwards")
    ]
    if result.seconds is not None:
        series.append(Metric("cost/seconds", 0, result.seconds))
    return series


def _rate(name: str, step: int, rate: Rate) -> Iterator[Metric]:
    """A rate and the ends of its interval as three metrics."""
    if rate.value is None or rate.low is None or rate.high is None:
        return
    yield Metric(name, step, rate.value)
    yield Metric(f"{name}_low", step, rate.low)
    yield Metric(f"{name}_high", step, rate.high)


def settings(manifest: Mapping[str, Any], result: ModelResult) -> dict[str, str]:
    """Settings of the run as short texts by name."""
    request = {key: value for key, value in manifest["request"].items() if value not in (None, ())}
    values = {
        key: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value) for key, value in request.items()
    }
    return values | {
        "model": result.model,
        "data": str(manifest["data"]["name"]),
        "data_digest": str(manifest["data"]["digest"]),
        "eps": ", ".join(result.eps_text),
        "n": str(result.n),
        "criterion": result.criterion,
        "brinell": str(manifest["brinell"]),
    }
