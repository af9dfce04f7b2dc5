"""Rows of an honest run break no rule, and each change of one value breaks the rule that is about it, for that sample alone."""

from dataclasses import replace

import numpy as np
import pytest

from _helpers import Recorder, run_audit, threshold
from brinell.core.record import CLEAN
from brinell.store import rows
from brinell.store.row_rules import find_violations, make_cells

X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
"""Margins 0.12, 0.02, 0.30, wrong from the start, 0.19."""
FGSM, BIM = "fgsm", "bim?steps=3"
NULL = object()


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    """By stage its cell and rows, and the smallest budgets at which earlier stages broke samples."""
    out, y = tmp_path_factory.mktemp("rules") / "run", np.zeros(5, int)
    run = run_audit(out, Recorder(threshold(0.5)), X, y, eps="0.05,0.1,0.15,0.2", attack=(FGSM, BIM))
    records, broken, stages = run.records(), {}, {}
    for cell in make_cells(run.manifest):
        part = rows.take(records, records.attack == cell.stage)
        stages[cell.stage] = cell, part, dict(broken)
        successes = zip(part.sample_id.tolist(), part.broken.tolist(), strict=True)
        broken |= {sample: min(eps, broken.get(sample, 1)) for sample, eps in successes if eps is not None}
    return stages


def violations(audit, stage, part=None, **cell):
    own, honest, broken = audit[stage]
    clean = None if stage == CLEAN else audit[CLEAN][1]
    faults = find_violations(replace(own, **cell), honest if part is None else part, clean, broken)
    return [(violation.description, violation.samples.tolist()) for violation in faults]


def changed(part, column, index, value):
    """The rows with one value changed; `NULL` takes it away."""
    values = getattr(part, column).copy()
    values[index] = np.ma.masked if value is NULL else value
    return replace(part, **{column: values})


def test_an_honest_run_breaks_none(audit):
    assert [violations(audit, stage) for stage in audit] == [[], [], []]
    assert audit[BIM][2] == {0: 0.15, 1: 0.05, 4: 0.2}


CLEAN_ROWS = [
    ("model", "x", "another model"),
    ("attack", "x", "another model"),
    ("distance", "l2", "another model"),
    ("outcome", "survived", "none that it can have"),
    ("outcome", "unmet", "none that it can have"),
    ("outcome", "misclassified", "contradicts its label"),
    ("outcome", "failed", "gives no reason"),
    ("label", 1, "contradicts its label"),
    ("label", 2, "label is no class"),
    ("label", -1, "label is no class"),
    ("clean_pred", 2, "clean_pred is no class"),
    ("clean_pred", -1, "clean_pred is no class"),
    ("target", 0, "target class, or lacks one"),
    ("target", 5, "target is no class"),
    ("clean_confidence", 1.01, "no probability"),
    ("clean_confidence", -0.01, "no probability"),
    ("clean_confidence", np.nan, "no probability"),
    ("margin", np.inf, "not finite"),
    ("margin", NULL, "is missing"),
    ("seconds", np.nan, "not finite"),
    ("seconds", -1, "cost is negative"),
    ("forwards", -1, "cost is negative"),
    ("backwards", 1, "cost of an attack"),
    ("judge_forwards", 1, "cost of an attack"),
    ("surrogate_passes", 1, "cost of an attack"),
    ("unit", np.nan, "not finite"),
    ("attacked", 0.1, "although nothing was attacked"),
    ("broken", 0.1, "although nothing was attacked"),
    ("adv_pred", 1, "although nothing was attacked"),
    ("adv_confidence", 0.5, "although nothing was attacked"),
    ("adv_margin", 1, "although nothing was attacked"),
    ("linf", 0.1, "although nothing was attacked"),
    ("l0", 1, "although nothing was attacked"),
    ("quantised_pred", 1, "although nothing was attacked"),
    ("quantised_within", True, "although nothing was attacked"),
    ("queries_to_success", 1, "although nothing was attacked"),
]
BROKEN_ROWS = [
    *((column, NULL, f"lacks {column}") for column in ("adv_pred", "adv_confidence", "adv_margin", "linf", "l2", "l1", "l0")),
    ("quantised_pred", NULL, "lacks quantised_pred"),
    ("quantised_within", NULL, "lacks quantised_within"),
    ("label", 1, "another label"),
    ("clean_pred", 1, "another clean_pred"),
    ("clean_confidence", 0.1, "another clean_confidence"),
    ("target", 1, "another target"),
    ("unit", 2.0, "another unit"),
    ("linf", 0.1502, "larger than its budget"),
    ("linf", -0.1, "size is negative"),
    ("l2", np.inf, "not finite"),
    ("l1", -1, "size is negative"),
    ("unit", np.inf, "not finite"),
    ("broken", 0.1, "larger than its budget"),
    ("broken", 0.14, "broken is no budget"),
    ("broken", NULL, "contradicts its budgets"),
    ("attacked", NULL, "lacks the budget of its attack"),
    ("attacked", 0.19, "attacked is no budget"),
    ("attacked", 0.1, "above that of its attack"),
    ("adv_pred", 0, "is no success"),
    ("adv_pred", 2, "adv_pred is no class"),
    ("quantised_pred", 2, "quantised_pred is no class"),
    ("adv_confidence", 2, "adv_confidence is no probability"),
    ("adv_margin", -0.5, "is no success"),
    ("queries_to_success", 0, "outside its queries"),
    ("queries_to_success", 99, "outside its queries"),
    ("forwards", 0, "attack without a cost"),
    ("outcome", "correct", "none that it can have"),
    ("outcome", "met", "none that it can have"),
    ("outcome", "survived", "contradicts its budgets"),
    ("outcome", "misclassified", "none that it can have"),
    ("outcome", "spared", "contradicts its budgets"),
    ("outcome", "failed", "gives no reason"),
]
SURVIVED_ROWS = [
    ("margin", 0.5, "crossed boundary"),
    ("adv_pred", 1, "no attack succeeded"),
    ("quantised_pred", 1, "no attack succeeded"),
    ("forwards", 0, "attack without a cost"),
    ("outcome", "broken", "contradicts its budgets"),
    ("broken", 0.2, "contradicts its budgets"),
    ("queries_to_success", 1, "outside its queries"),
]
SPARED_ROWS = [
    ("forwards", 1, "has a cost"),
    ("surrogate_passes", 1, "has a cost"),
    ("margin", -1, "although nothing was attacked"),
    ("attacked", 0.1, "has one without an attack"),
]


def problems_of(audit, stage, outcome, column, value, words, sample=None):
    """What is wrong with what is said of one change."""
    part = audit[stage][1]
    mask = (part.outcome.astype(str) == outcome) & ((part.sample_id == sample) if sample is not None else True)
    index = int(np.flatnonzero(mask)[-1])
    faults = violations(audit, stage, changed(part, column, index, value))
    reports = [samples for description, samples in faults if words in description]
    wrong = not reports or any(samples != [part.sample_id[index]] for samples in reports)
    return [(stage, outcome, column, value, faults)] if wrong else []


def test_each_change_of_a_row_breaks_the_rule_about_it(audit):
    problems = []
    for column, value, words in CLEAN_ROWS:
        problems += problems_of(audit, CLEAN, "correct", column, value, words)
    for column, value, words in BROKEN_ROWS:
        problems += problems_of(audit, FGSM, "broken", column, value, words, sample=0)
    for column, value, words in SURVIVED_ROWS:
        problems += problems_of(audit, FGSM, "survived", column, value, words)
    cell, part, earlier = audit[BIM]
    costs = {name: 0 for name in ("forwards", "backwards", "judge_forwards", "surrogate_passes", "seconds")}
    spared = part
    for column, value in {"outcome": "spared", "attacked": NULL, "margin": NULL, **costs}.items():
        spared = changed(spared, column, 0, value)
    assert violations(audit, BIM, spared) == []
    for column, value, words in SPARED_ROWS:
        problems += problems_of(audit | {BIM: (cell, spared, earlier)}, BIM, "spared", column, value, words)
    problems += problems_of(audit, BIM, "survived", "attacked", 0.15, "an earlier attack broke", sample=0)
    problems += problems_of(audit, CLEAN, "misclassified", "outcome", "correct", "contradicts its label")
    assert not problems, problems


def test_values_at_the_ends_of_what_is_allowed(audit):
    part = audit[FGSM][1]
    outcomes, samples = part.outcome.astype(str), part.sample_id
    first, robust = int(np.flatnonzero(samples == 0)[0]), int(np.flatnonzero(outcomes == "survived")[0])
    rows_ = [
        (first, "adv_margin", 0.0, True),
        (first, "adv_margin", -1e-30, False),
        (robust, "margin", 0.0, True),
        (robust, "margin", 1e-30, False),
        (first, "adv_confidence", 1.0, True),
        (first, "adv_confidence", 0.0, True),
        (first, "queries_to_success", 1, True),
        (first, "queries_to_success", int(part.forwards[first]), True),
        (first, "queries_to_success", int(part.forwards[first]) + 1, False),
        (first, "linf", 0.0, True),
        (first, "quantised_pred", 0, True),
    ]
    wrong = [row for row in rows_ if (violations(audit, FGSM, changed(part, row[1], row[0], row[2])) == []) != row[3]]
    assert not wrong


def test_there_is_at_most_one_row_for_each_sample(audit):
    part = audit[FGSM][1]
    n = len(part)
    for selection in (np.append(np.arange(n), n - 1), np.arange(n)[::-1]):
        ((description, samples),) = violations(audit, FGSM, rows.take(part, selection))
        assert "not one for each sample of the run, ascending" in description and not samples
    assert violations(audit, FGSM, rows.take(part, np.arange(n - 1))) == [], "who is attacked is for brinell verify"
    assert violations(audit, FGSM, changed(part, "sample_id", n - 1, 99))


def test_what_the_manifest_says_decides(audit):
    """Another criterion, another kind of stage: what was right is wrong, or the reverse."""
    part = audit[FGSM][1]
    fooled = int(np.flatnonzero(part.outcome.astype(str) == "broken")[0])
    assert any("target class" in text for text, _ in violations(audit, FGSM, targeted=True))
    assert any(
        "none that it can have" in text and samples == [0, 1, 2, 3, 4]
        for text, samples in violations(audit, CLEAN, thresholds=True)
    )
    assert any(
        "no row says that it did" in text and samples == [2] for text, samples in violations(audit, CLEAN, failed=frozenset({2}))
    )
    unsuccessful = changed(part, "adv_margin", fooled, -0.5)
    assert violations(audit, FGSM, unsuccessful) and not violations(audit, FGSM, unsuccessful, rejects=True)
    assert not violations(audit, FGSM, unsuccessful, eot=2), "a random model may answer otherwise"
    assert not violations(audit, FGSM, changed(part, "adv_pred", fooled, 0), eot=2)
    assert not violations(audit, FGSM, changed(part, "adv_pred", fooled, 0), wrong_class=1)
    before = int(np.flatnonzero(audit[BIM][1].sample_id == 0)[0])
    second_part = changed(audit[BIM][1], "attacked", before, 0.2)
    assert violations(audit, BIM, second_part) and not violations(audit, BIM, second_part, alone=True)
    assert violations(audit, FGSM, classes=1) and violations(audit, FGSM, distance="l2")


def test_a_failed_sample_has_no_answer(audit):
    part = audit[CLEAN][1]
    failed = part
    for column, value in (("outcome", "failed"), ("clean_pred", -1), ("clean_confidence", 0), ("margin", NULL)):
        failed = changed(failed, column, 2, value)
    assert violations(audit, CLEAN, failed, failed=frozenset({2})) == []
    assert violations(audit, CLEAN, failed)[0][1] == [2]
    for column, value in (("clean_pred", 1), ("clean_confidence", 0.5)):
        (violation,) = violations(audit, CLEAN, changed(failed, column, 2, value), failed=frozenset({2}))
        assert violation == ("the row has an answer of a model that failed", [2])
    assert violations(audit, CLEAN, changed(failed, "margin", 2, 0.5), failed=frozenset({2}))
