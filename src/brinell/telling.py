"""What a call from Python tells while it goes on: progress where somebody looks, and nothing elsewhere."""

from contextlib import AbstractContextManager, nullcontext

from rich.console import Console

from brinell.engine.progress import Progress, Silent
from brinell.runners.progress import LiveProgress


class Telling(LiveProgress):
    """Live progress without the warnings, which a call gives as Python's own."""

    def warn(self, text: str) -> None:
        """Nothing: the call warns by itself."""


def telling(progress: Progress | bool | None) -> AbstractContextManager[Progress]:
    """What is told how a call goes on: a given one; live progress where it is asked for, or somebody looks; else nothing."""
    if not isinstance(progress, bool | None):
        return nullcontext(progress)
    console = Console(stderr=True)
    if progress or (progress is None and (console.is_terminal or console.is_jupyter)):
        return Telling()
    return nullcontext(Silent())
