import numpy as np
import pytest

from _refusals import refused
from brinell.analysis.compare import Side, compare
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.core.errors import RequestError

EPS = [0.0, 0.1, 0.2]
INF = np.inf
LABELS = np.array([0, 0, 0, 1, 1, 1])


@pytest.fixture
def two(synthetic):
    """A breaks at 0.1 on the samples 0 and 1 and is wrong on 5; B breaks at 0.1 on 1 and 2, at 0.2 on 3."""
    a = np.array([[0.05, 0.05, INF, INF, INF, 0]] * 2)
    b = np.array([[INF, 0.05, 0.05, 0.15, INF, INF]] * 2)
    rows = synthetic.join(*(synthetic.records(m, LABELS, EPS, x, classes=2) for m, x in (("a", a), ("b", b))))
    manifest = synthetic.manifest(["a", "b"], EPS, 6, ["zero", "one"])
    return Side(run="r", manifest=manifest, records=rows, model="a"), Side(run="r", manifest=manifest, records=rows, model="b")


def test_counts_by_hand(two):
    result = compare(*two)
    assert (result.clean.both_robust, result.clean.only_a, result.clean.only_b, result.clean.neither) == (5, 0, 1, 0)
    tables = [(p.both_robust, p.only_a, p.only_b, p.neither) for p in result.robust]
    assert tables == [(5, 0, 1, 0), (2, 1, 2, 1), (1, 2, 2, 1)]
    rate = result.robust[1]
    assert (rate.value_a, rate.value_b) == (pytest.approx(3 / 6), pytest.approx(4 / 6))
    assert rate.difference == pytest.approx(-1 / 6)
    assert (rate.low, rate.high) == pytest.approx(paired_difference(2, 1, 2, 1))
    assert rate.p == mcnemar(1, 2)
    assert [c.n for c in result.per_class] == [3, 3]
    assert result.per_class[1].difference == pytest.approx([-1 / 3, -1 / 3, 0])
    assert [(c.clean.both_robust, c.clean.only_b, c.p_clean) for c in result.per_class] == [(3, 0, 1.0), (2, 1, 1.0)]
    assert [(family.n, family.needed) for family in result.attainable] == [(6, 6), (3, 7)]
    assert result.notes == [result.attainable[1].sentence()], "three samples of a class show nothing"


def test_classes_on_untouched_inputs_are_corrected_for_their_number(synthetic):
    """A is wrong on eight samples of class 1 that B gets right: 2/2^8, times the two classes."""
    labels = np.repeat([0, 1], 10)
    a, b = (np.where((labels == 1) & (np.arange(20) < wrong), 0.0, INF)[None].repeat(2, 0) for wrong in (18, 0))
    rows = synthetic.join(*(synthetic.records(m, labels, EPS, x, classes=2) for m, x in (("a", a), ("b", b))))
    manifest = synthetic.manifest(["a", "b"], EPS, 20, ["zero", "one"])
    sides = (Side(run="r", manifest=manifest, records=rows, model=name) for name in "ab")
    zero, class_one = compare(*sides).per_class
    assert (class_one.clean.difference, class_one.clean.p, class_one.p_clean) == pytest.approx((-0.8, 2 / 2**8, 4 / 2**8))
    assert (zero.clean.difference, zero.p_clean) == (0.0, 1.0)


def test_swapping_the_sides_mirrors(two):
    first, reversed_comparison = compare(*two), compare(*two[::-1])
    for p, q in zip(first.robust, reversed_comparison.robust, strict=True):
        assert p.difference == pytest.approx(-q.difference)
        assert p.low == pytest.approx(-q.high)
        assert p.p == q.p


def test_only_samples_judged_on_both_count(two, synthetic):
    a, b = two
    failed = (a.records.model == "a") & (a.records.sample_id == 4) & (a.records.attack == "apgd-dlr")
    rows = synthetic.change(a.records, failed, outcome="failed", broken=np.ma.masked)
    result = compare(Side(run="r", manifest=a.manifest, records=rows, model="a"), b)
    assert [(p.n, p.missing) for p in result.robust] == [(6, 0), (5, 1), (5, 1)]


def test_two_runs_with_other_samples_and_budgets(two, synthetic):
    a, b = two
    manifest = synthetic.manifest(["b"], [0.1], 3, ["zero", "one"])
    rows = synthetic.keep(b.records, (b.records.model == "b") & (b.records.sample_id < 3))
    result = compare(a, Side(run="s", manifest=manifest, records=rows, model="b"))
    assert result.n == 3 and [p.eps for p in result.robust] == [0.1]
    assert any("3 of the 6 samples of r" in note for note in result.notes)
    assert any("2 of the budgets of r" in note for note in result.notes)


def test_other_attacks_are_noted(two, synthetic):
    a, b = two
    stages = [stage | {"settings": {"steps": 5}} for stage in b.manifest["stages"]]
    result = compare(a, Side(run="s", manifest=b.manifest | {"stages": stages}, records=b.records, model="b"))
    assert any("attacked differently" in note for note in result.notes)


def test_what_does_not_fit_is_refused(two, subtests):
    for change, message in [
        ({"data": {"digest": "e" * 32, "spec": "mnist"}}, "different data .digits and mnist"),
        ({"distance": "l2"}, "same --norm"),
        ({"eps": [0.0, 0.3], "eps_text": ["0", "0.3"]}, "share no eps above 0"),
        ({"models": [{"name": "c"}]}, "has no model 'b': it has c"),
    ]:
        with subtests.test(change=change, message=message):
            a, b = two
            change = change | ({"data": b.manifest["data"] | change["data"]} if "data" in change else {})
            with pytest.raises(RequestError, match=message) as refusal:
                compare(a, Side(run="s", manifest=b.manifest | change, records=b.records, model="b"))
            assert "\n" not in str(refusal.value)


def test_no_common_sample_is_refused(two, synthetic):
    a, b = two
    rows = [synthetic.keep(b.records, b.records.sample_id < 3), synthetic.keep(b.records, b.records.sample_id >= 3)]
    with pytest.raises(RequestError, check=refused("analysis.compare.compare")):
        compare(*(Side(run="r", manifest=b.manifest, records=r, model="b") for r in rows))
