"""An unrestricted attack as a terminal shows it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brinell.pages.terminal import percent


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    yield f"{result.attempts} attempts; judges: {', '.join(result.judges) or 'none'}"
    for one in result.results:
        total = one.total
        yield f"{one.model}, {one.variant}{f' (noise {one.noise:g})' if one.noise else ''}"
        yield f"  clear plain samples     {percent(total.clear.value)} of {total.clear.n}"
        yield f"  accuracy on them        {percent(total.plain_accuracy.value)}   (generalisation)"
        yield f"  accuracy after search   {percent(total.searched_accuracy.value)}   (and adversarial)"
        yield f"  searches that succeed   {percent(total.success.value)}, a judge sees another class in {total.contested.k} more"
    for warning in result.warnings:
        yield f"note: {warning}"
    yield f"report: {Path(result.folder) / 'report.html'}"
