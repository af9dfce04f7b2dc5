"""The tools that a run is written to, each by its own client."""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.results import AuditResult, ModelResult, Rate
from brinell.core.errors import RequestError, option
from brinell.core.record import COLUMNS, Records
from brinell.pages.tables import csv_text
from brinell.store.files import write_text
from brinell.store.run import Run


@dataclass(frozen=True)
class Metric:
    """One value of one model."""

    name: str
    step: int
    """Position of the eps among those of the run, counted from 0; 0 for what belongs to no eps."""
    value: float


def metrics(result: ModelResult) -> list[Metric]:
    """Every numeric figure of a model. Unknown figures are left out, not set to zero.

    Series over eps have the same name at each step: `eps` tells which one a step is.
    """
    found = [*_rate("clean_accuracy", 0, result.clean_accuracy)]
    for step, rate in enumerate(result.robust_accuracy):
        found.append(Metric("eps", step, rate.eps))
        found += _rate("robust_accuracy", step, rate)
        classes = [one.robust[step].value for one in result.per_class]
        known = [value for value in classes if value is not None]
        if known:
            found.append(Metric("worst_class_accuracy", step, min(known)))
        for one in result.per_class:
            if (value := one.robust[step].value) is not None:
                found.append(Metric(f"robust_accuracy_of_class/{one.name}", step, value))
    for step, rate in enumerate(result.quantised_robust_accuracy or []):
        found += _rate("quantised_robust_accuracy", step, rate)
    states = [check.passed for check in result.checks]
    counts = {"passed": states.count(True), "failed": states.count(False), "not_made": states.count(None)}
    found += [Metric(f"checks/{name}", 0, float(count)) for name, count in counts.items()]
    found += [
        Metric(f"cost/{kind}", 0, float(sum(getattr(one, kind) for one in result.stages))) for kind in ("forwards", "backwards")
    ]
    if result.seconds is not None:
        found.append(Metric("cost/seconds", 0, result.seconds))
    return found


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
    asked = {key: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value) for key, value in request.items()}
    return asked | {
        "model": result.model,
        "data": str(manifest["data"]["name"]),
        "data_digest": str(manifest["data"]["digest"]),
        "eps": ", ".join(result.eps_text),
        "n": str(result.n),
        "criterion": result.criterion,
        "brinell": str(manifest["brinell"]),
    }


EXPERIMENT = "brinell"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Content of a run for export."""

    run: Run
    records: Records
    result: AuditResult
    page: str
    tables: Mapping[str, str]
    """File name to CSV text."""

    @property
    def metrics(self) -> dict[str, list[Metric]]:
        """Every figure, by model."""
        return {model.model: metrics(model) for model in self.result.models}

    def settings(self, model: str) -> dict[str, str]:
        """Settings of the run for one model."""
        return settings(self.run.manifest, next(one for one in self.result.models if one.model == model))

    def files(self) -> dict[str, str]:
        """The report and the tables, by their paths."""
        return {"report.html": self.page} | {f"tables/{name}": text for name, text in self.tables.items()}


def to_csv(exported: Exported, folder: Path) -> tuple[str, tuple[str, ...]]:
    """Write metrics, settings, a row per model, sample, attack and eps, the tables and the report.

    Returns:
        The folder, and the files.
    """
    values = [(model, metric.name, metric.step, metric.value) for model, series in exported.metrics.items() for metric in series]
    asked = [(model, *pair) for model in exported.metrics for pair in exported.settings(model).items()]
    files = exported.files() | {
        "metrics.csv": csv_text(("model", "metric", "step", "value"), values),
        "settings.csv": csv_text(("model", "setting", "value"), asked),
        "rows.csv": _rows(exported.records),
    }
    return written(folder, files)


def to_tensorboard(exported: Exported, folder: Path) -> tuple[str, tuple[str, ...]]:
    """An event file for each model, and the tables and the report beside them.

    Raises:
        RequestError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise RequestError("TensorBoard's client is not installed: pip install 'brinell[tensorboard]'") from None
    where, files = written(folder, exported.files())
    for model in exported.result.models:
        with SummaryWriter(str(folder / model.model.replace("/", "-"))) as writer:
            for metric in metrics(model):
                writer.add_scalar(metric.name, metric.value, metric.step)
            verdict = "\n\n".join([model.verdict, *(f"Warning: {warning.text}" for warning in model.warnings)])
            writer.add_text("verdict", verdict)
            writer.add_text("settings", _table([("setting", "value"), *exported.settings(model.model).items()]))
            for name, text in exported.tables.items():
                writer.add_text(f"tables/{name}", _table(list(csv.reader(io.StringIO(text)))))
    return where, files


def to_mlflow(exported: Exported, folder: Path | None) -> tuple[str, tuple[str, ...]]:
    """A run for each model, with metrics, parameters, and the report and the tables as artefacts.

    Args:
        exported: the run.
        folder: a folder of MLflow's own form; none goes by MLFLOW_TRACKING_URI.

    Raises:
        RequestError: MLflow is not installed, nobody said where its runs lie, or it cannot reach or write them.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise RequestError("MLflow's client is not installed: pip install 'brinell[mlflow]'") from None
    if folder is None and "MLFLOW_TRACKING_URI" not in os.environ:
        raise RequestError(
            f"nobody said where MLflow keeps its runs: set MLFLOW_TRACKING_URI, or name a folder by {option('out')}"
        )
    if folder is not None:
        # MLflow asks for this word before it writes files in place of a database.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    where = os.environ["MLFLOW_TRACKING_URI"] if folder is None else folder.resolve().as_uri()
    try:
        client = MlflowClient(tracking_uri=where)
        known = client.get_experiment_by_name(EXPERIMENT)
        experiment = client.create_experiment(EXPERIMENT) if known is None else known.experiment_id
        for model in exported.result.models:
            tags = {"verdict": model.verdict, "brinell.run": str(exported.run.path), "caveat": model.caveat or ""}
            run = client.create_run(experiment, run_name=f"{model.model} on {exported.run.manifest['data']['name']}", tags=tags)
            run_id = run.info.run_id
            for key, value in exported.settings(model.model).items():
                client.log_param(run_id, key, value)
            for metric in metrics(model):
                client.log_metric(run_id, _plain(metric.name), metric.value, step=metric.step)
            for path, text in exported.files().items():
                client.log_text(run_id, text, path)
            client.set_terminated(run_id)
    except MlflowException as error:
        raise RequestError(f"MLflow at {where} says: {' '.join(str(error).split())[:300]}") from None
    return where, tuple(exported.files())


def _plain(name: str) -> str:
    """A name in the characters that MLflow allows."""
    return "".join(letter if letter.isalnum() or letter in "_-. /:" else "_" for letter in name)


def written(folder: Path, files: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Write files into a folder that has none of them yet.

    Raises:
        RequestError: it has one.
    """
    for name in files:
        if (folder / name).exists():
            raise RequestError(f"{folder / name} exists: name another {option('out')}")
    for name, text in files.items():
        write_text(folder / name, text)
    return str(folder), tuple(files)


def _rows(records: Records) -> str:
    """Every row as CSV, nulls as empty cells."""
    columns = [np.ma.asarray(getattr(records, name)).tolist() for name in COLUMNS]
    return csv_text(tuple(COLUMNS), zip(*columns, strict=True))


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, which TensorBoard shows as one."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
