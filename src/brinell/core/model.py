"""The classifier under test, and how much of it an attack may see."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from brinell.core.domain import Domain
from brinell.core.errors import BatchError, BrinellError, MemoryShortError, one_line, option


class Access(IntEnum):
    """What a model answers with, each level including the ones below it."""

    LABELS = 1
    SCORES = 2
    GRADIENTS = 3


class Remark(NamedTuple):
    """What a reader of a report should know of a model, of data or of how an attack went."""

    code: str
    """A short name, the same each time."""
    text: str
    """One line."""


class Server(Protocol):
    """The other machine on which a model runs. Whoever operates it may exchange the model while it is audited."""

    @property
    def served(self) -> Mapping[str, Any]:
        """What the manifest keeps of the server, as JSON."""

    def remarks(self) -> Sequence[Remark]:
        """How the server was asked, as far as a reader of the report should know."""

    def traffic(self) -> dict[str, int]:
        """Counts of requests, of inputs and of faults since the last call of this."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Everything that a model may offer beyond answers. Each part may be left out, so `ModelInfo()` suits every model."""

    class_names: tuple[str, ...] = ()
    """Names of the classes in the order of the logits; they must be those of the data. Empty where the model names none."""
    architecture: str | None = None
    """What the network is, in a word."""
    parameters: int | None = None
    """How many numbers were learnt."""
    bf16: bool = False
    """Whether gradients may be computed in bf16 (`--precision bf16`)."""
    module: nn.Module | None = None
    """The torch module inside, whose children a check may watch, and an adaptive attack make differentiable."""
    features: Callable[[Tensor], Tensor] | None = None
    """(n, *shape) inputs to (n, d) features of the penultimate layer."""
    session: Callable[[torch.device], AbstractContextManager[None]] = lambda device: nullcontext()
    """Prepares the model for many calls on one device (evaluation mode, open connections) until the context ends."""
    answers: str | None = None
    """What its answers are before they are turned into logits, one of `models._answers.Kind`; None where nobody said."""
    training: Callable[[], Sequence[str]] | None = None
    """Names of the modules that are in training mode now; None where the model is no torch module."""
    notes: tuple[str, ...] = ()
    """What was decided where the user said nothing, in lines that the run prints and its manifest keeps."""
    server: Server | None = None
    """Present where the model runs on another machine."""


@runtime_checkable
class Model(Protocol):
    """A classifier over a domain. Normalisation and resizing happen inside `predict`.

    Over a domain with columns it is asked in their units (`Domain.in_units`).
    """

    @property
    def name(self) -> str:
        """How reports call it."""

    @property
    def domain(self) -> Domain:
        """The inputs it takes."""

    @property
    def classes(self) -> int:
        """How many classes it distinguishes."""

    @property
    def access(self) -> Access:
        """The most that it can answer with."""

    @property
    def info(self) -> ModelInfo:
        """What it offers beyond answers; `info = ModelInfo()` in the class where that is nothing."""

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs within the domain's bounds to (n, classes) logits; differentiable where access is GRADIENTS."""

    def digest(self) -> str:
        """A hash of everything that determines its answers."""


def ask(model: Model, x: Tensor) -> Tensor:
    """The model's answer to a batch.

    Raises:
        BatchError: the model failed; its own error is quoted in one line.
        MemoryShortError: it ran out of memory.
    """
    try:
        return model.predict(x)
    except BrinellError:
        raise
    except Exception as error:
        short = isinstance(error, MemoryError | torch.OutOfMemoryError)
        raise (MemoryShortError if short else BatchError)(
            f"model {model.name} failed on a batch of {len(x)} inputs ({type(error).__name__}: {one_line(error)}): correct it, "
            f"or try a smaller {option('batch_size')} where memory is short; what was computed is kept"
        ) from error
