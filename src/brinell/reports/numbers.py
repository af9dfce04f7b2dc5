"""How numbers are written: percent with one digit, points with a sign, thin spaces between
thousands, a dash for no data.
"""

from collections.abc import Callable, Mapping
from typing import Any

from brinell.analysis.inference import Rank
from brinell.core.numbers import seconds
from brinell.reports.values import (
    Claimed,
    Code,
    Detail,
    Framed,
    Link,
    Measure,
    Percent,
    Points,
    PValue,
    Seconds,
    Span,
)

NONE = "–"
NBSP, THIN = "\u00a0", "\u202f"
JOINED_DASH = "\u2060–\u2060"
"""A dash at which no line breaks."""
DISTANCES = {"linf": "Linf", "l2": "L2", "l1": "L1", "l0": "L0"}


def percent(value: float | None, digits: int = 1) -> str:
    """`0.713` as `71.3 %`."""
    return NONE if value is None else f"{100 * value:.{digits}f}{NBSP}%"


def interval(low: float | None, high: float | None) -> str:
    """An interval of shares, `68.1–74.3 %`; empty for none."""
    return (
        ""
        if low is None or high is None
        else f"{100 * low:.1f}{JOINED_DASH}{100 * high:.1f}{NBSP}%"
    )


def points(value: float | None) -> str:
    """A difference of shares in percentage points, with its sign."""
    if value is None:
        return NONE
    text = f"{100 * value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def whole(value: int) -> str:
    """A whole number with thin spaces between thousands."""
    return f"{value:,}".replace(",", THIN).replace("-", "−")


def short(value: float | None) -> str:
    """A number to three significant digits."""
    if value is None:
        return NONE
    return whole(round(value)) if abs(value) >= 1000 else f"{value:.3g}".replace("-", "−")


def p_value(value: float | None) -> str:
    """A p-value, never rounded to 0."""
    return NONE if value is None else f"<{NBSP}0.0001" if value < 1e-4 else f"{value:.2g}"


def distance(name: str) -> str:
    """A distance as the field writes it."""
    return DISTANCES.get(name, name)


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 model`, `2 models`."""
    return f"{whole(number)} {noun if number == 1 else plural or noun + 's'}"


def capital(text: str) -> str:
    """A sentence that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def listed(names: list[str], most: int = 3) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c and 4 more`."""
    if len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def is_proportion(value: Any) -> bool:
    """True for a share with counts."""
    return all(hasattr(value, name) for name in ("value", "low", "high", "k", "n"))


def share_of(value: Any) -> float | None:
    """The share, 0 to 1, by which a cell is shaded; None for any other cell."""
    if isinstance(value, Detail):
        return share_of(value.value)
    return value.value if is_proportion(value) or isinstance(value, Percent) else None


def _measure(value: Measure) -> str:
    unit = f"{NBSP}{value.unit}" if value.unit and value.value is not None else ""
    return short(value.value) + unit


def _rank(value: Rank) -> str:
    return short(value.value) + (
        f" ({value.low} to {value.high})" if value.low < value.high else ""
    )


def main_text(value: Any) -> str:
    """A cell as people read it, without what stands small below it."""
    if value is None:
        return NONE
    if isinstance(value, Percent) or is_proportion(value):
        return percent(value.value)
    write = next((WRITERS[kind] for kind in type(value).__mro__ if kind in WRITERS), str)
    return write(value)


def detail_text(value: Any) -> str:
    """The small text below a cell: an interval, or the text of a `Detail`; empty for none."""
    if isinstance(value, Detail):
        return "; ".join(filter(None, (detail_text(value.value), value.text)))
    if (
        value is None
        or isinstance(value, Rank | Span)
        or not hasattr(value, "low")
        or value.low is None
        or value.high is None
    ):
        return ""

    if isinstance(value, Points):
        return f"{points(value.low)} to {points(value.high)}"
    if isinstance(value, Measure):
        return f"{short(value.low)} to {short(value.high)}"
    return interval(value.low, value.high)


def full_text(value: Any) -> str:
    """A cell with interval and counts in one line."""
    text = main_text(value)
    if is_proportion(value):
        if value.value is None:
            return "no sample was judged"
        details = (
            interval(value.low, value.high),
            f"{whole(value.k)}{NBSP}of{NBSP}{whole(value.n)}",
        )
        return f"{text} ({', '.join(filter(None, details))})"
    detail = detail_text(value)
    return f"{text} ({detail})" if detail else text


WRITERS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "yes" if value else "no",
    int: whole,
    float: short,
    Points: lambda value: points(value.value),
    Measure: _measure,
    Rank: _rank,
    Span: lambda value: interval(value.low, value.high),
    PValue: lambda value: p_value(value.value),
    Seconds: lambda value: NONE if value.value is None else seconds(value.value),
    Claimed: lambda value: f"{value.text}{NBSP}†",
    Link: lambda value: value.text,
    Code: lambda value: value.text,
    Detail: lambda value: main_text(value.value),
    Framed: lambda value: main_text(value.value),
    list: lambda value: ", ".join(map(main_text, value)),
    tuple: lambda value: ", ".join(map(main_text, value)),
}
"""How a cell is written, by its type; any other as Python writes it."""


def region_text(region: Mapping[str, Any]) -> str:
    """The part of inputs that attacks may change, from a manifest: left, top, right and bottom, or
    start and stop.
    """
    # The last axis is written first: left and right before top and bottom.
    axes = region["box"][::-1]
    ends = [start for start, _ in axes] + [stop for _, stop in axes]
    inside = "a mask in " if region["mask"] else ""
    return f"{inside}the region {','.join(map(str, ends))}"
