"""Train a conditional generator (AC-GAN) on labelled images and write it as one file, with its auxiliary classifier.

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
    latent: int = Field(default=32, ge=2, le=4096)
    """The length of the latent vector."""
    width: int = Field(default=32, ge=2, le=1024, multiple_of=2)
    """The channels of the thinner layers: 16 for 8 x 8 pixels, 32 for 28 x 28."""
    rate: float = Field(default=1e-3, gt=0)
    """The learning rate of the critic; the generator's is half of it."""
    seed: Seed = 0
    device: Device = "auto"


STUDY = Study(
    package=__name__,
    verb="train generator",
    request=TrainGeneratorRequest,
    run="run:carry_out",
    result="result:GeneratorResult",
    output=Output.FILE,
    out="The file to write; name it in brinell unrestricted as --generator FILE.",
    examples=("brinell train generator --data TRAIN.npz --out generator.safetensors",),
)
