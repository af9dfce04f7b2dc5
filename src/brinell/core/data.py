"""The contract of labelled data, and what data may tell besides; importable without torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from brinell.core.domain import Domain, Sampling

if TYPE_CHECKING:
    from torch import Tensor


class Remark(NamedTuple):
    """A remark for the reader of a report about a model, data or an attack."""

    code: str
    """A short name, the same each time."""
    text: str
    """One line."""


DenseTask = Literal["segmentation", "detection"]
"""Tasks whose answers are about parts of a picture, so that a benchmark set can hold them."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The truth of a task: a mask for each picture, its objects, or what another package answers.

    The labels of such data are all 0.
    """

    task: str
    """segmentation, detection, or a task of another package (`studies.tasks`)."""
    load: Callable[[Sequence[int]], Any]
    """For segmentation the masks (n, h, w) uint8 of some samples, 255 where a pixel has no
    class; for detection a list; for another task what its criterion reads."""


@dataclass(frozen=True, kw_only=True)
class DataInfo:
    """Everything that a data set may tell beyond inputs and labels. Each part may be left out."""

    sampling: Sampling | None = None
    """Recording parameters of signals, if known."""
    notes: tuple[str, ...] = ()
    """Choices that the data set made because the user gave no setting, in lines that the run
    prints and its manifest keeps."""
    published: bool = False
    """True if others use the same order of samples, as in a published test set: then the first
    samples are taken by default."""
    remarks: tuple[Remark, ...] = ()
    """Remarks about samples that are unreadable and were left out."""
    names: tuple[str, ...] = ()
    """Names of the samples, such as the path of an image below the folder; empty if samples have
    no names."""
    truth: Truth | None = None
    """The truth about parts of the inputs, for a model that answers more than a class for each."""
    unreadable: Callable[[Sequence[int]], Mapping[int, str]] = lambda indices: {}
    """Reason why a sample cannot be loaded, in one line, for those of the given indices. `load`
    raises a SampleError for them."""
    distorted: bool = False
    """True if the inputs are distorted on purpose, so that errors on them are no sign of a
    mistake in labels or inputs."""


@runtime_checkable
class Dataset(Protocol):
    """Labelled inputs, read on demand."""

    @property
    def name(self) -> str:
        """Name of the data in reports."""

    @property
    def domain(self) -> Domain:
        """Shape, bounds and kind of the inputs."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in label order; ("0", "1", ...) where the data names none."""

    @property
    def info(self) -> DataInfo:
        """Facts besides inputs and labels; a class without any sets `info = DataInfo()`."""

    def __len__(self) -> int:
        """Number of samples."""

    def labels(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """(n,) int64: all labels, without reading the inputs."""

    def load(self, indices: Sequence[int]) -> "Tensor":
        """(len(indices), *shape) float32 within the domain's bounds."""

    def digest(self) -> str:
        """A hash of the content: inputs, labels and the names of the classes, all in order."""
