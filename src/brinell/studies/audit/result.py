"""What `brinell.audit` returns: the figures, and what a person at a prompt or in a notebook wants of them."""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
from markupsafe import Markup, escape
from pydantic import PrivateAttr

from brinell.analysis.curve import dense_table
from brinell.analysis.folder_result import Result, framed_page
from brinell.analysis.gate import GateResult
from brinell.analysis.results import AuditResult, ClassResult, ModelResult, Rate
from brinell.core.errors import RequestError
from brinell.core.record import Array, has_broken
from brinell.core.user_files import user_path
from brinell.engine.eps_grid import parse_eps
from brinell.engine.texts import eps_text
from brinell.pages import figures
from brinell.pages.format import percent, rate_name
from brinell.store import parquet
from brinell.store.run import Run

Value = TypeVar("Value")
STYLE = """
.brinell-plot { --s0:#0069a8; --s1:#c25100; --s2:#007a5a; --s3:#a8447c; --s4:#8a6d00; background:#fff;
 font:12.5px system-ui,sans-serif } .brinell-plot text { fill:#4a5058 }
.brinell-plot .mid { text-anchor:middle } .brinell-plot .end { text-anchor:end } .brinell-plot .grid { stroke:#e2e4e8 }
.brinell-plot .axis { stroke:#4a5058 } .brinell-plot .line { fill:none; stroke:currentColor; stroke-width:2 }
.brinell-plot .band { fill:currentColor; opacity:.14 } .brinell-plot .dot { fill:currentColor }
""" + "".join(f".brinell-plot .s{index} {{ color:var(--s{index}) }}" for index in range(figures.COLOURS))


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


@dataclass(frozen=True, repr=False)
class Plot:
    """A figure as SVG, which a notebook shows by itself."""

    svg: str

    def _repr_svg_(self) -> str:
        """The figure, for notebooks."""
        return self.svg

    def _repr_html_(self) -> str:
        """The figure as an image, for notebooks."""
        coded = base64.b64encode(self.svg.encode()).decode()
        return f'<img alt="robust accuracy over eps" style="max-width:520px;width:100%" src="data:image/svg+xml;base64,{coded}">'

    def save(self, path: Path | str) -> Path:
        """Write it to a file whose name ends with .svg.

        Raises:
            RequestError: another ending, or a file that cannot be written.
        """
        path = user_path(path)
        if path.suffix.lower() != ".svg":
            raise RequestError(f"{path} does not end with .svg, and SVG is what a plot is: name another file")
        try:
            path.write_text(self.svg, encoding="utf-8")
        except OSError as error:
            raise RequestError(f"{path} cannot be written ({error.strerror}): name another file") from None
        return path

    def __repr__(self) -> str:
        return f"<Plot: {len(self.svg)} bytes of SVG; plot.save('FILE.svg') writes it>"


class _WithRun(Result):
    """Gates, stored inputs and rows, which the results of all audits have besides their figures."""

    if TYPE_CHECKING:  # fields of the results, which this is mixed into
        folder: str
        models: list[Any]

    _gates: tuple[GateResult, ...] = PrivateAttr(())

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

    def x_adv(self, model: str | None = None, *, eps: Any = None, attack: str | None = None) -> StoredInputs:
        """The adversarial inputs that the run stored, the closest of each sample.

        Args:
            model: name of the model, where the run has several.
            eps: those within this budget alone; by default all.
            attack: those of one stage alone; by default the closest of all stages.

        Raises:
            RequestError: no such model, budget or stage.
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
            table: robust_accuracy, per_class, total_drop, stages, checks, distributions, or comparison (if the run has several
                models); None for the per-sample rows, whose columns docs/reference/records.md describes.
            dense: in place of the rows, the state of each model, sample, attack and budget, which follows from them.

        Raises:
            RequestError: pandas is not installed, or there is no such table.
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
        """The run behind the result, which must be in a folder."""
        return Run.open(self.folder)

    def _index(self, model: str | None) -> int:
        """Position of the named model, or of the only one."""
        names = [str(entry.model) for entry in self.models]
        if model is None and len(names) > 1:
            raise RequestError(f"the run has several models: name one of {', '.join(names)}")
        if model is not None and model not in names:
            raise RequestError(f"the run has no model {model!r}; it has {', '.join(names)}")
        return 0 if model is None else names.index(model)


class Audit(_WithRun, AuditResult):
    """All figures of an audit, with ways to look at them and at what lies behind them."""

    def robust(self, eps: Any = None, model: str | None = None) -> Rate:
        """Robust accuracy at one budget of the run, with its interval: `result.robust(eps=8/255).low > 0.4` in a test.

        Args:
            eps: a budget of the run as a number or text; by default its largest.
            model: name of the model, where the run has several.

        Raises:
            RequestError: the run has no such budget or model.
        """
        result = self._model_result(model)
        return _rate_at(result.robust_accuracy, result.eps, result.eps_text, eps)

    def clean(self, model: str | None = None) -> Rate:
        """Accuracy on the untouched inputs, with its interval; `model` as for `robust`."""
        return self._model_result(model).clean_accuracy

    @property
    def robust_accuracy(self) -> list[Rate]:
        """Robust accuracy over the budgets of a run of one model."""
        return self._model_result(None).robust_accuracy

    @property
    def per_class(self) -> list[ClassResult]:
        """The classes of a run of one model."""
        return self._model_result(None).per_class

    @property
    def verdict(self) -> str:
        """What a run of one model shows, in a sentence."""
        return self._model_result(None).verdict

    def plot(self) -> Plot:
        """Robust accuracy over eps with its intervals, one line per model, as SVG."""
        series = [
            figures.Series(name=model.model, rates=model.robust_accuracy, style=index, band=len(self.models) < 4)
            for index, model in enumerate(self.models)
        ]
        first = self.models[0]
        labels = list(zip(first.eps, first.eps_text, strict=True))
        curve = str(figures.curve(series, labels, title=f"{rate_name(first, low=True)} over eps", distance=first.distance))
        width, height = figures.LARGE.width, figures.LARGE.height
        parts = [curve.replace("<svg ", f'<svg width="{width}" height="{height}" ', 1)]
        for index, line in enumerate(series):
            y = height + 14 + 18 * index
            parts.append(f'<line class="line s{index % figures.COLOURS}" x1="46" x2="70" y1="{y - 4}" y2="{y - 4}"/>')
            parts.append(f'<text x="78" y="{y}">{escape(line.name)}</text>')
        total = height + 24 + 18 * (len(series) - 1)
        head = f'<svg class="brinell-plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}">'
        return Plot(f"{head}<style>{STYLE}</style>{''.join(parts)}</svg>")

    def __repr__(self) -> str:
        lines = [_line(model) for model in self.models]
        return f"<Audit {'; '.join(lines)}; {self.n} samples; {self.folder}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """The headline, the curve and the page, as a notebook shows them."""
        rows = "".join(
            f"<tr><td>{escape(model.model)}</td><td>{percent(model.clean_accuracy.value)}</td>"
            + "".join(f"<td>{percent(rate.value)}</td>" for rate in model.robust_accuracy)
            + f'<td style="text-align:left">{escape(model.verdict)}</td></tr>'
            for model in self.models
        )
        first = self.models[0]
        heads = "".join(
            f"<th>{escape(text)}</th>" for text in ("model", "clean", *(f"eps {text}" for text in first.eps_text), "")
        )
        return Markup("<div>{}{}{}</div>").format(
            Markup(f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"),
            Markup(self.plot()._repr_html_()),
            Markup(framed_page(self.folder)),
        )

    def _model_result(self, model: str | None) -> ModelResult:
        result: ModelResult = self.models[self._index(model)]
        return result


def _rate_at(values: Sequence[Value], budgets: Sequence[float], texts: Sequence[str], eps: Any) -> Value:
    if eps is None:
        return values[-1]
    levels = parse_eps(eps_text(eps)).values
    for value, budget in zip(values, budgets, strict=True):
        if len(levels) == 1 and math.isclose(budget, levels[0], rel_tol=1e-6, abs_tol=1e-12):
            return value
    raise RequestError(f"eps {eps} is no budget of this run, which has {', '.join(texts)}: audit it, or take one of these")


def _line(model: ModelResult) -> str:
    """Clean and robust accuracy of a model in one line."""
    last = model.robust_accuracy[-1]
    failed = sum(check.passed is False for check in model.checks)
    checks_text = f"{failed} check{'s' * (failed != 1)} failed" if failed else "no check failed"
    interval = f"{percent(last.low)} to {percent(last.high)}"
    budget = f"{model.distance} {model.eps_text[-1]}"
    robust = "robust" if model.meaning is None else f"not {model.criterion}"
    clean = percent(model.clean_accuracy.value)
    return f"{model.model}: clean {clean}, {robust} {percent(last.value)} ({interval}) at {budget}, {checks_text}"


def of(result: AuditResult) -> Audit:
    """The figures of a run as `brinell.audit` returns them."""
    return Audit.model_construct(**{name: getattr(result, name) for name in type(result).model_fields})


def failures(result: AuditResult) -> Sequence[str]:
    """Failed checks and warnings of a run, one line each."""
    sentences: dict[str, None] = {}
    for model in result.models:
        warnings = {warning.code: warning.text for warning in model.warnings}
        for check in model.checks:
            if check.passed is False:
                sentences[f"{model.model}: {warnings.get(check.code, check.text)}"] = None
        codes = {check.code for check in model.checks}
        sentences |= {f"{model.model}: {text}": None for code, text in warnings.items() if code not in codes}
    return list(sentences)
