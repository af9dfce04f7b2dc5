"""Terminal output of `brinell explain`."""

from collections.abc import Iterator
from typing import Any

from brinell.studies.explain.analysis import describe


def lines(result: Any) -> Iterator[str]:
    """Format the result as lines."""
    excluded = ", ".join(f"{exclusion.count} {exclusion.reason}" for exclusion in result.left_out)
    region = f", region {result.region}" if result.region else ""
    yield f"{result.model} on {result.data}{region}: {result.n} samples{f'; left out: {excluded}' if excluded else ''}"
    yield f"{'method':32} {'queries':>8} {'Dice':>6} {'IoU':>6} {'deletion':>9} {'insertion':>10} {'faithful':>9}"
    for method in result.methods:
        columns = ((method.dice, 6), (method.iou, 6), (method.deletion, 9), (method.insertion, 10))
        cells = [_format_mean(measure, width) for measure, width in columns]
        faithful = "" if method.faithful is None else "shown" if method.faithful else "not shown"
        yield f"{method.name[:32]:32} {method.queries:>8.0f} {' '.join(cells)} {faithful:>9}"
    yield from describe(result)
    yield f"page: {result.folder}/report.html"


def _format_mean(measure: Any, width: int) -> str:
    return f"{'-' if measure is None else format(measure.value, '.3f'):>{width}}"
