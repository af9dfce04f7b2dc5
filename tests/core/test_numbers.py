"""Numbers as people type them: one reading, or a refusal with an example that is read."""

import random

import pytest

from brinell.core.numbers import NumberError, parse_decimal, parse_whole

WHOLE = {"100": 100, " 1_000 ": 1000, "-7": -7, "1e3": 1000, "2.5e1": 25, "1E+2": 100}
NOT_WHOLE = {
    "50%": "500", "12.34 %": "124", "1/2": "", "1,000": "1000", "12'000'000": "12000000", "10k": "10000", "1.5M": "1500000",
    "0,25 k": "250", "3.6": "4", "about 20": "20", "2.55e1": "3", "many": "", "": "",
}  # fmt: skip
"""Texts that are no whole numbers, with the example that the error gives."""
DECIMAL = {
    "0.5": 0.5, "1e-3": 0.001, "8/255": 8 / 255, "8 / 255": 8 / 255, "1.5/3": 0.5, "50%": 0.5, "2.5 per cent": 0.025,
    "-5%": -0.05,
}  # fmt: skip
NOT_DECIMAL = {"0,5": "0.5", ",5": "0.5", "-1,25 %": "-1.25%", "nan": "", "inf": "", "1/0": "1", "0.3 or so": "0.3", "x": ""}


def wrong_readings(parse, rows):
    return [(text, parse(text), value) for text, value in rows.items() if parse(text) != value]


def wrong_examples(parse, rows):
    """Texts that are read, or refused with another example."""
    wrong = []
    for text, example in rows.items():
        try:
            wrong.append((text, parse(text)))
        except NumberError as error:
            if error.example != example or not error.reason:
                wrong.append((text, error.example))
    return wrong


def test_known_readings():
    assert not wrong_readings(parse_whole, WHOLE) + wrong_readings(parse_decimal, DECIMAL)
    assert all(type(parse_whole(text)) is int for text in WHOLE) and all(type(parse_decimal(text)) is float for text in DECIMAL)


def test_refusals_give_the_number_that_was_meant():
    assert not wrong_examples(parse_whole, NOT_WHOLE) + wrong_examples(parse_decimal, NOT_DECIMAL)
    with pytest.raises(NumberError) as refusal:
        parse_whole("50%")
    assert refusal.value.purpose == "50% of 1000"


def test_what_a_number_is_written_as_is_read_back():
    rng = random.Random(0)
    for _ in range(200):
        whole, decimal = rng.randint(-(10**9), 10**9), rng.uniform(-10, 10)
        assert parse_whole(str(whole)) == parse_whole(f"{whole:_}") == whole
        assert parse_decimal(repr(decimal)) == decimal
        assert parse_decimal(f"{decimal:.6f}%") == pytest.approx(decimal / 100, abs=1e-8)
        assert parse_decimal(f"{abs(whole)}/{1000}") == pytest.approx(abs(whole) / 1000)
