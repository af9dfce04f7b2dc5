"""An export as a terminal shows it."""

from collections.abc import Iterator
from typing import Any


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    for note in result.notes:
        yield f"note: {note}"
    some = f"{result.metrics:,} metrics and " if result.metrics else ""
    yield f"{result.to}: {some}{len(result.files)} files in {result.where}"
