"""Pairs of models on what their runs share: counts by hand, mirrored sides, what is left out and
what is refused.
"""

import numpy as np
import pytest

from brinell.analysis.compare import Side, align, compare
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.core.errors import RequestError

EPS = [0.0, 0.1, 0.2]
INF = np.inf
LABELS = np.array([0, 0, 0, 1, 1, 1])


@pytest.fixture
def two(synthetic):
    """A breaks at 0.1 on the samples 0 and 1 and is wrong on 5; B breaks at 0.1 on 1 and 2, at 0.2
    on 3.
    """
    a = np.array([[0.05, 0.05, INF, INF, INF, 0]] * 2)
    b = np.array([[INF, 0.05, 0.05, 0.15, INF, INF]] * 2)
    rows = synthetic.join(
        *(synthetic.records(m, LABELS, EPS, x, classes=2) for m, x in (("a", a), ("b", b)))
    )
    manifest = synthetic.manifest(["a", "b"], EPS, 6, ["zero", "one"])
    return Side(run="r", manifest=manifest, records=rows, model="a"), Side(
        run="s", manifest=manifest, records=rows, model="b"
    )


def test_counts_by_hand_and_mirrored(two):
    result, mirrored = compare(*two), compare(*two[::-1])
    assert (
        result.clean.both_robust,
        result.clean.only_a,
        result.clean.only_b,
        result.clean.neither,
    ) == (5, 0, 1, 0)
    tables = [(p.both_robust, p.only_a, p.only_b, p.neither) for p in result.robust]
    assert tables == [(5, 0, 1, 0), (2, 1, 2, 1), (1, 2, 2, 1)]
    rate = result.robust[1]
    assert (rate.value_a, rate.value_b) == (pytest.approx(3 / 6), pytest.approx(4 / 6))
    assert rate.difference == pytest.approx(-1 / 6)
    assert (rate.low, rate.high) == pytest.approx(paired_difference(2, 1, 2, 1))
    assert rate.p == mcnemar(1, 2)
    assert [c.n for c in result.per_class] == [3, 3]
    assert [rate.difference for rate in result.per_class[1].robust] == pytest.approx(
        [-1 / 3, -1 / 3, 0]
    )
    for p, q in zip(result.robust, mirrored.robust, strict=True):
        assert (p.difference, p.low, p.p) == pytest.approx((-q.difference, -q.high, q.p))


def test_classes_on_untouched_inputs_are_corrected_for_their_number(synthetic):
    """A is wrong on eight samples of class 1 that B gets right: 2/2^8, times the two classes."""
    labels = np.repeat([0, 1], 10)
    a, b = (
        np.where((labels == 1) & (np.arange(20) < wrong), 0.0, INF)[None].repeat(2, 0)
        for wrong in (18, 0)
    )
    rows = synthetic.join(
        *(synthetic.records(m, labels, EPS, x, classes=2) for m, x in (("a", a), ("b", b)))
    )
    manifest = synthetic.manifest(["a", "b"], EPS, 20, ["zero", "one"])
    sides = (Side(run="r", manifest=manifest, records=rows, model=name) for name in "ab")
    zero, class_one = compare(*sides).per_class
    assert (class_one.clean.difference, class_one.clean.p, class_one.p_clean) == pytest.approx(
        (-0.8, 2 / 2**8, 4 / 2**8)
    )
    assert (zero.clean.difference, zero.p_clean) == (0.0, 1.0)


def test_only_what_all_share_and_judged_counts_and_the_rest_is_said(two, synthetic):
    a, b = two
    failed = (
        (a.records.model == "a") & (a.records.sample_id == 4) & (a.records.attack == "apgd-dlr")
    )
    rows = synthetic.change(a.records, failed, outcome="failed", broken=np.ma.masked)
    common = align([Side(run="r", manifest=a.manifest, records=rows, model="a"), b])
    assert common.labels.tolist() == [0, 0, 0, 1, 1] and any(
        "1 of the 6 samples of a in r" in note for note in common.notes
    )
    manifest = synthetic.manifest(["b"], [0.1], 3, ["zero", "one"])
    rows = synthetic.keep(b.records, (b.records.model == "b") & (b.records.sample_id < 3))
    stages = [stage | {"settings": {"steps": 5}} for stage in manifest["stages"]]
    fewer = Side(run="s", manifest=manifest | {"stages": stages}, records=rows, model="b")
    common = align([a, fewer])
    assert common.eps.tolist() == [0.1] and len(common.labels) == 3
    words = ("3 of the 6 samples of a in r", "2 of the budgets of r", "attacked differently")
    assert all(any(word in note for note in common.notes) for word in words)


def test_what_does_not_fit_is_refused(two, synthetic):
    a, b = two
    for change, message in [
        (
            {"data": b.manifest["data"] | {"digest": "e" * 32}},
            f"r and s differ in their data .*{'d' * 32} and {'e' * 32}",
        ),
        ({"distance": "l2"}, "differ in their distance, linf and l2"),
        ({"criterion": {"name": "targeted", "towards": "3"}}, "differ in their criterion"),
        ({"recommended": {"digest": "x"}}, "differ in their budgets by sample, none and x"),
        ({"eps": [0.0, 0.3], "eps_text": ["0", "0.3"]}, "share no eps above 0"),
    ]:
        with pytest.raises(RequestError, match=message):
            compare(a, Side(run="s", manifest=b.manifest | change, records=b.records, model="b"))
    rows = [
        synthetic.keep(b.records, b.records.sample_id < 3),
        synthetic.keep(b.records, b.records.sample_id >= 3),
    ]
    with pytest.raises(RequestError, match="no sample was judged on every model"):
        compare(*(Side(run="r", manifest=b.manifest, records=r, model="b") for r in rows))
