"""The result of a transfer between models with dense outputs as typed values; `brinell dense-transfer --json` prints them."""

from typing import Literal

from brinell.analysis.folder_result import FolderResult, Result


class Effect(Result):
    """A figure of a set of pictures, with 95 % intervals by bootstrap over pictures, and its change by the inputs of a source."""

    value: float | None
    """The figure; null where no picture has what it counts."""
    low: float | None
    """Lower end of the interval; null with fewer than two pictures."""
    high: float | None
    """Upper end of the interval."""
    change: float | None
    """The figure minus that of the same model without an attack; 0 without one."""
    change_low: float | None
    """Lower end of the interval of this change, paired by picture."""
    change_high: float | None
    """Upper end of this interval."""


class Cell(Result):
    """The answers of one model to one set of inputs."""

    source: str | None
    """The model on which the inputs were found; null for the untouched pictures."""
    aim: str | None
    """Aim of the attack: pixels, another criterion, or a kind of error; null without an attack."""
    model: str
    """The model that is shown the inputs."""
    white_box: bool
    """True if the inputs were found on this model."""
    pixel_accuracy: Effect | None
    """Share of valid pixels that are right; null for detectors."""
    miou: Effect | None
    """Mean IoU of the set; null for detectors."""
    ap50: Effect | None
    """AP at overlap 0.5; null for maps."""
    ap: Effect | None
    """AP averaged over the overlaps 0.5 to 0.95; null for maps."""
    recall: Effect | None
    """Share of the objects that a shown box finds; null for maps."""
    missed: Effect | None
    """Share of the objects that no shown box finds, mislabels or misplaces; null for maps."""
    false: Effect | None
    """Shown boxes of no object, per picture; null for maps."""
    mislabelled: Effect | None
    """Share of the objects that a shown box of another class overlaps by 0.5, and none of their class; null for maps."""
    misplaced: Effect | None
    """Share of the objects that a shown box of their class overlaps by 0.1 to 0.5 alone; null for maps."""


class SourceCosts(Result):
    """A model that was attacked."""

    source: str
    """Its name."""
    attacks: list[str]
    """The attacks, in the order in which they ran."""
    forwards: int
    """Forward evaluations."""
    backwards: int
    """Backward evaluations."""
    seconds: float
    """Wall time."""


class DenseTransferResult(FolderResult):
    """What `brinell dense-transfer --json` prints, and `brinell transfer --json` for data with masks or boxes."""

    task: Literal["segmentation", "detection"]
    """Kind of the answers of the models."""
    data: str
    """Name of the data."""
    n: int
    """Number of pictures."""
    norm: str
    """Distance of the budget."""
    eps: float
    """Budget."""
    eps_text: str
    """The budget as it was written."""
    least_score: float
    """For boxes: score above which they are shown."""
    models: list[str]
    """The models."""
    sources: list[SourceCosts]
    """The models that were attacked."""
    cells: list[Cell]
    """The untouched pictures on each model, and then each source and aim on each model."""
    notes: list[str]
    """Notes on the models."""
