"""Rules that the rows of a run obey whatever its model and data are. A run that breaks one is refused by every command alike.

There is exactly one row for each model, sample, stage and budget of the manifest. What a row repeats is what the row of the first
check says. Values lie within their types and meanings: outcomes, classes, finite margins of the right sign, sizes within the
budget, costs that are not negative.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.record import CLEAN, Array, Outcome, Records, columns_of

SUCCESS_COLUMNS = ("adv_pred", "adv_confidence", "adv_margin", "linf", "l2", "l1", "l0", "quantised_pred", "queries_to_success")
"""Columns that only fooled rows have."""
COSTS = ("forwards", "backwards", "judge_forwards", "surrogate_passes")
SIZES = ("linf", "l2", "l1", "l0")
CLEAN_OUTCOMES = {
    False: frozenset({Outcome.CORRECT, Outcome.MISCLASSIFIED, Outcome.FAILED}),
    True: frozenset({Outcome.UNMET, Outcome.MET, Outcome.FAILED}),
}
"""Outcomes of the first check, without and with a criterion of probability."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What the manifest says of the rows of one model and stage."""

    model: str
    stage: str
    """Name of the stage, or `CLEAN`."""
    eot: int
    """Answers that the stage averages; a random model may answer differently when it is asked again."""
    distance: str
    levels: Array
    """(levels,) float64: the budgets of its rows, ascending."""
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
    """Samples for whose failure, here or in the first check, the manifest gives a reason."""

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


def make_cells(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Cell]]:
    """The cells of a run by its manifest, each with its hash, in the order of their rows."""
    levels = np.array([eps for eps in manifest["eps"] if eps > 0])
    criterion = manifest.get("criterion", {})
    for model in manifest["models"]:
        failed = manifest.get("failed", {}).get(model["name"], {})
        stages = [] if not len(levels) else manifest["stages"]
        for stage in [{"name": CLEAN, "cells": {model["name"]: model["cells"][CLEAN]}}, *stages]:
            name = str(stage["name"])
            yield (
                stage["cells"][model["name"]],
                Cell(
                    model=str(model["name"]),
                    stage=name,
                    eot=stage.get("eot", 1),
                    distance=str(manifest["distance"]),
                    levels=np.zeros(1) if name == CLEAN else levels,
                    classes=model["classes"],
                    targeted=criterion.get("name") == "targeted",
                    alone=bool(stage.get("turn", {}).get("alone")),
                    rejects=model.get("reject_class") is not None,
                    thresholds=criterion.get("name") == "probability",
                    wrong_class=criterion.get("wrong_class"),
                    failed=frozenset(map(int, {**failed.get(name, {}), **failed.get(CLEAN, {})})),
                ),
            )


def find_violations(cell: Cell, rows: Records, clean: Records | None, broken: Mapping[int, float]) -> Iterator[Violation]:
    """The rules that the rows of a cell break.

    Args:
        cell: what the manifest says of them.
        rows: all rows of the cell.
        clean: the rows of the first check; None if these are they.
        broken: the smallest budget at which earlier stages broke each sample, for those that they broke.
    """
    rule = _Rules(rows)
    first = rows if clean is None else clean
    ids = np.unique(first.sample_id)
    expected = sorted((sample, eps) for sample in ids.tolist() for eps in cell.levels.tolist())
    if sorted(zip(rows.sample_id.tolist(), rows.eps.tolist(), strict=True)) != expected:
        count = f"not one for each of {len(ids)} samples x {len(cell.levels)} budgets"
        yield Violation(f"{len(rows)} rows, {count}", np.zeros(0, np.int64))
        return
    _check_values(rule, cell, clean is None)
    if clean is None:
        _check_clean(rule, cell)
    else:
        _check_repetitions(rule, cell, clean)
        _check_attacks(rule, cell)
        _check_descent(rule, cell, broken)
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


def _check_values(rule: _Rules, cell: Cell, clean: bool) -> None:
    """Check that values lie within their types and meanings."""
    columns, outcome = rule.columns, rule.outcome
    rule.require(
        "the row belongs to another model, attack or distance",
        (columns["model"] != cell.model) | (columns["attack"] != cell.stage) | (columns["distance"] != cell.distance),
    )
    allowed = CLEAN_OUTCOMES[cell.thresholds]
    if not clean:
        others = CLEAN_OUTCOMES[not cell.thresholds] - {Outcome.FAILED}
        allowed = frozenset(Outcome) - others - {Outcome.CORRECT, Outcome.UNMET}
    rule.require("the row's outcome is none that it can have", ~np.isin(outcome, sorted(map(str, allowed))))
    for name in ("label", "target", "clean_pred", "adv_pred", "quantised_pred"):
        low = np.where(outcome == Outcome.FAILED, -1, 0) if name == "clean_pred" else 0
        given = ~_missing(columns[name])
        values = np.ma.getdata(columns[name])
        rule.require(f"the row's {name} is no class of the model", given & ((values < low) | (values >= cell.classes)))
    for name in ("clean_confidence", "adv_confidence"):
        values = np.ma.getdata(columns[name])
        rule.require(f"the row's {name} is no probability", ~_missing(columns[name]) & ~((values >= 0) & (values <= 1 + 1e-6)))
    for name in ("adv_margin", "best_margin", *SIZES, "seconds", "radius"):
        values = np.ma.getdata(columns[name])
        rule.require(f"the row's {name} is not finite", ~_missing(columns[name]) & ~np.isfinite(values))
    rule.require("a size is negative", np.any([_filled(columns[name]) < 0 for name in SIZES], axis=0))
    rule.require("a cost is negative", np.any([columns[name] < 0 for name in (*COSTS, "seconds")], axis=0))
    judged = outcome != Outcome.FAILED
    rule.require("the row has a target class, or lacks one", judged & (_missing(columns["target"]) == cell.targeted))
    unexplained = ~judged & ~np.isin(columns["sample_id"], sorted(cell.failed))
    rule.require("the sample is recorded as failed, but the manifest gives no reason", unexplained)
    groundless = np.isin(columns["sample_id"], sorted(cell.failed - set(columns["sample_id"][~judged].tolist())))
    rule.require("the manifest says why the sample failed, but no row says that it did", groundless)
    answered = (columns["clean_pred"] != -1) | (columns["clean_confidence"] != 0)
    rule.require("the row has an answer of a model that failed", clean & ~judged & answered)


def _check_clean(rule: _Rules, cell: Cell) -> None:
    columns, outcome = rule.columns, rule.outcome
    correct = columns["clean_pred"] == columns["label"]
    expected = np.where(correct, str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED))
    failed = outcome == Outcome.FAILED
    if cell.thresholds:
        expected = np.where(_filled(columns["best_margin"]) > 0, str(Outcome.MET), str(Outcome.UNMET))
        rule.require("the row's outcome contradicts its margin of the criterion", ~failed & (outcome != expected))
        rule.require("the sample is of the class of the criterion", columns["label"] == cell.wrong_class)
    else:
        rule.require("the row's outcome contradicts its label and predicted class", ~failed & (outcome != expected))
    rule.require("the row does not belong to the first check", (columns["eps"] != 0) | (columns["radius"] != 0))
    for name in (*SUCCESS_COLUMNS, "quantised_within"):
        rule.require(f"the row has {name}, although nothing was attacked", ~_missing(columns[name]))
    rule.require("the row has the cost of an attack", np.any([columns[name] != 0 for name in COSTS[1:]], axis=0))
    rule.require("the row's margin is that of a failed sample, or is missing", _missing(columns["best_margin"]) != failed)


def _check_repetitions(rule: _Rules, cell: Cell, clean: Records) -> None:
    """Check what the rows of a stage repeat from the first check."""
    columns, outcome = rule.columns, rule.outcome
    order = np.argsort(clean.sample_id)
    position = order[np.searchsorted(clean.sample_id[order], columns["sample_id"])]
    for name in ("label", "clean_pred", "clean_confidence", "target"):
        values, first = columns[name], getattr(clean, name)[position]
        equal = np.ma.getdata(values) == np.ma.getdata(first)
        rule.require(f"the row has another {name} than the first check", ~(equal | (_missing(values) & _missing(first))))
    first_outcome = clean.outcome.astype(str)[position]
    broken = Outcome.MET if cell.thresholds else Outcome.MISCLASSIFIED
    rule.require("the row contradicts the first check", (first_outcome == broken) != (outcome == broken))
    rule.require("the row contradicts the first check", (first_outcome == Outcome.FAILED) & (outcome != Outcome.FAILED))


def _check_attacks(rule: _Rules, cell: Cell) -> None:
    """Check each row of a stage on its own.

    A fooled row has an adversarial input that is wrong and within the budget. A robust row has not crossed the boundary. A row
    without an attack costs nothing.
    """
    columns, outcome = rule.columns, rule.outcome
    fooled, survived = outcome == Outcome.FOOLED, outcome == Outcome.SURVIVED
    attacked, deterministic = fooled | survived, cell.eot == 1
    for name in SUCCESS_COLUMNS:
        rule.require(f"the row lacks {name}, or has it though no attack succeeded", _missing(columns[name]) == fooled)
    if cell.distance in columns:
        size = np.ma.getdata(columns[cell.distance])
        limit = columns["radius"] * (1 + 1e-5) + 1e-6
        rule.require("the row states a perturbation larger than its budget", fooled & (size > limit))
    label, predicted = columns["label"], np.ma.getdata(columns["adv_pred"])
    wrong = predicted != np.ma.getdata(columns["target"]) if cell.targeted else predicted == label
    if cell.wrong_class is not None:  # the class with more than half of the probability leads; with less it need not
        wrong = np.zeros(len(label), bool)
    rule.require("the row's class for the adversarial input is no success", fooled & wrong & deterministic)
    margin = np.ma.getdata(columns["best_margin"])
    has_margin = ~_missing(columns["best_margin"])
    if not (cell.targeted or cell.rejects):
        negative = (_filled(columns["adv_margin"]) < 0) | (has_margin & (margin < 0))
        rule.require("the row's margin for the adversarial input is no success", fooled & negative & deterministic)
    rule.require("the row states a crossed boundary, but a robust sample", survived & has_margin & (margin > 0))
    rule.require("the row has a margin, although nothing was attacked", has_margin & ~attacked)
    forwards, queries = columns["forwards"], np.ma.getdata(columns["queries_to_success"])
    costs = np.any([columns[name] != 0 for name in COSTS], axis=0)
    rule.require("the sample was not attacked, but the row has a cost", ~attacked & costs)
    rule.require("the row states a first success outside its queries", fooled & ((queries > forwards) | (queries < 1)))
    rule.require("the row states an attack without a cost", attacked & ~(survived & ~has_margin) & (forwards < 1))


def smallest_successes(rows: Records) -> dict[int, float]:
    """The smallest budget at which the attack of a stage broke each sample, for those that it broke."""
    fooled = rows.outcome == Outcome.FOOLED
    successes: dict[int, float] = {}
    for sample, eps in zip(rows.sample_id[fooled].tolist(), rows.eps[fooled].tolist(), strict=True):
        successes[sample] = min(eps, successes.get(sample, eps))
    return successes


def _check_descent(rule: _Rules, cell: Cell, broken: Mapping[int, float]) -> None:
    """Check that each row without a success of its current agrees with the successes at smaller budgets."""
    columns, outcome = rule.columns, rule.outcome
    successes, samples = smallest_successes(rule.rows), columns["sample_id"].tolist()
    current, earlier = (np.array([budgets.get(sample, np.inf) for sample in samples]) for budgets in (successes, broken))
    eps = columns["eps"]
    unfounded = (outcome == Outcome.FOOLED_BELOW) & ~(np.minimum(current, earlier) <= eps)
    unfounded |= (outcome == Outcome.FOOLED_BEFORE) & ~(earlier <= eps)
    rule.require("the row counts the sample as broken, but no attack broke it at this or a smaller budget", unfounded)
    outcomes = (Outcome.FOOLED_BEFORE, Outcome.MISCLASSIFIED, Outcome.MET, Outcome.SKIPPED, Outcome.FAILED)
    attacked = ~np.isin(outcome, list(map(str, outcomes))) & (not cell.alone)
    rule.require(
        "an earlier attack broke the sample at this or a smaller budget, but the row says otherwise", attacked & (earlier <= eps)
    )
    survived = np.isin(outcome, [str(Outcome.SURVIVED), str(Outcome.SURVIVED_ABOVE)])
    rule.require(
        "the row counts the sample as robust, but the attack broke it at this or a smaller budget", survived & (current <= eps)
    )


def _missing(column: Array) -> Array:
    """(rows,) bool: rows without a value."""
    return np.asarray(np.ma.getmaskarray(column))


def _filled(column: Array) -> Array:
    """A column with 0 where it has no value."""
    return np.asarray(np.ma.filled(column, 0))
