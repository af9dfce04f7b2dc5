"""Quantiles with failures, distances and queries of successes against lookups row by row."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brinell.analysis.curve import grid
from brinell.analysis.distributions import (
    distance_at_success,
    distribution,
    queries_to_success,
)

EPS, STAGES = [0.0, 0.1, 0.2], ("apgd-ce", "square")


@given(st.lists(st.floats(0, 1e6), max_size=30), st.integers(0, 30))
def test_a_quantile_is_the_smallest_value_that_its_share_does_not_exceed(values, robust):
    """Samples that did not break count as infinite; a quantile among them is None."""
    found, outcomes = distribution("queries", "square", np.array(values), robust), sorted([*values, *[math.inf] * robust])
    assert (found.of, found.attack, found.successes, found.robust) == ("queries", "square", len(values), robust)
    for q, value in ((0.1, found.q10), (0.5, found.median), (0.9, found.q90)):
        if outcomes:
            result = math.inf if value is None else value
            assert result in outcomes
            assert sum(v <= result for v in outcomes) >= q * len(outcomes) - 1e-6
            assert sum(v < result for v in outcomes) < q * len(outcomes) or result == outcomes[0]
        else:
            assert value is None


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
        assert result == distribution("distance", None, np.array(expected), len(right) - len(expected))
        assert distance_at_success(rows, cells, "other").successes == 0


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
            broken = np.array([queries for queries in tried if queries is not None], dtype=np.float64)
            assert result == distribution("queries", stage, broken, tried.count(None))
