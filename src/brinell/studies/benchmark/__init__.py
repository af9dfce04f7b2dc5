"""Distort correctly classified inputs until the model misclassifies them, and store them at graded
severities as a data set.

The datasets library loads the folder. Evaluate other models on it with --data bench:FOLDER.
"""

from typing import Annotated

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import (
    BaseRequest,
    BatchSize,
    Budgets,
    DataSpec,
    Device,
    ModelSpec,
    SampleCount,
    Seed,
)
from brinell.studies.kit import Study


class BenchmarkRequest(BaseRequest):
    """The settings of `brinell benchmark`."""

    data: DataSpec = "digits"
    """The data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR, masks:FOLDER,
    boxes:FOLDER."""
    model: ModelSpec = "digits-cnn"
    """The model: digits-cnn, torch:FILE.py:FACTORY?weights=FILE."""
    distortions: Annotated[str, Names("distortion")] = "default"
    """The distortions to place: names joined by +, or file.py:Class for a custom one. Default:
    signed-patch on images with a side above 64 pixels, where it comes closest, and gaussian-noise
    on other data."""
    policy: Annotated[str, Names("file")] = "default"
    """The policy that places them: default (prior for images, greedy for other data), prior,
    greedy, dqn, or a file of brinell train agent."""
    patch: int | str = 0
    """The side of a patch in values, or a side for each axis (4x16x16). 0 adapts it to the
    input, with 8 to 64 patches along an axis."""
    eps: Budgets | None = None
    """The largest L2 distance of an adversarial example. Default: no limit."""
    steps: int = Field(default=1000, ge=1)
    """The largest number of queries for a sample."""
    refine: int = Field(default=200, ge=0)
    """The number of queries after the first adversarial example that search for a closer one."""
    levels: str = "1,2,4,6,8,10"
    """Multiples of the L2 distance of the adversarial example. 1 is always among them."""
    criterion: str | None = None
    """The criterion of success. For classes a threshold on a probability, as for brinell audit:
    "true<0.1" or "class=cat>0.9". For masks and boxes as for brinell audit, such as pixels:0.5,
    iou:0.3, gone:CLASS or missed:0.5. Default: misclassification, half of the pixels are wrong,
    or half of the objects are missed."""
    samples: SampleCount = None
    """The number of samples, or all. Default: 1000, or all if there are fewer."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"


STUDY = Study(
    verb="benchmark",
    keeps_region=True,
    request=BenchmarkRequest,
    rows="rows:BenchmarkRows",
    result="result:BenchmarkResult",
    needs_inputs=True,
    examples=(
        "brinell benchmark --data FILE.npz --model model.py:factory --out SET",
        "brinell benchmark --data 'masks:FOLDER?side=257' --model "
        "model.py:segmentation --criterion pixels:0.5 --out SET",
    ),
)
