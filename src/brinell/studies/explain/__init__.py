"""Compute saliency maps of inputs by several methods, and measure how good each method's maps are.

With ground truth, the study measures how well maps match the objects. Without it, it measures how
well the model follows them.
"""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import (
    BaseRequest,
    BatchSize,
    DataSpec,
    Device,
    File,
    Folder,
    ModelSpec,
    SampleCount,
    Seed,
)
from brinell.studies.kit import Study


class ExplainRequest(BaseRequest):
    """The settings of `brinell explain`."""

    data: DataSpec = "digits"
    """The data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR, ecg-csv:FILE,
    video-folder:DIR."""
    model: ModelSpec = "digits-cnn"
    """The model: digits-cnn, torch:FILE.py:FACTORY?weights=FILE, onnx:FILE."""
    run: Folder | None = None
    """A finished run folder of brinell audit, instead of data and model. Its adversarial
    examples are explained."""
    method: tuple[Annotated[str, Names("explainer")], ...] = ()
    """A method, such as rlab or grad-cam?layer=NAME. Default: all methods that fit the model and
    the data."""
    truth: File | None = None
    """Where the objects are: an npz file with `masks` (n, places) in the order of the data, 1 on
    the object, 0 off it, 255 ignored, and optional texts `groups` (n,) of related samples, such
    as the frames of a video."""
    explain: Literal["prediction", "label"] = "prediction"
    """The explained class: the predicted class or the true class."""
    samples: SampleCount = None
    """The number of samples, or all. Default: 32, or all if there are fewer."""
    steps: int = Field(default=16, ge=0)
    """The number of steps that show and hide places to judge a map. 0 omits these measures."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"


STUDY = Study(
    verb="explain",
    request=ExplainRequest,
    run="run:carry_out",
    rows="result:ExplainRows",
    result="result:ExplainResult",
    examples=(
        "brinell explain --samples 20",
        "brinell explain --data FILE.npz --model model.py:factory --truth masks.npz",
        "brinell explain --data DIR --model model.onnx --method rlab --method "
        "rise --method occlusion",
    ),
)
