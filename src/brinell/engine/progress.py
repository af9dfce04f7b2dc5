"""The interface through which a run reports its progress."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """Receiver of progress reports."""

    def stage(self, model: str, stage: str, samples: int, passes: int) -> None:
        """Report the start of a stage, with its samples (0: nothing to do) and the expected
        forwards plus backwards.
        """

    def forecast(self, stages: Mapping[str, int], models: int) -> None:
        """Report the expected passes of the current and later stages, by name, and the number of
        later models.
        """

    def count_passes(self, forwards: int, backwards: int) -> None:
        """Count forwards and backwards of single inputs."""

    def update_open(self, samples: int, robust: int) -> None:
        """Report the open samples of the stage, and the samples of the model that are robust at the
        largest eps so far.
        """

    def note(self, text: str) -> None:
        """Report a note, which may be suppressed."""

    def warn(self, text: str) -> None:
        """Report a warning that concerns the figures."""


class SilentProgress:
    """Progress that ignores all reports."""

    def stage(self, *args: Any, **kwargs: Any) -> None:
        """Ignore the report; all other methods do the same."""

    forecast = count_passes = update_open = note = warn = stage
