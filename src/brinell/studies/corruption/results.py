"""Typed results of a corruption study, which `brinell corrupt --json` prints."""

from brinell.analysis.attainable import Attainable
from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import OfClass, Rate


class Error(Result):
    """A corruption error with its 95 % interval over the samples."""

    value: float | None
    """1 if the model errs as often as the reference; null if undefined, or if a severity or kind is missing."""
    low: float | None
    """Lower end; null if unknown: fewer than six samples, or nearly all alike."""
    high: float | None
    """Upper end."""


class Level(Result):
    """One corruption at one severity on one model."""

    model: str
    """Name of the model."""
    kind: str
    """Name of the corruption."""
    severity: int
    """1 to 5."""
    accuracy: Rate
    """Accuracy on the corrupted inputs."""
    median_l2: float | None
    """Median Euclidean length of the change."""
    placed: Rate | None
    """Among the attempted samples, all classified correctly at first, those that stay correct under RLAB; null without RLAB."""
    uniform: Rate | None
    """Among the same samples, those that stay correct when the corruption covers the whole input."""
    cost: float | None
    """`placed` minus `uniform`: negative if placement breaks more samples than uniform application."""
    low: float | None
    """Lower end of its 95 % interval (Newcombe, paired)."""
    high: float | None
    """Upper end of its 95 % interval."""
    p: float | None
    """McNemar's exact p-value of the cost, corrected for all cells (Holm 1979)."""


class KindResult(Result):
    """One corruption over all severities on one model."""

    kind: str
    """Name."""
    active: bool
    """False if it changes no sample at any severity: no mean over corruptions includes it."""
    accuracy: float | None
    """Mean over the severities."""
    ce: Error
    """Corruption error: errors summed over the severities, divided by those of the reference."""
    relative_ce: Error
    """The corruption error after subtracting the errors on clean inputs."""


class ClassLoss(OfClass):
    """One class of one model over all corruptions and severities."""

    n: int
    """Samples."""
    clean: Rate
    """Accuracy on the clean inputs."""
    accuracy: float | None
    """Mean accuracy over severities of the corruptions that change a sample."""


class End(Result):
    """The corruption that costs a model most or least."""

    kind: str
    """Name."""
    rivals: list[str]
    """Corruptions that do not differ significantly from it (paired, p-values corrected for all pairs by Holm 1979)."""


class CorruptModel(Result):
    """One model."""

    model: str
    """Name."""
    clean: Rate
    """Accuracy on the clean inputs."""
    accuracy: float | None
    """Mean accuracy over all severities of the corruptions of this run that change a sample."""
    most: End | None
    """The corruption with the lowest mean accuracy; null if all are equal."""
    least: End | None
    """The corruption with the highest mean accuracy."""
    mce: Error
    """Mean corruption error over the published kinds of this run that belong to the fifteen."""
    relative_mce: Error
    """Relative mean corruption error."""
    kinds: list[KindResult]
    """By corruption."""
    per_class: list[ClassLoss]
    """By class."""


class CorruptResult(FolderResult):
    """What `brinell corrupt --json` prints."""

    data: str
    """Name of the data."""
    n: int
    """Number of samples."""
    reference: str | None
    """The model whose errors divide the errors."""
    mce: Error
    """Mean corruption error of the first model other than the reference; 1 if there is only the reference."""
    kinds: list[Level]
    """Every corruption at every severity on every model."""
    models: list[CorruptModel]
    """The models."""
    attainable: list[Attainable]
    """Families of comparisons, with the smallest number of samples that can decide."""
    notes: list[str]
    """Notes on undefined figures and limits of comparisons."""
