"""The per-sample record: one row for each sample and stage that attacked it.

Every figure is computed from these rows.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
"""An array of any type and shape."""
SCHEMA_VERSION = 5
CLEAN = "clean"
"""The value of `attack` in the row of the first check, one per model and sample."""


class Outcome(StrEnum):
    """The observation of a sample: in the first check, or in a stage."""

    CORRECT = "correct"
    """Clean row: the model is right on the untouched input."""
    MISCLASSIFIED = "misclassified"
    """Clean row: the model is wrong on the untouched input; it counts as broken at every eps,
    and no attack is spent on it."""
    UNMET = "unmet"
    """Clean row of a run with a criterion of probability: the untouched input does not meet it,
    whatever class is predicted."""
    MET = "met"
    """Clean row: the untouched input meets the run's criterion of probability; it counts as
    broken at every eps, and no attack is spent on it."""
    BROKEN = "broken"
    """The attack found an adversarial input, whose smallest budget is `broken`."""
    SURVIVED = "survived"
    """The attack ran at `attacked` and found nothing."""
    SPARED = "spared"
    """Earlier attacks left the sample so far from the boundary that this one was not run (the
    stage's `within`), it was not drawn (`share`), or its own budget is 0."""
    FAILED = "failed"
    """The sample could not be judged, as where a server refuses it; the manifest gives the
    reason (`failed`)."""


class RecordColumn(NamedTuple):
    """Type of a column of records."""

    kind: str
    """string, bool, int32, int64, float32 or float64; a study may add further kinds."""
    doc: str
    null: bool = False
    """True if the value may be null."""
    zero: bool = False
    """True if rows without a value have 0, such as the cost of a computation that did not run, or
    an empty text."""
    measure: str = ""
    """What a difference by rounding is measured against where a row is made again: a size, a
    margin or a share; empty for a column that comes out equal."""
    claimed: bool = False
    """True if no repetition finds it again, such as a wall time."""


class Columns:
    """Base of the dataclasses of records."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(getattr(self, next(iter(columns_of(self)))))


def column(
    kind: str,
    doc: str,
    *,
    null: bool = False,
    zero: bool = False,
    measure: str = "",
    claimed: bool = False,
) -> Any:
    """A field of a dataclass of records: a (rows,) array, a masked one where it may be null."""
    return field(metadata={"column": RecordColumn(kind, doc, null, zero, measure, claimed)})


def columns_of(records: Any) -> dict[str, RecordColumn]:
    """The columns of a dataclass of records, or of an instance of it, by name."""
    return {field.name: field.metadata["column"] for field in fields(records)}


def claimed_columns(records: Any) -> frozenset[str]:
    """The columns of a dataclass of records that no repetition finds again."""
    return frozenset(name for name, column in columns_of(records).items() if column.claimed)


@dataclass(frozen=True, kw_only=True)
class Records(Columns):
    """Rows as columns, each a (rows,) array.

    Columns that may be null are masked arrays, so that no number stands for "none".
    """

    model: np.ndarray[Any, Any] = column("string", "name of the model in the run")
    sample_id: np.ndarray[Any, Any] = column("int64", "position of the sample in the data")
    label: np.ndarray[Any, Any] = column("int32", "true class")
    target: np.ndarray[Any, Any] = column(
        "int32", "target class of a targeted attack; null where any wrong class counts", null=True
    )
    clean_pred: np.ndarray[Any, Any] = column(
        "int32", "class predicted for the untouched input; -1 where the model fails on it"
    )
    clean_confidence: np.ndarray[Any, Any] = column(
        "float32", "softmax probability of that class", measure="share"
    )
    attack: np.ndarray[Any, Any] = column(
        "string", "the stage's name, or `clean` for the first check"
    )
    distance: np.ndarray[Any, Any] = column("string", "norm in which budgets are measured")
    unit: np.ndarray[Any, Any] = column(
        "float64",
        "unit of the sample's budgets in the units of the data: 1, or what the "
        "sample was recommended",
    )
    attacked: np.ndarray[Any, Any] = column(
        "float64",
        "the largest budget at which the stage attacked the sample; null in clean and spared rows",
        null=True,
    )
    broken: np.ndarray[Any, Any] = column(
        "float64", "the smallest budget at which it broke the sample; null for none", null=True
    )
    outcome: np.ndarray[Any, Any] = column("string", "one of Outcome")
    adv_pred: np.ndarray[Any, Any] = column(
        "int32", "class predicted for the closest adversarial input", null=True
    )
    adv_confidence: np.ndarray[Any, Any] = column(
        "float32", "softmax probability of that class", null=True, measure="share"
    )
    adv_margin: np.ndarray[Any, Any] = column(
        "float32",
        "best other logit minus the true one at the adversarial input, judged "
        "again: positive, but for those on the boundary "
        "of a random model",
        null=True,
        measure="margin",
    )
    margin: np.ndarray[Any, Any] = column(
        "float32",
        "largest margin that was seen at the budget where the attack failed, in "
        "logits: a wrong class minus the true one, so it "
        "is negative; of a clean row, that of the untouched input",
        null=True,
        measure="margin",
    )
    linf: np.ndarray[Any, Any] = column(
        "float32", "Linf size of the perturbation", null=True, measure="size"
    )
    l2: np.ndarray[Any, Any] = column("float32", "L2 size", null=True, measure="size")
    l1: np.ndarray[Any, Any] = column("float32", "L1 size", null=True, measure="size")
    l0: np.ndarray[Any, Any] = column(
        "float32", "number of values changed, each channel counted", null=True, measure="size"
    )
    quantised_pred: np.ndarray[Any, Any] = column(
        "int32",
        "class predicted after rounding to the data's storage levels (8-bit "
        "images), towards the clean input where the nearest "
        "levels would leave the budget; on the nearest levels where that is no adversarial example",
        null=True,
    )
    quantised_within: np.ndarray[Any, Any] = column(
        "bool", "whether that rounded input is within the budget", null=True
    )
    forwards: np.ndarray[Any, Any] = column(
        "int64", "forward evaluations of the stage, each EOT sample counted", zero=True
    )
    backwards: np.ndarray[Any, Any] = column("int64", "backward evaluations", zero=True)
    judge_forwards: np.ndarray[Any, Any] = column(
        "int64",
        "forwards spent on judging adversarial examples again: near the "
        "boundary, quantised and, with EOT, as found",
        zero=True,
    )
    surrogate_passes: np.ndarray[Any, Any] = column(
        "int64",
        "passes of surrogates whose gradients the attack followed, each a "
        "forward and a backward of one of them; they count "
        "apart from the queries of the model",
        zero=True,
    )
    queries_to_success: np.ndarray[Any, Any] = column(
        "int64", "the forward at which the attack first succeeded at `attacked`", null=True
    )
    seconds: np.ndarray[Any, Any] = column(
        "float64",
        "wall time, shared among the samples of a group by their evaluations",
        zero=True,
        claimed=True,
    )


COLUMNS = columns_of(Records)
"""The schema that the store writes and the documentation shows."""


WAY = ("query", "probability of the true class", "L2", "patches", "added", "removed")
"""Columns of the way by which an agent came to an adversarial example, a row for each input that it
kept: patches were added and removed since the row before; one that gets another distortion counts
as added."""


def has_broken(records: Records) -> Array:
    """(rows,) bool: rows of samples that their stage broke."""
    return ~np.ma.getmaskarray(records.broken)
