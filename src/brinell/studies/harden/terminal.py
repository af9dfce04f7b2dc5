"""Terminal output of a hardening."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brinell.pages.format import points
from brinell.pages.terminal import percent, reading
from brinell.studies.harden.words import reading as sentences


def lines(result: Any) -> Iterator[str]:
    """Yield the lines of the result."""
    comparison = result.comparison
    yield f"{result.model}: {result.ended_with} at {result.norm} {result.eps:.4g}, {result.steps} steps, {result.seconds:.0f} s"
    yield f"  {'eps':>9}     before      after   difference and 95 % interval, McNemar's p"
    for text, pair in [("clean", comparison.clean), *((f"{pair.eps:.4g}", pair) for pair in comparison.robust if pair.eps > 0)]:
        p = "unknown" if pair.p is None else f"{pair.p:.2g}"
        yield (
            f"  {text:>9}   {percent(pair.value_b):>8}   {percent(pair.value_a):>8}   {points(pair.difference):>6} points "
            f"({points(pair.low)} to {points(pair.high)}), p = {p}"
        )
    verdict = f"The audit after the training: {result.after.verdict[0].lower()}{result.after.verdict[1:]}"
    yield from reading([*sentences(result), verdict], result.events)
    yield f"weights: {result.weights}"
    if result.spec is not None:
        yield f"model: --model {shlex.quote(result.spec)}"
    yield f"report: {Path(result.folder) / 'report.html'}"
