"""Quantiles with failures, distances and queries of successes against lookups row by row."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brinell.analysis.curve import grid
from brinell.analysis.distributions import (
    Sample,
    distance_at_success,
    quantile,
    queries_to_success,
)

EPS, STAGES = [0.0, 0.1, 0.2], ("apgd-ce", "square")


def test_quantile_counts_failures_as_infinity():
    values = np.array([3.0, 1.0, 2.0])
    assert [quantile(values, failures, 0.5) for failures in (0, 2, 3, 4)] == [2.0, 3.0, 3.0, math.inf]
    assert quantile(np.array([]), 3, 0.5) == math.inf and quantile(np.array([]), 0, 0.5) is None


@given(st.lists(st.floats(0, 1e6), max_size=30), st.integers(0, 30), st.floats(0, 1))
def test_quantile_is_the_smallest_value_that_the_share_does_not_exceed(values, failures, q):
    result, outcomes = quantile(np.array(values), failures, q), sorted([*values, *[math.inf] * failures])
    if not outcomes:
        assert result is None
        return
    assert result in outcomes
    assert sum(v <= result for v in outcomes) >= q * len(outcomes) - 1e-6
    assert sum(v < result for v in outcomes) < q * len(outcomes) or result == outcomes[0]


def test_quantile_is_exact_where_the_product_is_rounded():
    assert quantile(np.arange(1.0, 11.0), 0, 0.7) == 7.0 and quantile(np.arange(1.0, 11.0), 0, 0.1) == 1.0


@pytest.mark.parametrize("bad", [(np.array([1.0]), 0, 1.5), (np.array([1.0]), -1, 0.5), (np.array([np.nan]), 0, 0.5)])
def test_quantile_refuses(bad):
    with pytest.raises(ValueError, match="quantile"):
        quantile(*bad)


def test_a_summary_names_every_quantile():
    summary = Sample(of="queries", attack="square", values=np.arange(1.0, 9.0), robust=2).summary()
    assert (summary.of, summary.attack, summary.successes, summary.robust) == ("queries", "square", 8, 2)
    assert (summary.q10, summary.median, summary.q90) == (1.0, 5.0, None)


# From records


def random_run(synthetic, seed):
    """Two models; some samples are wrong from the start, and a stage runs on what the one before left."""
    rng = np.random.default_rng(seed)
    breaks = rng.choice([0.05, 0.15, np.inf], (2, 15))
    breaks[0, :3] = 0
    parts = [synthetic.records(model, rng.integers(0, 3, 15), EPS, breaks, stages=STAGES) for model in "mo"]
    rows = synthetic.join(*parts)
    successes = ~np.ma.getmaskarray(rows.queries_to_success)
    queries = rows.queries_to_success.copy()
    queries[successes] = rng.integers(1, 90, int(successes.sum()))
    rows = synthetic.change(
        rows, successes, queries_to_success=queries[successes], linf=rng.random(int(successes.sum())).astype(np.float32)
    )
    rows = synthetic.keep(rows, rng.permutation(len(rows)))
    return rows, grid(rows, synthetic.manifest(["m", "o"], EPS, 15, ["a", "b", "c"], stages=STAGES), "m")


def rows_of_stage(rows, stage, *columns):
    """Some columns of the rows of model m in a stage."""
    values = zip(*(getattr(rows, column).tolist() for column in ("model", "attack", *columns)), strict=True)
    return [row[2:] for row in values if row[0] == "m" and (stage is None or row[1] == stage)]


def test_distances_are_the_smallest_of_each_sample_that_was_right(synthetic):
    for seed in range(8):
        rows, cells = random_run(synthetic, seed)
        right = [sample for sample, outcome in rows_of_stage(rows, "clean", "sample_id", "outcome") if outcome == "correct"]
        sizes: dict[int, list[float]] = {sample: [] for sample in right}
        for sample, size in rows_of_stage(rows, None, "sample_id", "linf"):
            if size is not None:
                sizes[sample].append(size)
        expected = [min(distances) for distances in sizes.values() if distances]
        result = distance_at_success(rows, cells, "linf")
        assert sorted(result.values) == pytest.approx(sorted(expected)) and result.robust == len(right) - len(expected)
        assert len(distance_at_success(rows, cells, "other").values) == 0


def test_queries_are_those_of_the_try_at_the_largest_eps(synthetic):
    for seed in range(8):
        rows, cells = random_run(synthetic, seed)
        for stage in STAGES:
            tried = [
                queries
                for attacked, queries in rows_of_stage(rows, stage, "attacked", "queries_to_success")
                if attacked == EPS[-1]
            ]
            result = queries_to_success(rows, cells, stage)
            assert sorted(result.values) == sorted(queries for queries in tried if queries is not None) and result.attack == stage
            assert result.robust == tried.count(None)
