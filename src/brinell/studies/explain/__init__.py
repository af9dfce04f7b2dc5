"""Compute saliency maps of inputs by several methods, and measure how good each method's maps are.

With ground truth, the study measures how well maps match the objects. Without it, it measures how well the model follows them.
"""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import BaseRequest, BatchSize, DataSpec, Device, File, Folder, ModelSpec, SampleCount, Seed
from brinell.studies.kit import Study


class ExplainRequest(BaseRequest):
    """The settings of `brinell explain`."""

    data: DataSpec = "digits"
    """The data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR, ecg-csv:FILE, video-folder:DIR,
    masks:FOLDER, boxes:FOLDER."""
    model: ModelSpec = "digits-cnn"
    """The model: digits-cnn, torch:FILE.py:FACTORY?weights=FILE, onnx:FILE."""
    run: Folder | None = None
    """A finished run folder of brinell audit, instead of data and model. Its adversarial examples are explained."""
    method: tuple[Annotated[str, Names("explainer")], ...] = ()
    """A method, such as rlab or grad-cam?layer=NAME. Default: all methods that fit the model and the data."""
    truth: File | None = None
    """Ground truth of the objects: masks:DIR, npz:FILE, coco:FILE, voc:DIR, spans:FILE or beat."""
    region: str | None = None
    """The part of the answer that is explained, of a model of maps or boxes. With masks: class:NAME (the pixels that the model
    gives a class, or with explain=label those that have it) or box:X0,Y0,X1,Y1 (a rectangle in pixels). With boxes: class:NAME
    (the largest object of a class) or object:N (object N of each picture, from 0). The mask or the box is the ground truth."""
    explain: Literal["prediction", "label"] = "prediction"
    """The explained class: the predicted class or the true class."""
    only: Literal["all", "right", "wrong"] = "all"
    """The samples: all, or those that the model classifies right or wrong."""
    samples: SampleCount = None
    """The number of samples, or all. Default: 32, or all if there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """Selection of samples: first, stratified or random. Default: first for published test sets, else stratified."""
    steps: int = Field(default=16, ge=0)
    """The number of steps that show and hide places to judge a map. 0 omits these measures."""
    copies: int = Field(default=1, ge=0)
    """The number of slightly noisy copies of each input on which every method runs again. 0 omits stability."""
    cascade: int = Field(default=0, ge=0)
    """The number of stages that shuffle the weights of the model, from the last layers to the first; 1 shuffles all at once.
    Every method runs again at each: a map that stays the same shows only the input. 0 omits the stages."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"


STUDY = Study(
    package=__name__,
    verb="explain",
    request=ExplainRequest,
    run="run:carry_out",
    plan="run:make_plan",
    pieces="run:pieces",
    rows="result:Measured",
    facts="result:ExplainFacts",
    summarise="result:summarise",
    result="result:ExplainResult",
    within="run",
    truth=True,
    examples=(
        "brinell explain --samples 20",
        "brinell explain --data FILE.npz --model model.py:factory --truth masks:DIR --only right",
        "brinell explain --data DIR --model model.onnx --method rlab --method rise --method occlusion",
        "brinell explain --data masks:FOLDER --model model.py:segmentation --region class:dog --method rlab",
    ),
)
