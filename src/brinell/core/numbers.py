"""Numbers as people type them."""

from fractions import Fraction


def parse_decimal(text: str) -> float:
    """A number: 0.5, 1e-3, a fraction such as 8/255, or a percentage such as 50%."""
    number, percent, suffix = text.strip().partition("%")
    above, slash, below = number.partition("/")
    if suffix or "/" in below:
        raise ValueError(f"{text!r} is no number")
    try:
        return float(
            Fraction(above.strip())
            / (Fraction(below.strip()) if slash else 1)
            / (100 if percent else 1)
        )
    except (ZeroDivisionError, OverflowError):
        raise ValueError(f"{text!r} is no number") from None
