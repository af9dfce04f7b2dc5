"""Gradients in TF32: only what float32 says is a success, every evaluation counts, and all other
answers are float32 as ever.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import Recorder, batch_of, threat_of
from brinell.core.errors import ContractError
from brinell.core.ledger import NEAR_BOUNDARY, Ledger
from brinell.core.losses import margin


def two_faced(low, exact):
    """In TF32 the lead is `low` with slope 1 along x0, otherwise `exact` with slope 2; the largest
    logit is 1.
    """

    def logits(x):
        values, slope = (low, 1) if torch.get_float32_matmul_precision() == "high" else (exact, 2)
        slope = slope * (x[:, 0] - x[:, 0].detach())
        lead = torch.tensor([values[round(value, 2)] for value in x[:, 1].tolist()]) + slope
        return torch.stack([torch.ones(len(x)), 1 + lead], 1)

    return Recorder(logits)


def ledger_of(low, exact, **options):
    """One sample for each pair of leads; its second value says which it is."""
    names = [round(0.1 * i, 2) for i in range(len(low))]
    model = two_faced(dict(zip(names, low, strict=True)), dict(zip(names, exact, strict=True)))
    batch = batch_of([[0.5, name] for name in names], [0] * len(names))
    return (
        Ledger(model, batch, threat_of(0.2, n=len(names)), precision="tf32", **options),
        batch,
        model,
    )


def test_only_a_float32_answer_is_a_success():
    """Said in TF32 and denied, denied and true after all, said and true, far from it: three are
    asked about again.
    """
    ledger, batch, model = ledger_of([0.01, -0.01, 0.02, -0.5], [-0.001, 0.002, 0.3, 0.9])
    answer = ledger.oracle().gradient(batch.ids, batch.x, margin)
    assert ledger.fooled.tolist() == [False, True, True, False]
    assert ledger.best.first_success.tolist() == [0, 2, 2, 0]
    assert (
        ledger.costs.forwards.tolist() == ledger.costs.backwards.tolist() == [2, 2, 2, 1]
        and model.queries == 7
    )
    leads = torch.tensor([-0.001, 0.002, 0.3, -0.5])
    torch.testing.assert_close(ledger.best.margin, leads)
    torch.testing.assert_close(answer.loss, leads)
    torch.testing.assert_close(answer.logits[:, 1] - answer.logits[:, 0], leads)
    assert answer.grad[:, 0].tolist() == [2, 2, 2, 1]


def test_the_band_is_a_share_of_the_largest_logit():
    ledger, batch, _ = ledger_of([-0.9 * NEAR_BOUNDARY, -1.1 * NEAR_BOUNDARY], [0.1, 0.1])
    ledger.oracle().gradient(batch.ids, batch.x, margin)
    assert ledger.costs.forwards.tolist() == [2, 1] and ledger.fooled.tolist() == [True, False]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 9))
def test_rows_count_as_if_asked_one_by_one(ids, batch_size):
    """Samples 0 and 1 are asked about again each time, 2 and 3 never; 1 succeeds at its first
    answer in float32.
    """
    passes = []
    leads = [0.01, -0.01, -0.5, -0.6], [-0.001, 0.002, 0.3, 0.9]
    ledger, batch, model = ledger_of(
        *leads, batch_size=batch_size, on_pass=lambda f, b: passes.append((f, b))
    )
    ledger.oracle().gradient(torch.tensor(ids), batch.x[ids], margin)
    counts = [ids.count(sample) for sample in range(4)]
    assert (
        ledger.costs.forwards.tolist()
        == ledger.costs.backwards.tolist()
        == [2 * counts[0], 2 * counts[1], counts[2], counts[3]]
    )
    assert ledger.best.first_success.tolist() == [0, 2 * (counts[1] > 0), 0, 0]
    assert model.queries == int(ledger.costs.forwards.sum()) == sum(f for f, _ in passes)
    assert sum(b for _, b in passes) == int(ledger.costs.backwards.sum())


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_one_sample_at_three_points(batch_size):
    """Asked about again at the first and at the third, where it is fooled: at its fifth forward."""
    ledger, _, _ = ledger_of([0.01, -0.5, 0.01], [-0.001, 0.9, 0.3], batch_size=batch_size)
    x = torch.tensor([[0.5, 0.0], [0.5, 0.1], [0.5, 0.2]])
    weights = torch.tensor([1.0, 10.0, 100.0])
    answer = ledger.oracle().gradient(
        torch.zeros(3, dtype=torch.int64), x, lambda z, y, w: w * margin(z, y), weights
    )
    assert ledger.best.first_success.tolist() == [5, 0, 0] and ledger.costs.forwards.tolist() == [
        5,
        0,
        0,
    ]
    torch.testing.assert_close(answer.loss, weights * torch.tensor([-0.001, -0.5, 0.3]))
    torch.testing.assert_close(answer.grad[:, 0], weights * torch.tensor([2.0, 1.0, 2.0]))


def test_several_looks_are_asked_about_again_by_as_many():
    ledger, batch, model = ledger_of([0.01, -0.5], [0.3, 0.9], eot=3)
    ledger.oracle().gradient(batch.ids, batch.x, margin)
    assert (
        ledger.costs.forwards.tolist() == ledger.costs.backwards.tolist() == [6, 3]
        and model.queries == 9
    )
    assert ledger.best.first_success.tolist() == [6, 0]


def test_a_budget_has_room_for_the_second_question():
    ledger, batch, model = ledger_of([0.01, -0.5], [-0.001, 0.9], queries=3)
    oracle = ledger.oracle()
    oracle.gradient(batch.ids, batch.x, margin)
    assert oracle.active(batch.ids).tolist() == [False, True]
    with pytest.raises(ContractError, match="budget of 3 queries is spent"):
        oracle.gradient(batch.ids, batch.x, margin)
    assert model.queries == 3
