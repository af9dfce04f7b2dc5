"""What `brinell train-metric` is asked for."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.engine.request import BaseRequest, DataSpec


class MetricRequest(BaseRequest):
    """What `brinell train-metric` is asked for."""

    data: DataSpec = "digits?split=train"
    """The data to train on."""
    test: DataSpec | None = None
    """The data to judge by. Default: a fifth of each class of the training data, kept aside."""
    samples: Annotated[int, Field(ge=2)] | Literal["all"] = 20000
    """The most samples of each data set, counted from the first."""
    margin: float = Field(default=0.2, gt=0, lt=4)
    """The margin (alpha) of the triplet loss: by how much farther, in squared distance, another class is to be. On the unit
    sphere that is 4 at most."""
    steps: int = Field(default=1500, ge=1)
    """The number of batches."""
    batch_size: int = Field(default=128, ge=4)
    """The samples of a batch, of up to 16 classes."""
    rate: float = Field(default=0.002, gt=0)
    """The largest learning rate."""
    neighbours: int = Field(default=5, ge=1)
    """How many neighbours vote."""
    seed: int = Field(default=0, ge=0)
    """The seed of weights, batches and intervals."""
