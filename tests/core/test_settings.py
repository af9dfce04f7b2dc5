"""Marks on the types of settings, and limits of their values."""

from typing import Annotated, Literal

import pytest

from brinell.core.settings import (
    Names,
    above_zero,
    at_least,
    at_most,
    is_text,
    listed_words,
    mark_of,
    number_type,
    one_of,
)

MODEL, DATA = Names("model"), Names("dataset")
Model, Data, Word = Annotated[str, MODEL], Annotated[str, DATA], Literal["a", "b"]
HINTS = [
    # type, mark, type of numbers, listed words
    (int, None, int, ()),
    (float | None, None, float, ()),
    (bool, None, None, ()),
    (str, None, None, ()),
    (Model, MODEL, None, ()),
    (Model | None, MODEL, None, ()),
    (tuple[Model, ...], MODEL, None, ()),
    (list[Data], DATA, None, ()),
    (Word, None, None, ("a", "b")),
    (Word | Literal["c", 3], None, None, ("a", "b", "c")),
    (int | Literal["all"], None, int, ("all",)),
    (int | str, None, None, ()),
    (tuple[float, ...], None, float, ()),
    (tuple[int, float], None, None, ()),
    (Annotated[int, "a count"], None, int, ()),
]


def test_marks_and_kinds_of_types():
    found = [(hint, mark_of(hint), number_type(hint), listed_words(hint)) for hint, *_ in HINTS]
    assert found == HINTS
    assert mark_of(str, ["other", DATA]) == DATA, "the mark of a field comes before that of its type"


class Settings:
    zero, three, none, word = 0, 3, None, "a"


def test_limits_hold_at_their_ends_and_refuse_beyond():
    at_least(Settings, zero=0, three=3, none=9)
    at_most(Settings, zero=0, three=3, none=-9)
    above_zero(Settings, "three", "none")
    one_of(Settings, word=("b", "a"))
    refusals = [
        (lambda: at_least(Settings, zero=0, three=4), "three is 3; it must be at least 4"),
        (lambda: at_most(Settings, three=2), "three is 3; it must be at most 2"),
        (lambda: above_zero(Settings, "three", "zero"), "zero is 0; it must be above 0"),
        (lambda: one_of(Settings, word=("b", "c")), "word is 'a', not b or c"),
    ]
    for refuse, message in refusals:
        with pytest.raises(ValueError, match=message):
            refuse()


def test_texts_that_a_file_can_hold():
    assert [text for text in ("", "Größe", "a\0b", "a\ud800", "\udfff", "\ue000") if not is_text(text)] == [
        "a\0b",
        "a\ud800",
        "\udfff",
    ]
