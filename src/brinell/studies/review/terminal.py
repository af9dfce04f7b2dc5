"""Formats a review for the terminal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brinell.studies.review.page import interval_text, threshold_text
from brinell.studies.review.records import JUDGE


def lines(result: Any) -> Iterator[str]:
    """Lines of the result."""
    yield f"{result.answers} of {result.trials} pairs judged, {result.false_alarms} false alarms on {result.catch} equal ones"
    yield "  half of the changes are noticed at"
    for group in [result.overall, *result.per_class] if result.overall else ():
        yield f"  {group.name:<16} {threshold_text(group):>16}   95 % interval: {interval_text(group)}"
    if not result.answers:
        yield f"open {Path(result.folder) / JUDGE} in a browser, judge the pairs, and pass the file that it saves:"
        yield f"  brinell review {result.data} --out {result.folder} --resume --answers FILE"
    yield f"page: {Path(result.folder) / 'report.html'}"
