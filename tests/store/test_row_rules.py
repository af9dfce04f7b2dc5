"""Rows of an honest run break no rule, and each change of one value breaks the rule that is about
it, for that sample alone."""

from dataclasses import replace

import numpy as np
import pytest

from _helpers import Recorder, run_audit, threshold
from brinell.core.record import CLEAN
from brinell.store import rows
from brinell.store.row_rules import find_violations

X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
"""Margins 0.12, 0.02, 0.30, wrong from the start, 0.19."""
FGSM, BIM = "fgsm", "bim?steps=3"
NULL = object()


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    """The manifest of a run, and its rows by stage."""
    out, y = tmp_path_factory.mktemp("rules") / "run", np.zeros(5, int)
    run = run_audit(
        out, Recorder(threshold(0.5)), X, y, eps="0.05,0.1,0.15,0.2", attack=(FGSM, BIM)
    )
    return run.manifest, {stage: run.of_stage("recorder", stage) for stage in (CLEAN, FGSM, BIM)}


def violations(audit, stage, part=None, **manifest):
    """What is wrong with the rows of a stage, where one stage has other rows or the manifest says
    something else."""
    own, honest = audit
    parts = honest | ({} if part is None else {stage: part})
    faults = find_violations({**own, **manifest}, rows.concatenate(list(parts.values())))
    return [
        (fault.description, fault.samples.tolist())
        for fault in faults
        if fault.location == f"recorder {stage}"
    ]


def changed(part, column, index, value):
    """The rows with one value changed; `NULL` takes it away."""
    values = getattr(part, column).copy()
    values[index] = np.ma.masked if value is NULL else value
    return replace(part, **{column: values})


def test_an_honest_run_breaks_none(audit):
    assert [violations(audit, stage) for stage in audit[1]] == [[], [], []]


CLEAN_ROWS = [
    ("distance", "l2", "another distance"),
    ("outcome", "survived", "contradicts its other values"),
    ("outcome", "unmet", "contradicts its other values"),
    ("outcome", "misclassified", "contradicts its other values"),
    ("outcome", "failed", "contradicts its other values"),
    ("label", 1, "contradicts its other values"),
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
    ("backwards", 1, "result or the cost"),
    ("judge_forwards", 1, "result or the cost"),
    ("surrogate_passes", 1, "result or the cost"),
    ("unit", np.nan, "not finite"),
    ("attacked", 0.1, "result or the cost"),
    ("broken", 0.1, "result or the cost"),
    ("adv_pred", 1, "though no attack succeeded"),
    ("adv_confidence", 0.5, "though no attack succeeded"),
    ("adv_margin", 1, "though no attack succeeded"),
    ("linf", 0.1, "though no attack succeeded"),
    ("l0", 1, "though no attack succeeded"),
    ("quantised_pred", 1, "though no attack succeeded"),
    ("quantised_within", True, "though no attack succeeded"),
    ("queries_to_success", 1, "result or the cost"),
]
BROKEN_ROWS = [
    *(
        (column, NULL, f"lacks {column}")
        for column in ("adv_pred", "adv_confidence", "adv_margin", "linf", "l2", "l1", "l0")
    ),
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
    ("broken", NULL, "contradicts its other values"),
    ("attacked", NULL, "contradicts its other values"),
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
    ("outcome", "correct", "contradicts its other values"),
    ("outcome", "met", "contradicts its other values"),
    ("outcome", "survived", "contradicts its other values"),
    ("outcome", "misclassified", "contradicts its other values"),
    ("outcome", "spared", "contradicts its other values"),
    ("outcome", "failed", "contradicts its other values"),
]
SURVIVED_ROWS = [
    ("margin", 0.5, "crossed boundary"),
    ("adv_pred", 1, "no attack succeeded"),
    ("quantised_pred", 1, "no attack succeeded"),
    ("forwards", 0, "attack without a cost"),
    ("outcome", "broken", "contradicts its other values"),
    ("broken", 0.2, "contradicts its other values"),
    ("queries_to_success", 1, "outside its queries"),
]
SPARED_ROWS = [
    ("forwards", 1, "although nothing was attacked"),
    ("surrogate_passes", 1, "although nothing was attacked"),
    ("margin", -1, "a margin or a cost"),
    ("attacked", 0.1, "contradicts its other values"),
]


def problems_of(audit, stage, outcome, column, value, words, sample=None):
    """What is wrong with what is said of one change."""
    part = audit[1][stage]
    mask = (part.outcome.astype(str) == outcome) & (
        (part.sample_id == sample) if sample is not None else True
    )
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
    part = audit[1][BIM]
    costs = {
        name: 0
        for name in ("forwards", "backwards", "judge_forwards", "surrogate_passes", "seconds")
    }
    spared = part
    for column, value in {"outcome": "spared", "attacked": NULL, "margin": NULL, **costs}.items():
        spared = changed(spared, column, 0, value)
    assert violations(audit, BIM, spared) == []
    for column, value, words in SPARED_ROWS:
        problems += problems_of(
            (audit[0], audit[1] | {BIM: spared}), BIM, "spared", column, value, words
        )
    problems += problems_of(
        audit, BIM, "survived", "attacked", 0.15, "an earlier attack broke", sample=0
    )
    problems += problems_of(
        audit, CLEAN, "misclassified", "outcome", "correct", "contradicts its other values"
    )
    assert not problems, problems


def test_there_is_at_most_one_row_for_each_sample(audit):
    part = audit[1][FGSM]
    n = len(part)
    for selection in (np.append(np.arange(n), n - 1), np.arange(n)[::-1]):
        ((description, samples),) = violations(audit, FGSM, rows.take(part, selection))
        assert "not one for each sample of the run, ascending" in description and not samples
    assert violations(audit, FGSM, rows.take(part, np.arange(n - 1))) == [], (
        "who is attacked is for brinell verify"
    )
    assert violations(audit, FGSM, changed(part, "sample_id", n - 1, 99))


def test_rows_are_those_of_models_and_stages_in_their_order(audit):
    manifest, parts = audit
    clean, fgsm, bim = parts.values()
    last = len(fgsm) - 1
    orders = {
        "of another model": [clean, changed(fgsm, "model", last, "x"), bim],
        "of another stage": [clean, fgsm, changed(bim, "attack", 0, "x")],
        "moved": [clean, bim, fgsm],
        "torn": [rows.take(clean, slice(2)), fgsm, rows.take(clean, slice(2, None)), bim],
    }
    for name, order in orders.items():
        (fault,) = find_violations(manifest, rows.concatenate(order))
        assert fault.description == "they are not of its models and stages, in this order", name
    (fault, *_) = find_violations(manifest, rows.concatenate([rows.take(clean, slice(4)), fgsm]))
    assert "not one for each sample of the run" in fault.description
    assert list(find_violations(manifest, rows.concatenate([clean, bim]))) == []


def test_what_the_manifest_says_decides(audit):
    """Another criterion, another kind of stage: what was right is wrong, or the reverse."""
    manifest, parts = audit
    part = parts[FGSM]
    (model,), (fgsm, bim) = manifest["models"], manifest["stages"]
    broken = int(np.flatnonzero(part.outcome.astype(str) == "broken")[0])
    assert any(
        "target class" in text
        for text, _ in violations(audit, FGSM, criterion={"name": "targeted"})
    )
    assert any(
        samples == [0, 1, 2, 3, 4]
        for _, samples in violations(audit, CLEAN, criterion={"name": "probability", "text": ""})
    )
    assert any(
        "reasons of failures" in text and samples == [2]
        for text, samples in violations(audit, CLEAN, failed=failed(2))
    )
    unsuccessful, other_class = (
        changed(part, "adv_margin", broken, -0.5),
        changed(part, "adv_pred", broken, 0),
    )
    random = [{**fgsm, "eot": 2}, bim]
    assert violations(audit, FGSM, unsuccessful)
    assert not violations(audit, FGSM, unsuccessful, models=[{**model, "reject_class": 1}])
    assert not violations(audit, FGSM, unsuccessful, stages=random), (
        "a random model may answer otherwise"
    )
    assert not violations(audit, FGSM, other_class, stages=random)
    assert not violations(audit, FGSM, other_class, criterion={"name": "", "wrong_class": 1})
    before = int(np.flatnonzero(parts[BIM].sample_id == 0)[0])
    second_part = changed(parts[BIM], "attacked", before, 0.2)
    assert violations(audit, BIM, second_part)
    assert not violations(audit, BIM, second_part, stages=[fgsm, {**bim, "turn": {"alone": True}}])
    assert violations(audit, FGSM, models=[{**model, "classes": 1}]) and violations(
        audit, FGSM, distance="l2"
    )


def failed(sample):
    return {"recorder": {CLEAN: {str(sample): "a reason"}}}


def test_a_failed_sample_has_no_answer(audit):
    lost = audit[1][CLEAN]
    for column, value in (
        ("outcome", "failed"),
        ("clean_pred", -1),
        ("clean_confidence", 0),
        ("margin", NULL),
    ):
        lost = changed(lost, column, 2, value)
    assert violations(audit, CLEAN, lost, failed=failed(2)) == []
    assert violations(audit, CLEAN, lost)[0][1] == [2]
    for column, value in (("clean_pred", 1), ("clean_confidence", 0.5)):
        (violation,) = violations(audit, CLEAN, changed(lost, column, 2, value), failed=failed(2))
        assert violation == ("the row has an answer of a model that failed", [2])
    assert violations(audit, CLEAN, changed(lost, "margin", 2, 0.5), failed=failed(2))
