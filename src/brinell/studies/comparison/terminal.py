"""A comparison as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    yield f"{result.a} against {result.b}, {result.n} common samples"
    pairs = [("clean", result.clean), *((f"eps {pair.eps:.4g}", pair) for pair in result.robust)]
    for text, pair in [*pairs, *((f"proven {pair.eps:.4g}", pair) for pair in result.certified)]:
        p = "unknown" if pair.p is None else f"{pair.p:.3g}"
        yield (
            f"  {text:<12} {percent(pair.value_a):>8} {percent(pair.value_b):>8}  difference {percent(pair.difference)} "
            f"({percent(pair.low)} to {percent(pair.high)}), only A {pair.only_a}, only B {pair.only_b}, McNemar p = {p}"
        )
    for note in result.notes:
        yield f"  note: {note}"
