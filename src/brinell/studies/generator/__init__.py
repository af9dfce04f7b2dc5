"""Train a conditional generator (AC-GAN) on labelled images and write it as one file, with its auxiliary classifier.

The sides of the images must be multiples of 4.
"""

from brinell.studies.generator.request import TrainGeneratorRequest
from brinell.studies.kit import Output, Study

STUDY = Study(
    package=__name__,
    verb="train-generator",
    request=TrainGeneratorRequest,
    run="run:carry_out",
    result="run:GeneratorResult",
    lines="run:lines",
    output=Output.FILE,
    out="The file to write; name it in brinell unrestricted as --generator FILE.",
    examples=("brinell train-generator --data TRAIN.npz --out generator.safetensors",),
)
