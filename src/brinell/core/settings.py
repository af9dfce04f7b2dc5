"""What the fields of requests and plug-ins say of themselves: what their text names, and the limits of their values."""

from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

MOST_COUNT = 10_000_000
"""What a setting that counts something may be at most: steps, restarts, samples. A seed may be larger."""


class Names(NamedTuple):
    """Marks a text field that names something which would be run, opened or asked: `Annotated[str, Names("model")]`."""

    kind: str
    """A kind of plug-in (model, dataset, attack, distance, distortion, defence, detector, explainer), or budgets, file, folder,
    address."""
    words: tuple[str, ...] = ()
    """What may stand in place of a name and is none."""


PLAIN = Names("")
"""Marks a text field that names nothing, whatever it says."""
Plain = Annotated[str, PLAIN]
"""A text that names nothing."""


def mark_of(hint: Any, metadata: Any = ()) -> Names | None:
    """What a field names, by its type and what stands beside the type; None where nobody has said.

    A type that leaves no room for a name needs no mark: numbers, switches, listed words.
    """
    found = next((one for one in metadata if isinstance(one, Names)), None)
    if found is not None or is_closed(hint):
        return found or PLAIN
    if get_origin(hint) is Annotated:
        inner, *beside = get_args(hint)
        return mark_of(inner, beside)
    if get_origin(hint) in (tuple, list, Union, UnionType):
        marks = [mark_of(part) for part in get_args(hint) if part is not Ellipsis and not is_closed(part)]
        return marks[0] if marks and all(one == marks[0] for one in marks) else None
    return None


def is_closed(hint: Any) -> bool:
    """Whether a type leaves no room for a name: numbers, switches and listed words."""
    if get_origin(hint) is Literal or hint in (int, float, bool, type(None), Ellipsis):
        return True
    if get_origin(hint) is Annotated:
        return is_closed(get_args(hint)[0])
    return bool(get_args(hint)) and all(is_closed(part) for part in get_args(hint))


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
    """Refuse the first setting that is none of its choices.

    Raises:
        ValueError: there is one.
    """
    for name, known in choices.items():
        value = getattr(settings, name)
        if value not in known:
            raise ValueError(f"{name} is {value!r}, not {' or '.join(known)}")
