"""Contexts that record, or change, what the torch functions of a model do, in whatever process it
runs.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class Recorder(TorchFunctionMode):
    """A context around questions to a model, which a process that answers them can make again."""

    def settings(self) -> dict[str, Any]:
        """The arguments with which another process makes it for the next question, as JSON."""
        return {}

    @abstractmethod
    def outcome(self, answer: Tensor) -> tuple[dict[str, Any], list[Tensor]]:
        """The record of a question with this answer: facts as JSON, and arrays."""

    @abstractmethod
    def accept(self, facts: Mapping[str, Any], arrays: Sequence[Tensor], answer: Tensor) -> None:
        """Take over the outcome that one of another process had."""
