"""Marks on the fields of requests and plugins: the kind of name in their text, and the limits of
their values.
"""

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

MOST_COUNT = 10_000_000
"""Largest value of a setting that counts something: steps, restarts, samples. A seed may be
larger."""
MOST_SEED = 2**32 - 1
"""Largest seed, for which products with epochs and calls stay within the 64 bits of a generator."""


Suite = Literal["calibrated", "published"]
"""Distortions that are used together: ours of equal strength at each severity, or ImageNet-C's."""


class Names(NamedTuple):
    """Marks a text field that names something which would be run, opened or asked.

    It is written as `Annotated[str, Names("model")]`.
    """

    kind: str
    """A kind of plug-in, such as model or distortion, or budgets, file, folder."""


class NamesOfRun(Names):
    """Marks a text field like `Names`, whose text may also be the name that a run gives, such as
    that of one of its models: only who knows which it is expands it.
    """


def mark_of(hint: Any, metadata: Iterable[Any] = (), of: Any = Names) -> Any:
    """The mark of a field, from its metadata or else from its type; None without such a mark."""
    mark = next((candidate for candidate in metadata if isinstance(candidate, of)), None)
    # An annotated type has its marks beside it; a tuple or a union may have them in a part.
    if mark is None and get_origin(hint) is Annotated:
        hint, *beside = get_args(hint)
        return mark_of(hint, beside, of)
    return mark or next(filter(None, (mark_of(part, of=of) for part in get_args(hint))), None)


def number_type(hint: Any) -> type[int] | type[float] | None:
    """The type of the numbers that a field holds; None for other fields.

    They stand alone, in a tuple, or beside listed words.
    """
    parts = [part for part in get_args(hint) if part is not Ellipsis]
    if get_origin(hint) is Annotated:
        return number_type(parts[0])
    if hint in (int, float):
        return hint  # type: ignore[no-any-return]
    if get_origin(hint) not in (tuple, Union, UnionType):
        return None

    # None and listed words may stand beside the numbers.
    kinds = {
        number_type(part)
        for part in parts
        if part is not NoneType and get_origin(part) is not Literal
    }
    return kinds.pop() if len(kinds) == 1 else None


def listed_words(hint: Any) -> tuple[str, ...]:
    """The words that a field lists as its values, alone or among others."""
    if get_origin(hint) is Literal:
        return tuple(word for word in get_args(hint) if isinstance(word, str))
    if get_origin(hint) in (Annotated, tuple, Union, UnionType):
        return tuple(word for part in get_args(hint) for word in listed_words(part))
    return ()


def is_text(text: str) -> bool:
    """True if a text can be written to a file and be a file name.

    It has no NUL and no unpaired surrogate.
    """
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


class Range(NamedTuple):
    """Marks a number field with the interval of its values: `Annotated[float, Range("(0, 2]")]`."""

    text: str
    """As mathematics writes it: a round bracket excludes its end."""

    def check(self, name: str, value: float) -> None:
        """Refuse a value beyond the interval."""
        # The ends between the brackets.
        low, high = map(float, self.text[1:-1].split(","))
        excludes_low = self.text[0] == "("
        excludes_high = self.text[-1] == ")"

        # The comparisons are turned so that NaN is refused too.
        if not (value > low if excludes_low else value >= low):
            end = "above" if excludes_low else "at least"
            raise ValueError(f"{name} is {value}; it must be {end} {low:g}")
        if not (value < high if excludes_high else value <= high):
            end = "below" if excludes_high else "at most"
            raise ValueError(f"{name} is {value}; it must be {end} {high:,g}")


Count = Annotated[int, Range("[1, inf)")]
Whole = Annotated[int, Range("[0, inf)")]
Positive = Annotated[float, Range("(0, inf)")]
NotNegative = Annotated[float, Range("[0, inf)")]
Fraction = Annotated[float, Range("(0, 1]")]
Portion = Annotated[float, Range("[0, 1]")]


class Checked:
    """Base of dataclasses whose values keep to the ranges and the words that their fields list."""

    def __post_init__(self) -> None:
        """Refuse a value beyond its range, or a word that its field does not list."""
        of: Any = type(self)
        for name, hint in _hints(of).items():
            value = getattr(self, name)
            words = listed_words(hint)
            if isinstance(value, int | float) and (limits := mark_of(hint, of=Range)):
                limits.check(name, value)
            if words and isinstance(value, str) and value not in words:
                raise ValueError(f"{name} is {value!r}, not {' or '.join(words)}")


@cache
def _hints(of: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass, with their marks."""
    hints = get_type_hints(of, include_extras=True)
    return {field.name: hints[field.name] for field in fields(of)}
