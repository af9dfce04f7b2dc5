"""Marks on the fields of requests and plugins: the kind of name in their text, and the limits of their values."""

from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

MOST_COUNT = 10_000_000
"""Largest value of a setting that counts something: steps, restarts, samples. A seed may be larger."""
MOST_SEED = 2**32 - 1
"""Largest seed, for which products with epochs and calls stay within the 64 bits of a generator."""


Suite = Literal["calibrated", "published"]
"""Distortions that are used together: ours of equal strength at each severity, or ImageNet-C's."""


class Names(NamedTuple):
    """Marks a text field that names something which would be run, opened or asked: `Annotated[str, Names("model")]`."""

    kind: str
    """A kind of plug-in, such as model or distortion, or budgets, file, folder."""


def mark_of(hint: Any, metadata: Iterable[Any] = ()) -> Names | None:
    """The mark of a field, from its metadata or else from its type; None for a field that names nothing."""
    mark = next((candidate for candidate in metadata if isinstance(candidate, Names)), None)
    if mark is None and get_origin(hint) is Annotated:
        hint, *beside = get_args(hint)
        return mark_of(hint, beside)
    return mark or next(filter(None, map(mark_of, get_args(hint))), None)


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
    """Refuse the first setting below its least value; None counts as not given."""
    for name, smallest in least.items():
        value = getattr(settings, name)
        if value is not None and value < smallest:
            raise ValueError(f"{name} is {value}; it must be at least {smallest}")


def at_most(settings: Any, **most: float) -> None:
    """Refuse the first setting above its largest value; None counts as not given."""
    for name, largest in most.items():
        value = getattr(settings, name)
        if value is not None and value > largest:
            raise ValueError(f"{name} is {value}; it must be at most {largest:,}")


def above_zero(settings: Any, *names: str) -> None:
    """Refuse the first setting that is not above 0; None counts as not given."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value}; it must be above 0")


def one_of(settings: Any, **choices: tuple[str, ...]) -> None:
    """Refuse the first setting whose value is not among its choices."""
    for name, allowed in choices.items():
        value = getattr(settings, name)
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}, not {' or '.join(allowed)}")
