"""What a study says, as typed values; `brinell study --json` is a dump of them."""

from brinell.analysis.results import ClassResult, FolderResult, OfClass, Rate, Result


class Placed(Result):
    """A place in an order, 1 for the first; equal ones share the mean of their places."""

    rank: float
    """The place on these samples."""
    low: float
    """Lower end of its 95 % interval, by drawing samples again within each class."""
    high: float
    """Upper end."""


class StageColumn(Result):
    """One attack of one model at the study's budget."""

    attack: str
    """The stage with its exact settings."""
    title: str
    """Its name for people."""
    label: str
    """The same without the samples that it is kept to."""
    accuracy: float | None
    """Robust accuracy after it and all stages before it; null where it did not run or is not finished."""
    drop: float | None
    """Change through it."""
    seconds: float
    """Wall time on these samples, over all budgets of the study."""
    forwards: int
    """Forward evaluations, likewise."""
    backwards: int
    """Backward evaluations, likewise."""


class Spread(Result):
    """How far the best class is from the worst at the study's budget."""

    value: float
    """Robust accuracy of the best class minus that of the worst."""
    low: float
    """Lower end of the 95 % interval of the difference of these two classes' draws."""
    high: float
    """Upper end."""
    by_chance: float
    """The spread that nineteen in twenty shuffles of the samples among the classes stay below."""
    p: float
    """How often a shuffle has as large a spread."""


class StudyModel(Result):
    """One model of a study."""

    model: str
    """Name; with the run before it where two runs have a model of this name."""
    run: str
    """The run folder."""
    architecture: str | None
    """What kind of network; null where the run does not know."""
    parameters: int | None
    """Number of weights; null where the run does not know."""
    clean: Rate
    """Accuracy on the untouched inputs."""
    robust: list[Rate]
    """Robust accuracy at each budget."""
    rank: Placed
    """Place by robust accuracy at the study's budget, the most robust first."""
    stages: list[StageColumn]
    """The attacks that ran, in order."""
    seconds: float
    """Wall time of all of them."""
    per_class: list[ClassResult]
    """Classes, by index, at the study's budgets; the total drop ends at the budget at which models are compared."""
    mean_drop: float | None
    """Mean over the classes of the total drop."""
    loses_most: list[str]
    """The class, or those tied, with the largest total drop."""
    loses_least: list[str]
    """The class, or those tied, with the smallest."""
    spread: Spread | None
    """Null with one class."""


class StudyClass(OfClass):
    """One class over all models."""

    n: int
    """Samples of each model."""
    mean_clean: float | None
    """Mean over the models of the accuracy on untouched inputs."""
    mean_robust: list[float | None]
    """Mean over the models of robust accuracy, at each budget."""
    mean_drop: float | None
    """Mean over the models of the total drop."""
    rank: Placed | None
    """Place by that mean drop, the class that loses most first, over the models of the class order; null without one."""
    most: int
    """Models on which no class loses more."""
    least: int
    """Models on which no class loses less."""


class RankResult(Result):
    """How far two orders, or those of several, agree."""

    statistic: str
    """spearman, or kendall-w."""
    of: str
    """What is ordered."""
    by: list[str]
    """Of a Spearman correlation the two figures that order it; of Kendall's W the models, each of which orders the classes."""
    value: float | None
    """-1 to 1, or of Kendall's W 0 to 1; null with too few, or where one figure is the same for all."""
    low: float | None
    """Lower end of its 95 % interval; null with fewer than four pairs."""
    high: float | None
    """Upper end."""
    p: float | None
    """P-value: of a correlation by orders at random, of Kendall's W by samples dealt out to the classes at random."""
    n: int
    """How many are ordered."""


class StudyResult(FolderResult):
    """What `brinell study --json` prints."""

    runs: list[str]
    """The run folders."""
    data: str
    """Name of the data."""
    distance: str
    """Norm in which budgets are measured."""
    eps: list[float]
    """Budgets that all runs have, ascending."""
    eps_text: list[str]
    """The same as they were written."""
    at: int
    """Position of the budget at which models and classes are compared."""
    n: int
    """Samples that every model was judged on: the denominator of all figures."""
    models: list[StudyModel]
    """The models, in the order of the runs."""
    mean_drop: float | None
    """Mean over models and classes of the total drop."""
    classes: list[StudyClass]
    """The classes, by index."""
    ranks: list[RankResult]
    """Rank correlations over the models, and the agreement of the class orders."""
    notes: list[str]
    """What was left out, and what keeps figures from comparison."""
