"""The settings of `brinell dense`."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import JOINED, BaseRequest, Budgets, DataSpec, Device, ModelSpec, SampleCount, Seed

SEA = "sea"
"""The cascade of four losses."""


class DenseOptions(BaseRequest):
    """Options that change nothing in the rows, and that no folder keeps."""

    dry_run: bool = False
    """Show the plan, its passes and, from a short calibration, its time and memory; keep
    nothing."""
    calibrate: float | None = Field(default=None, ge=0)
    """The seconds that the calibration of a dry run may take; 0 makes none. Default: 20."""


class DenseRequest(BaseRequest):
    """The settings of `brinell dense`."""

    model: ModelSpec
    """The model, as for brinell audit; it answers a map of logits (classes, height, width) for each picture, or the
    candidates of a detector (candidates, 4 + classes), or its final boxes."""
    data: DataSpec
    """The data: masks:FOLDER with images/ and masks.npz or masks/, such as masks:FOLDER?side=257; or boxes:FOLDER with images/
    and boxes.json, COCO's JSON or annotations/*.xml of VOC."""
    norm: Literal["linf", "l2"] = "linf"
    """The distance in which eps is measured: linf or l2."""
    eps: Annotated[Budgets | None, JOINED] = None
    """The budgets, as for brinell audit. Default: 1/255, 2/255, 4/255 and 8/255 in linf; 0.25, 0.5 and 1 in l2."""
    attack: tuple[Annotated[str, Names("attack")], ...] = ()
    """An attack: sea, which is apgd-map with each of its four losses, or one of brinell plugins attack, such as pgd, square,
    rlab or apgd-map?loss=masked-ce&steps=20. They run one after another, each from the strongest input so far where it can.
    Default: sea."""
    criterion: str | None = None
    """The criterion of success, which ends the attacks on a picture: pixels (all of its pixels are wrong), pixels:0.5 (half of
    them), iou:0.3 (its mean IoU falls below 0.3), gone:CLASS (no pixel of the class keeps it) or target:CLASS (all pixels have
    the class); for boxes missed, false, mislabelled or misplaced (all of the objects, or 100 false boxes), with a number such as
    missed:0.5 (half of the objects) or false:20, several joined by +. Default: pixels, or all four kinds of errors of boxes."""
    least_score: float = Field(default=0.4, ge=0, lt=1)
    """For boxes: the score above which they are shown. Recall and errors count shown boxes alone; AP takes scores over 0.001."""
    lipschitz: float | None = Field(default=None, gt=0, le=1e12)
    """The Lipschitz constant of the model, by your word: all logits of a picture together change by at most this times the
    change of the picture (Euclidean norms). Pixels are then certified in L2. Default: none are."""
    enlarge: Literal["bilinear", "bilinear-aligned", "nearest"] = "bilinear"
    """How maps that are smaller than the picture are enlarged; bilinear-aligned lays the outer pixels of both upon each other."""
    queries: int | None = Field(default=None, ge=1)
    """The forward evaluations that each attack may spend on a picture at each eps. Default: no limit."""
    samples: SampleCount = None
    """The number of pictures, or all. Default: 50, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """The selection of pictures: the first, or drawn with the seed. Default: drawn."""
    seed: Seed = 0
    batch_size: Annotated[int, Field(ge=1, description="The most pictures shown to the model at once.")] = 4
    device: Device = "auto"
