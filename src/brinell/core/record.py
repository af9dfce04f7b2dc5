"""The per-sample record: one row per model x sample x attack x eps. Every figure anywhere is computed from these rows."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
"""An array of any type and shape."""
SCHEMA_VERSION = 3
CLEAN = "clean"
"""The value of `attack` in the row of the first check, one per model and sample, at eps 0."""


class Outcome(StrEnum):
    """Outcome of one sample under one attack at one eps. `BROKEN` samples count against the figure of the run."""

    CORRECT = "correct"
    """Clean row: the model is right on the untouched input."""
    MISCLASSIFIED = "misclassified"
    """The model is wrong on the untouched input; it counts as not robust at every eps, and no attack is spent on it."""
    UNMET = "unmet"
    """Clean row of a run with a criterion of probability: the untouched input does not meet it, whatever class is predicted."""
    MET = "met"
    """The untouched input meets the run's criterion of probability; it counts as broken at every eps, and no attack is spent
    on it."""
    FOOLED = "fooled"
    """This attack found an adversarial input within eps, running at this eps or shrinking one found at a larger eps."""
    FOOLED_BELOW = "fooled_below"
    """This attack, or an earlier one, fooled the sample at a smaller eps; that input is within this eps too."""
    FOOLED_BEFORE = "fooled_before"
    """An earlier attack of the run fooled the sample at this eps, so this attack was not run on it."""
    SURVIVED = "survived"
    """This attack ran at this eps and found nothing."""
    SURVIVED_ABOVE = "survived_above"
    """This attack found nothing at a larger eps, whose inputs include these."""
    SPARED = "spared"
    """Earlier attacks left the sample so far from the boundary that this one was not run (the stage's `within`), or the
    sample's own budget is 0."""
    SKIPPED = "skipped"
    """The attack cannot run on this model, distance or domain; the manifest gives the reason."""
    FAILED = "failed"
    """The sample could not be judged, as where a server refuses it; the manifest gives the reason (`failed`)."""


BROKEN = frozenset({Outcome.MISCLASSIFIED, Outcome.MET, Outcome.FOOLED, Outcome.FOOLED_BELOW, Outcome.FOOLED_BEFORE})
ROBUST = frozenset({Outcome.CORRECT, Outcome.UNMET, Outcome.SURVIVED, Outcome.SURVIVED_ABOVE, Outcome.SPARED})


class Column(NamedTuple):
    """Type of a column of records."""

    kind: str
    """string, bool, int32, int64, float32 or float64; a study may add further kinds."""
    doc: str
    null: bool = False
    """True if the value may be null."""
    zero: bool = False
    """True if rows without a value have 0, such as the cost of a computation that did not run."""


def column(kind: str, doc: str, *, null: bool = False, zero: bool = False) -> Any:
    """A field of a dataclass of records: rows as columns, each a (rows,) array, a masked one where it may be null."""
    return field(metadata={"column": Column(kind, doc, null, zero)})


def columns_of(records: Any) -> dict[str, Column]:
    """The columns of a dataclass of records, or of an instance of it, by name."""
    return {field.name: field.metadata["column"] for field in fields(records)}


@dataclass(frozen=True, kw_only=True)
class Records:
    """Rows as columns, each a (rows,) array. Columns that may be null are masked arrays, so that no number stands for "none"."""

    model: np.ndarray[Any, Any] = column("string", "name of the model in the run")
    sample_id: np.ndarray[Any, Any] = column("int64", "position of the sample in the data")
    label: np.ndarray[Any, Any] = column("int32", "true class")
    target: np.ndarray[Any, Any] = column(
        "int32", "target class of a targeted attack; null where any wrong class counts", null=True
    )
    clean_pred: np.ndarray[Any, Any] = column("int32", "class predicted for the untouched input; -1 where the model fails on it")
    clean_confidence: np.ndarray[Any, Any] = column("float32", "softmax probability of that class")
    attack: np.ndarray[Any, Any] = column("string", "the stage's name, or `clean` for the first check")
    distance: np.ndarray[Any, Any] = column("string", "norm in which eps is measured")
    eps: np.ndarray[Any, Any] = column(
        "float64",
        "budget of this row as the run counts it: in the units of the data, or as a multiple of the sample's recommended eps",
    )
    radius: np.ndarray[Any, Any] = column(
        "float64", "the same budget in the units of the data: eps itself, or that multiple of what the sample was recommended"
    )
    outcome: np.ndarray[Any, Any] = column("string", "one of Outcome")
    adv_pred: np.ndarray[Any, Any] = column("int32", "class predicted for the adversarial input", null=True)
    adv_confidence: np.ndarray[Any, Any] = column("float32", "softmax probability of that class", null=True)
    adv_margin: np.ndarray[Any, Any] = column(
        "float32",
        "best other logit minus the true one at the adversarial input, judged again: positive, but for those on the boundary "
        "of a random model",
        null=True,
    )
    best_margin: np.ndarray[Any, Any] = column(
        "float32",
        "largest margin that was seen within eps, in logits: a wrong class minus the true one; negative where the attack failed",
        null=True,
    )
    linf: np.ndarray[Any, Any] = column("float32", "Linf size of the perturbation", null=True)
    l2: np.ndarray[Any, Any] = column("float32", "L2 size", null=True)
    l1: np.ndarray[Any, Any] = column("float32", "L1 size", null=True)
    l0: np.ndarray[Any, Any] = column("float32", "number of values changed, each channel counted", null=True)
    quantised_pred: np.ndarray[Any, Any] = column(
        "int32",
        "class predicted after rounding to the data's storage levels (8-bit images), towards the clean input where the nearest "
        "levels would leave eps; on the nearest levels where that is no adversarial example",
        null=True,
    )
    quantised_within: np.ndarray[Any, Any] = column("bool", "whether that rounded input is within eps", null=True)
    forwards: np.ndarray[Any, Any] = column("int64", "forward evaluations that this row cost, each EOT sample counted", zero=True)
    backwards: np.ndarray[Any, Any] = column("int64", "backward evaluations that this row cost", zero=True)
    judge_forwards: np.ndarray[Any, Any] = column(
        "int64",
        "forwards spent on judging adversarial examples again: near the boundary, quantised and, with EOT, as found",
        zero=True,
    )
    surrogate_passes: np.ndarray[Any, Any] = column(
        "int64",
        "passes of surrogates whose gradients the attack followed, each a forward and a backward of one of them; they count "
        "apart from the queries of the model",
        zero=True,
    )
    queries_to_success: np.ndarray[Any, Any] = column(
        "int64", "the forward at which this row's attack first succeeded", null=True
    )
    seconds: np.ndarray[Any, Any] = column(
        "float64", "wall time, shared among the samples of a group by their evaluations", zero=True
    )

    def __len__(self) -> int:
        return len(self.sample_id)


class StoredRecords(Records):
    """Rows that stay where they are written: whoever looks at a column has it read, and little is kept.

    Args:
        read: the (rows,) array of a column, by its name.
    """

    def __init__(self, read: Callable[[str], Array]) -> None:
        object.__setattr__(self, "_read", read)

    def __getattr__(self, name: str) -> Array:
        if name not in COLUMNS:
            raise AttributeError(name)
        read: Callable[[str], Array] = self.__dict__["_read"]
        return read(name)


COLUMNS = columns_of(Records)
"""The schema that the store writes and the documentation shows."""
