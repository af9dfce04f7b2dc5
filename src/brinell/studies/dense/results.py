"""Typed results of a study of dense outputs, which `brinell dense --json` prints."""

from typing import Literal

from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import OfClass, Rate


class Figure(Result):
    """A figure of a set of pictures at a budget, with its 95 % interval by bootstrap over pictures."""

    eps: float
    """Budget; 0 is the untouched picture."""
    value: float | None
    """The figure; null where no picture has what it counts."""
    low: float | None
    """Lower end of the interval; null with fewer than two pictures."""
    high: float | None
    """Upper end of the interval."""


class ClassFigures(OfClass):
    """One class of pixels."""

    pixels: int
    """Pixels of the class in the masks."""
    pictures: int
    """Pictures in which it occurs."""
    iou: list[float]
    """IoU over the budgets, of the inputs of the mean IoU."""
    accuracy: list[float]
    """Share of its pixels that are right, over the budgets, of the inputs of the pixel accuracy."""


class PictureFigures(Result):
    """One picture."""

    sample: int
    """Position in the data."""
    name: str
    """Name of the file."""
    accuracy: list[float | None]
    """Share of its valid pixels that are right, over the budgets; null where it has none."""


class AttackFigures(Result):
    """One attack at one budget by itself."""

    attack: str
    eps: float
    pictures: int
    """Pictures that it attacked; the others met the criterion before."""
    pixel_accuracy: float | None
    """Share of the pixels of these pictures that it left right."""
    forwards: int
    """Forward evaluations."""
    backwards: int
    """Backward evaluations."""
    seconds: float
    """Wall time."""


class CheckFigures(Result):
    """A check of the model or of the figures."""

    code: str
    """Its name."""
    passed: bool
    """True if the check found nothing."""
    text: str
    """A sentence on it."""


class Confusion(OfClass):
    """The class that pixels of a class take most often under attack, at the largest budget."""

    predicted: str
    """The predicted class."""
    pixels: int
    """Pixels."""
    share: float
    """Share of the pixels of the true class."""


class DenseResult(FolderResult):
    """What `brinell dense --json` prints, and `brinell audit --json` for data with masks."""

    task: Literal["segmentation", "detection"]
    """Kind of the answers of the model."""
    model: str
    """Name of the model."""
    data: str
    """Name of the data."""
    n: int
    """Number of pictures."""
    norm: str
    """Distance of the budgets."""
    criterion: str
    """The criterion of success, as it was written."""
    miou: list[Figure]
    """Mean IoU of the set over the classes that occur in its masks, by budget."""
    pixel_accuracy: list[Figure]
    """Share of valid pixels of the set that are right, by budget."""
    unmet: list[Rate]
    """Share of pictures that do not meet the criterion, by budget."""
    certified: list[Figure]
    """Share of valid pixels that the Lipschitz constant proves right, by radius; empty without one."""
    contradictions: int
    """Pictures and radii at which an attack left fewer pixels right than are certified; 0 if the constant holds."""
    per_class: list[ClassFigures]
    """By class that occurs in the masks."""
    worst_class: str | None
    """The class with the smallest IoU at the largest budget, of those that have one above 0 without an
    attack; the largest drop decides between equal ones. Null if there is none."""
    confusions: list[Confusion]
    """Wrong classes under attack, the most frequent first."""
    pictures: list[PictureFigures]
    """By picture."""
    attacks: list[AttackFigures]
    """By attack and budget."""
    checks: list[CheckFigures]
    """Checks of the model and of the figures."""
    notes: list[str]
    """Notes on pictures that no figure counts, and on the model."""
