"""The tables behind the page, as CSV: all classes, all budgets, full precision; an empty cell is "no data"."""

import csv
import io
from collections.abc import Iterable, Sequence

from brinell.analysis.results import ACCURACY, AuditResult, CompareResult, Rate
from brinell.core.outward import cell

_RATE = ("value", "low", "high", "k", "n", "missing")


def tables(result: AuditResult, comparisons: Sequence[CompareResult]) -> dict[str, str]:
    """File name to CSV text."""
    files = {
        "robust_accuracy.csv": csv_text(("model", "what", "eps", "eps_text", *_RATE), _accuracy(result)),
        "per_class.csv": csv_text(("model", "class", "name", "eps", "eps_text", *_RATE, "drop"), _per_class(result)),
        "total_drop.csv": csv_text(("model", "class", "name", "n", "clean", "total_drop"), _totals(result)),
        "stages.csv": csv_text(
            ("model", "attack", "title", "eps", "accuracy", "low", "high", "k", "n", "newly_broken", "forwards", "backwards")
            + ("judge_forwards", "surrogate_passes", "seconds", "finished", "skipped"),
            _stages(result),
        ),
        "checks.csv": csv_text(("model", "code", "passed", "figure", "limit", "text"), _checks(result)),
        "distributions.csv": csv_text(
            ("model", "of", "attack", "found", "robust", "q10", "median", "q90"), _distributions(result)
        ),
    }
    if comparisons:
        head = ("a", "b", "class", "eps", "both", "only_a", "only_b", "neither", "n", "difference", "low", "high", "p")
        files["comparison.csv"] = csv_text(head, _comparisons(comparisons))
    return files


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV: None is an empty cell, and text that a spreadsheet would take for a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def _rate(rate: Rate) -> tuple[object, ...]:
    """The fields of a rate in the order of the columns."""
    return tuple(getattr(rate, name) for name in _RATE)


def _accuracy(result: AuditResult) -> Iterable[Sequence[object]]:
    """Rows of `robust_accuracy.csv`."""
    for m in result.models:
        yield (m.model, "clean", 0.0, "0", *_rate(m.clean_accuracy))
        for kind, rates in (("robust", m.robust_accuracy), ("quantised", m.quantised_robust_accuracy or [])):
            for rate, text in zip(rates, m.eps_text, strict=False):
                yield (m.model, kind if rate.quantity == ACCURACY else rate.quantity, rate.eps, text, *_rate(rate))


def _per_class(result: AuditResult) -> Iterable[Sequence[object]]:
    """Rows of `per_class.csv`."""
    for m in result.models:
        for c in m.per_class:
            for rate, text, drop in zip(c.robust, m.eps_text, c.drop, strict=True):
                yield (m.model, c.class_, c.name, rate.eps, text, *_rate(rate), drop)


def _totals(result: AuditResult) -> Iterable[Sequence[object]]:
    """Rows of `total_drop.csv`."""
    for m in result.models:
        for c in m.per_class:
            yield (m.model, c.class_, c.name, c.n, c.clean.value, c.total_drop)
        yield (m.model, None, "mean over classes", m.n, m.clean_accuracy.value, m.mean_drop)
    if len(result.models) > 1:
        for mean in result.mean_drop_per_class:
            yield ("mean over models", mean.class_, mean.name, None, None, mean.mean_drop)


def _stages(result: AuditResult) -> Iterable[Sequence[object]]:
    """Rows of `stages.csv`."""
    for m in result.models:
        for s in m.stages:
            cost = (s.forwards, s.backwards, s.judge_forwards, s.surrogate_passes, s.seconds, s.finished, s.skipped)
            if not s.curve:
                yield (m.model, s.attack, s.title, s.eps, None, None, None, None, None, None, *cost)
            for rate, broken in zip(s.curve, s.broken, strict=False):
                yield (m.model, s.attack, s.title, rate.eps, rate.value, rate.low, rate.high, rate.k, rate.n, broken, *cost)


def _distributions(result: AuditResult) -> Iterable[Sequence[object]]:
    """Rows of `distributions.csv`."""
    for m in result.models:
        for d in m.distributions:
            yield (m.model, d.of, d.attack, d.successes, d.robust, d.q10, d.median, d.q90)


def _checks(result: AuditResult) -> Iterable[Sequence[object]]:
    """Rows of `checks.csv`."""
    for m in result.models:
        for c in m.checks:
            yield (m.model, c.code, c.passed, c.figure, c.limit, c.text)


def _comparisons(comparisons: Sequence[CompareResult]) -> Iterable[Sequence[object]]:
    """Rows of `comparison.csv`."""
    for c in comparisons:
        for pair in [c.clean, *c.robust]:
            counts = (pair.both_robust, pair.only_a, pair.only_b, pair.neither, pair.n)
            yield (c.a, c.b, None, pair.eps, *counts, pair.difference, pair.low, pair.high, pair.p)
        for k in c.per_class:
            for i, pair in enumerate(c.robust):
                yield (c.a, c.b, k.name, pair.eps, None, None, None, None, k.n, k.difference[i], k.low[i], k.high[i], None)
