"""Spelling help: the name of a vocabulary that is nearest to one that does not exist, by `difflib`."""

import difflib
import re
from collections.abc import Iterable

LEAST_RATIO = 0.65
"""Least ratio of equal letters at which a name is near."""


def suggestion(name: str, vocabulary: Iterable[str], list_hint: str = "") -> str:
    """The end of a message about an unknown name: the nearest name, and where all are listed."""
    match = nearest_name(name, vocabulary)
    if not match:
        return f"; {list_hint}" if list_hint else ""
    return f", did you mean {match!r}? {list_hint}".rstrip()


def nearest_name(name: str, vocabulary: Iterable[str]) -> str:
    """The nearest name of a vocabulary, empty if none is near.

    Case, hyphens and underscores make no difference.
    """
    names = {re.sub(r"[\s_\-]+", "", word).casefold(): word for word in map(str, vocabulary)}
    matches = difflib.get_close_matches(
        re.sub(r"[\s_\-]+", "", name).casefold(), names, 1, LEAST_RATIO
    )
    return names[matches[0]] if matches else ""
