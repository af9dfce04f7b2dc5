"""Several eot at each input: what is asked, what the mean is, and what counts as a success."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import Recorder, batch_of, threat_of
from _refusals import refused
from brinell.core.eot import EOT
from brinell.core.errors import ContractError, ModelError
from brinell.core.ledger import Ledger
from brinell.core.losses import margin

X = torch.tensor([[0.2, 0.0], [0.3, 0.0], [0.4, 0.0]])


def slopes(values, *, rows):
    """A model of lead `slope * x0`: each call, or each row of a call, takes the next slope and
    writes down which it took.
    """
    remaining, draws = list(values), []

    def logits(x):
        factors = [remaining.pop(0) for _ in range(len(x) if rows else 1)]
        slope = torch.tensor(factors).expand(len(x))
        draws.extend(zip(x[:, 0].tolist(), slope.tolist(), strict=True))
        return torch.stack([torch.zeros(len(x)), slope * x[:, 0]], 1)

    return Recorder(logits), draws


def mean_of(draws, value):
    return np.mean([slope for x, slope in draws if x == pytest.approx(value)])


def test_each_look_is_a_call():
    for rows in (True, False):
        model, draws = slopes(torch.rand(60).tolist(), rows=rows)
        mean = EOT(model, 20).mean(X)
        assert [len(x) for x in model.calls] == [3] * 20
        for row in range(3):
            assert mean[row, 1].item() == pytest.approx(
                mean_of(draws, X[row, 0].item()) * X[row, 0].item(), rel=1e-5
            )
    model, _ = slopes([1.0, 5.0, 9.0], rows=False)
    torch.testing.assert_close(
        EOT(model, 3).answers(X)[:, :, 1], torch.tensor([[1.0], [5.0], [9.0]]) * X[:, 0]
    )


def test_one_look_is_the_models_own_answer():
    answer = torch.tensor([[1.0, 2.0]])
    assert torch.equal(EOT(Recorder(lambda x: answer)).mean(X[:1]), answer)


def test_answers_of_another_shape():
    with pytest.raises(ModelError, check=refused("core.eot.EOT._checked")):
        EOT(Recorder(lambda x: x[:, :1]), 3).mean(X)


# The ledger


def ledger_of(model, eot, n=3, **options):
    batch = batch_of(X[:n], [0] * n)
    return Ledger(model, batch, threat_of(0.5, n=n), eot=eot, **options), batch


def test_logits_loss_and_gradient_are_means(subtests):
    """The lead is slope times x0 and negative: loss and gradient of a row are the mean of the
    slopes that it drew.
    """
    for rows in [True, False]:
        for batch_size in [2, 3, 8, 100]:
            with subtests.test(rows=rows, batch_size=batch_size):
                model, draws = slopes((-torch.rand(30)).tolist(), rows=rows)
                ledger, batch = ledger_of(model, 6, batch_size=batch_size)
                answer = ledger.oracle().gradient(batch.ids, batch.x, margin)
                slope = torch.tensor(
                    [mean_of(draws, x) for x in X[:, 0].tolist()], dtype=torch.float32
                )
                torch.testing.assert_close(answer.logits[:, 1], slope * X[:, 0])
                torch.testing.assert_close(answer.loss, slope * X[:, 0])
                torch.testing.assert_close(answer.grad, torch.stack([slope, torch.zeros(3)], 1))
                torch.testing.assert_close(ledger.best.margin, slope * X[:, 0])
                assert (
                    ledger.costs.forwards.tolist() == ledger.costs.backwards.tolist() == [6, 6, 6]
                    and model.queries == 18
                )


def test_differences_are_means_and_extra_tensors_go_with_their_copies():
    model, draws = slopes((-torch.rand(24)).tolist(), rows=True)
    ledger, batch = ledger_of(model, 4)
    answer = ledger.oracle().differences(batch.ids, batch.x, torch.ones(3, 1, dtype=torch.int64))
    slope = torch.tensor([mean_of(draws, x) for x in X[:, 0].tolist()], dtype=torch.float32)
    torch.testing.assert_close(answer.lead[:, 0], slope * X[:, 0])
    torch.testing.assert_close(answer.grad[:, 0, 0], slope)
    draws.clear()
    weights = torch.tensor([1.0, 10.0, 100.0])
    answer = ledger.oracle().gradient(
        batch.ids, batch.x, lambda logits, y, w: w * margin(logits, y), weights
    )
    slope = torch.tensor([mean_of(draws, x) for x in X[:, 0].tolist()], dtype=torch.float32)
    torch.testing.assert_close(answer.grad[:, 0], weights * slope)


@pytest.mark.parametrize("ask", ["scores", "gradient"])
def test_one_lucky_answer_is_no_success(ask):
    """The lead is 1, then -1, -1: one look is fooled, the mean of three is not; where it is 1, 1,
    -1 the mean is.
    """
    extra = (margin,) if ask == "gradient" else ()
    for values, eot, success in [
        ([10, -10, -10], 1, 1),
        ([10, -10, -10], 3, 0),
        ([10, 10, -10], 3, 3),
    ]:
        model, _ = slopes([float(value) for value in values], rows=True)
        ledger, batch = ledger_of(model, eot, n=1)
        getattr(ledger.oracle(), ask)(batch.ids, batch.x, *extra)
        assert ledger.best.first_success.tolist() == [success]
        assert ledger.best.margin.item() == pytest.approx(np.mean(values[:eot]) * 0.2)


def counting():
    """A model that keeps its own count: how often it was shown each first value, and how many rows
    went back through it.
    """
    queries_by_value, backward_rows = {}, []

    def logits(x):
        for value in x[:, 0].tolist():
            queries_by_value[round(value, 4)] = queries_by_value.get(round(value, 4), 0) + 1
        z = x[:, 0] - 0.9
        if z.requires_grad:
            z.register_hook(lambda grad: backward_rows.append(len(grad)))
        return torch.stack([-z, z], 1)

    return Recorder(logits), queries_by_value, backward_rows


queries = st.lists(
    st.tuples(
        st.sampled_from(["scores", "labels", "gradient"]),
        st.lists(st.integers(0, 2), min_size=1, max_size=7),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40)
@given(queries, st.integers(1, 5), st.integers(1, 9))
def test_the_count_is_the_models_own(queries, eot, batch_size):
    model, queries_by_value, backward_rows = counting()
    passes = []
    ledger, batch = ledger_of(
        model, eot, batch_size=batch_size, on_pass=lambda f, b: passes.append((f, b))
    )
    for kind, ids in queries:
        x = X[ids]
        extra = (margin,) if kind == "gradient" else ()
        getattr(ledger.oracle(), kind)(torch.tensor(ids), x, *extra)
    assert ledger.costs.forwards.tolist() == [
        queries_by_value.get(round(value, 4), 0) for value in X[:, 0].tolist()
    ]
    assert sum(f for f, _ in passes) == model.queries
    assert int(ledger.costs.backwards.sum()) == sum(backward_rows) == sum(b for _, b in passes)
    assert max(len(x) for x in model.calls) <= batch_size


def test_a_budget_counts_evaluations():
    model, _, _ = counting()
    ledger, batch = ledger_of(model, 3, queries=7)
    oracle = ledger.oracle()
    with pytest.raises(ContractError, match="budget of 7 queries is spent"):
        oracle.scores(torch.tensor([0, 0, 0]), X[[0, 0, 0]])
    assert model.queries == 0
    oracle.scores(torch.tensor([0, 0, 1]), X[[0, 0, 1]])
    assert ledger.costs.forwards.tolist() == [6, 3, 0]
    assert oracle.active(batch.ids).tolist() == [False, True, True]
    with pytest.raises(ContractError, match="budget of 7 queries is spent"):
        oracle.gradient(batch.ids, X, margin)
    assert model.queries == 9
