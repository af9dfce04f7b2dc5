"""A review as a terminal shows it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brinell.studies.review.page import interval, threshold


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    yield f"{result.answered} of {result.trials} pairs judged, {result.false_alarms} false alarms on {result.catch} equal ones"
    yield "  half of the changes are noticed at"
    for one in [result.overall, *result.per_class] if result.overall else ():
        yield f"  {one.name:<16} {threshold(one):>16}   95 % interval: {interval(one)}"
    yield f"page: {Path(result.folder) / 'report.html'}"
