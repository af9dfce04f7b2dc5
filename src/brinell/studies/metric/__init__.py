"""Train a triplet network on the data, and measure how well its distances separate classes beside
those between pixels.
"""

from typing import Annotated, Literal

from pydantic import Field

from brinell.engine.request import BaseRequest, DataSpec, Seed
from brinell.studies.kit import Output, Study


class MetricRequest(BaseRequest):
    """The settings of `brinell train metric`."""

    data: DataSpec = "digits?split=train"
    """The data to train on."""
    test: DataSpec | None = None
    """The data to judge by. Default: a fifth of each class of the training data, kept aside."""
    samples: Annotated[int, Field(ge=2)] | Literal["all"] = 20000
    """The most samples of each data set, counted from the first."""
    steps: int = Field(default=1500, ge=1)
    """The number of batches."""
    seed: Seed = 0


STUDY = Study(
    verb="train metric",
    request=MetricRequest,
    result="result:MetricResult",
    memory=("data", "test"),
    output=Output.FILE,
    examples=("brinell train metric --data FILE.npz --out distance.safetensors",),
)
