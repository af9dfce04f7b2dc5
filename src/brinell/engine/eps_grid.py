"""Budgets as people write them: `8/255`, `0.3`, `1/255,2/255`, `0:8/255:9` (from, to, number of points)."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from brinell.core.errors import RequestError
from brinell.core.renamed import renamed


@dataclass(frozen=True)
class Budgets:
    """Ascending, distinct budgets."""

    values: tuple[float, ...]
    """In the units of the data."""
    texts: tuple[str, ...]
    """As they were written, range points in the same denominator: `3/255`, not `1/85`."""


class SampleBudgets(NamedTuple):
    """The budgets of a run whose samples differ in what they are multiples of."""

    budgets: Budgets
    units: np.ndarray[Any, Any]
    """(n,) float64: what the budgets of each sample are multiples of."""
    about: dict[str, Any] | None
    """How the budgets were recommended, for the manifest; None where they were given as numbers."""


def parse_eps(text: str) -> Budgets:
    """Read budgets.

    Raises:
        RequestError: no number, negative, not finite, or a range that does not rise.
    """
    word = re.split("[:?]", text)[0]
    if new := renamed(word):
        raise RequestError(f"eps {word!r} is now called {new!r}: write {text.replace(word, new, 1)}")
    fractions: dict[Fraction, str] = {}
    for item in text.split(","):
        for value in _expand(item.strip()):
            fractions.setdefault(value, _write(value, _denominator(item)))
    ordered = sorted(fractions)
    return Budgets(tuple(float(value) for value in ordered), tuple(fractions[value] for value in ordered))


def _expand(item: str) -> list[Fraction]:
    ends = item.split(":")
    if len(ends) == 1:
        return [_number(item)]
    if len(ends) != 3:
        raise RequestError(f"eps range {item!r} has {len(ends)} parts: write from:to:points, such as 0:8/255:9")
    low, high = _number(ends[0]), _number(ends[1])
    if not ends[2].isdecimal() or int(ends[2]) < 2:
        raise RequestError(f"eps range {item!r} ends in {ends[2]!r}: the number of points is an integer of at least 2")
    if low >= high:
        raise RequestError(f"eps range {item!r} does not rise: write the smaller budget first")
    points = int(ends[2])
    return [low + (high - low) * step / (points - 1) for step in range(points)]


def _number(text: str) -> Fraction:
    try:
        top, slash, bottom = text.partition("/")
        value = _exact(top) / _exact(bottom) if slash else _exact(text)
    except (ValueError, ZeroDivisionError):
        raise RequestError(f"eps {text!r} is no number: write 0.3, 8/255, a list 1/255,2/255 or a range 0:8/255:9") from None
    if value < 0:
        raise RequestError(f"eps {text!r} is negative: a budget is 0 or more")
    return value


def _exact(text: str) -> Fraction:
    """A decimal number as a fraction; what a float cannot hold is none."""
    if "/" in text or not math.isfinite(float(text)):
        raise ValueError(text)
    return Fraction(text.strip()) if float(text) else Fraction(0)


def _denominator(item: str) -> int:
    denominators = [Fraction(end.partition("/")[2].strip()) for end in item.split(":")[:2] if "/" in end]
    return max((int(d) for d in denominators if d.denominator == 1), default=1)


def _write(value: Fraction, denominator: int) -> str:
    if denominator == 1 or value == 0:
        return f"{float(value):.6g}"
    return f"{float(value * denominator):.6g}/{denominator}"
