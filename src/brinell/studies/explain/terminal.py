"""Explanations as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.studies.explain.analysis import in_words


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    left = ", ".join(f"{one.count} {one.reason}" for one in result.left_out)
    yield f"{result.model} on {result.data}: {result.n} samples{f'; left out: {left}' if left else ''}"
    yield f"{'method':32} {'queries':>8} {'Dice':>6} {'IoU':>6} {'deletion':>9} {'insertion':>10} {'faithful':>9}"
    for one in result.methods:
        cells = [_mean(one.dice, 6), _mean(one.iou, 6), _mean(one.deletion, 9), _mean(one.insertion, 10)]
        faithful = "" if one.faithful is None else "yes" if one.faithful else "no"
        yield f"{one.name[:32]:32} {one.queries:>8.0f} {' '.join(cells)} {faithful:>9}"
    yield from in_words(result)
    yield f"page: {result.folder}/report.html"


def _mean(measure: Any, width: int) -> str:
    return f"{'-' if measure is None else format(measure.value, '.3f'):>{width}}"
