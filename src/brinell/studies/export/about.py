"""What a person tells of a run that the run cannot know, as KEY=VALUE."""

from collections.abc import Sequence

from brinell.core.errors import RequestError


def told(about: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """The values by their keys.

    Raises:
        RequestError: another form, or a key that is none of `keys`.
    """
    found: dict[str, str] = {}
    for pair in about:
        key, equals, value = pair.partition("=")
        if not equals or key not in keys:
            raise RequestError(f"about is {pair!r}: write KEY=VALUE with a KEY of {', '.join(keys)}")
        found[key] = value
    return found
