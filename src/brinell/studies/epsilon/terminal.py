"""Recommended budgets as a terminal shows it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    yield f"{result.data}: {result.n} samples, conditions: {', '.join(result.conditions)}"
    yield f"  {'norm':<5} {'unnoticed up to':>15} {'sound up to':>12}   limited by"
    for one in result.norms:
        unnoticed = "–" if one.unnoticed is None else _eps(one.unnoticed)
        yield f"  {one.norm:<5} {unnoticed:>15} {_eps(one.sound):>12}   {one.overall.seen_reason}"
    for one in result.norms:
        yield f"  {one.advice}"
    for note in result.notes:
        yield f"  note: {note.text}"
    yield f"each sample's own in an audit: --eps recommended:{result.folder}"
    yield f"report: {Path(result.folder) / 'report.html'}"


def _eps(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g}"
