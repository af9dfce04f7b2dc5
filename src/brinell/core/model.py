"""The classifier under test, and how much of it an attack may see."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from brinell.core.data import Remark
from brinell.core.detection import BoxForm
from brinell.core.domain import Domain
from brinell.core.errors import (
    BatchError,
    MemoryShortError,
    ModelError,
    is_foreign,
    one_line,
    option,
)
from brinell.core.memory import is_memory_short
from brinell.core.values import obstacle_of

MASKED = -1e38
"""Stands for -inf in answers, by which models mask classes: it never leads, and margins to it
are finite."""


class Access(IntEnum):
    """Outputs that a model gives to an attack; each level includes the lower ones."""

    LABELS = 1
    SCORES = 2
    GRADIENTS = 3


class RemoteHost(Protocol):
    """The remote machine on which a model runs.

    Its operator may exchange the model during an audit.
    """

    @property
    def served(self) -> Mapping[str, Any]:
        """Facts about the server for the manifest, as JSON."""

    def remarks(self) -> Sequence[Remark]:
        """Remarks about the queries to the server, for the reader of the report."""

    def traffic(self) -> dict[str, int]:
        """Counts of requests, of inputs and of faults since the last call of this."""


@dataclass(frozen=True, kw_only=True)
class MapOutput:
    """The answers are maps of logits (classes, height, width), one class for each place.

    Each is flattened to a row.
    """

    classes: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of one map."""
        return self.classes, self.height, self.width


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Everything that a model may offer beyond answers.

    Each part may be left out, so `ModelInfo()` suits every model.
    """

    class_names: tuple[str, ...] = ()
    """Names of the classes in the order of the logits, by which they are matched with those of
    the data; empty without names."""
    class_order: tuple[int, ...] = ()
    """For each logit its place in the model's own answer, or -1; empty unless they were brought
    into the data's order."""
    architecture: str | None = None
    """Name of the architecture, in a word."""
    parameters: int | None = None
    """Number of trained parameters."""
    module: nn.Module | None = None
    """The torch module inside, whose children a check may watch, and an adaptive attack make
    differentiable."""
    features: Callable[[Tensor], Tensor] | None = None
    """(n, *shape) inputs to (n, d) features of the penultimate layer."""
    session: Callable[[torch.device], AbstractContextManager[None]] = lambda device: nullcontext()
    """Prepares the model for many calls on one device (evaluation mode, open connections) until
    the context ends."""
    output: MapOutput | BoxForm | None = None
    """Kind of the answers, if they are more than a class each; `Model.classes` is then the
    length of a flattened answer."""
    answers: str | None = None
    """Kind of the raw answers before conversion to logits, one of `models._answers.Kind`; None
    if unknown."""
    training: Callable[[], Sequence[str]] | None = None
    """Names of the modules that are in training mode at the time of the call; None if the model
    is not a torch module."""
    preprocessing: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """`mean`, `std`, `axis` and `flip_axis` that the user gave for it; empty without."""
    notes: tuple[str, ...] = ()
    """Choices made because the user gave no setting, in lines that the run prints and its
    manifest keeps."""
    alternatives: tuple[str, ...] = ()
    """Options of the spec under which the same file gives other models, such as
    averaged weights.
    """
    gradients: str = ""
    """Spec under which the same network gives gradients; empty if there is none."""
    server: RemoteHost | None = None
    """Present where the model runs on another machine."""


@runtime_checkable
class Model(Protocol):
    """A classifier over a domain. Normalisation and resizing happen inside `predict`.

    Over a domain with columns it is asked in their units (`Domain.in_units`).
    """

    @property
    def name(self) -> str:
        """Name of the model in reports."""

    @property
    def domain(self) -> Domain:
        """Domain of the model's inputs."""

    @property
    def classes(self) -> int:
        """Number of classes."""

    @property
    def access(self) -> Access:
        """The most that it can answer with."""

    @property
    def info(self) -> ModelInfo:
        """Facts besides answers; a class without any sets `info = ModelInfo()`."""

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs within the domain's bounds to (n, classes) logits.

        Differentiable where access is GRADIENTS.
        """

    def digest(self) -> str:
        """A hash of everything that determines its answers."""


def check_exit(name: str, error: BaseException) -> None:
    """Refuse a model whose code ends the program; pass on errors of Brinell and Ctrl-C.

    Other data would not help.

    Raises:
        ModelError: the error is `sys.exit`, or another that `except Exception` does not see.
    """
    # Errors of ours say already what is wrong, and Ctrl-C is no error.
    if not is_foreign(error):
        raise error

    if not isinstance(error, Exception):
        raise ModelError(
            f"model {name} ended with {type(error).__name__} when it was asked "
            f"({one_line(error)}): take sys.exit, or what else "
            "ends it, out of its code"
        ) from error


@contextmanager
def answering(name: str, n: int) -> Iterator[None]:
    """Context in which the code of a model runs on `n` inputs: its errors become one line.

    That holds for whatever it raises, `sys.exit` included.

    Raises:
        BatchError: the model failed; its own error is quoted in one line.
        MemoryShortError: it ran out of memory.
    """
    try:
        yield
    except BaseException as error:
        if not is_foreign(error):
            raise

        failure = (
            f"model {name} failed on a batch of {n} inputs ({type(error).__name__}: "
            f"{one_line(error)})"
        )

        if is_memory_short(error):
            fallback = f"try {option('device', 'cpu')}, or one with more memory"
            advice = f"try a smaller {option('batch_size')}" if n > 1 else fallback
            raise MemoryShortError(f"{failure}: {advice}; what was computed is kept") from error

        raise BatchError(
            f"{failure}: correct it, or try a smaller {option('batch_size')} "
            "where memory is short; what was computed is kept"
        ) from error


def ask(model: Model, x: Tensor) -> Tensor:
    """The model's answer to a batch.

    Raises:
        BatchError: the model failed; its own error is quoted in one line.
        ModelError: the answer is something other than a tensor of real numbers.
        MemoryShortError: it ran out of memory.
    """
    with answering(model.name, len(x)):
        answer: object = model.predict(x)

    if not isinstance(answer, Tensor):
        raise ModelError(
            f"model {model.name} answered with a {type(answer).__name__}: return a tensor of logits"
        )
    if obstacle := obstacle_of(answer):
        raise ModelError(
            f"model {model.name} answered with logits that are {obstacle[0]}: return {obstacle[1]}"
        )
    # A network may mask classes by minus infinity, of which no gradient or margin can be computed.
    return as_logits(answer).clamp_min(MASKED)


def as_logits(answer: Tensor) -> Tensor:
    """A model's answer in float32, the only type of logits behind a model.

    The class that leads is the same.
    """
    if answer.dtype == torch.float32:
        return answer
    if answer.dtype in (torch.float16, torch.bfloat16):
        return answer.float()

    # Rounding to float32 can make two scores equal or the larger one infinite.
    wide = answer.double()
    limit = torch.finfo(torch.float32).max / 2
    logits = torch.where(wide.isinf(), wide, wide.clamp(-limit, limit)).float()
    leader = (wide if answer.dtype == torch.bool else answer).detach()
    return logits if answer.ndim != 2 or not answer.numel() else led_by(logits, leader.argmax(1))


def led_by(logits: Tensor, leader: Tensor) -> Tensor:
    """The logits (n, classes), led by the classes in `leader` (n,).

    The logit is raised by the least that it takes if another class leads or ties.
    """
    values = logits.detach()
    raised = torch.nextafter(values.amax(1, keepdim=True), values.new_tensor(torch.inf))
    wrong = (values.argmax(1) != leader)[:, None] & (
        torch.arange(logits.shape[1], device=logits.device) == leader[:, None]
    )
    # The difference is 0, and carries the gradient of the logit.
    return torch.where(wrong, raised + (logits - values), logits)
