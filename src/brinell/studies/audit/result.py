"""What `brinell.audit` returns: the figures, and what a person at a prompt or in a notebook wants
of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from pydantic import PrivateAttr

from brinell.analysis.curve import dense_table
from brinell.analysis.proofs import with_proofs
from brinell.analysis.results import AuditResult, ClassResult, Rate
from brinell.analysis.robust_accuracy import summarise as count_figures
from brinell.core.errors import RequestError
from brinell.core.record import Array, Records
from brinell.engine.eps_grid import parse_eps
from brinell.engine.texts import eps_text
from brinell.reports.values import Cell, Code, Points, Report
from brinell.store import parquet, rows
from brinell.store.folder import PAGE
from brinell.store.run import Run
from brinell.store.table import Folder
from brinell.studies.audit.report import report
from brinell.studies.result import ReportedResult, provenance

Value = TypeVar("Value")


class StoredInputs(NamedTuple):
    """Adversarial inputs that a run keeps."""

    ids: Array
    """(k,) int64: positions of the samples in the data, ascending."""
    x: Array
    """(k, *shape) float32, in the bounds of the data, channels first: the closest one of each
    sample."""
    eps: Array
    """(k,) float64: the smallest budget of the run within which it lies."""
    attack: tuple[str, ...]
    """The stage that found it."""


class Audit(ReportedResult, AuditResult):
    """All figures of an audit, with ways to look at them and at what lies behind them."""

    page = PAGE
    printed: ClassVar[dict[str, str]] = {
        "audit": "brinell.analysis.results:AuditResult",
        "plan": "dry_run:PlanResult",
    }

    _run: Run | None = PrivateAttr(default=None)
    """The run, whose rows are read once."""

    @classmethod
    def of(cls, figures: AuditResult, run: Run) -> Self:
        """The figures of a run with what can be done with them."""
        result = cls.model_construct(
            **{name: getattr(figures, name) for name in type(figures).model_fields}
        )
        result._run = run
        return result

    def __eq__(self, other: object) -> bool:
        """Whether the figures are equal; whether the run was read already does not count."""
        return isinstance(other, Audit) and self.__dict__ == other.__dict__

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        from brinell.studies.audit.maps import inner_maps  # it brings other studies

        run = self._open_run()
        stages = [
            (f"stage {number}", Code(stage["name"]))
            for number, stage in enumerate(run.manifest["stages"], 1)
        ]
        facts = (
            ("repeat", Code("brinell audit FOLDER/run.toml")),
            *stages,
            *provenance(run.manifest),
        )
        return replace(
            report(run, run.rows, self, inner_maps),
            request=run.manifest["request"],
            provenance=facts,
        )

    def class_columns(self, model: str) -> Mapping[str, Mapping[str, Cell]]:
        """Accuracy, what attacks leave of it at the largest budget, and proofs."""
        figures = self.models[self._index(model)]
        eps = figures.eps_text[-1]
        columns: dict[str, dict[str, Cell]] = {
            "clean": {c.name: c.clean for c in figures.per_class},
            f"attacked at {eps}": {c.name: c.robust[-1] for c in figures.per_class},
            "drop": {c.name: Points(c.total_drop) for c in figures.per_class},
        }
        proven = {c.name: c.certified[-1] for c in figures.per_class if c.certified}
        return columns | ({f"proven at {eps}": proven} if proven else {})

    def robust(self, eps: Any = None, model: str | None = None) -> Rate:
        """Robust accuracy at one budget of the run, with its interval:
        `result.robust(eps=8/255).low > 0.4` in a test.

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
        return list(
            dict.fromkeys(
                f"{model.name}: {warning.text}"
                for model in self.models
                for warning in model.warnings
            )
        )

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 3 if the time was up before all stages were done."""
        return 3 if self._open_run().manifest.get("left") else 0

    @property
    def robust_accuracy(self) -> list[Rate]:
        """Robust accuracy over the budgets of a run of one model."""
        return self.models[self._index(model=None)].robust_accuracy

    @property
    def per_class(self) -> list[ClassResult]:
        """The classes of a run of one model."""
        return self.models[self._index(model=None)].per_class

    @property
    def verdict(self) -> str:
        """The finding of a run of one model, in a sentence."""
        return self.models[self._index(model=None)].verdict

    def x_adv(
        self, model: str | None = None, *, eps: Any = None, attack: str | None = None
    ) -> StoredInputs:
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
        limit = math.inf
        if eps is not None:
            # The budget of the run that is meant, with room for the rounding of its digits.
            limit = _rate_at(result.eps, result.eps, result.eps_text, eps) * (1 + 1e-6)
        closest = run.closest(result.name, limit=limit, attack=attack)
        inputs = run.inputs_of(closest)
        closest = rows.take(closest, np.isin(closest.sample_id, list(inputs)))

        ids = closest.sample_id.astype(np.int64)
        x = np.zeros((0, *run.manifest["data"]["domain"]["shape"]), np.float32)
        if len(ids):
            x = np.stack([inputs[sample] for sample in ids.tolist()])
        eps_of = np.asarray(closest.broken, dtype=np.float64)
        return StoredInputs(ids=ids, x=x, eps=eps_of, attack=tuple(closest.attack.tolist()))

    def to_pandas(self, table: str | None = None, *, dense: bool = False) -> Any:
        """The records as a data frame, one row per model, sample and stage that attacked it; or one
        of the tables of the page.

        Args:
            table: robust_accuracy, per_class, stages or checks; None for the per-sample rows, whose
                columns docs/reference/records.md describes.
            dense: in place of the rows, the state of each model, sample, attack and budget, which
                follows from them.
        """
        try:
            import pandas
        except ImportError:
            raise RequestError(
                "pandas is not installed, which makes data frames: pip install 'brinell[pandas]'"
            ) from None

        if table is None and dense:
            run = self._open_run()
            return pandas.DataFrame(dense_table(run.rows, run.manifest))
        if table is None:
            return parquet.to_table(self._open_run().rows).to_pandas()

        file = self._open_run().path / "tables" / f"{table.removesuffix('.csv')}.csv"
        if not file.is_file():
            tables = sorted(path.stem for path in file.parent.glob("*.csv"))
            raise RequestError(f"the run has no table {table!r}; it has {', '.join(tables)}")

        return pandas.read_csv(file)

    def _open_run(self) -> Run:
        if self._run is None:
            self._run = Run.open(self.folder, thresholds=True)
        return self._run

    def _index(self, model: str | None) -> int:
        names = [str(entry.name) for entry in self.models]
        if model is None and len(names) > 1:
            raise RequestError(f"the run has several models: name one of {', '.join(names)}")
        if model is not None and model not in names:
            raise RequestError(f"the run has no model {model!r}; it has {', '.join(names)}")
        return 0 if model is None else names.index(model)


def summarise(content: Folder[Records]) -> Audit:
    """The figures of a run and of the folders in it, from its rows."""
    from brinell.studies.audit import inner  # it brings other studies

    run = Run(**vars(content))
    figures = count_figures(run.manifest, run.rows, str(run.path))
    if len(figures.models) == 1:
        figures = figures.model_copy(update={"models": [with_proofs(figures.models[0], run.path)]})
    return Audit.of(inner.with_inner(figures, run.path), run)


def _rate_at(
    values: Sequence[Value], budgets: Sequence[float], texts: Sequence[str], eps: Any
) -> Value:
    """The one of the values over the budgets that belongs to `eps`; the last for None."""
    if eps is None:
        return values[-1]
    levels = parse_eps(eps_text(eps)).values
    for value, budget in zip(values, budgets, strict=True):
        if len(levels) == 1 and math.isclose(budget, levels[0], rel_tol=1e-6, abs_tol=1e-12):
            return value
    raise RequestError(
        f"eps {eps} is no budget of this run, which has {', '.join(texts)}: audit "
        "it, or take one of these"
    )
