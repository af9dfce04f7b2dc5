"""A detection study as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    yield f"{'model':16} {'detector':18} {'without':>8} {'static':>8} {'adaptive':>8} {'false alarms':>13}"
    for one in result.detectors:
        adaptive = percent(one.adaptive.value) if one.adaptive else "-"
        rates = (
            f"{percent(one.robust.value):>8} {percent(one.static.value):>8} {adaptive:>8} {percent(one.false_alarms.value):>13}"
        )
        yield f"{one.model[:16]:16} {one.detector[:18]:18} {rates}"
    yield "robust accuracy without the detector, with it against static attacks, which do not know it, and against adaptive ones"
    yield f"page: {result.folder}/report.html"
