"""What a transfer says, as typed values; `brinell transfer --json` is a dump of them."""

from brinell.analysis.results import FolderResult, OfClass, Rate, Result, Share


class Place(Result):
    """A place in an order, 1 for the first; equal ones share the mean of their places."""

    rank: float
    """The place on these samples."""
    low: float
    """Lower end of its 95 % interval, by drawing samples again."""
    high: float
    """Upper end."""


class SourceResult(Result):
    """Where adversarial examples come from."""

    name: str
    """The model or models that they were made on; of a run RUN/MODEL, of a benchmark set SET and its level."""
    kind: str
    """made, run or set."""
    members: list[str]
    """The models that they were made on."""
    white_box: list[str]
    """Models of the transfer that are among these members."""
    level: float | None
    """Of a benchmark set: the multiple of its adversarial examples' L2 distance."""
    n: int
    """Examples."""
    missing: int
    """Samples without one: of a run or a set those that were not broken. They are in no figure of this source."""
    median_l2: float | None
    """Median Euclidean length of the changes."""
    max_linf: float | None
    """Largest change of a value."""
    success: float | None
    """Mean over the models that are not its members of the success on them; null where there is none."""
    least: float | None
    """The smallest of these: what it does to the model that it does least to."""
    rank: Place | None
    """Place by that mean among the sources of the same samples, the one that transfers best first; null with fewer than two."""
    forwards: int
    """Forward evaluations that making them cost; 0 for those that were there."""
    backwards: int
    """Backward evaluations, likewise."""
    seconds: float
    """Wall time, likewise."""


class ShownModel(Result):
    """A model that is shown examples."""

    model: str
    """Its name."""
    architecture: str | None
    """What kind of network, where that is known."""
    parameters: int | None
    """Number of weights, where that is known."""


class ClassCell(OfClass):
    """One class of a cell."""

    accuracy: Rate
    """Accuracy on the examples of this class."""
    success: Share
    """Success among those that both got right."""


class DistortionCell(Result):
    """One distortion, or several together, of a cell."""

    distortion: str
    """Names joined by +."""
    accuracy: Rate
    """Accuracy on the examples on which this was placed."""
    success: Share
    """Success among those that both got right."""


class Cell(Result):
    """One model on one source's examples."""

    source: str
    """The source."""
    model: str
    """The model."""
    white_box: bool
    """Whether the examples were made on this model."""
    clean: Rate
    """Accuracy on the clean inputs of these examples."""
    accuracy: Rate
    """Accuracy on the examples."""
    success: Share
    """Of the examples whose clean inputs this model and every member of the source that is shown here got right, those on which
    it errs."""
    difference: float | None
    """`accuracy` minus `clean`."""
    low: float | None
    """Lower end of its 95 % interval (Newcombe, paired)."""
    high: float | None
    """Upper end."""
    p: float | None
    """McNemar's exact p-value of that difference, corrected for the number of cells (Holm)."""
    per_class: list[ClassCell]
    """Classes with an example, by index."""
    per_distortion: list[DistortionCell]
    """By what was placed; empty where nothing was."""


class TransferResult(FolderResult):
    """What `brinell transfer --json` prints."""

    data: str
    """Name of the data."""
    distance: str
    """Norm in which eps is measured."""
    eps: float
    """Budget of made examples and of those from runs."""
    eps_text: str
    """The same as it was written."""
    attack: str | None
    """The attack that made examples; null where none were made."""
    sources: list[SourceResult]
    """The rows of the matrix."""
    models: list[ShownModel]
    """Its columns."""
    cells: list[Cell]
    """One for each source and model, source by source."""
    passes: int
    """Inputs that the models were shown to be judged on."""
    seconds: float
    """Wall time of it all."""
    notes: list[str]
    """What keeps figures from comparison."""
