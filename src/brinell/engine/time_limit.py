"""The time in which an audit ends, whatever its stages still have to do."""

import math
import time

from brinell.core.errors import TimeUpError


class TimeLimit:
    """Minutes from now on, divided evenly among the models of a run.

    The first check of a model and the checks after its last stage are made in any case.

    Args:
        minutes: the time that the attacks may take; None for no limit.
    """

    def __init__(self, minutes: float | None = None) -> None:
        self.minutes = minutes
        self._end = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self._deadline = math.inf
        """The time until which the current model may be attacked."""

    def begin_share(self, models: int) -> None:
        """Let the next of so many models be attacked for its share of the time that is left."""
        now = time.monotonic()
        self._deadline = now + max(0.0, self._end - now) / models

    def lift(self) -> None:
        """Let what follows take its time."""
        self._deadline = math.inf

    @property
    def is_up(self) -> bool:
        """True if the time of the current model is up."""
        return time.monotonic() > self._deadline

    def check(self) -> None:
        """Raise TimeUpError if the time of the current model is up."""
        if self.is_up:
            raise TimeUpError
