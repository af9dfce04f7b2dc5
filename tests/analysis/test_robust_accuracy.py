import json

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell.analysis.robust_accuracy import (
    class_name,
    drops,
    mean,
    minus,
    rate,
    rounding,
    share,
    summarise,
)
from brinell.core.intervals import wilson
from brinell.core.record import Outcome
from brinell.studies.register import schema

EPS = [0.0, 0.1, 0.2]
INF = np.inf


@pytest.fixture
def small(synthetic):
    """Six samples of two classes: wrong, broken by the first stage at 0.1, by the second at 0.1 and
    at 0.2, and two that hold.
    """
    labels = np.array([0, 0, 0, 1, 1, 1])
    breaks = np.array([[0, 0.05, INF, INF, INF, INF], [0, 0.02, 0.1, 0.15, INF, INF]])
    rows = synthetic.records("m", labels, EPS, breaks, classes=2)
    return rows, synthetic.manifest(["m"], EPS, 6, ["zero", "one"])


@pytest.fixture(scope="module")
def check_schema():
    """Refuses what the published schema of an audit does not allow."""
    validator = jsonschema.validators.validator_for({})(schema("audit"))
    validator.check_schema(validator.schema)
    return validator.validate


def test_counts_by_hand(small):
    rows, manifest = small
    result = summarise(manifest, rows, "runs/x").models[0]
    assert result.complete
    assert (result.clean_accuracy.k, result.clean_accuracy.n) == (5, 6)
    assert [(r.k, r.n, r.missing) for r in result.robust_accuracy] == [
        (5, 6, 0),
        (3, 6, 0),
        (2, 6, 0),
    ]
    zero, class_one = result.per_class
    assert [r.value for r in zero.robust] == pytest.approx([2 / 3, 0, 0])
    assert zero.drop == pytest.approx([0, -2 / 3, 0])
    assert zero.total_drop == pytest.approx(-2 / 3)
    assert [r.k for r in class_one.robust] == [3, 3, 2]
    first, second = result.stages
    assert (first.accuracy, second.accuracy) == (pytest.approx(4 / 6), pytest.approx(2 / 6))
    assert (first.drop, second.drop) == (pytest.approx(-1 / 6), pytest.approx(-2 / 6))
    assert (first.broken, second.broken) == ([0, 1, 1], [0, 1, 2])
    assert [r.k for r in first.curve] == [5, 4, 4]
    assert first.forwards == rows.forwards[rows.attack == "apgd-ce"].sum()


def test_queries_are_counted_over_the_samples_that_a_stage_broke(small):
    rows, manifest = small
    # The second stage ran on the samples 2 to 5 and broke 2 and 3, at the queries 3 and 4.
    assert summarise(manifest, rows, "x").models[0].stages[1].median_queries == 3.5


def test_json_has_the_promised_fields_and_no_nan(small, check_schema):
    rows, manifest = small
    payload = summarise(manifest, rows, "runs/x").payload()
    text = json.dumps(payload, allow_nan=False)
    (model,) = payload["models"]
    assert {
        "name",
        "folder",
        "n",
        "clean_accuracy",
        "robust_accuracy",
        "per_class",
        "stages",
        "warnings",
    } <= set(model)
    assert {"eps", "value", "low", "high", "n", "k"} <= set(model["robust_accuracy"][0])
    assert {"class", "name", "n", "clean", "robust", "drop", "total_drop", "certified"} == set(
        model["per_class"][0]
    )
    check_schema(json.loads(text))


def test_several_models_stand_side_by_side(small, synthetic, check_schema):
    rows, _ = small
    manifest = synthetic.manifest(["m", "o"], EPS, 6, ["zero", "one"])
    other_records = synthetic.records(
        "o", np.array([0, 0, 0, 1, 1, 1]), EPS, np.full((2, 6), INF), classes=2
    )
    result = summarise(manifest, synthetic.join(rows, other_records), "runs/x")
    payload = result.payload()
    assert [m["name"] for m in payload["models"]] == ["m", "o"]
    assert [m.robust_accuracy[-1].value for m in result.models] == pytest.approx([1 / 3, 1])
    check_schema(payload)


def test_failed_samples_are_neither_robust_nor_silently_gone(small, synthetic):
    rows, manifest = small
    failed = (rows.sample_id == 5) & (rows.attack == "apgd-dlr")
    result = summarise(
        manifest,
        synthetic.change(rows, failed, outcome=Outcome.FAILED.value, broken=np.ma.masked),
        "x",
    ).models[0]
    assert [(r.k, r.n, r.missing) for r in result.robust_accuracy] == [
        (5, 6, 0),
        (2, 5, 1),
        (1, 5, 1),
    ]
    assert not result.complete


def test_a_broken_sample_stays_broken_when_a_later_stage_fails_on_it(small, synthetic):
    rows, manifest = small
    failed = (rows.sample_id == 1) & (rows.attack == "apgd-dlr")
    result = summarise(
        manifest,
        synthetic.change(rows, failed, outcome=Outcome.FAILED.value, broken=np.ma.masked),
        "x",
    ).models[0]
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
    manifest["skipped"] = [
        {"model": "m", "stage": stage["name"], "reason": "no"} for stage in manifest["stages"]
    ]
    result = summarise(manifest, synthetic.keep(rows, rows.attack == "clean"), "x").models[0]
    zero, *above = result.robust_accuracy
    assert zero.value == pytest.approx(5 / 6)
    assert [(r.value, r.k, r.n, r.missing) for r in above] == [(None, 0, 0, 6)] * 2
    assert not result.complete


def test_samples_without_any_row_are_missing(small):
    rows, manifest = small
    result = summarise(manifest | {"data": manifest["data"] | {"n": 8}}, rows, "x").models[0]
    assert (result.clean_accuracy.n, result.clean_accuracy.missing) == (6, 2)
    assert not result.complete


def test_success_must_survive_storage(small, synthetic):
    rows, manifest = small
    of_sample_one = rows.sample_id == 1
    result = summarise(
        manifest, synthetic.change(rows, of_sample_one, quantised_pred=0), "x"
    ).models[0]
    assert [r.k for r in result.quantised_robust_accuracy] == [5, 4, 3]
    beyond = (rows.sample_id == 1) & (rows.attack != "clean")
    result = summarise(
        manifest, synthetic.change(rows, beyond, quantised_within=False, linf=0.1), "x"
    ).models[0]
    assert [r.k for r in result.quantised_robust_accuracy] == [5, 4, 2]
    # Of two levels, rounding may move a value by half the range: no eps is certain to hold it.
    coarse = manifest | {
        "data": manifest["data"] | {"domain": manifest["data"]["domain"] | {"levels": 2}}
    }
    result = summarise(
        coarse, synthetic.change(rows, beyond, quantised_within=False, linf=0.1), "x"
    ).models[0]
    assert [r.k for r in result.quantised_robust_accuracy] == [5, 4, 3]
    levels = manifest["data"]["domain"] | {"levels": None}
    assert (
        summarise(manifest | {"data": manifest["data"] | {"domain": levels}}, rows, "x")
        .models[0]
        .quantised_robust_accuracy
        is None
    )


def test_a_find_off_the_grid_counts_one_level_up(synthetic):
    eps = [0.5 / 255, 1 / 255]
    rows = synthetic.records(
        "m", np.zeros(4, int), eps, np.array([[0.5 / 255] * 3 + [INF]] * 2), classes=2
    )
    pushed_out = synthetic.change(
        rows, rows.outcome == "broken", quantised_within=False, linf=0.5 / 255 + 3e-8
    )
    result = summarise(synthetic.manifest(["m"], eps, 4, ["a", "b"]), pushed_out, "x").models[0]
    assert [r.k for r in result.robust_accuracy] == [1, 1]
    assert [r.k for r in result.quantised_robust_accuracy] == [4, 1]


def test_a_run_without_records_has_no_rates(small, synthetic):
    rows, manifest = small
    result = summarise(manifest, synthetic.keep(rows, np.zeros(len(rows), bool)), "x").models[0]
    assert result.clean_accuracy.value is None
    assert [(r.value, r.missing) for r in result.robust_accuracy] == [(None, 6)] * 3
    assert result.per_class == []
    json.dumps(result.model_dump(mode="json"), allow_nan=False)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), *[st.sampled_from([0.02, 0.05, 0.1, 0.13, 0.2, 0.4])] * 2),
        min_size=1,
        max_size=25,
    ),
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


def test_each_figure_of_two_models_and_stages_is_where_it_belongs(synthetic):
    """Two models and two stages that differ in every column: sums by hand."""
    labels = np.array([0, 0, 0, 1, 1, 1])
    breaks = {
        "m": np.array([[0, 0.05, INF, INF, INF, INF], [0, 0.02, 0.1, 0.15, INF, INF]]),
        "o": np.full((2, 6), INF),
    }
    rows = synthetic.join(
        *(synthetic.records(name, labels, EPS, each, classes=2) for name, each in breaks.items())
    )
    columns = ("forwards", "backwards", "judge_forwards", "surrogate_passes", "seconds")
    for number, column in enumerate(columns):
        values = (np.arange(len(rows)) + 3) * (number + 1) % 97
        rows = synthetic.change(
            rows, rows.attack != "clean", **{column: values[rows.attack != "clean"]}
        )
    manifest = synthetic.manifest(["m", "o"], EPS, 6, ["zero", "one"])
    manifest["stages"][0] |= {"label": "APGD-CE", "kept_to": "the first"}
    manifest["seconds"] = {"m": 3.5, "o": 4.5}
    manifest["remarks"] = {
        "m": {"apgd-dlr": {"odd": "words of m"}},
        "o": {"apgd-ce": {"even": "words of o", "odd": "more"}},
    }
    manifest["warnings"] = [
        {"code": "of-m", "model": "m", "text": "a"},
        {"code": "of-all", "model": None, "text": "b"},
        {"code": "of-o", "model": "o", "text": "c"},
    ]
    result = summarise(manifest, rows, "runs/x")
    assert (result.folder, result.n, [model.folder for model in result.models]) == (
        "runs/x",
        6,
        ["runs/x"] * 2,
    )
    for model in result.models:
        for stage in model.stages:
            of_stage = (rows.model == model.name) & (rows.attack == stage.attack)
            assert [getattr(stage, name) for name in columns] == [
                getattr(rows, name)[of_stage].sum() for name in columns
            ]
    first, second = result.models
    assert [(stage.label, stage.kept_to, stage.eps) for stage in first.stages] == [
        ("APGD-CE", "the first", 0.2),
        ("apgd-dlr", "", 0.2),
    ]
    assert first.attacks == "APGD-CE + apgd-dlr" and (first.seconds, second.seconds) == (3.5, 4.5)
    assert [(remark.attack, remark.code, remark.text) for remark in first.remarks] == [
        ("apgd-dlr", "odd", "words of m")
    ]
    assert [(remark.attack, remark.code) for remark in second.remarks] == [
        ("apgd-ce", "even"),
        ("apgd-ce", "odd"),
    ]
    assert [
        [w.code for w in model.warnings if w.code.startswith("of-")] for model in result.models
    ] == [
        ["of-m", "of-all"],
        ["of-all", "of-o"],
    ]
    assert [warning.code for warning in result.warnings if warning.code.startswith("of-")] == [
        "of-m",
        "of-all",
        "of-o",
    ]
    assert [stage.broken for stage in first.stages] == [[0, 1, 1], [0, 1, 2]]
    assert [stage.broken for stage in second.stages] == [[0, 0, 0]] * 2
    assert [model.robust_accuracy[-1].k for model in result.models] == [2, 6]
    assert [share.eps for share in first.robust_accuracy] == EPS and first.eps_text == [
        "0/255",
        "26/255",
        "51/255",
    ]


def test_rates_and_drops_by_hand():
    assert (rate(3, 4, eps=0.1, missing=2).value, rate(3, 4, eps=0.1, missing=2).missing) == (
        0.75,
        2,
    )
    nothing = rate(0, 0)
    assert (nothing.value, nothing.low, nothing.high, nothing.n) == (None, None, None, 0)
    hits = share([True, False, True, True])
    assert (hits.k, hits.n, hits.value) == (3, 4, 0.75) and (hits.low, hits.high) == pytest.approx(
        wilson(3, 4)
    )
    assert share([]).value is None
    assert drops(0.9, [0.9, 0.5, 0.4]) == (pytest.approx([0.0, -0.4, -0.1]), pytest.approx(-0.5))
    assert drops(0.9, [0.8, None, 0.4]) == (
        [pytest.approx(-0.1), None, None],
        pytest.approx(-0.5),
    ) and drops(0.9, []) == (
        [],
        None,
    )
    assert (
        mean([1.0, None, 2.0]) == 1.5
        and mean([None]) is None
        and minus(3.0, 1.0) == 2.0
        and minus(None, 1.0) is None
    )
    assert [class_name(["a", "b"], index) for index in (-1, 0, 1, 2)] == ["-1", "a", "b", "2"]


def test_the_most_that_rounding_enlarges_a_change():
    domain = {"shape": [3, 2, 2], "low": [0.0, -1.0, 0.0], "high": [1.0, 1.0, 1.0], "levels": 5}
    manifest = {"data": {"domain": domain}, "distance": "linf"}
    half = 2 / 4 / 2 - 2e-6
    norms = {"linf": half, "l2": half * 12**0.5, "l1": half * 12, "l0": INF}
    assert {norm: rounding(manifest | {"distance": norm}) for norm in norms} == pytest.approx(norms)


def test_targets_and_reject_classes_decide_what_counts_after_rounding(small, synthetic):
    rows, manifest = small
    fooled = rows.outcome == Outcome.BROKEN

    def broken(**columns):
        result = summarise(manifest, synthetic.change(rows, fooled, **columns), "x").models[0]
        return [6 - rate.k for rate in result.quantised_robust_accuracy]

    assert (
        broken() == [1, 3, 4]
        and broken(target=0, quantised_pred=0) == [1, 3, 4]
        and broken(target=0, quantised_pred=1) == [1] * 3
    )
    manifest["models"][0]["reject_class"] = 7
    assert broken(quantised_pred=7) == [1] * 3 and broken(quantised_pred=6) == [1, 3, 4]
    manifest["criterion"] = {"name": "targeted", "towards": "zero"}
    assert summarise(manifest, rows, "x").models[0].criterion == "targeted at zero"
