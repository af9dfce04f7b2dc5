"""Terminal output of a detection study."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent


def lines(result: Any) -> Iterator[str]:
    """Yield the lines of the result."""
    yield f"{'model':16} {'detector':18} {'without':>8} {'static':>8} {'adaptive':>8} {'false alarms':>13}"
    for detector in result.detectors:
        adaptive = percent(detector.adaptive.value) if detector.adaptive else "-"
        rates = (
            f"{percent(detector.robust.value):>8} {percent(detector.static.value):>8} {adaptive:>8} "
            f"{percent(detector.false_alarms.value):>13}"
        )
        yield f"{detector.model[:16]:16} {detector.detector[:18]:18} {rates}"
    yield "robust accuracy: without the detector, with it under static attacks, and with it under adaptive attacks"
    yield f"page: {result.folder}/report.html"
