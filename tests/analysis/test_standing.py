"""The standing of models: places by McNemar's test of all pairs, and what is said of who leads, on
models made at random.
"""

import numpy as np
import pytest

from brinell.analysis.curve import RIGHT, UNJUDGED, WRONG
from brinell.analysis.inference import LEVEL, holm
from brinell.analysis.proportions import mcnemar
from brinell.analysis.standing import leading, standing, telling_budget
from brinell.core.outward import printable
from brinell.reports.statements import sentence

TEXTS = ["1/255", "2/255", "4/255", "8/255"]


def models(seed):
    """States of up to six models of different strength, whose samples break at some budget; some
    were not judged.
    """
    rng = np.random.default_rng(seed)
    count, n, budgets = rng.integers(2, 7), int(rng.choice([8, 60, 200])), int(rng.integers(1, 5))
    broken = rng.uniform(0, budgets + 1, (count, n)) * rng.choice([0.5, 1, 1.6, 2], (count, 1))
    robust = np.where(broken[:, :, None] > np.arange(1, budgets + 1), RIGHT, WRONG)
    clean = np.where(broken > 0.2, RIGHT, WRONG)
    robust[clean == WRONG] = WRONG
    robust[rng.random((count, n)) < rng.choice([0, 0.05])] = UNJUDGED
    robust[:, 0], clean[:, 0] = RIGHT, RIGHT
    return standing([f"m{i}" for i in range(count)], clean, robust, TEXTS[:budgets]), clean, robust


def test_ranks_follow_from_the_corrected_tests_of_all_pairs():
    for seed in range(20):
        result, _, robust = models(seed)
        states, count = robust[:, :, result.at], len(robust)
        pairs = [(i, j) for i in range(count) for j in range(i)]
        only = [
            [int(((states[a] == RIGHT) & (states[b] == WRONG)).sum()) for a, b in ((i, j), (j, i))]
            for i, j in pairs
        ]
        p = dict(zip(pairs, holm([mcnemar(*counts) for counts in only]), strict=True))
        rates = np.array([(row == RIGHT).sum() / (row <= RIGHT).sum() for row in states])
        assert result.orders[result.at].values == pytest.approx(rates)
        for i in range(count):
            shown = [j for j in range(count) if j != i and p[max(i, j), min(i, j)] <= LEVEL]
            rank = result.rank(i)
            assert (rank.low, rank.high) == (
                1 + sum(rates[shown] > rates[i]),
                count - sum(rates[shown] < rates[i]),
            )
            assert rank.low <= rank.value <= rank.high
            assert set(result.rivals(i)) == {
                f"m{j}" for j in range(count) if j != i and j not in shown
            }


def test_models_are_compared_where_they_keep_some_accuracy():
    for seed in range(20):
        result, clean, robust = models(seed)
        kept = (robust == RIGHT).mean((0, 1)) >= 0.1 * (clean == RIGHT).mean()
        assert result.at == max(np.flatnonzero(kept), default=0)
        assert telling_budget(clean[::-1] == RIGHT, robust[::-1] == RIGHT) == result.at


def test_what_is_said_of_who_leads():
    """A model is named the most robust only if all others are shown to be less, and each other
    leader of a budget is named."""
    certain = crossed = 0
    for seed in range(60):
        result, _, _ = models(seed)
        first, *crossings = map(sentence, leading(result))
        leaders = result.leaders(result.at)
        rivals = {name for leader in leaders for name in result.rivals(leader)} - {
            result.names[leader] for leader in leaders
        }
        tied = len(leaders) == len(result.names)
        assert ("the most robust at" in first) == (not rivals and not tied)
        assert ("may be as robust" in first) == bool(rivals) and ("have the same" in first) == tied
        others = {
            result.names[b[0]]
            for i in range(len(result.texts))
            if not set(b := result.leaders(i)) & set(leaders)
        }
        assert {text.split()[2] for text in crossings} == others
        assert all(printable(text) == text for text in (first, *crossings))
        certain, crossed = certain + (not rivals and not tied), crossed + bool(others)
    assert certain and crossed
