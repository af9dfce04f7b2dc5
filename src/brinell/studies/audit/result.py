"""What `brinell.audit` returns: the figures, and what a person at a prompt or in a notebook wants of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from pydantic import PrivateAttr

from brinell.analysis.curve import dense_table
from brinell.analysis.gate import GateResult
from brinell.analysis.results import AuditResult, ClassResult, Rate
from brinell.core.errors import RequestError
from brinell.core.record import Array, has_broken
from brinell.engine.eps_grid import parse_eps
from brinell.engine.texts import eps_text
from brinell.reports import html
from brinell.reports.values import Code, Report
from brinell.store import parquet
from brinell.store.folder import PAGE
from brinell.store.run import Run
from brinell.studies.audit.report import report
from brinell.studies.result import ReportedResult, provenance

Value = TypeVar("Value")


class StoredInputs(NamedTuple):
    """Adversarial inputs that a run keeps."""

    ids: Array
    """(k,) int64: positions of the samples in the data, ascending."""
    x: Array
    """(k, *shape) float32, in the bounds of the data, channels first: the closest one of each sample."""
    eps: Array
    """(k,) float64: the smallest budget of the run within which it lies."""
    attack: tuple[str, ...]
    """The stage that found it."""


class Audit(ReportedResult, AuditResult):
    """All figures of an audit, with ways to look at them and at what lies behind them."""

    printed: ClassVar[dict[str, str]] = {"audit": "brinell.analysis.results:PrintedAudit", "plan": "dry_run:PlanResult"}
    _gates: tuple[GateResult, ...] = PrivateAttr(())

    @classmethod
    def of(cls, figures: AuditResult) -> Self:
        """The figures of a run with what can be done with them."""
        return cls.model_construct(**{name: getattr(figures, name) for name in type(figures).model_fields})

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        run = self._open_run()
        stages = [(f"stage {number}", Code(stage["name"])) for number, stage in enumerate(run.manifest["stages"], 1)]
        facts = (("repeat", Code("brinell audit FOLDER/run.toml")), *stages, *provenance(run.manifest))
        return replace(report(run, run.records(), self), request=run.manifest["request"], provenance=facts)

    def write(self) -> Path:
        """Write `tables/*.csv` and `report.html` into the run folder; returns the path of the page."""
        return html.write(Path(self.folder), self.report())

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The report as a terminal shows it, the verdicts of gates, and the path of the page."""
        for line in super().lines(verbose=verbose):
            yield line.replace("FOLDER", self.folder)
        for model, gate in zip(self.models, self._gates, strict=False):
            yield from (f"{model.model}: {line}" if len(self.models) > 1 else line for line in gate.lines(verbose=verbose))
        yield f"page: {self.folder.rstrip('/')}/{PAGE}"

    def gated(self, gates: Sequence[GateResult]) -> Self:
        """The same with the verdicts of a gate, one for each model."""
        self._gates = tuple(gates)
        return self

    @property
    def gates(self) -> tuple[GateResult, ...]:
        """Verdicts on the conditions that the call set, one for each model; empty without conditions."""
        return self._gates

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 if all conditions hold, else 1."""
        return int(not all(verdict.passed for verdict in self._gates))

    def robust(self, eps: Any = None, model: str | None = None) -> Rate:
        """Robust accuracy at one budget of the run, with its interval: `result.robust(eps=8/255).low > 0.4` in a test.

        Args:
            eps: a budget of the run as a number or text; by default its largest.
            model: name of the model, where the run has several.
        """
        result = self.models[self._index(model)]
        return _rate_at(result.robust_accuracy, result.eps, result.eps_text, eps)

    def clean(self, model: str | None = None) -> Rate:
        """Accuracy on the untouched inputs, with its interval; `model` as for `robust`."""
        return self.models[self._index(model)].clean_accuracy

    def cautions(self) -> Sequence[str]:
        """Failed checks and warnings of a run, one line each."""
        sentences: dict[str, None] = {}
        for model in self.models:
            warnings = {warning.code: warning.text for warning in model.warnings}
            for check in model.checks:
                if check.passed is False:
                    sentences[f"{model.model}: {warnings.get(check.code, check.text)}"] = None
            codes = {check.code for check in model.checks}
            sentences |= {f"{model.model}: {text}": None for code, text in warnings.items() if code not in codes}
        return list(sentences)

    @property
    def robust_accuracy(self) -> list[Rate]:
        """Robust accuracy over the budgets of a run of one model."""
        return self.models[self._index(None)].robust_accuracy

    @property
    def per_class(self) -> list[ClassResult]:
        """The classes of a run of one model."""
        return self.models[self._index(None)].per_class

    @property
    def verdict(self) -> str:
        """The finding of a run of one model, in a sentence."""
        return self.models[self._index(None)].verdict

    def x_adv(self, model: str | None = None, *, eps: Any = None, attack: str | None = None) -> StoredInputs:
        """The adversarial inputs that the run stored, the closest of each sample.

        Args:
            model: name of the model, where the run has several.
            eps: those within this budget alone; by default all.
            attack: those of one stage alone; by default the closest of all stages.
        """
        run, result = self._open_run(), self.models[self._index(model)]
        names = [stage["name"] for stage in run.manifest["stages"]]
        if attack is not None and attack not in names:
            raise RequestError(f"the run has no attack {attack!r}; it has {', '.join(names)}")
        most = math.inf if eps is None else _rate_at(result.eps, result.eps, result.eps_text, eps) * (1 + 1e-6)
        rows = run.records()
        selected = (rows.model == result.model) & has_broken(rows) & (np.ma.filled(rows.broken, np.inf) <= most)
        selected &= np.isin(rows.attack, names if attack is None else [attack])
        best: dict[int, tuple[float, int, str]] = {}
        for sample, budget, stage in zip(rows.sample_id[selected], rows.broken[selected], rows.attack[selected], strict=True):
            candidate = float(budget), names.index(str(stage)), str(stage)
            best[int(sample)] = min(best.get(int(sample), candidate), candidate)
        inputs: dict[int, Array] = {}
        for name in names:
            inputs |= run.adversarial(result.model, name, [sample for sample, closest in best.items() if closest[2] == name])
        ids = sorted(inputs)
        shape = tuple(run.manifest["data"]["domain"]["shape"])
        return StoredInputs(
            ids=np.array(ids, dtype=np.int64),
            x=np.stack([inputs[sample] for sample in ids]) if ids else np.zeros((0, *shape), np.float32),
            eps=np.array([best[sample][0] for sample in ids]),
            attack=tuple(best[sample][2] for sample in ids),
        )

    def to_pandas(self, table: str | None = None, *, dense: bool = False) -> Any:
        """The records as a data frame, one row per model, sample and stage that attacked it; or one of the tables of the page.

        Args:
            table: robust_accuracy, per_class, stages or checks; None for the per-sample rows, whose columns
                docs/reference/records.md describes.
            dense: in place of the rows, the state of each model, sample, attack and budget, which follows from them.
        """
        try:
            import pandas
        except ImportError:
            raise RequestError("pandas is not installed, which makes data frames: pip install 'brinell[pandas]'") from None
        if table is None and dense:
            run = self._open_run()
            return pandas.DataFrame(dense_table(run.records(), run.manifest))
        if table is None:
            return parquet.to_table(self._open_run().records()).to_pandas()
        file = self._open_run().path / "tables" / f"{table.removesuffix('.csv')}.csv"
        if not file.is_file():
            tables = sorted(path.stem for path in file.parent.glob("*.csv"))
            raise RequestError(f"the run has no table {table!r}; it has {', '.join(tables)}")
        return pandas.read_csv(file)

    def _open_run(self) -> Run:
        return Run.open(self.folder, thresholds=True)

    def _index(self, model: str | None) -> int:
        names = [str(entry.model) for entry in self.models]
        if model is None and len(names) > 1:
            raise RequestError(f"the run has several models: name one of {', '.join(names)}")
        if model is not None and model not in names:
            raise RequestError(f"the run has no model {model!r}; it has {', '.join(names)}")
        return 0 if model is None else names.index(model)


def _rate_at(values: Sequence[Value], budgets: Sequence[float], texts: Sequence[str], eps: Any) -> Value:
    if eps is None:
        return values[-1]
    levels = parse_eps(eps_text(eps)).values
    for value, budget in zip(values, budgets, strict=True):
        if len(levels) == 1 and math.isclose(budget, levels[0], rel_tol=1e-6, abs_tol=1e-12):
            return value
    raise RequestError(f"eps {eps} is no budget of this run, which has {', '.join(texts)}: audit it, or take one of these")
