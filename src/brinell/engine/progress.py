"""What a run tells whoever waits for it."""

from collections.abc import Mapping
from typing import Any, Protocol


class Progress(Protocol):
    """What a run tells while it goes on."""

    def stage(self, model: str, stage: str, samples: int, passes: int) -> None:
        """A stage begins on this many samples; about so many forwards and backwards of single inputs are ahead in it.

        A stage that has nothing to do is told of with no samples.
        """

    def ahead(self, stages: Mapping[str, int], models: int) -> None:
        """What is expected: the stage that begins and those after it, by name, with the passes of each; and more models."""

    def passes(self, forwards: int, backwards: int) -> None:
        """The model has answered."""

    def open(self, samples: int, robust: int) -> None:
        """How many samples are still open in this stage, and how many of the model's are robust at the largest eps so far."""

    def note(self, text: str) -> None:
        """Something that a reader may want to know, and may be spared."""

    def warn(self, text: str) -> None:
        """Something that a reader must know before the figures."""


class Silent:
    """Progress that tells nothing."""

    def stage(self, *told: Any, **named: Any) -> None:
        """Nothing, and nothing whatever else happens."""

    ahead = passes = open = note = warn = stage
