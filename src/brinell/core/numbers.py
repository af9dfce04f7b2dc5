"""Numbers as people type them: a text with one reading, such as `1e2` or `50%`, is read; others are refused with an example."""

import math
import re
from fractions import Fraction
from typing import NoReturn

_FACTORS = {"k": 1_000, "m": 1_000_000}
_SCIENTIFIC = re.compile(r"[+-]?\d+(\.\d+)?e\+?\d{1,2}", re.IGNORECASE)
_THOUSANDS = re.compile(r"\d{1,3}([.,' ]\d{3})+")
_ABBREVIATED = re.compile(r"(\d+(?:[.,]\d+)?)\s?([km])", re.IGNORECASE)
_FRACTION = re.compile(r"\d+(\.\d+)?\s?/\s?\d+(\.\d+)?")
_PERCENT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s?(?:%|per ?cent)")
_FIRST = re.compile(r"\d+(?:\.\d+)?")


class NumberError(ValueError):
    """A text that is not a number, or has two readings."""

    def __init__(self, reason: str, example: str = "", purpose: str = "") -> None:
        super().__init__(reason, example, purpose)
        self.reason, self.example, self.purpose = reason, example, purpose


def parse_whole(text: str) -> int:
    """A whole number: 100, 1_000 or 1e3.

    Raises:
        NumberError: anything else.
    """
    plain = text.strip()
    try:
        return int(plain)
    except ValueError:
        pass
    if _SCIENTIFIC.fullmatch(plain) and Fraction(plain).denominator == 1:
        return int(Fraction(plain))
    _refuse_whole(plain)


def _refuse_whole(plain: str) -> NoReturn:
    """Raise the error for a text that is not a whole number."""
    if percent := _PERCENT.fullmatch(plain):
        raise NumberError("this takes a number, and not a share", f"{math.ceil(float(percent[1]) * 10)}", f"{plain} of 1000")
    if _FRACTION.fullmatch(plain):
        raise NumberError("this takes a number, and not a share")
    if _THOUSANDS.fullmatch(plain):
        raise NumberError("digits are written without separators", re.sub(r"\D", "", plain))
    if abbreviated := _ABBREVIATED.fullmatch(plain):
        value = Fraction(abbreviated[1].replace(",", ".")) * _FACTORS[abbreviated[2].lower()]
        raise NumberError("numbers are written in full", str(math.ceil(value)))
    if first := _FIRST.search(plain):
        raise NumberError("this takes one whole number", str(round(float(first[0]))))
    raise NumberError("this takes a whole number")


def parse_decimal(text: str) -> float:
    """A number: 0.5, 1e-3, a fraction such as 8/255, or a percentage such as 50%.

    Raises:
        NumberError: anything else.
    """
    plain = text.strip()
    if percent := _PERCENT.fullmatch(plain):
        return float(Fraction(percent[1]) / 100)
    try:
        value = float(_quotient(plain)) if _FRACTION.fullmatch(plain) else float(plain)
        if math.isfinite(value):
            return value
    except (ValueError, ZeroDivisionError):
        pass
    comma = re.fullmatch(r"([+-]?\d*),(\d+)\s?(%?)", plain)
    if comma:
        raise NumberError("decimals follow a point", f"{comma[1] or 0}.{comma[2]}{comma[3]}")
    if first := _FIRST.search(plain):
        raise NumberError("this takes one number", first[0])
    raise NumberError("this takes a number")


def _quotient(plain: str) -> Fraction:
    """The value of a fraction, whose numbers may be decimals, such as 0.5/255."""
    above, below = plain.split("/")
    return Fraction(above.strip()) / Fraction(below.strip())
