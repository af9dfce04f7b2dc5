"""Spelling help: the name of a vocabulary that is nearest to one that does not exist,
by `difflib`.
"""

import difflib
import os
import re
from collections.abc import Iterable

LEAST_RATIO = 0.65
"""Least ratio of equal letters at which a name is near."""
LEAST_BEGINNING = 3
"""Least letters of a word that is the beginning of another one."""


def suggestion(name: str, vocabulary: Iterable[str], list_hint: str = "") -> str:
    """The end of a message about an unknown name: the nearest name, and where all are listed."""
    match = nearest_name(name, vocabulary)
    if not match:
        return f"; {list_hint}" if list_hint else ""
    return f", did you mean {match!r}? {list_hint}".rstrip()


def nearest_name(name: str, vocabulary: Iterable[str]) -> str:
    """The nearest name of a vocabulary, or one that begins like it; empty if none is near.

    Case, hyphens and underscores make no difference.
    """
    names = {_bare(word): word for word in map(str, vocabulary)}
    bare = _bare(name)
    matches = difflib.get_close_matches(bare, names, 1, LEAST_RATIO)
    # `epsilon` has few letters in common with `eps`, and yet it is meant.
    matches += [
        word
        for word in names
        if len(os.path.commonprefix([word, bare])) == min(len(word), len(bare)) >= LEAST_BEGINNING
    ]
    return names[matches[0]] if matches else ""


def _bare(word: str) -> str:
    """A word without case, blanks, hyphens and underscores."""
    return re.sub(r"[\s_\-]+", "", word).casefold()
