"""Typed results of a study of a detector, which `brinell dense --json` and `brinell audit --json` print for data with boxes."""

from typing import Literal

from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import OfClass
from brinell.studies.dense.results import CheckFigures, Figure


class ErrorFigures(Result):
    """Each kind of error by budget, of the inputs that were aimed at it; empty for kinds that were not attacked."""

    missed: list[Figure]
    """Share of the objects that no shown box finds, mislabels or misplaces."""
    false: list[Figure]
    """Shown boxes of no object, per picture."""
    mislabelled: list[Figure]
    """Share of the objects that a shown box of another class overlaps by 0.5, and none of their class."""
    misplaced: list[Figure]
    """Share of the objects that a shown box of their class overlaps by 0.1 to 0.5 alone."""


class AimFigures(Result):
    """The set of inputs that were aimed at one kind of error, at one budget."""

    error: str
    """The kind of error."""
    eps: float
    """Budget; 0 is the untouched set."""
    ap50: float | None
    """AP at overlap 0.5."""
    ap: float | None
    """AP averaged over the overlaps 0.5 to 0.95."""
    recall: float | None
    """Share of the objects that a shown box finds."""
    missed: int
    """Objects."""
    mislabelled: int
    """Objects."""
    misplaced: int
    """Objects."""
    false: int
    """Boxes."""
    boxes: int
    """Boxes with a score above the threshold."""
    forwards: int
    """Forward evaluations."""
    backwards: int
    """Backward evaluations."""
    seconds: float
    """Wall time."""


class ClassFigures(OfClass):
    """One class of objects."""

    objects: int
    """Objects to find."""
    pictures: int
    """Pictures in which it occurs."""
    ap50: list[float | None]
    """AP at overlap 0.5 by budget, of the inputs of `ap50`."""


class PictureFigures(Result):
    """One picture."""

    sample: int
    """Position in the data."""
    name: str
    """Name of the file."""
    objects: int
    """Objects to find; a picture without any counts for false boxes alone."""
    losses: list[int]
    """Objects that no shown box finds, by budget, of the inputs that lose most of them."""


class DetectionResult(FolderResult):
    """What `brinell dense --json` prints for a detector, and `brinell audit --json` for data with boxes."""

    task: Literal["detection"]
    """What the model answers."""
    model: str
    """Name of the model."""
    data: str
    """Name of the data."""
    n: int
    """Number of pictures."""
    objects: int
    """Number of objects to find; crowds are none."""
    with_objects: int
    """Pictures with objects, over which shares of objects are taken."""
    norm: str
    """Distance of the budgets."""
    criterion: str
    """Kinds of errors that were attacked."""
    least_score: float
    """Score above which boxes are shown."""
    ap50: list[Figure]
    """AP at overlap 0.5 by budget: the lowest of the sets of inputs within it, each aimed at one kind of error."""
    ap: list[Figure]
    """The same for AP averaged over the overlaps 0.5 to 0.95."""
    recall: list[Figure]
    """Share of the objects that a shown box finds, the lowest likewise; AP depends on ranks alone, so that this stands beside
    it."""
    errors: ErrorFigures
    """Each kind of error by itself."""
    aims: list[AimFigures]
    """Each set of inputs by itself."""
    per_class: list[ClassFigures]
    """By class that occurs."""
    pictures: list[PictureFigures]
    """By picture."""
    checks: list[CheckFigures]
    """Checks of the model and of the figures."""
    notes: list[str]
    """Notes on pictures without objects, on classes that never occur, and on the model."""
