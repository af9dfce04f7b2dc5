"""The tools that a run is written to, each by its own client."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brinell.analysis.results import AuditResult
from brinell.core.errors import RequestError, option
from brinell.core.record import COLUMNS, Records
from brinell.pages.tables import csv_text
from brinell.store.files import write_text
from brinell.store.run import Run
from brinell.studies.export.metrics import Metric, metrics, settings

EXPERIMENT = "brinell"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What there is to export of a run."""

    run: Run
    records: Records
    result: AuditResult
    page: str
    tables: Mapping[str, str]
    """File name to CSV text."""

    @property
    def metrics(self) -> dict[str, list[Metric]]:
        """Every figure, by model."""
        return {one.model: metrics(one) for one in self.result.models}

    def settings(self, model: str) -> dict[str, str]:
        """What was asked for of a model."""
        return settings(self.run.manifest, next(one for one in self.result.models if one.model == model))

    def files(self) -> dict[str, str]:
        """The report and the tables, by their paths."""
        return {"report.html": self.page} | {f"tables/{name}": text for name, text in self.tables.items()}


def to_csv(exported: Exported, folder: Path) -> tuple[str, tuple[str, ...]]:
    """Metrics, settings, a row per model, sample, attack and eps, the tables and the report.

    Returns:
        Where it is, and the files.
    """
    values = [(model, one.name, one.step, one.value) for model, found in exported.metrics.items() for one in found]
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
    for one in exported.result.models:
        with SummaryWriter(str(folder / one.model.replace("/", "-"))) as writer:
            for metric in metrics(one):
                writer.add_scalar(metric.name, metric.value, metric.step)
            told = "\n\n".join([one.verdict, *(f"Warning: {warning.text}" for warning in one.warnings)])
            writer.add_text("verdict", told)
            writer.add_text("settings", _table([("setting", "value"), *exported.settings(one.model).items()]))
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
        for one in exported.result.models:
            tags = {"verdict": one.verdict, "brinell.run": str(exported.run.path), "caveat": one.caveat or ""}
            made = client.create_run(experiment, run_name=f"{one.model} on {exported.run.manifest['data']['name']}", tags=tags)
            made_id = made.info.run_id
            for key, value in exported.settings(one.model).items():
                client.log_param(made_id, key, value)
            for metric in metrics(one):
                client.log_metric(made_id, _plain(metric.name), metric.value, step=metric.step)
            for path, text in exported.files().items():
                client.log_text(made_id, text, path)
            client.set_terminated(made_id)
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
