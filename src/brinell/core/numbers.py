"""Numbers as people type them, and durations as people read them."""

from fractions import Fraction

NBSP = "\u00a0"


def seconds(value: float) -> str:
    """A duration in seconds, minutes or hours, as `7.5 min`."""
    if value < 60:
        return f"{value:.1f}{NBSP}s"
    return f"{value / 60:.1f}{NBSP}min" if value < 3600 else f"{value / 3600:.1f}{NBSP}h"


def parse_decimal(text: str) -> float:
    """A number: 0.5, 1e-3, a fraction such as 8/255, or a percentage such as 50%."""
    number, percent, suffix = text.strip().partition("%")
    above, slash, below = number.partition("/")
    if suffix or "/" in below:
        raise ValueError(f"{text!r} is no number")
    try:
        # Fractions are exact: 8/255 becomes the nearest number, without the rounding of a quotient.
        return float(
            Fraction(above.strip())
            / (Fraction(below.strip()) if slash else 1)
            / (100 if percent else 1)
        )
    except (ZeroDivisionError, OverflowError):
        raise ValueError(f"{text!r} is no number") from None
