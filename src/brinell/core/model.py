"""The classifier under test, and how much of it an attack may see."""

from enum import IntEnum
from typing import Protocol, runtime_checkable

from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.errors import BrinellError, ModelError


class Access(IntEnum):
    """What a model answers with, each level including the ones below it."""

    LABELS = 1
    SCORES = 2
    GRADIENTS = 3


@runtime_checkable
class Model(Protocol):
    """A classifier over a domain. Normalisation and resizing happen inside `predict`.

    Over a domain with columns it is asked in their units (`Domain.in_units`). One that knows what its classes are called may have
    `class_names`, in the order of the logits: they are held against those of the data.
    """

    @property
    def name(self) -> str:
        """How reports call it."""

    @property
    def domain(self) -> Domain:
        """The inputs it takes."""

    @property
    def classes(self) -> int:
        """How many classes it tells apart."""

    @property
    def access(self) -> Access:
        """The most that it can answer with."""

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs within the domain's bounds to (n, classes) logits; differentiable where access is GRADIENTS."""

    def digest(self) -> str:
        """A hash of everything that determines its answers."""


def ask(model: Model, x: Tensor) -> Tensor:
    """The model's answer to a batch.

    Raises:
        ModelError: the model failed; its own error is told in one line.
    """
    try:
        return model.predict(x)
    except BrinellError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(
            f"model {model.name} failed on a batch of {len(x)} inputs ({type(error).__name__}: {reason}): mend it, or try a "
            "smaller --batch-size where memory is short; what was computed is kept"
        ) from error
