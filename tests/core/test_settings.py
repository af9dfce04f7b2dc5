"""Marks on the types of settings, and limits of their values."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from brinell.core.settings import (
    Checked,
    Count,
    Fraction,
    Names,
    Positive,
    Range,
    is_text,
    listed_words,
    mark_of,
    number_type,
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
    assert mark_of(str, ["other", DATA]) == DATA, (
        "the mark of a field comes before that of its type"
    )


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    count: Count = 1
    positive: Positive | None = None
    share: Fraction = 1.0
    between: Annotated[float, Range("[-1, 3)")] = 0.0
    word: Literal["a", "b"] | None = None


def test_limits_hold_at_their_ends_and_refuse_beyond():
    Settings(count=1, positive=1e-30, share=1.0, between=-1.0, word="b")
    for name, value, message in (
        ("count", 0, "count is 0; it must be at least 1"),
        ("positive", 0.0, "positive is 0.0; it must be above 0"),
        ("positive", float("nan"), "positive is nan; it must be above 0"),
        ("share", 1.5, "share is 1.5; it must be at most 1"),
        ("between", 3.0, "between is 3.0; it must be below 3"),
        ("word", "c", "word is 'c', not a or b"),
    ):
        with pytest.raises(ValueError, match=message):
            Settings(**{name: value})


def test_texts_that_a_file_can_hold():
    assert [
        text for text in ("", "Größe", "a\0b", "a\ud800", "\udfff", "\ue000") if not is_text(text)
    ] == [
        "a\0b",
        "a\ud800",
        "\udfff",
    ]
