"""What `brinell corrupt` is asked for."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names, Plain
from brinell.engine.request import BaseRequest, BatchSize, DataSpec, Device, ModelSpec, Seed


class CorruptRequest(BaseRequest):
    """What `brinell corrupt` is asked for."""

    data: DataSpec = "digits"
    """The data, as for brinell audit."""
    model: tuple[ModelSpec, ...] = ("digits-cnn",)
    """A model, as for brinell audit."""
    kind: tuple[Annotated[str, Names("distortion")], ...] = ()
    """A distortion of brinell plugins distortion: a published one, such as published-fog, or a calibrated one, such as fog.
    Default: all nineteen published ones for images of 1 or 3 channels, all calibrated ones that fit for other data."""
    severity: tuple[int, ...] = (1, 2, 3, 4, 5)
    """A severity, 1 to 5."""
    reference: Plain | None = None
    """The model by whose errors the mean corruption error is divided, one of --model by its name. Default: none, no such mean."""
    placed: int = Field(default=0, ge=0)
    """The samples on which RLAB places each corruption on patches, at most as far from the clean input as the corruption of the
    whole input is. 0 leaves it out."""
    steps: int = Field(default=200, ge=1)
    """The queries of RLAB on each of these samples."""
    keep: bool = False
    """Whether the corrupted inputs are kept: FOLDER/set/KIND/SEVERITY.npz, in 8 bits for images, which --data npz: reads."""
    samples: int | None = Field(default=None, ge=1)
    """The number of samples. Default: 1000, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """Which samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test
    sets, and stratified of all else."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"
    draws: int = Field(default=2000, ge=100, le=100_000)
    """The resamplings behind the intervals of mean corruption errors."""
