"""Statements: what is said of a result where something is compared, as values.

A statement names the weakest class, the model that leads, a rate that rose or another result of a
comparison. Page, terminal, board, claim, gate and JSON show the same object, which holds the rates
with their intervals, the corrected p-value, and `supported`. It is supported if the p-value is at
most 5 %, or if the kind's own test says so where the table names another level; otherwise the
sentence says that the order or the change may be chance, and no decision should rest on it.

The p-value is corrected for all comparisons that were looked at together. With fewer samples than
`least n`, of each class, model or comparison, a statement is never supported.

A kind is an entry of `KINDS` with a sentence in `reports.statements` and a row of false statements
in docs/results/inference.md; no other file builds a sentence that compares.
"""

from typing import Any, Literal, NamedTuple

from brinell.analysis.folder_result import Result

KindName = Literal[
    "weakest",
    "strongest",
    "alike",
    "leads",
    "crosses",
    "most",
    "least",
    "loses_most",
    "loses_least",
    "rose",
    "fell",
    "unchanged",
    "passes",
    "fails",
    "faithful",
    "evades",
    "matters",
    "fits",
]


class Kind(NamedTuple):
    """What a kind of statement says, and what it stands on."""

    meaning: str
    assumption: str
    test: str
    family: str
    least_n: int
    """Samples of each class, model or comparison below which it is never supported."""


CLASSES = (
    "the samples of a class are independent draws of it",
    "Welch's test with one success and one failure added to each class (Agresti & Caffo 2000); the "
    "interval is exact (Clopper & Pearson 1934)",
    "all pairs of classes at the budget (Holm 1979); intervals hold for all classes together "
    "(Bonferroni)",
)
MEANS = (
    "groups of samples are independent draws, and each object is measured on the same ones",
    "t and Hall's test of the paired differences, the larger p-value of both",
    "all pairs (Holm 1979; for explanations Bonferroni)",
)
LOSSES = (
    "the samples of a class are independent draws of it",
    "Welch's test with two further samples of each class, one that is lost on every model and one on "
    "none (Agresti & Caffo 2000)",
    "all pairs of classes (Holm 1979)",
)
MODELS = "samples are independent draws, and each model is judged on the same ones"
PAIRED = (
    "McNemar's exact test; the interval of the difference is Newcombe's (1998, method 10), and ends "
    "at 0 where the test says otherwise",
    "nothing where it is alone; for all classes or changes of the inputs that are compared (Holm "
    "1979), for budgets as in `crosses`; intervals hold together (Bonferroni)",
)
KINDS: dict[KindName, Kind] = {
    "weakest": Kind("the class with the lowest rate, and those that may be as weak", *CLASSES, 5),
    "strongest": Kind(
        "the class with the highest rate, and those that may be as strong", *CLASSES, 5
    ),
    "alike": Kind("all classes have the same rate on these samples", *CLASSES, 5),
    "leads": Kind(
        "the model with the highest rate at one budget, and those that may be as robust; by default "
        "the largest budget at which a tenth of the clean accuracy is left",
        MODELS,
        "McNemar's exact test",
        "all pairs of models at the budget (Holm 1979)",
        6,
    ),
    "crosses": Kind(
        "another model has the highest rate at another budget",
        MODELS,
        "exchange of the two models' answers sample by sample, largest difference over all budgets "
        "(Westfall & Young 1993)",
        "all budgets and all pairs of models (Bonferroni over pairs)",
        6,
    ),
    "most": Kind(
        "the object with the highest mean, and those that may have as high a one", *MEANS, 6
    ),
    "least": Kind(
        "the object with the lowest mean, and those that may have as low a one", *MEANS, 6
    ),
    "loses_most": Kind(
        "the class whose samples are lost most often on average over the models, and those that may "
        "lose as much",
        *LOSSES,
        5,
    ),
    "loses_least": Kind(
        "the class whose samples are lost least often, and those that may lose as little",
        *LOSSES,
        5,
    ),
    "rose": Kind("a rate is higher than before on the same samples", MODELS, *PAIRED, 6),
    "fell": Kind("a rate is lower than before on the same samples", MODELS, *PAIRED, 6),
    "unchanged": Kind(
        "a rate is the same on these samples; the interval says within what it is equal",
        MODELS,
        *PAIRED,
        6,
    ),
    "passes": Kind(
        "a rate reaches a threshold, or has not fallen from a baseline",
        MODELS,
        "the lower end of the exact interval (Clopper & Pearson 1934), one-sided at 2.5 %; against "
        "a baseline as for crosses",
        "nothing against a threshold, since every class must pass by itself; against a baseline for "
        "clean inputs and all budgets together",
        1,
    ),
    "fails": Kind(
        "the lower end is below the threshold, or a rate has fallen from a baseline",
        MODELS,
        "as for passes",
        "as in `passes`",
        1,
    ),
    "faithful": Kind(
        "a method's gap between insertion and deletion is above those of both controls",
        "groups of samples are independent draws",
        "paired t and Hall's test, and all signs up to twelve groups; the larger p-value of both",
        "all methods (Holm 1979)",
        9,
    ),
    "evades": Kind(
        "attacks that know a detector reach a wrong class without an alarm",
        "samples are independent draws",
        "one sample refutes that none can; the interval of their share is exact (Clopper & Pearson "
        "1934)",
        "intervals hold for all detectors together (Bonferroni)",
        1,
    ),
    "matters": Kind(
        "whether the drop of accuracy depends more on the class or on the model",
        "the samples of a class are independent draws of it, and each model is judged on the same "
        "ones",
        "percentiles of the difference of both shares of the variation over samples drawn again "
        "within their classes (Efron 1979), at 98 %",
        "nothing: it is one comparison",
        4,
    ),
    "fits": Kind(
        "a model is right more often in another form of inputs or labels than in the given one",
        "samples are independent draws, and each form is tried on the same ones",
        "McNemar's exact test of the right answers, and of the smaller losses, one-sided at 0.1 %",
        "both tests and all forms tried (Bonferroni)",
        11,
    ),
}
"""What may be said."""


class Subject(Result):
    """An object of a statement with its rate."""

    name: str
    value: float
    """The rate, 0 to 1; of a method the gap, -1 to 1."""
    low: float | None = None
    """Lower end of an interval that holds for all objects of the statement together."""
    high: float | None = None
    """Upper end."""
    k: int | None = None
    """How many; null for what is no proportion."""
    n: int | None = None
    """Of how many."""


class Statement(Result):
    """A sentence that compares, as a value."""

    kind: KindName
    """What is said; docs/reference/statements.md describes each kind."""
    subjects: list[Subject]
    """Of whom it is said; several if they tie, none if the samples are too few."""
    quantity: str
    """The rate that is compared."""
    eps_text: str
    """The budget as it was asked; empty for clean inputs or none."""
    n: int
    """Samples on which it stands."""
    against: list[Subject] = []
    """With whom the subject is compared, where it is a single object."""
    rivals: list[str] = []
    """Objects that are not shown to differ from the subjects, the nearest first."""
    compared: int = 0
    """Objects compared, without the subjects."""
    sparse: list[Subject] = []
    """Objects in no order, since they have fewer samples than `least_n`."""
    threshold: float | None = None
    """The rate that is demanded."""
    difference: float | None = None
    """Of a change, the rate less that before."""
    low: float | None = None
    """Lower end of the interval of the difference, which holds with 95 % for all comparisons of the
    family together; it reaches 0 exactly where the test does not show a difference."""
    high: float | None = None
    """Upper end."""
    p: float | None = None
    """Corrected p-value; of an order the largest that parts the subjects from another object."""
    supported: bool
    """True if the test supports the order or the change, false if it may be chance."""
    test: str
    """The test that decides."""
    family: int
    """Comparisons for which it is corrected together."""
    least_n: int
    """Samples that it needs."""


def state(kind: KindName, **fields: Any) -> Statement:
    """A statement with what its kind says of test and least number."""
    facts = KINDS[kind]
    return Statement(kind=kind, test=facts.test, least_n=facts.least_n, **fields)
