"""A board as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.format import counted

MOST_LINES = 10
"""Refusals and notes that are listed."""


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    for refusal in result.refused[:MOST_LINES]:
        yield f"refused  {refusal.run}: {refusal.why}"
    if len(result.refused) > MOST_LINES:
        yield f"refused  {len(result.refused) - MOST_LINES} more, on {result.folder}/refused.html"
    for note in result.notes[:MOST_LINES]:
        yield f"note     {note}"
    models, tasks, runs = counted(result.models, "model"), counted(result.tasks, "task"), counted(result.runs, "folder")
    yield f"{models} in {tasks} from {runs}, {len(result.refused)} refused"
    yield f"page: {result.folder}/index.html ({counted(result.written, 'file')} written)"
