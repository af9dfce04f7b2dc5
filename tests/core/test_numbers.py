"""Numbers as people type them."""

import random

import pytest

from brinell.core.numbers import parse_decimal

READ = {
    "0.5": 0.5,
    "1e-3": 0.001,
    "8/255": 8 / 255,
    "8 / 255": 8 / 255,
    "1.5/3": 0.5,
    "50%": 0.5,
    " -5 % ": -0.05,
    ".5": 0.5,
}


def test_one_reading_or_a_refusal():
    assert {text: parse_decimal(text) for text in READ} == READ
    for text in ("0,5", "nan", "inf", "1/0", "1/2/3", "0.3 or so", "10k", "x", "", "%"):
        with pytest.raises(ValueError):
            parse_decimal(text)


def test_what_a_number_is_written_as_is_read_back():
    rng = random.Random(0)
    for _ in range(200):
        decimal = rng.uniform(-10, 10)
        assert parse_decimal(repr(decimal)) == decimal
        assert parse_decimal(f"{decimal:.6f}%") == pytest.approx(decimal / 100, abs=1e-8)
