"""What Brinell says about a run, as typed values: the JSON of `audit`, `compare` and `gate` is a
dump of these models.

Rates and drops are fractions; None (null in JSON) is "no data" or "beyond what was tested", as the
field says. No field is ever NaN or infinite.
"""

from pydantic import AliasChoices, Field

from brinell.analysis.folder_result import ClaimingResult, Result
from brinell.analysis.inference import Correlation
from brinell.analysis.separate_attacks import SeparateAttack
from brinell.analysis.statements import Statement
from brinell.analysis.total_drops import TotalDrops

ACCURACY = "accuracy"
"""The quantity of most rates."""


class Share(Result):
    """A proportion with its 95 % Wilson interval and its denominator."""

    k: int
    """How many."""
    n: int
    """Of how many."""
    value: float | None
    """`k` / `n`; null where `n` is 0."""
    low: float | None
    """Lower end of the interval."""
    high: float | None
    """Upper end of the interval."""


class Rate(Share):
    """The share of samples that count as right, classified correctly or robust at `eps`, among all
    that were judged.
    """

    eps: float
    """Budget, in the units of the data; 0 is the clean input."""
    missing: int = 0
    """Samples that could not be judged here and are in neither `k` nor `n`."""
    quantity: str = Field(default=ACCURACY, exclude_if=lambda quantity: quantity == ACCURACY)
    """Name of what is counted; left out of the JSON where it is accuracy, clean or robust."""


class OfClass(Result):
    """Base: what is said of one class."""

    class_: int = Field(
        serialization_alias="class", validation_alias=AliasChoices("class", "class_")
    )
    """Index of the class."""
    name: str
    """Name of the class."""

    @property
    def label(self) -> str:
        """The class by name, with its number where the name is not the number."""
        number = str(self.class_)
        return f"class {number}" if self.name == number else f"{self.name} (class {number})"


class NearestClass(OfClass):
    """The class that is nearest to another one, and how near."""

    distance: float
    """Mean distance from a sample of one class to a sample of the other."""
    nearest_sample: float | None
    """Median distance from a sample to the nearest sample of any other class; null without a
    neighbour."""


class ClassResult(OfClass):
    """One class of one model."""

    n: int
    """Samples of the class in the run."""
    clean: Rate
    """Accuracy on the untouched inputs."""
    robust: list[Rate]
    """Robust accuracy at each eps, ascending."""
    drop: list[float | None]
    """Change of accuracy from the eps before (the first: from the untouched inputs), at most 0
    as a rule."""
    total_drop: float | None
    """Change from the untouched inputs to the largest eps."""
    certified: list[Rate] | None = None
    """Share that is proven robust, at each eps; null without `--certify`."""
    nearest: NearestClass | None = Field(default=None, exclude_if=lambda entry: entry is None)
    """The nearest other class in the epsilon study of the run; left out without `--epsilon`, and
    for a class without samples in the study."""


class StageResult(Result):
    """One attack of the cascade: accuracy once it and all attacks before it have run, and what it
    cost.
    """

    attack: str
    """Name of the stage: the attack with its exact settings."""
    label: str
    """Its name for people."""
    kept_to: str
    """The samples that it is kept to and what it waits for; empty for none."""
    eps: float
    """The largest eps: that of `accuracy` and `drop`."""
    accuracy: float | None
    """Robust accuracy after this stage at `eps`; null where the stage was skipped."""
    drop: float | None
    """Change of accuracy through this stage: from the stage before it, or from the untouched
    inputs."""
    forwards: int
    """Forward evaluations of single inputs by the attack, over all eps."""
    backwards: int
    """Backward evaluations of single inputs by the attack, over all eps."""
    judge_forwards: int
    """Forward evaluations spent on re-checking what the attack found."""
    surrogate_passes: int
    """Passes of the surrogates whose gradients the attack followed, which do not query the
    model."""
    seconds: float
    """Wall time."""
    curve: list[Rate]
    """Robust accuracy after this stage at each eps; empty where the stage was skipped."""
    broken: list[int]
    """Samples that this stage was the first to break, at each eps."""
    median_queries: float | None
    """Median of the forward evaluations until the stage first broke a sample, over those that it
    broke; null for none."""
    attacked: int
    """Samples that the stage attacked."""
    separate: SeparateAttack | None = Field(default=None, exclude_if=lambda entry: entry is None)
    """Success, distances and queries of the attack by itself; left out for a stage that runs on
    what those before left.
    """
    skipped: str | None = None
    """Why the stage did not run on this model; null where it ran."""


class WarningResult(Result):
    """Something that a reader of the figures must know."""

    code: str
    """Short name, by which `gate` can allow it."""
    text: str
    """Observation, and what to do about it."""
    model: str | None = None
    """The model concerned; null for the whole run."""


class RemarkResult(Result):
    """A remark of an attack on its own run."""

    attack: str
    """Name of the stage."""
    code: str
    """Topic of the remark."""
    text: str
    """One line."""


class CheckResult(Result):
    """One check of whether attacks fail for another reason than robustness."""

    code: str
    """Short name; docs/reference/records.md says what it looks for."""
    passed: bool | None
    """Null where the check could not be made."""
    figure: float | None = None
    """Measured value; null for a check without a number."""
    limit: float | None = None
    """Limit of the figure."""
    error_rate: float = 0.0
    """Largest probability that a healthy model fails the check with so many samples; 0 where
    nothing is drawn."""
    text: str
    """Observation, or the reason why the check did not run."""
    cause: str | None = None
    """What is the matter, in a clause, where a failed check can tell more than its name does."""
    reason: str | None = None
    """Why the check was not made or could not decide, in a clause; null where it passed or
    failed."""


class DetectedAttack(Result):
    """How well a detector separates the adversarial inputs of one attack from clean ones."""

    attack: str
    """Name of the stage, or of an adaptive attack."""
    auc: float | None
    """Probability that an adversarial input has a higher score than a clean one, with ties
    counted half."""
    low: float | None
    """Lower end of its 95 % interval; null with fewer than two adversarial inputs."""
    high: float | None
    """Upper end of the interval."""
    detected: Rate
    """Share of the adversarial inputs with an alarm at the threshold."""


class DetectorResult(Result, allow_inf_nan=True):  # scores and thresholds may be infinite
    """One detector in front of one model, at the largest eps."""

    model: str
    detector: str
    threshold: float
    """Score above which an input raises an alarm."""
    false_alarms: Rate
    """Alarms on the clean samples of the run. The threshold comes from other clean inputs."""
    robust: Rate
    """Samples that are robust to the attacks of the run without a detector."""
    static: Rate
    """Samples that are robust, or whose adversarial inputs all raise an alarm: the apparent gain
    of the detector."""
    adaptive: Rate | None
    """The static rate after the adaptive attacks, which know the detector; null if they did not
    run."""
    evaded: Rate | None
    """Among the correctly classified samples, those for which an adaptive attack finds an
    adversarial example without an alarm."""
    attacks: list[DetectedAttack]
    """By attack that found an input."""
    statement: Statement | None = None
    """How often adaptive attacks evade it; null if they did not run, or no sample is right."""


class ModelResult(ClaimingResult):
    """All figures of one model in one run."""

    folder: str
    """The run folder."""
    name: str
    """Name of the model."""
    distance: str
    """Norm in which eps is measured."""
    criterion: str
    """Criterion of success: misclassified, targeted at CLASS, least-likely or random, or a
    threshold such as true<0.1."""
    meaning: str | None = Field(default=None, exclude_if=lambda meaning: meaning is None)
    """The criterion of probability in words. Rates are then shares of inputs that do not meet
    it, as their `quantity` says."""
    eps: list[float]
    """Budgets, ascending."""
    eps_text: list[str]
    """The same as they were written."""
    n: int
    """Samples in the run."""
    complete: bool
    """True if every stage that can run judged every sample."""
    clean_accuracy: Rate
    """Accuracy on the untouched inputs."""
    robust_accuracy: list[Rate]
    """Worst case per sample over all stages, at each eps."""
    certified: list[Rate] | None = None
    """Share of samples that is proven robust, at each eps; null without `--certify`."""
    open: list[Rate] | None = None
    """Share of samples that is neither proven nor broken, at each eps; null without `--certify`."""
    quantised_robust_accuracy: list[Rate] | None
    """The same, counting only quantised adversarial examples: those that still succeed, within
    eps, once rounded to the levels in which inputs are stored; null where storing does not
    round."""
    per_class: list[ClassResult]
    """Classes with at least one sample, by index."""
    classes_without_samples: int
    """Classes of the data that no sample of the run belongs to; nothing is known about them."""
    statements: list[Statement] = []
    """The weakest and the strongest class at the compared budget; docs/reference/statements.md
    describes the kinds."""
    stages: list[StageResult]
    """The attacks, in order."""
    remarks: list[RemarkResult]
    """Remarks of attacks on their own run; they do not affect a gate."""
    seconds: float | None
    """Wall time of this model's part of the run."""
    warnings: list[WarningResult]
    """Warnings about this model and the whole run."""
    checks: list[CheckResult]
    """Every check that was made, passed ones included, and those that could not be made."""
    caveat: str | None
    """Checks that failed or did not run, so that `robust_accuracy` may be too high; null if all
    checks that count passed."""
    weak: str | None = None
    """The attacks, where they are weaker than `fast`, so that a stronger cascade may find more;
    null otherwise."""
    attacks: str
    """The attacks as they were asked for: a cascade, or their settings."""
    verdict: str
    """One sentence of at most 25 words: the robust accuracy at the largest eps, and whether to
    believe it."""
    verdict_notes: list[str]
    """Sentences on failed checks that the verdict does not name, and on what to do."""
    detectors: list[DetectorResult] | None = Field(
        default=None, exclude_if=lambda detectors: detectors is None
    )
    """Detectors in front of the model; left out without `--detector`."""
    distance_correlation: Correlation | None = Field(
        default=None, exclude_if=lambda correlation: correlation is None
    )
    """Correlation over the classes of the distance to the nearest other class with the total drop,
    which is at most 0; left out without `--epsilon`."""


class AuditResult(ClaimingResult):
    """All models of one run side by side."""

    folder: str
    """The run folder."""
    n: int
    """Samples in the run."""
    complete: bool
    """True if the figures of every model are complete."""
    models: list[ModelResult]
    """One entry per model, in the order of the request."""
    warnings: list[WarningResult]
    """All warnings of the run."""
    statements: list[Statement] = []
    """Of several models who leads at the compared budget, and who at others."""
    drops: TotalDrops | None = None
    """Drops from the untouched inputs to the largest eps, over classes and models; null for one
    model, or if no sample was judged on all."""


class PairedRate(Result):
    """Two models on the same samples at one eps. A difference is that of A minus B."""

    eps: float
    """Budget."""
    both_robust: int
    """Samples on which both are robust."""
    only_a: int
    """Samples on which only A is robust."""
    only_b: int
    """Samples on which only B is robust."""
    neither: int
    """Samples on which neither is robust."""
    n: int
    """Samples judged on both: the denominator."""
    value_a: float
    """Robust accuracy of A on these samples."""
    value_b: float
    """Robust accuracy of B on these samples."""
    difference: float
    """A minus B."""
    low: float
    """Lower end of its 95 % interval (Newcombe, paired)."""
    high: float
    """Upper end."""
    p: float
    """McNemar's exact p-value, two-sided."""
    p_joint: float | None = None
    """The same, corrected for clean inputs and all budgets looked at together (Westfall & Young);
    null where one comparison was made alone."""


class ClassComparison(OfClass):
    """One class of a comparison, at each eps."""

    n: int
    """Common samples of the class."""
    clean: PairedRate
    """Both models on untouched inputs."""
    p_clean: float
    """The p-value of `clean`, corrected for the number of classes (Holm)."""
    robust: list[PairedRate]
    """The same at each eps."""


class CompareResult(Result):
    """Two models on the same samples."""

    a: str
    """Model A."""
    b: str
    """Model B."""
    n: int
    """Samples that were judged on both at every common budget."""
    clean: PairedRate
    """The untouched inputs."""
    robust: list[PairedRate]
    """At each common eps, ascending."""
    per_class: list[ClassComparison]
    """Classes with a common sample, by index; over the same eps as `robust`."""
    notes: list[str]
    """Differences between the two runs that affect the comparison."""
