"""Terminal output of an unrestricted attack."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brinell.pages.terminal import percent
from brinell.studies.unrestricted.words import reading


def lines(result: Any) -> Iterator[str]:
    """Yield the lines of the result."""
    yield f"{result.attempts} attempts; judges: {', '.join(result.judges) or 'none'}"
    for variant in result.results:
        total = variant.total
        yield f"{variant.model}, {variant.variant}{f' (noise {variant.noise:g})' if variant.noise else ''}"
        yield f"  clear plain samples     {percent(total.clear.value)} of {total.clear.n}"
        yield f"  accuracy on them        {percent(total.plain_accuracy.value)}   (generalisation)"
        yield f"  accuracy after search   {percent(total.searched_accuracy.value)}   (and adversarial)"
        yield f"  searches that succeed   {percent(total.success.value)}, a judge sees another class in {total.contested.k} more"
    for name, text in reading(result):
        yield f"{name}: {text}"
    for warning in result.warnings:
        yield f"note: {warning}"
    yield f"report: {Path(result.folder) / 'report.html'}"
