"""Marks on the fields of requests and plugins: the kind of name in their text, and the limits of their values."""

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

MOST_COUNT = 10_000_000
"""Largest value of a setting that counts something: steps, restarts, samples. A seed may be larger."""
MOST_SEED = 2**32 - 1
"""Largest seed, for which products with epochs and calls stay within the 64 bits of a generator."""


Suite = Literal["calibrated", "published", "synthetic"]
"""Distortions that are used together: ours of equal strength at each severity, ImageNet-C's, and those after LAION-C."""


class Names(NamedTuple):
    """Marks a text field that names something which would be run, opened or asked: `Annotated[str, Names("model")]`."""

    kind: str
    """A kind of plug-in (model, dataset, attack, distance, distortion, defence, detector, explainer), or budgets, file, folder,
    address."""
    words: tuple[str, ...] = ()
    """Words that the field accepts in place of a name."""


PLAIN = Names("")
"""Marks a text field that names nothing, whatever it says."""
Plain = Annotated[str, PLAIN]
"""A text that names nothing."""


def mark_of(hint: Any, metadata: Any = ()) -> Names | None:
    """The mark of a field, from its type and the metadata of the type; None if the field has no mark.

    Types that cannot hold a name need no mark: numbers, switches, listed words.
    """
    mark = next((candidate for candidate in metadata if isinstance(candidate, Names)), None)
    if mark is not None or is_closed(hint):
        return mark or PLAIN
    if get_origin(hint) is Annotated:
        inner, *beside = get_args(hint)
        return mark_of(inner, beside)
    if get_origin(hint) in (tuple, list, Union, UnionType):
        marks = [mark_of(part) for part in get_args(hint) if part is not Ellipsis and not is_closed(part)]
        return marks[0] if marks and all(mark == marks[0] for mark in marks) else None
    return None


def is_closed(hint: Any) -> bool:
    """True if a type cannot hold a name: numbers, switches and listed words."""
    if get_origin(hint) is Literal or hint in (int, float, bool, type(None), Ellipsis):
        return True
    if get_origin(hint) is Annotated:
        return is_closed(get_args(hint)[0])
    return bool(get_args(hint)) and all(is_closed(part) for part in get_args(hint))


def number_type(hint: Any) -> type[int] | type[float] | None:
    """The type of the numbers that a field holds, alone, in a tuple or beside listed words; None for other fields."""
    parts = [part for part in get_args(hint) if part is not Ellipsis]
    if get_origin(hint) is Annotated:
        return number_type(parts[0])
    if hint in (int, float):
        return hint  # type: ignore[no-any-return]
    if get_origin(hint) not in (tuple, Union, UnionType):
        return None
    kinds = {number_type(part) for part in parts if part is not NoneType and get_origin(part) is not Literal}
    return kinds.pop() if len(kinds) == 1 else None


def listed_words(hint: Any) -> tuple[str, ...]:
    """The words that a field lists as its values, alone or beside others."""
    if get_origin(hint) is Literal:
        return tuple(word for word in get_args(hint) if isinstance(word, str))
    if get_origin(hint) in (Annotated, tuple, Union, UnionType):
        return tuple(word for part in get_args(hint) for word in listed_words(part))
    return ()


def is_text(text: str) -> bool:
    """True if a text can be written to a file and be a file name: it has no NUL and no unpaired surrogate."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def at_least(settings: Any, **least: float) -> None:
    """Refuse the first setting below its least value; None counts as not given.

    Raises:
        ValueError: there is one.
    """
    for name, smallest in least.items():
        value = getattr(settings, name)
        if value is not None and value < smallest:
            raise ValueError(f"{name} is {value}; it must be at least {smallest}")


def at_most(settings: Any, **most: float) -> None:
    """Refuse the first setting above its largest value; None counts as not given.

    Raises:
        ValueError: there is one.
    """
    for name, largest in most.items():
        value = getattr(settings, name)
        if value is not None and value > largest:
            raise ValueError(f"{name} is {value}; it must be at most {largest:,}")


def above_zero(settings: Any, *names: str) -> None:
    """Refuse the first setting that is not above 0; None counts as not given.

    Raises:
        ValueError: there is one.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value}; it must be above 0")


def one_of(settings: Any, **choices: tuple[str, ...]) -> None:
    """Refuse the first setting whose value is not among its choices.

    Raises:
        ValueError: there is one.
    """
    for name, allowed in choices.items():
        value = getattr(settings, name)
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}, not {' or '.join(allowed)}")
