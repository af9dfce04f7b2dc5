"""The problem within squares: what it shows, what it answers, and which squares come first."""

import pytest
import torch

from _helpers import Recorder, distance, ledger_settings, mlp, threat_of
from brinell.attacks._squares import best_rows, square_problem
from brinell.attacks.apgd import APGD
from brinell.core import squares
from brinell.core.contracts import Batch
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.losses import cross_entropy
from brinell.core.streams import Streams

DOMAINS = [
    Domain(kind="image", shape=(2, 5, 7)),
    Domain(kind="signal", shape=(3, 11)),
    Domain(kind="video", shape=(1, 3, 4, 5)),
    Domain(kind="vector", shape=(13,)),
]


def problem_of(domain, side, n=4, count=3, **settings):
    """The problem in `count` random squares of each sample, with the ledger and the numbers."""
    features = torch.Size(domain.shape).numel()
    model = Recorder(mlp(features, 3), domain, classes=3)
    x = Streams.of(1, torch.arange(n)).uniform(*domain.shape)
    batch = Batch.of(x, mlp(features, 3)(x).argmax(1))
    threat = threat_of(float(side), "patch", domain, n=n)
    ledger = Ledger(model, batch, threat, **ledger_settings(APGD(), "patch") | settings)
    starts = squares.sums(torch.zeros(1, *domain.grid), side).numel()
    numbers = Streams.of(2, torch.arange(n)).integers(starts, count)
    problem = square_problem(ledger.oracle(), batch, threat, numbers, side, distance("l2"))
    return problem, ledger, model, numbers


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.kind)
@pytest.mark.parametrize("side", [1, 3, 4])
def test_content_is_pasted_and_gradients_are_cut(domain, side):
    (oracle, batch, threat), ledger, model, numbers = problem_of(domain, side)
    assert threat.domain.grid == tuple(min(side, length) for length in domain.grid)
    x = Streams.of(3, batch.ids).uniform(*threat.domain.shape)
    answer = oracle.gradient(batch.ids, x, cross_entropy)

    # What was shown differs from the clean inputs in the square of each row alone.
    inputs = torch.cat(model.calls)
    clean = ledger.batch.x.repeat_interleave(3, dim=0)
    places = squares.places(numbers.flatten(), side, domain.grid)
    channels = 1 if domain.kind == "vector" else domain.shape[0]
    planes = clean.reshape(len(clean), channels, -1)
    mask = torch.zeros_like(planes, dtype=torch.bool)
    mask = mask.scatter(2, places[:, None].expand(-1, channels, -1), True).reshape(clean.shape)
    assert torch.equal(inputs[~mask], clean[~mask])
    assert torch.equal(inputs[mask].sort().values, x.flatten().sort().values)
    assert (distance("patch").size(inputs - clean) <= side).all()

    # The gradient is that of the whole input where the square lies.
    leaf = inputs.clone().requires_grad_()
    label = ledger.batch.y.repeat_interleave(3)
    torch.nn.functional.cross_entropy(
        mlp(clean[0].numel(), 3)(leaf), label, reduction="sum"
    ).backward()
    torch.testing.assert_close(answer.grad.sum(), leaf.grad[mask].sum())
    torch.testing.assert_close(oracle.scores(batch.ids, x), answer.logits)
    assert (threat.eps >= distance("l2").size(x - batch.x)).all()


def test_the_best_squares_come_first_and_unpaid_ones_last():
    (oracle, batch, threat), ledger, _, _ = problem_of(DOMAINS[0], 3, count=4)
    x = Streams.of(3, batch.ids).uniform(*threat.domain.shape)
    rows = best_rows(oracle, x, 4, 3)
    margin = oracle.loss(batch.ids, x).view(4, 4)
    expected = margin.argsort(1, descending=True)[:, :3] + 4 * torch.arange(4)[:, None]
    assert torch.equal(rows, expected)

    (oracle, batch, threat), ledger, _, _ = problem_of(DOMAINS[0], 3, count=4, queries=2)
    rows = best_rows(oracle, x, 4, 3)
    assert ledger.costs.forwards.tolist() == [2] * 4
    assert set(rows[0, :2].tolist()) == {0, 1}
