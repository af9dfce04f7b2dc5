"""Tables as CSV: of two models that differ in every field each value stands under the name of its field."""

import csv
import io
import itertools
from typing import Any

from brinell.analysis.results import (
    AuditResult,
    CheckResult,
    ClassComparison,
    ClassMean,
    ClassResult,
    CompareResult,
    Distribution,
    ModelResult,
    PairedRate,
    Rate,
    StageResult,
)
from brinell.pages import format as formats
from brinell.pages.tables import csv_text, tables

EPS, TEXTS = [0.25, 0.5], ["1/4", "1/2"]


class Numbers:
    """Results whose every number and text differs from all others."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def make(self, kind: type, **fields: Any) -> Any:
        """A result of a kind; fields without a given value get the next number, as a share, a count or a text."""
        values: dict[str, Any] = {}
        for name, field in kind.model_fields.items():
            hint, number = str(field.annotation), next(self.numbers)
            values[name] = number if "int" in hint else number / 4096 if "float" in hint else f"{name} {number}"
        return kind.model_construct(**values | fields)

    def rates(self) -> list[Rate]:
        return [self.make(Rate, eps=eps) for eps in EPS]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def misplaced(row: dict[str, str], *sources: Any, **fixed: Any) -> list[str]:
    """Columns of a row that hold neither their fixed value nor that of the field of their name."""
    faults = []
    for name, value in row.items():
        field = {"class": "class_"}.get(name, name)
        holder = next((source for source in sources if hasattr(source, field)), None)
        expected = fixed[name] if name in fixed else getattr(holder, field)
        if value != ("" if expected is None else str(expected)):
            faults.append(f"{name}: {value}, not {expected}")
    return faults


def audit_result() -> AuditResult:
    numbers = Numbers()
    models = []
    for name in ("first", "second"):
        classes = [
            numbers.make(ClassResult, robust=numbers.rates(), clean=numbers.make(Rate), drop=[0.125 * i, None], certified=None)
            for i in range(2)
        ]
        stages = [numbers.make(StageResult, curve=numbers.rates(), broken=[next(numbers.numbers) for _ in EPS], skipped=None),
                  numbers.make(StageResult, curve=[], broken=[], skipped="why")]  # fmt: skip
        models.append(
            numbers.make(
                ModelResult, model=name, eps=EPS, eps_text=TEXTS, clean_accuracy=numbers.make(Rate),
                robust_accuracy=numbers.rates(), checks=[numbers.make(CheckResult) for _ in range(2)],
                quantised_robust_accuracy=numbers.rates() if name == "second" else None, per_class=classes, stages=stages,
                distributions=[numbers.make(Distribution) for _ in range(2)],
            )
        )  # fmt: skip
    return numbers.make(AuditResult, models=models, mean_drop_per_class=[numbers.make(ClassMean) for _ in range(2)])


def faults_of(rows: list[dict[str, str]], expected: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[object]:
    assert len(rows) == len(expected)
    return [faults for row, (sources, fixed) in zip(rows, expected, strict=True) if (faults := misplaced(row, *sources, **fixed))]


def test_tables_of_an_audit():
    result = audit_result()
    files = {name: rows_of(text) for name, text in tables(result, []).items()}
    assert set(files) == {f"{name}.csv" for name in
                          ("robust_accuracy", "per_class", "total_drop", "stages", "checks", "distributions")}  # fmt: skip
    accuracy, classes, totals, stages, checks, distributions = ([] for _ in range(6))
    for m in result.models:
        accuracy.append(((m.clean_accuracy, m), {"what": "clean", "eps": 0.0, "eps_text": 0}))
        for rates in (m.robust_accuracy, m.quantised_robust_accuracy or []):
            accuracy += [((r, m), {"what": r.quantity, "eps": r.eps, "eps_text": t}) for r, t in zip(rates, TEXTS, strict=False)]
        for c in m.per_class:
            classes += [
                ((r, c, m), {"name": c.name, "n": r.n, "eps": r.eps, "eps_text": t, "drop": d})
                for r, t, d in zip(c.robust, TEXTS, c.drop, strict=True)
            ]
            totals.append(((c, m), {"n": c.n, "clean": c.clean.value}))
        totals.append(((), {"model": m.model, "class": None, "name": "mean over classes", "n": m.n,
                            "clean": m.clean_accuracy.value, "total_drop": m.mean_drop}))  # fmt: skip
        ran, skipped = m.stages
        stages += [((r, s, m), {"eps": r.eps, "accuracy": r.value, "newly_broken": b})
                   for s in (ran,) for r, b in zip(s.curve, s.broken, strict=True)]  # fmt: skip
        stages.append(((skipped, m), dict.fromkeys(("accuracy", "low", "high", "k", "n", "newly_broken"), None)))
        checks += [((c, m), {}) for c in m.checks]
        distributions += [((d, m), {"found": d.successes}) for d in m.distributions]
    totals += [((c,), {"model": "mean over models", "n": None, "clean": None, "total_drop": c.mean_drop})
               for c in result.mean_drop_per_class]  # fmt: skip
    assert faults_of(files["robust_accuracy.csv"], accuracy) == []
    assert faults_of(files["per_class.csv"], classes) == []
    assert faults_of(files["total_drop.csv"], totals) == []
    assert faults_of(files["stages.csv"], stages) == []
    assert faults_of(files["checks.csv"], checks) == []
    assert faults_of(files["distributions.csv"], distributions) == []
    single_model = result.model_copy(update={"models": result.models[:1]})
    assert {row["model"] for row in rows_of(tables(single_model, [])["total_drop.csv"])} == {"first"}


def test_the_table_of_comparisons():
    numbers = Numbers()

    def compare() -> CompareResult:
        pairs = [numbers.make(PairedRate, eps=eps) for eps in EPS]
        classes = [numbers.make(ClassComparison, difference=[0.5, 0.25], low=[0.1, 0.2], high=[0.3, 0.4]) for _ in range(2)]
        return numbers.make(CompareResult, clean=numbers.make(PairedRate), robust=pairs, per_class=classes)

    comparisons = [compare(), compare()]
    expected = []
    for c in comparisons:
        expected += [((p,), {"a": c.a, "b": c.b, "class": None, "both": p.both_robust}) for p in (c.clean, *c.robust)]
        none = dict.fromkeys(("both", "only_a", "only_b", "neither", "p"), None)
        for k in c.per_class:
            expected += [
                ((), {"a": c.a, "b": c.b, "class": k.name, "eps": eps, "n": k.n, "difference": k.difference[i], "low": k.low[i],
                      "high": k.high[i]} | none)
                for i, eps in enumerate(EPS)
            ]  # fmt: skip
    assert faults_of(rows_of(tables(audit_result(), comparisons)["comparison.csv"]), expected) == []


def test_text_that_a_spreadsheet_would_run_is_neutralised_and_numbers_are_not():
    rows = [("=1+1", -0.5, None), ("-cmd", "+x", "@y"), ("a", "-3", "\tb")]
    text = csv_text(("name", "b", "c"), rows)
    assert text == "name,b,c\n'=1+1,-0.5,\n'-cmd,'+x,'@y\na,-3,\\u0009b\n"


def test_durations_in_the_unit_that_fits():
    texts = {
        None: "–",
        0.04: "0.0 s",
        59.9: "59.9 s",
        60: "1.0 min",
        90: "1.5 min",
        3540: "59.0 min",
        3600: "1.0 h",
        9000: "2.5 h",
    }
    assert {value: formats.seconds(value) for value in texts} == texts
