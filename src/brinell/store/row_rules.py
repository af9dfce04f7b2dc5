"""Rules that the rows of a run obey whatever its model and data are. A run that breaks one is refused by every command alike.

The first check has one row for each sample, and a stage at most one. What a row repeats is what the row of the first check says.
A stage attacks only samples that were right and that no earlier stage broke at the smallest budget. Values lie within their types
and meanings: outcomes, classes, finite margins of the right sign, sizes within the budget, costs that are not negative.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.record import CLEAN, Array, Outcome, Records, columns_of, has_broken

SUCCESS_COLUMNS = ("adv_pred", "adv_confidence", "adv_margin", "linf", "l2", "l1", "l0", "quantised_pred", "quantised_within")
"""Columns that only rows of broken samples have."""
COSTS = ("forwards", "backwards", "judge_forwards", "surrogate_passes", "seconds")
SIZES = ("linf", "l2", "l1", "l0")
CLEAN_OUTCOMES = {
    False: frozenset({Outcome.CORRECT, Outcome.MISCLASSIFIED, Outcome.FAILED}),
    True: frozenset({Outcome.UNMET, Outcome.MET, Outcome.FAILED}),
}
"""Outcomes of the first check, without and with a criterion of probability."""
STAGE_OUTCOMES = frozenset({Outcome.BROKEN, Outcome.SURVIVED, Outcome.SPARED, Outcome.FAILED})


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The statements of the manifest about the rows of one model and stage."""

    model: str
    stage: str
    """Name of the stage, or `CLEAN`."""
    eot: int
    """Answers that the stage averages; a random model may answer differently when it is asked again."""
    distance: str
    levels: Array
    """(levels,) float64: the positive budgets of the run, ascending."""
    classes: int
    """Number of classes of the model."""
    targeted: bool
    alone: bool
    """True if the stage attacks all samples, whatever earlier stages found."""
    rejects: bool
    """True if the model has a reject class."""
    thresholds: bool
    """True if a criterion of probability decides."""
    wrong_class: int | None
    """The class of a false positive, which no sample of the run belongs to."""
    failed: frozenset[int]
    """Samples for whose failure in this stage the manifest gives a reason."""

    @property
    def is_clean(self) -> bool:
        """True for the first check."""
        return self.stage == CLEAN

    @property
    def location(self) -> str:
        """Its name for people."""
        return f"{self.model} {self.stage}"


@dataclass(frozen=True)
class Violation:
    """A rule that rows break."""

    description: str
    samples: Array
    """Ids of the samples of these rows, ascending, without repetition."""


def make_cells(manifest: Mapping[str, Any]) -> Iterator[Cell]:
    """What the manifest says of the rows of each model and stage, in the order of their rows."""
    criterion = manifest.get("criterion", {})
    for model in manifest["models"]:
        failed = manifest.get("failed", {}).get(model["name"], {})
        for stage in [{"name": CLEAN}, *manifest["stages"]]:
            yield Cell(
                model=str(model["name"]),
                stage=str(stage["name"]),
                eot=stage.get("eot", 1),
                distance=str(manifest["distance"]),
                levels=np.array([eps for eps in manifest["eps"] if eps > 0]),
                classes=model["classes"],
                targeted=criterion.get("name") == "targeted",
                alone=bool(stage.get("turn", {}).get("alone")),
                rejects=model.get("reject_class") is not None,
                thresholds=criterion.get("name") == "probability",
                wrong_class=criterion.get("wrong_class"),
                failed=frozenset(map(int, failed.get(str(stage["name"]), {}))),
            )


def find_violations(cell: Cell, rows: Records, clean: Records | None, broken: Mapping[int, float]) -> Iterator[Violation]:
    """The rules that the rows of a cell break.

    Args:
        cell: what the manifest says of them.
        rows: all rows of the cell, samples ascending.
        clean: the rows of the first check; None if these are they.
        broken: the smallest budget at which earlier stages broke each sample, for those that they broke.
    """
    rule = _Rules(rows)
    ids = rows.sample_id
    if (np.diff(ids) <= 0).any() or (clean is not None and not np.isin(ids, clean.sample_id).all()):
        yield Violation("the rows are not one for each sample of the run, ascending", np.zeros(0, np.int64))
        return
    _check_values(rule, cell)
    if clean is None:
        _check_clean(rule, cell)
    else:
        _check_stage(rule, cell, clean, broken)
    yield from rule.violations


class _Rules:
    """Collects the rules that rows break."""

    def __init__(self, rows: Records) -> None:
        self.rows, self.violations = rows, list[Violation]()
        self.columns = {name: getattr(rows, name) for name in columns_of(rows)}
        self.outcome = self.columns["outcome"].astype(str)

    def require(self, description: str, broken: Array) -> None:
        """Note a rule that the rows in `broken`, (rows,) bool, break."""
        samples = np.unique(self.columns["sample_id"][broken])
        if len(samples):
            self.violations.append(Violation(description, samples))


def _check_values(rule: _Rules, cell: Cell) -> None:
    """Check that values lie within their types and meanings."""
    columns, outcome = rule.columns, rule.outcome
    rule.require(
        "the row belongs to another model, attack or distance",
        (columns["model"] != cell.model) | (columns["attack"] != cell.stage) | (columns["distance"] != cell.distance),
    )
    allowed = CLEAN_OUTCOMES[cell.thresholds] if cell.is_clean else STAGE_OUTCOMES
    rule.require("the row's outcome is none that it can have", ~np.isin(outcome, sorted(map(str, allowed))))
    for name in ("label", "target", "clean_pred", "adv_pred", "quantised_pred"):
        low = np.where(outcome == Outcome.FAILED, -1, 0) if name == "clean_pred" else 0
        values = np.ma.getdata(columns[name])
        rule.require(
            f"the row's {name} is no class of the model", _given(columns[name]) & ((values < low) | (values >= cell.classes))
        )
    for name in ("clean_confidence", "adv_confidence"):
        values = np.ma.getdata(columns[name])
        rule.require(f"the row's {name} is no probability", _given(columns[name]) & ~((values >= 0) & (values <= 1 + 1e-6)))
    for name in ("adv_margin", "margin", *SIZES, "seconds", "unit"):
        values = np.ma.getdata(columns[name])
        rule.require(f"the row's {name} is not finite", _given(columns[name]) & ~np.isfinite(values))
    rule.require("a size is negative", np.any([_filled(columns[name]) < 0 for name in SIZES], axis=0))
    rule.require("a cost is negative", np.any([columns[name] < 0 for name in COSTS], axis=0))
    failed = outcome == Outcome.FAILED
    rule.require("the row has a target class, or lacks one", ~failed & (_given(columns["target"]) != cell.targeted))
    reasons = np.isin(columns["sample_id"], sorted(cell.failed))
    rule.require("the sample is recorded as failed, but the manifest gives no reason", failed & ~reasons)
    rule.require("the manifest says why the sample failed, but no row says that it did", reasons & ~failed)


def _check_clean(rule: _Rules, cell: Cell) -> None:
    columns, outcome = rule.columns, rule.outcome
    failed = outcome == Outcome.FAILED
    correct = columns["clean_pred"] == columns["label"]
    expected = np.where(correct, str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED))
    if cell.thresholds:
        expected = np.where(_filled(columns["margin"]) > 0, str(Outcome.MET), str(Outcome.UNMET))
        rule.require("the row's outcome contradicts its margin of the criterion", ~failed & (outcome != expected))
        rule.require("the sample is of the class of the criterion", columns["label"] == cell.wrong_class)
    else:
        rule.require("the row's outcome contradicts its label and predicted class", ~failed & (outcome != expected))
    answered = (columns["clean_pred"] != -1) | (columns["clean_confidence"] != 0)
    rule.require("the row has an answer of a model that failed", failed & answered)
    for name in (*SUCCESS_COLUMNS, "queries_to_success", "attacked", "broken"):
        rule.require(f"the row has {name}, although nothing was attacked", _given(columns[name]))
    rule.require("the row has the cost of an attack", np.any([columns[name] != 0 for name in COSTS[1:4]], axis=0))
    rule.require("the row's margin is that of a failed sample, or is missing", _given(columns["margin"]) == failed)


def _check_stage(rule: _Rules, cell: Cell, clean: Records, earlier: Mapping[int, float]) -> None:
    """Check the rows of a stage against the first check, the stages before, and themselves."""
    columns, outcome = rule.columns, rule.outcome
    position = np.searchsorted(clean.sample_id, columns["sample_id"])
    for name in ("label", "clean_pred", "clean_confidence", "target", "unit"):
        values, first = columns[name], getattr(clean, name)[position]
        equal = np.ma.getdata(values) == np.ma.getdata(first)
        rule.require(f"the row has another {name} than the first check", ~(equal | ~(_given(values) | _given(first))))
    right = np.isin(clean.outcome[position].astype(str), [str(Outcome.CORRECT), str(Outcome.UNMET)])
    rule.require("the sample was wrong or failed in the first check, and is not attacked", ~right)

    spared, broken = outcome == Outcome.SPARED, has_broken(rule.rows)
    attacked_at, broken_at = np.ma.filled(columns["attacked"], np.inf), np.ma.filled(columns["broken"], np.inf)
    rule.require("the row lacks the budget of its attack, or has one without an attack", _given(columns["attacked"]) == spared)
    for name, values in (("attacked", attacked_at), ("broken", broken_at)):
        rule.require(f"the row's {name} is no budget of the run", np.isfinite(values) & ~np.isin(values, cell.levels))
    failed = outcome == Outcome.FAILED
    rule.require("the row's outcome contradicts its budgets", ~failed & (broken != (outcome == Outcome.BROKEN)))
    rule.require("the sample is broken at a budget above that of its attack", broken & (broken_at > attacked_at))
    before = np.array([earlier.get(sample, np.inf) for sample in columns["sample_id"].tolist()])
    rule.require(
        "an earlier attack broke the sample at this or a smaller budget", ~spared & (before <= attacked_at) & (not cell.alone)
    )
    for name in SUCCESS_COLUMNS:
        rule.require(f"the row lacks {name}, or has it though no attack succeeded", _given(columns[name]) != broken)

    if cell.distance in SIZES:
        limit = _filled(columns["broken"]) * columns["unit"] * (1 + 1e-5) + 1e-6
        rule.require("the row states a perturbation larger than its budget", broken & (_filled(columns[cell.distance]) > limit))
    predicted, deterministic = np.ma.getdata(columns["adv_pred"]), cell.eot == 1
    wrong = predicted != np.ma.getdata(columns["target"]) if cell.targeted else predicted == columns["label"]
    if cell.wrong_class is None:  # that class leads with more than half of the probability; with less it need not
        rule.require("the row's class for the adversarial input is no success", broken & wrong & deterministic)
    if not (cell.targeted or cell.rejects):
        negative = broken & (_filled(columns["adv_margin"]) < 0)
        rule.require("the row's margin for the adversarial input is no success", negative & deterministic)
    rule.require("the row states a crossed boundary, but a robust sample", ~broken & (_filled(columns["margin"]) > 0))
    rule.require("the row has a margin, although nothing was attacked", spared & _given(columns["margin"]))

    forwards, queries = columns["forwards"], columns["queries_to_success"]
    costs = np.any([columns[name] != 0 for name in COSTS[:4]], axis=0)
    rule.require("the sample was not attacked, but the row has a cost", spared & costs)
    outside = _given(queries) & ((np.ma.getdata(queries) > forwards) | (np.ma.getdata(queries) < 1))
    rule.require("the row states a first success outside its queries", outside | (_given(queries) & ~broken))
    attacked = np.isin(outcome, [str(Outcome.BROKEN), str(Outcome.SURVIVED)])
    rule.require("the row states an attack without a cost", attacked & (forwards < 1))


def _given(column: Array) -> Array:
    """(rows,) bool: rows with a value."""
    return ~np.ma.getmaskarray(column)


def _filled(column: Array) -> Array:
    """A column with 0 where it has no value."""
    return np.asarray(np.ma.filled(column, 0))
