"""What `brinell explain` is asked for."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import BaseRequest, BatchSize, DataSpec, Device, File, Folder, ModelSpec, Seed


class ExplainRequest(BaseRequest):
    """What `brinell explain` is asked for."""

    data: DataSpec = "digits"
    """The data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR, ecg-csv:FILE, video-folder:DIR."""
    model: ModelSpec = "digits-cnn"
    """The model: digits-cnn, torch:FILE.py:FACTORY?weights=FILE, onnx:FILE."""
    run: Folder | None = None
    """A finished run folder, made by brinell audit, in place of data and model: its adversarial examples are explained."""
    method: tuple[Annotated[str, Names("explainer")], ...] = ()
    """A method, such as rlab or grad-cam?layer=NAME. Default: all that the model gives enough for."""
    truth: File | None = None
    """Where the objects are: masks:DIR, npz:FILE, coco:FILE, voc:DIR, spans:FILE or beat."""
    explain: Literal["prediction", "label"] = "prediction"
    """The class that is explained: the one that the model predicts, or the true one."""
    only: Literal["all", "right", "wrong"] = "all"
    """The samples: all, or those that the model gets right or wrong."""
    samples: int | None = Field(default=None, ge=1)
    """The number of samples. Default: 16, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """How samples are chosen: first, stratified or random. Default: the first of published test sets, else stratified."""
    steps: int = Field(default=16, ge=0)
    """The steps in which places are shown and hidden to judge a map. 0 leaves these measures out."""
    copies: int = Field(default=1, ge=0)
    """The copies of each input with a little noise, on which every method is tried again. 0 leaves stability out."""
    randomise: bool = False
    """Try every method on the model with shuffled weights too: a map that stays the same shows the input alone."""
    cascade: int = Field(default=0, ge=0)
    """The stages in which weights are shuffled, from the last layers to the first, with every method tried at each; the last
    stage is that of `randomise`. 0 leaves the cascade out."""
    noise: float = Field(default=0.02, gt=0)
    """The standard deviation of that noise, in shares of the width of the bounds."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"
