"""Count how often a model predicts each class under Gaussian noise."""

from typing import Annotated

from pydantic import Field

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


class TallyRequest(BaseRequest):
    """What `brinell tally` is asked for."""

    data: DataSpec = "digits"
    """The data, as for brinell audit."""
    model: ModelSpec = "digits-cnn"
    """The model, as for brinell audit."""
    size: tuple[Annotated[float, Field(ge=0)], ...] = (0.0, 0.2, 0.5)
    """A standard deviation of the noise, in the units of the data."""
    samples: SampleCount = None
    """The number of samples, or all. Default: 1000, or all where there are fewer."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"


STUDY = Study(
    verb="tally",
    request=TallyRequest,
    rows="result:Predictions",
    result="result:TallyResult",
    examples=(
        "brinell tally",
        "brinell tally --data FILE.npz --model model.py:factory --size 0 --size 0.1",
    ),
)
