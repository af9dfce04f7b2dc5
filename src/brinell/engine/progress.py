"""What a run tells whoever waits for it."""

from typing import Protocol


class Progress(Protocol):
    """What a run tells while it goes on."""

    def stage(self, model: str, stage: str, samples: int, forwards: int) -> None:
        """A stage begins on this many samples and costs at most this many forwards."""

    def passes(self, forwards: int, backwards: int) -> None:
        """The model has answered."""

    def open(self, samples: int, broken: int) -> None:
        """How many samples are still open in this stage, and how many of the model's are broken at the largest eps so far."""

    def message(self, text: str) -> None:
        """Something to say in passing."""
