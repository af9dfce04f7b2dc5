import json

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell.analysis.robust_accuracy import summarise
from brinell.core.record import Outcome
from brinell.studies.register import schema

EPS = [0.0, 0.1, 0.2]
INF = np.inf


@pytest.fixture
def small(synthetic):
    """Six samples of two classes: wrong, broken by the first stage at 0.1, by the second at 0.1 and at 0.2, and two that hold."""
    labels = np.array([0, 0, 0, 1, 1, 1])
    breaks = np.array([[0, 0.05, INF, INF, INF, INF], [0, 0.02, 0.1, 0.15, INF, INF]])
    rows = synthetic.records("m", labels, EPS, breaks, classes=2)
    return rows, synthetic.manifest(["m"], EPS, 6, ["zero", "one"])


def test_counts_by_hand(small):
    rows, manifest = small
    result = summarise(manifest, rows, "runs/x").models[0]
    assert result.complete
    assert (result.clean_accuracy.k, result.clean_accuracy.n) == (5, 6)
    assert [(r.k, r.n, r.missing) for r in result.robust_accuracy] == [(5, 6, 0), (3, 6, 0), (2, 6, 0)]
    zero, class_one = result.per_class
    assert [r.value for r in zero.robust] == pytest.approx([2 / 3, 0, 0])
    assert zero.drop == pytest.approx([0, -2 / 3, 0])
    assert zero.total_drop == pytest.approx(-2 / 3)
    assert [r.k for r in class_one.robust] == [3, 3, 2]
    assert result.mean_drop == pytest.approx((-2 / 3 - 1 / 3) / 2)
    first, second = result.stages
    assert (first.accuracy, second.accuracy) == (pytest.approx(4 / 6), pytest.approx(2 / 6))
    assert (first.drop, second.drop) == (pytest.approx(-1 / 6), pytest.approx(-2 / 6))
    assert (first.broken, second.broken) == ([0, 1, 1], [0, 1, 2])
    assert [r.k for r in first.curve] == [5, 4, 4]
    assert first.forwards == rows.forwards[rows.attack == "apgd-ce"].sum()


def test_distance_and_queries_count_held_samples_as_infinite(small):
    rows, manifest = small
    distance, *queries = summarise(manifest, rows, "x").models[0].distributions
    assert (distance.successes, distance.robust) == (3, 2)
    assert distance.median == pytest.approx(0.15)
    assert distance.q90 is None
    # The second stage ran on the samples 2 to 5 and broke 2 and 3, at the queries 3 and 4.
    assert [(q.successes, q.robust, q.median) for q in queries] == [(1, 4, None), (2, 2, 4.0)]


def test_json_has_the_promised_fields_and_no_nan(small):
    rows, manifest = small
    payload = summarise(manifest, rows, "runs/x").payload()
    text = json.dumps(payload, allow_nan=False)
    assert {"run", "n", "clean_accuracy", "robust_accuracy", "per_class", "stages", "warnings"} <= set(payload)
    assert {"eps", "value", "low", "high", "n", "k"} <= set(payload["robust_accuracy"][0])
    assert {"class", "name", "n", "clean", "robust", "drop", "total_drop", "certified"} == set(payload["per_class"][0])
    jsonschema.validate(json.loads(text), schema("audit"))


def test_several_models_stand_side_by_side(small, synthetic):
    rows, _ = small
    manifest = synthetic.manifest(["m", "o"], EPS, 6, ["zero", "one"])
    other_records = synthetic.records("o", np.array([0, 0, 0, 1, 1, 1]), EPS, np.full((2, 6), INF), classes=2)
    result = summarise(manifest, synthetic.join(rows, other_records), "runs/x")
    payload = result.payload()
    assert [m["model"] for m in payload["models"]] == ["m", "o"]
    assert [m.robust_accuracy[-1].value for m in result.models] == pytest.approx([1 / 3, 1])
    assert [c.mean_drop for c in result.mean_drop_per_class] == pytest.approx([-1 / 3, -1 / 6])
    jsonschema.validate(payload, schema("audit"))


def test_failed_samples_are_neither_robust_nor_silently_gone(small, synthetic):
    rows, manifest = small
    failed = (rows.sample_id == 5) & (rows.attack == "apgd-dlr")
    result = summarise(manifest, synthetic.change(rows, failed, outcome=Outcome.FAILED.value), "x").models[0]
    assert [(r.k, r.n, r.missing) for r in result.robust_accuracy] == [(5, 6, 0), (2, 5, 1), (1, 5, 1)]
    assert not result.complete


def test_a_broken_sample_stays_broken_when_a_later_stage_fails_on_it(small, synthetic):
    rows, manifest = small
    failed = (rows.sample_id == 1) & (rows.attack == "apgd-dlr")
    result = summarise(manifest, synthetic.change(rows, failed, outcome=Outcome.FAILED.value), "x").models[0]
    assert [(r.k, r.n) for r in result.robust_accuracy] == [(5, 6), (3, 6), (2, 6)]


def test_a_skipped_stage_judges_nobody(small, synthetic):
    rows, manifest = small
    skipped = {"model": "m", "stage": "apgd-dlr", "reason": "needs 3 classes"}
    without_dlr = synthetic.keep(rows, rows.attack != "apgd-dlr")
    result = summarise(manifest | {"skipped": [skipped]}, without_dlr, "x").models[0]
    assert [r.k for r in result.robust_accuracy] == [5, 4, 4]
    assert result.complete
    assert (result.stages[1].accuracy, result.stages[1].skipped) == (None, "needs 3 classes")


def test_nothing_but_skipped_stages_is_no_robustness(small, synthetic):
    rows, manifest = small
    attacked = rows.attack != "clean"
    result = summarise(manifest, synthetic.change(rows, attacked, outcome=Outcome.SKIPPED.value), "x").models[0]
    zero, *above = result.robust_accuracy
    assert zero.value == pytest.approx(5 / 6)
    assert [(r.value, r.k, r.n, r.missing) for r in above] == [(None, 0, 0, 6)] * 2
    assert not result.complete


def test_an_unfinished_stage_does_not_count_yet(small, synthetic):
    rows, manifest = small
    so_far = synthetic.keep(rows, (rows.attack != "apgd-dlr") | (rows.sample_id == 2))
    result = summarise(manifest | {"state": "running"}, so_far, "x").models[0]
    assert [(r.k, r.n) for r in result.robust_accuracy] == [(5, 6), (4, 6), (4, 6)]
    assert not result.complete
    assert not result.stages[1].finished and result.stages[1].accuracy is None


def test_samples_without_any_row_are_missing(small):
    rows, manifest = small
    result = summarise(manifest | {"data": manifest["data"] | {"n": 8}}, rows, "x").models[0]
    assert (result.clean_accuracy.n, result.clean_accuracy.missing) == (6, 2)
    assert not result.complete


def test_success_must_survive_storage(small, synthetic):
    rows, manifest = small
    of_sample_one = rows.sample_id == 1
    result = summarise(manifest, synthetic.change(rows, of_sample_one, quantised_pred=0), "x").models[0]
    assert [r.k for r in result.quantised_robust_accuracy] == [5, 4, 3]
    beyond = (rows.sample_id == 1) & (rows.eps < 0.15)
    result = summarise(manifest, synthetic.change(rows, beyond, quantised_within=False, linf=0.1), "x").models[0]
    assert [r.k for r in result.quantised_robust_accuracy] == [5, 4, 2]
    # Of two levels, rounding may move a value by half the range: no eps is certain to hold it.
    coarse = manifest | {"data": manifest["data"] | {"domain": manifest["data"]["domain"] | {"levels": 2}}}
    result = summarise(coarse, synthetic.change(rows, beyond, quantised_within=False, linf=0.1), "x").models[0]
    assert [r.k for r in result.quantised_robust_accuracy] == [5, 4, 3]
    levels = manifest["data"]["domain"] | {"levels": None}
    assert (
        summarise(manifest | {"data": manifest["data"] | {"domain": levels}}, rows, "x").models[0].quantised_robust_accuracy
        is None
    )


def test_a_find_off_the_grid_counts_one_level_up(synthetic):
    eps = [0.5 / 255, 1 / 255]
    rows = synthetic.records("m", np.zeros(4, int), eps, np.array([[0.5 / 255] * 3 + [INF]] * 2), classes=2)
    pushed_out = synthetic.change(rows, rows.outcome == "fooled", quantised_within=False, linf=0.5 / 255 + 3e-8)
    result = summarise(synthetic.manifest(["m"], eps, 4, ["a", "b"]), pushed_out, "x").models[0]
    assert [r.k for r in result.robust_accuracy] == [1, 1]
    assert [r.k for r in result.quantised_robust_accuracy] == [4, 1]


def test_a_run_without_records_has_no_rates(small, synthetic):
    rows, manifest = small
    result = summarise(manifest, synthetic.keep(rows, np.zeros(len(rows), bool)), "x").models[0]
    assert result.clean_accuracy.value is None
    assert [(r.value, r.missing) for r in result.robust_accuracy] == [(None, 6)] * 3
    assert result.per_class == [] and result.mean_drop is None
    json.dumps(result.model_dump(mode="json"), allow_nan=False)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), *[st.sampled_from([0.02, 0.05, 0.1, 0.13, 0.2, 0.4])] * 2), min_size=1, max_size=25),
    st.randoms(use_true_random=False),
)
def test_properties(synthetic, samples, random):
    labels = np.array([s[0] for s in samples])
    breaks = np.array([[s[1] for s in samples], [s[2] for s in samples]])
    breaks[0, ::4] = 0
    manifest = synthetic.manifest(["m"], EPS, len(labels), list("abcd"))
    rows = synthetic.records("m", labels, EPS, breaks)
    result = summarise(manifest, rows, "x").models[0]
    worst = np.where(breaks[0] == 0, 0, breaks.min(0))
    assert [r.k for r in result.robust_accuracy] == [int((worst > e + 1e-12).sum()) for e in EPS]
    assert all(r.n == len(labels) for r in result.robust_accuracy)
    for j in range(len(EPS)):
        assert sum(c.robust[j].k for c in result.per_class) == result.robust_accuracy[j].k
    for c in result.per_class:
        assert sum(c.drop) == pytest.approx(c.total_drop)
    shuffled = list(range(len(rows)))
    random.shuffle(shuffled)
    assert summarise(manifest, synthetic.keep(rows, np.array(shuffled)), "x").models[0] == result
