"""Spelling help: the names of a vocabulary that are nearest to one that does not exist, by `difflib`."""

import difflib
import re
from collections.abc import Iterable

MOST_SUGGESTED = 3
"""Largest number of names in a suggestion."""
LEAST_RATIO = 0.65
"""Least ratio of equal letters at which a name is near."""


def suggestion(name: str, vocabulary: Iterable[str], list_hint: str = "") -> str:
    """The end of a message about an unknown name: the nearest names of the vocabulary, and where all of them are listed."""
    names = nearest_names(name, vocabulary)
    if not names:
        return f"; {list_hint}" if list_hint else ""
    question = f", did you mean {' or '.join(word if word.startswith('--') else repr(word) for word in names)}?"
    return f"{question} {list_hint}".rstrip()


def nearest_names(name: str, vocabulary: Iterable[str]) -> list[str]:
    """The nearest names of a vocabulary, the nearest first; case, hyphens and underscores make no difference."""
    plain = {word: re.sub(r"[\s_\-]+", "", word).casefold() for word in [name, *map(str, vocabulary)] if word}
    typed = plain.pop(name, "")
    near = difflib.get_close_matches(typed, plain.values(), MOST_SUGGESTED, LEAST_RATIO) if typed else []
    return list(dict.fromkeys(word for match in near for word in plain if plain[word] == match))[:MOST_SUGGESTED]
