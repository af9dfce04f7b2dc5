"""Corrupt inputs with the published corruptions or others at five severities, and count the errors
of models.

With --reference it computes the mean corruption error.
"""

from typing import Annotated

from brinell.core.settings import Names
from brinell.engine.request import (
    BaseRequest,
    BatchSize,
    DataSpec,
    Device,
    ModelSpec,
    SampleCount,
    Seed,
)
from brinell.studies.kit import Study


class CorruptRequest(BaseRequest):
    """The settings of `brinell corrupt`."""

    data: DataSpec = "digits"
    """The data, as for brinell audit."""
    model: tuple[ModelSpec, ...] = ("digits-cnn",)
    """A model, as for brinell audit."""
    kind: tuple[Annotated[str, Names("distortion")], ...] = ()
    """A distortion of brinell plugins distortion, or all of a suite that fit the data: published
    (ImageNet-C's nineteen, for images of 1 or 3 channels) or calibrated. Default: published
    where it fits, else calibrated."""
    severity: tuple[int, ...] = (1, 2, 3, 4, 5)
    """A severity, 1 to 5."""
    reference: str | None = None
    """The model whose errors divide the mean corruption error: the name of one of --model.
    Default: none, and no such mean."""
    samples: SampleCount = None
    """The number of samples, or all. Default: 1000, or all if there are fewer."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"


STUDY = Study(
    verb="corrupt",
    request=CorruptRequest,
    rows="result:CorruptionRows",
    result="result:CorruptResult",
    examples=(
        "brinell corrupt --samples 200",
        "brinell corrupt --samples 200 --kind published --kind calibrated",
        "brinell corrupt --data FILE.npz --model model.py:plain --model "
        "model.py:hardened --reference plain",
    ),
)
