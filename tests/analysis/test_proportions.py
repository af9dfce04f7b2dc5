import pytest
from hypothesis import given
from hypothesis import strategies as st

from _lazy import library
from brinell.analysis import proportions
from brinell.core import intervals

scipy_stats = library("scipy.stats")
counts = st.integers(0, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_wilson_known_values():
    # Newcombe (1998), table I, method 3: 81/263, 15/148, 0/20, 1/29.
    for k, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        interval = intervals.wilson(k, n)
        assert interval == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(counts, st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_is_scipys(count, confidence):
    k, n = count
    interval = intervals.wilson(k, n, confidence)
    if n == 0:
        assert interval is None
    else:
        reference = scipy_stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
        assert interval == (
            pytest.approx(reference.low, abs=1e-9),
            pytest.approx(reference.high, abs=1e-9),
        )
        assert 0 <= interval.low <= k / n <= interval.high <= 1


@given(counts)
def test_wilson_is_symmetric(count):
    k, n = count
    if n:
        interval, mirrored = intervals.wilson(k, n), intervals.wilson(n - k, n)
        assert interval.low == pytest.approx(1 - mirrored.high, abs=1e-12)


def test_mcnemar_by_hand():
    assert proportions.mcnemar(0, 0) == 1.0
    assert proportions.mcnemar(5, 0) == pytest.approx(2 / 32)
    assert proportions.mcnemar(1, 4) == pytest.approx(2 * (1 + 5) / 32)


@given(st.integers(0, 2000), st.integers(0, 2000))
def test_mcnemar_is_the_binomial_test(b, c):
    reference = scipy_stats.binomtest(b, b + c).pvalue if b + c else 1.0
    assert proportions.mcnemar(b, c) == pytest.approx(reference, rel=1e-6, abs=1e-250)
    assert proportions.mcnemar(b, c) == proportions.mcnemar(c, b)


def test_paired_difference_by_hand():
    # With no association (phi = 0) the pairs are two independent samples.
    reach = 2**0.5 * (0.5 - intervals.wilson(50, 100).low)
    assert proportions.paired_difference(25, 25, 25, 25) == pytest.approx((-reach, reach))


@given(st.tuples(*[st.integers(0, 60)] * 4))
def test_paired_difference_holds_the_difference_and_mirrors(table):
    both_right, a, b, neither = table
    interval = proportions.paired_difference(both_right, a, b, neither)
    n = sum(table)
    if n == 0:
        assert interval is None
        return
    assert -1 <= interval.low <= (a - b) / n + 1e-12 and (a - b) / n - 1e-12 <= interval.high <= 1
    mirrored = proportions.paired_difference(both_right, b, a, neither)
    assert interval.low == pytest.approx(-mirrored.high, abs=1e-9)
