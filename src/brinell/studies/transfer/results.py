"""The result of a transfer as typed values; `brinell transfer --json` prints them."""

from brinell.analysis.attainable import Attainable
from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import OfClass, Rate, Share


class Place(Result):
    """A rank among sources, 1 for the best, or among models, 1 for the most affected; equal ones share the mean of their ranks.

    Each pair of sources is compared on the models that neither was made on, and each pair of models on the sources that were
    made on neither, on the samples that are eligible for both. The p-values are corrected for the number of pairs (Holm 1979),
    so the intervals of all ranks hold together with a confidence of 95 %.
    """

    rank: float
    """1 + the number of those that are ahead of it on these samples."""
    low: int
    """Lower end: 1 + the number of those that are shown to be ahead of it."""
    high: int
    """Upper end: the number of all less those that are shown to be behind it."""


class SourceResult(Result):
    """A source of adversarial examples."""

    name: str
    """The model or models that the examples were made on; for a run RUN/MODEL, for a benchmark set SET and its level."""
    kind: str
    """The kind of source: made (in this transfer), run or set."""
    members: list[str]
    """The models that the examples were made on."""
    white_box: list[str]
    """The evaluated models that are among these members."""
    level: float | None
    """For a benchmark set: the multiple of its adversarial examples' L2 distance; null otherwise."""
    n: int
    """Number of examples."""
    missing: int
    """Number of samples without an example; in a run or a set, the robust ones. No figure of this source counts them."""
    median_l2: float | None
    """Median Euclidean length of the changes."""
    max_linf: float | None
    """Largest change of a value."""
    success: float | None
    """Mean success on the models that are not members of the source; null if all are members."""
    min_success: float | None
    """Smallest success on a model that is not a member of the source."""
    rank: Place | None
    """Rank by success among the sources made in this transfer; null unless each two of them share a target: a model with an
    eligible sample that neither was made on. Two models share none."""
    rivals: list[str]
    """Sources made in this transfer whose success on the shared targets does not differ significantly; empty without a rank."""
    forwards: int
    """Forward evaluations that making the examples cost; 0 for a run or a set."""
    backwards: int
    """Backward evaluations that making the examples cost; 0 for a run or a set."""
    seconds: float
    """Wall time of making the examples, in seconds; 0 for a run or a set."""


class EvaluatedModel(Result):
    """A model on which the examples are evaluated."""

    model: str
    """Its name."""
    architecture: str | None
    """Kind of network, if known."""
    parameters: int | None
    """Number of weights, if known."""
    success: float | None
    """Mean success of the sources made in this transfer without it; null without one."""
    rivals: list[str]
    """Models on which success of the same sources does not differ significantly (paired, corrected for all pairs); all others
    where two models share no source."""
    rank: Place | None
    """Rank by success on it, 1 for the most affected; null where two models share no source."""


class Figures(Result):
    """What is left of a model on examples, and how many of them succeed."""

    accuracy: Rate
    """Accuracy on these examples; with a criterion of probability, the share of them that do not meet it, as `quantity` says."""
    success: Share
    """Share of misclassified examples, among those whose clean inputs this model and every evaluated member of the source
    classify correctly. With a criterion of probability: of examples that meet it, among those whose clean inputs meet it on none
    of them."""


class ClassCell(Figures, OfClass):
    """The examples of one class."""


class DistortionCell(Figures):
    """The examples with one distortion, or with several placed together."""

    distortion: str
    """Names joined by +."""


class Cell(Figures):
    """Evaluation of one model on one source's examples."""

    source: str
    """The source."""
    model: str
    """The model."""
    white_box: bool
    """True if the examples were made on this model."""
    clean: Rate
    """The same quantity on the clean inputs of these examples."""
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
    """Figures by distortion; empty for other attacks."""


class TransferResult(FolderResult):
    """The result of `brinell transfer`, as `--json` prints it."""

    data: str
    """Name of the data."""
    criterion: str | None = None
    """The criterion of probability, such as true<0.1; null where misclassification is success."""
    distance: str
    """Norm in which eps is measured."""
    eps: float
    """Budget of the examples made in this transfer and of those read from runs."""
    eps_text: str
    """The budget as the user wrote it."""
    attack: str | None
    """The attack that made examples; null if none were made."""
    sources: list[SourceResult]
    """The sources, which are the rows of the matrix."""
    models: list[EvaluatedModel]
    """The models, which are the columns of the matrix."""
    cells: list[Cell]
    """One cell for each source and model, source by source."""
    passes: int
    """Forward evaluations on clean inputs and examples, over all models."""
    seconds: float
    """Total wall time."""
    attainable: list[Attainable]
    """Families of comparisons, with the smallest number of samples that can decide."""
    notes: list[str]
    """Limits on comparing figures, one sentence each."""
