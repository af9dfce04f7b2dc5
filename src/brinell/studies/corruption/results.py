"""What a corruption study says, as typed values; `brinell corrupt --json` is a dump of them."""

from brinell.analysis.results import FolderResult, OfClass, Rate, Result


class Error(Result):
    """A corruption error with its 95 % interval, by drawing the samples again."""

    value: float | None
    """1 where the model errs as much as the reference; null where that is undefined, or a severity or kind was left out."""
    low: float | None
    """Lower end."""
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
    """Of the samples on which RLAB tried, all right from the start, those that stayed right; null where it did not."""
    uniform: Rate | None
    """Of the same samples, those that the corruption of the whole input left right."""
    cost: float | None
    """`placed` minus `uniform`: what placement costs the model over uniform application, negative where it costs more."""
    low: float | None
    """Lower end of its 95 % interval (Newcombe, paired)."""
    high: float | None
    """Upper end."""
    p: float | None
    """McNemar's exact p-value of it."""


class KindResult(Result):
    """One corruption over all severities on one model."""

    kind: str
    """Name."""
    accuracy: float | None
    """Mean over the severities."""
    ce: Error
    """Corruption error: errors summed over the severities, divided by those of the reference."""
    relative_ce: Error
    """The same of what the errors exceed those on clean inputs by."""


class ClassLoss(OfClass):
    """One class of one model over all corruptions and severities."""

    n: int
    """Samples."""
    clean: Rate
    """Accuracy on the clean inputs."""
    accuracy: float | None
    """Mean accuracy over corruptions and severities."""


class CorruptModel(Result):
    """One model."""

    model: str
    """Name."""
    clean: Rate
    """Accuracy on the clean inputs."""
    accuracy: float | None
    """Mean accuracy over all corruptions and severities of this run."""
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
    """Samples."""
    reference: str | None
    """The model by whose errors errors are divided."""
    mce: Error
    """That of the first model that is not the reference; of the reference itself it is 1."""
    kinds: list[Level]
    """Every corruption at every severity on every model."""
    models: list[CorruptModel]
    """The models."""
    notes: list[str]
    """What is undefined, or keeps figures from comparison."""
