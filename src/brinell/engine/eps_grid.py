"""Parser of budgets: `8/255`, `0.3`, `1/255,2/255`, `0:8/255:9` (from, to, number of points)."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, short

if TYPE_CHECKING:
    from brinell.core.threat import Distance

MOST_BUDGET = 1e30
"""Largest budget, which float32 holds with its sums."""
MOST_POINTS = 10_000
DECIMAL_COMMA = re.compile(r"(?<![\deE./:,+-])(\d+),(\d+)(?![\deE./:,])|(\d+),(0\d+)")
"""A comma that may stand for a decimal point: `0,3` between two whole numbers that are all there
is, or `1,05` before a number that starts with 0. `1/255,2/255` and `0.1,0.2` are lists."""


@dataclass(frozen=True)
class Budgets:
    """Ascending, distinct budgets."""

    values: tuple[float, ...]
    """In the units of the data."""
    texts: tuple[str, ...]
    """As they were written, range points in the same denominator: `3/255`, not `1/85`."""


class BudgetsBySample(NamedTuple):
    """Budgets as multiples of a unit that differs between samples."""

    budgets: Budgets
    units: np.ndarray[Any, Any]
    """(n,) float64: the unit of each of the first n samples of the data."""
    provenance: dict[str, Any] | None
    """Source of recommended budgets, for the manifest; None for budgets given as numbers."""


def parse_budget(text: str) -> float:
    """The one budget, above 0, of a command that takes no more."""
    values = parse_eps(text).values
    if len(values) != 1 or not values[0] > 0:
        raise RequestError(
            f"eps is {text!r}: write one budget above 0, such as {values[-1] or 1:g}"
        )
    return float(values[0])


def parse_eps(text: str) -> Budgets:
    """Parse budgets."""
    if comma := DECIMAL_COMMA.search(text):
        whole, decimals = (part for part in comma.groups() if part)
        raise RequestError(
            f"eps {comma[0]!r} may be a decimal comma: write "
            f"{whole}.{decimals}, or {whole}, {decimals} with a space "
            "for a list"
        )

    texts: dict[Fraction, str] = {}
    items = text.split(",")
    if len(items) > MOST_POINTS:
        raise RequestError(
            f"eps lists {len(items)} budgets, and a grid has {MOST_POINTS} at most: leave some out"
        )
    for item in items:
        values = _expand(item.strip())
        bottom = _denominator(item)
        for value in values:
            is_decimal = bottom == 1 or value == 0
            decimal = f"{float(value):.6g}"
            # A budget that is named twice keeps its first text.
            texts.setdefault(
                value, decimal if is_decimal else f"{float(value * bottom):.6g}/{bottom}"
            )
        if len(texts) > MOST_POINTS:
            raise RequestError(
                f"eps has more than {MOST_POINTS} budgets, and a grid has as many "
                "at most: leave some out"
            )

    ordered = sorted(texts)
    return Budgets(tuple(map(float, ordered)), tuple(texts[value] for value in ordered))


def _denominator(item: str) -> int:
    """The denominator in which the points of an item are written; 1 for decimal numbers."""
    # Behind the second colon stands the number of points.
    ends = [end.partition("/")[2].strip() for end in item.split(":")[:2] if "/" in end]
    denominators = [Fraction(end) for end in ends]
    return max((int(value) for value in denominators if value.denominator == 1), default=1)


def check_budgets(budgets: Budgets, distance: "Distance", domain: Domain) -> None:
    """Refuse budgets that make no sense: more than all of the range, or a small part of one of its
    levels.

    A distance without a finite extent (`Relative`) permits all.
    """
    from brinell.core.threat import COUNTS, extent

    diameter = extent(distance, domain)
    if not math.isfinite(diameter):
        return
    largest, text = budgets.values[-1], budgets.texts[-1]
    counted = COUNTS.get(distance.name)
    if counted is not None:
        name = distance.name.replace("l0", "L0")
        _check_count(largest, text, diameter, name, counted)
        return

    low, high = domain.free.bounds()
    width = float((high - low).max())
    span = f"{float(low.min()):g} to {float(high.max()):g}"
    if largest > diameter:
        is_linf = distance.name == "linf"
        problem = f"is more than any change can be, {diameter:.4g}"
        if is_linf:
            problem = "lets every value take any other"
        suggestion = f"{'8/255' if is_linf else '1 %'} of the range"
        # A budget of 8 for inputs from 0 to 1 is probably one of 8 of 255 levels.
        if 1 <= largest <= 64 and width == 1:
            suggestion = f"{largest:g}/255"
        raise RequestError(
            f"eps {text} in {distance.name.replace('l', 'L', 1)} {problem}, for the data lie in "
            f"{span}: did you mean {suggestion}?"
        )

    # Data in units of their own may be finer than 8 bits, unless they are known to be stored, or
    # are as wide as bytes.
    steps = (domain.levels or (256 if width >= 64 else 1021)) - 1
    if width > 2 and 0 < largest < width / steps:
        raise RequestError(
            f"eps {text} is {largest / width:.2g} of the range of the data, which "
            f"lie in {span}: budgets are in their units, so "
            f"for {text} of the range write {largest * width:.6g}"
        )


def _check_count(largest: float, text: str, most: float, name: str, counted: str) -> None:
    """Refuse to change less than one of what a distance counts, or more than an input has."""
    if 0 < largest < 1:
        raise RequestError(
            f"eps {text} in {name} changes no value: budgets are numbers of {counted} there, "
            "such as 1 or 20"
        )
    if largest > most:
        raise RequestError(
            f"eps {text} in {name} is more than the {most:g} {counted} of an input: every one may "
            "be changed"
        )


def _expand(item: str) -> list[Fraction]:
    """The budgets of an item: one number, or the points of a range."""
    ends = item.split(":")
    if len(ends) == 1:
        return [_number(item)]
    if len(ends) != 3:
        raise RequestError(
            f"eps range {item!r} has {len(ends)} parts: write from:to:points, such as 0:8/255:9"
        )

    low = _number(ends[0])
    high = _number(ends[1])
    if not ends[2].isdecimal() or ends[2].lstrip("0") in ("", "1"):
        raise RequestError(
            f"eps range {item!r} ends in {ends[2]!r}: the number of points is an "
            "integer of at least 2"
        )
    if low >= high:
        raise RequestError(f"eps range {item!r} does not rise: write the smaller budget first")
    if len(ends[2]) > 9 or (points := int(ends[2])) > MOST_POINTS:
        raise RequestError(
            f"eps range {item[:40]!r} has more than {MOST_POINTS} points: write fewer"
        )
    return [low + (high - low) * step / (points - 1) for step in range(points)]


def _number(text: str) -> Fraction:
    """A budget, written as a decimal number or a fraction of two."""
    try:
        top, slash, bottom = text.partition("/")
        value = _exact(top) / _exact(bottom) if slash else _exact(text)
    except (ValueError, ZeroDivisionError):
        raise RequestError(
            f"eps {text!r} is no number: write 0.3, 8/255, a list 1/255,2/255 or a range 0:8/255:9"
        ) from None

    if value < 0:
        raise RequestError(f"eps {text!r} is negative: a budget is 0 or more")
    if value > MOST_BUDGET:
        raise RequestError(
            f"eps {short(text)} is above {MOST_BUDGET:g}, the largest budget: give a smaller one"
        )
    return value


def _exact(text: str) -> Fraction:
    """Parse a decimal number to a fraction; raises ValueError for infinity and NaN."""
    if "/" in text or not math.isfinite(float(text)):
        raise ValueError(text)
    return Fraction(text.strip()) if float(text) else Fraction(0)
