"""Train a conditional generator (AC-GAN) on labelled images and write it as one file, with its
auxiliary classifier.

The sides of the images must be multiples of 4.
"""

from pydantic import Field

from brinell.engine.request import BaseRequest, DataSpec, Device, SampleCount, Seed
from brinell.studies.kit import Output, Study


class TrainGeneratorRequest(BaseRequest):
    """The settings of `brinell train generator`."""

    data: DataSpec = "digits?split=train"
    """The images to train on: the training data of the models."""
    samples: SampleCount = None
    """The most inputs, counted from the first. Default: all."""
    minutes: float = Field(default=10.0, gt=0)
    """The wall time of the training. One minute is enough for the digits, ten for MNIST."""
    steps: int | None = Field(default=None, ge=1)
    """The updates of both networks, in place of minutes: such a training is repeatable."""
    seed: Seed = 0
    device: Device = "auto"


STUDY = Study(
    verb="train generator",
    request=TrainGeneratorRequest,
    result="result:GeneratorResult",
    output=Output.FILE,
    examples=("brinell train generator --data TRAIN.npz --out generator.safetensors",),
)
