"""Typed results of a study, which `brinell study --json` prints."""

from brinell.analysis.attainable import Attainable
from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import ClassResult, OfClass, Rate

FIGURES = "figure of a model can be shown to go with robustness"
"""The claim of the rank correlations."""


class Rank(Result):
    """A rank with its interval; 1 is first, and ties share the mean of their ranks.

    The intervals of all ranks hold together with a confidence of 95 %. They follow from comparisons of all pairs, corrected for
    their number (Holm 1979).
    """

    rank: float
    """The rank on these samples."""
    low: int
    """Lower end: 1 + the number of those that are shown to be ahead."""
    high: int
    """Upper end: the number of all less those that are shown to be behind."""


class StageColumn(Result):
    """One attack on one model at the compared budget."""

    attack: str
    """The stage with its exact settings."""
    title: str
    """Short name of the attack."""
    label: str
    """The short name without the restriction to samples."""
    accuracy: float | None
    """Robust accuracy after this attack and all earlier ones; null if it did not run or is not finished."""
    drop: float | None
    """Change of robust accuracy by this attack."""
    seconds: float
    """Wall time on these samples, over all budgets of the study."""
    forwards: int
    """Forward evaluations on these samples, over all budgets."""
    backwards: int
    """Backward evaluations on these samples, over all budgets."""


class Spread(Result):
    """Difference between the best and the worst class at the compared budget."""

    value: float
    """Robust accuracy of the best class minus that of the worst."""
    by_chance: float
    """95 % quantile of the spread after shuffling the samples among the classes."""
    p: float
    """Share of shuffles with at least as large a spread, corrected for the number of models (Holm 1979)."""


class StudyModel(Result):
    """One model of a study."""

    model: str
    """Name of the model, preceded by its run if two runs share it."""
    run: str
    """The run folder."""
    architecture: str | None
    """Architecture of the network; null if the run does not record it."""
    parameters: int | None
    """Number of weights; null if the run does not record it."""
    clean: Rate
    """Clean accuracy."""
    robust: list[Rate]
    """Robust accuracy at each budget."""
    rank: Rank
    """Rank by robust accuracy at the compared budget, the most robust first, by McNemar's exact test of all pairs."""
    rivals: list[str]
    """Models whose robust accuracy does not differ significantly."""
    stages: list[StageColumn]
    """The attacks that ran, in order."""
    seconds: float
    """Wall time of all attacks, in seconds."""
    per_class: list[ClassResult]
    """Results by class index at the study's budgets. The total drop ends at the compared budget."""
    mean_drop: float | None
    """Mean of the total drop over the classes."""
    loses_most: list[str]
    """The class or tied classes with the largest total drop, of those with at least five correct clean predictions."""
    loses_least: list[str]
    """The class or tied classes with the smallest total drop, likewise."""
    spread: Spread | None
    """Spread of the classes; null with one class."""


class StudyClass(OfClass):
    """One class, averaged over all models."""

    n: int
    """Number of samples of the class."""
    mean_clean: float | None
    """Mean clean accuracy over the models."""
    mean_robust: list[float | None]
    """Mean robust accuracy over the models at each budget."""
    mean_drop: float | None
    """Mean total drop over the models."""
    rank: Rank | None
    """Rank by `ranked_drop`, the largest drop first; null without it."""
    ranked_drop: float | None
    """Mean drop over the models with robust samples; null without such models, or if they classify fewer than five samples of
    the class correctly on clean inputs."""
    ranked_clean: float | None
    """Mean clean accuracy over the same models."""
    rivals: list[str]
    """Classes whose drop does not differ significantly."""


class RankResult(Result):
    """Agreement of two rank orders (Spearman), or of several (Kendall's W)."""

    statistic: str
    """spearman, or kendall-w."""
    of: str
    """The objects that are ranked: models or classes."""
    by: list[str]
    """Spearman: the two figures that order the models. Kendall's W: the models, which order the classes."""
    value: float | None
    """-1 to 1, or 0 to 1 for Kendall's W; null with too few objects, or if a figure is the same for all."""
    low: float | None
    """Lower end of its 95 % interval; null with fewer than four pairs, and for Kendall's W."""
    high: float | None
    """Upper end of its 95 % interval."""
    p: float | None
    """P-value of a permutation test: orders are permuted for Spearman, and samples among classes for Kendall's W. Those of
    Spearman are corrected for their number (Holm 1979)."""
    smallest_p: float | None
    """The smallest such p-value that any order of so many models can have: above 0.05, the test decides nothing."""
    negligible: bool
    """True if the 90 % interval of a correlation lies within 0.3 of 0: the figure does not go with robustness."""
    n: int
    """Number of ranked objects."""


class StudyResult(FolderResult):
    """Result of `brinell study`, as `--json` prints it."""

    runs: list[str]
    """The run folders."""
    data: str
    """Name of the data."""
    distance: str
    """Norm in which budgets are measured."""
    eps: list[float]
    """Budgets that all runs share, ascending."""
    eps_text: list[str]
    """The budgets as written in the request."""
    at: int
    """Position of the budget at which models and classes are compared."""
    n: int
    """Number of samples that were judged on every model: the denominator of all figures."""
    models: list[StudyModel]
    """The models, in the order of the runs."""
    mean_drop: float | None
    """Mean over models and classes of the total drop."""
    classes: list[StudyClass]
    """The classes, by index."""
    ranks: list[RankResult]
    """Rank correlations over the models, and agreement on the order of the classes."""
    attainable: list[Attainable]
    """Families of comparisons, with the smallest number of samples that can decide."""
    notes: list[str]
    """Notes on what is left out and what limits comparisons."""
