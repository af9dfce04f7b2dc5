"""The one rule by which the classes of a model and those of the data are matched.

If both sides have names, names decide: without case and punctuation, and only up to a comma, after
which lists of ImageNet have synonyms. Numbers (`7`, `class 7`, `LABEL_7`) do not count as names: a
number stands for the answer at that place, unless the model's own classes are other numbers, such
as the 1, 2 and 5 of an estimator's `classes_`. Only where one side names nothing do places decide,
and a remark says so if the numbers of classes differ.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from brinell.core.errors import ModelError, RequestError

NEVER = -1
"""Stands in an order for a class of the data that the model does not know and no sample has: it
is never answered."""
MOST_LISTED = 6
"""Number of classes that a message lists."""
MOST_PROPOSED = 200
"""Largest number of names that a message proposes as an option."""
NUMBERED = re.compile(r"(?:(?:label|class)[\s_\-]*)?(-?\d{1,6})", re.IGNORECASE)
MOST_UNLIKE = 0.05
"""Largest share of names that may differ in two lists that otherwise name the same classes in
the same order."""


class Match(NamedTuple):
    """How the answers of a model are brought into the order of the data's classes."""

    order: tuple[int, ...] = ()
    """The place of the model's answer for each class of the data, then for its further classes;
    empty if nothing changes."""
    note: str = ""
    """The reader of the report must know this about it."""


def match_classes(
    name: str,
    model_names: Sequence[str],
    data_names: Sequence[str],
    count: int,
    present: Iterable[int],
) -> Match:
    """Match the classes of a model with those of the data.

    An empty match leaves the answers as they are.

    Args:
        name: the model, for messages.
        model_names: names of the model's classes; empty without names.
        data_names: names of the data's classes.
        count: number of the model's classes.
        present: labels that samples have.
    """
    used = sorted({label for label in present if 0 <= label < len(data_names)})
    if not data_names or tuple(model_names) == tuple(data_names):
        return Match()

    model_numbers = _numbers(model_names)
    data_numbers = _numbers(data_names)
    has_words = bool(model_names) and model_numbers is None
    if has_words and data_numbers is None:
        return _by_name(name, model_names, data_names, count, used)

    # Words on one side, and on the other nothing that could be compared with them.
    in_order = Match((), _by_place_note(name, model_names, data_names))
    if data_numbers is None or (has_words and _is_count(data_numbers)):
        return Match() if not model_names and len(data_names) == count else in_order

    numbers = range(count) if model_numbers is None else model_numbers
    places = _places_of(numbers, data_numbers, used)
    if places is not None:
        return _match_of(name, places, model_names, data_names, count, "number")
    if _is_count(numbers) or _are_sides(numbers, data_numbers):
        return in_order if len(data_names) == count else Match()
    raise ModelError(
        f"model {name} tells the classes {_listing(model_names)} apart, and the "
        "labels of the data are "
        f"{_listing([data_names[label] for label in used])}: give the labels that "
        f"it was fitted with, or {_remedy(data_names)}"
    )


def _places_of(
    numbers: Sequence[int], data_numbers: Sequence[int], used: Sequence[int]
) -> dict[int, int] | None:
    """By label the place of its number among those of the model.

    It is None if a number occurs twice, or one that a sample has does not occur.
    """
    place_of = {number: place for place, number in enumerate(numbers)}
    needed = {data_numbers[label] for label in used}
    if len(place_of) < len(numbers) or not place_of.keys() >= needed:
        return None
    return {
        label: place_of[number] for label, number in enumerate(data_numbers) if number in place_of
    }


def _are_sides(numbers: Sequence[int], data_numbers: Sequence[int]) -> bool:
    """True for the two sides of a margin, -1 and 1, beside labels that only count the classes."""
    return _is_count(data_numbers) and sorted(numbers) == [-1, 1]


def _by_name(
    name: str,
    model_names: Sequence[str],
    data_names: Sequence[str],
    count: int,
    used: Sequence[int],
) -> Match:
    """Match two lists of names; classes without a sample are matched as far as they can be."""
    keys = list(map(_key, model_names))
    # Slices of one key, since the model may have fewer classes than the data.
    unlike = [
        label for label, title in enumerate(data_names) if [_key(title)] != keys[label : label + 1]
    ]
    is_same_length = len(model_names) == len(data_names)
    is_same_list = is_same_length and len(unlike) <= MOST_UNLIKE * len(data_names)
    # Two lists of the same classes, of which a few have another name: places decide.
    if is_same_list and set(model_names) != set(data_names):
        if not unlike:
            return Match()
        example = _quoted(data_names[unlike[0]])
        note = (
            f"{len(unlike)} of {len(data_names)} classes, such as {example}, have another name "
            f"in the list of {name}"
        )
        return Match((), note)

    # Classes that samples have come first, so that one without a sample takes no place from them.
    places: dict[int, int] = {}
    for label in (*used, *sorted(set(range(len(data_names))) - set(used))):
        title = data_names[label]
        # Case and punctuation count where the exact name occurs, and only there.
        matches = [place for place, name_ in enumerate(model_names) if name_ == title]
        if not matches:
            matches = [place for place, key in enumerate(keys) if key == _key(title)]
        rivals = [earlier for earlier, place in places.items() if place in matches]
        if len(matches) == 1 and not rivals:
            places[label] = matches[0]
        elif label in used:
            rival = data_names[rivals[0]] if rivals else None
            problem = _mismatch(name, model_names, data_names, title, rival, len(matches))
            raise ModelError(
                f"{problem}: choose the model made for this data, or {_remedy(data_names)}"
            )
    return _match_of(name, places, model_names, data_names, count, "name")


def _mismatch(
    name: str,
    model_names: Sequence[str],
    data_names: Sequence[str],
    title: str,
    rival: str | None,
    matches: int,
) -> str:
    """Why a class of the data is none of the model's: another took its place, it matches several,
    or none.
    """
    if rival is not None:
        return (
            f"two classes of the data, {_quoted(rival)} and "
            f"{_quoted(title)}, match one class of model {name}"
        )
    if matches:
        return f"{matches} classes of model {name} match {_quoted(title)}, a class of the data"
    return (
        f"model {name} tells the classes {_listing(model_names)} "
        "apart, and those of the data are "
        f"{_listing(data_names)}; it has no {_quoted(title)}"
    )


def is_same_name(first: str, second: str) -> bool:
    """True for names of one class, whatever their case, punctuation and synonyms."""
    return _key(first) == _key(second)


def _key(name: str) -> str:
    """A name without case and punctuation, up to a comma."""
    return re.sub(r"[\W_]+", "", name.partition(",")[0]).casefold() or name


def _match_of(
    name: str,
    places: Mapping[int, int],
    model_names: Sequence[str],
    data_names: Sequence[str],
    count: int,
    means: str,
) -> Match:
    """The match in which class i of the data is at `places[i]` in the model.

    Further classes of the model follow.
    """
    order = [places.get(label, NEVER) for label in range(len(data_names))]
    extra_places = [place for place in range(count) if place not in places.values()]
    # In the same order nothing is matched, and the model stays as it is.
    if [*order, *extra_places] == list(range(count)):
        return Match()

    matched = [label for label in range(len(data_names)) if label in places]
    note = (
        f"the classes of {name} are in another order than those of the data, and "
        f"matched by {means}: its answers "
        f"{_listing([str(places[label]) for label in matched])} are "
        f"{_listing([data_names[label] for label in matched])}"
    )

    # A class that the data do not have can never be right: a user should know it.
    if extra_places:
        example = (
            model_names[extra_places[0]]
            if extra_places[0] < len(model_names)
            else str(extra_places[0])
        )
        note += (
            f"; further answers of it ({len(extra_places)}, such as "
            f"{_quoted(example)}) are always wrong"
        )
    return Match((*order, *extra_places), note)


def check_names(subject: str, names: Sequence[Any], count: int) -> tuple[str, ...]:
    """The names of a model's classes as text.

    Args:
        subject: whose names they are, for messages.
        names: one for each class.
        count: number of the model's classes; 1 for one number that tells two classes apart.
    """
    # Line breaks and double spaces in a name would break the tables that show it.
    texts = tuple(" ".join(str(name).split()) for name in names)
    if texts and len(texts) != max(2, count):
        raise RequestError(
            f"{subject} name {len(texts)} classes, and the model answers {count} "
            f"number{'s' * (count != 1)}: name each of its "
            "classes by the option class_names="
        )

    if not all(texts):
        raise RequestError(f"{subject} leave class {texts.index('')} without a name: name it")
    return texts


def names_of_mapping(
    subject: str, mapping: Mapping[Any, Any], inverse: Mapping[Any, Any] | None = None
) -> tuple[str, ...]:
    """Names in the order of their numbers, from a mapping of numbers to names such as `id2label`.

    Args:
        subject: what the mapping is, for messages.
        mapping: number to name.
        inverse: name to number, as `label2id`, if it is stated as well.
    """
    try:
        by_number = {int(key): str(name) for key, name in mapping.items()}
    except (TypeError, ValueError):
        raise RequestError(
            f"{subject} maps {_listing(list(map(str, mapping)))} to names: its "
            "keys are whole numbers"
        ) from None

    if sorted(by_number) != list(range(len(mapping))):
        raise RequestError(
            f"{subject} numbers its {len(mapping)} classes "
            f"{_listing(list(map(str, mapping)))}: number them from 0 to "
            f"{len(mapping) - 1}, each once"
        )

    names = tuple(by_number[number] for number in range(len(by_number)))
    # Names that repeat, or an inverse of other names, leave nothing to compare.
    stated = {str(name): str(number) for name, number in (inverse or {}).items()}
    if set(stated) == set(names) and len(set(names)) == len(names):
        if wrong := [name for number, name in by_number.items() if stated[name] != str(number)]:
            raise RequestError(
                f"{subject} and its inverse contradict each other: "
                f"{_quoted(wrong[0])} is {names.index(wrong[0])} in one and "
                f"{stated[wrong[0]]} in the other; correct the wrong one"
            )
    return names


def check_unique(names: Sequence[str], subject: str) -> None:
    """Refuse a name that occurs twice."""
    if len(set(names)) == len(names):
        return
    duplicate = next(name for index, name in enumerate(names) if name in names[:index])
    first, second = [index for index, name in enumerate(names) if name == duplicate][:2]
    raise RequestError(
        f"{subject} names the classes {first} and {second} both "
        f"{_quoted(duplicate)}: give each class its own name"
    )


def own_order(class_names: Sequence[str], class_order: Sequence[int]) -> tuple[str, ...]:
    """Names in the order of a model's own answers, from those in the order of the
    data's classes.
    """
    names = {
        place: name for place, name in zip(class_order, class_names, strict=True) if place != NEVER
    }
    return tuple(names[place] for place in sorted(names))


def option_text(names: Sequence[str]) -> str:
    """The option `class_names` of a model's spec for these names; empty if a spec
    cannot hold them.
    """
    if len(names) > MOST_PROPOSED or any(mark in name for name in names for mark in "+&"):
        return ""
    return f"class_names={'+'.join(names)}"


def _numbers(names: Sequence[str]) -> tuple[int, ...] | None:
    """The numbers in names such as `7` or `LABEL_7`; None if a name is something else."""
    matches = [NUMBERED.fullmatch(name.strip()) for name in names]
    return tuple(int(match[1]) for match in matches if match) if names and all(matches) else None


def _is_count(numbers: Sequence[int] | None) -> bool:
    """True if numbers merely count the classes, from 0."""
    return numbers is not None and list(numbers) == list(range(len(numbers)))


def _by_place_note(name: str, model_names: Sequence[str], data_names: Sequence[str]) -> str:
    """The remark that the answers of a model are taken in the order of the labels."""
    numbers = _numbers(model_names)
    if numbers is not None and not _is_count(numbers):
        return (
            f"the classes {_listing(model_names)} of {name} are taken for the labels "
            f"{_listing(data_names)}"
        )

    # Numbers that count the classes name none: the names of the other side say which is which.
    unnamed = not model_names or numbers is not None
    names = data_names if unnamed else model_names
    first = ", ".join(f"{place} is {_quoted(text)}" for place, text in enumerate(names[:2]))
    return (
        f"{name if unnamed else 'the data set'} names no classes: answers are taken "
        f"in the order of the labels, {first}"
    )


def _remedy(data_names: Sequence[str]) -> str:
    """What to do where the names of model and data cannot be matched."""
    return (
        "name the model's classes in their order by its option class_names=, in the "
        f"words of the data ({_listing(data_names)})"
    )


def _listing(names: Sequence[str]) -> str:
    """The first names of a list, and how many follow."""
    remainder = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(_short(name) for name in names[:MOST_LISTED]) + remainder


def _quoted(name: str) -> str:
    """A name in quotation marks, cut short."""
    return f"'{_short(name)}'"


def _short(name: str) -> str:
    """A name in printable characters, cut short."""
    return "".join(mark if mark.isprintable() else " " for mark in name)[:40]
