"""The oracle's differences of logits: values, gradients, and what they cost."""

import pytest
import torch

from _helpers import Recorder, batch_of, mlp, threat_of
from brinell.core.domain import Domain
from brinell.core.errors import ContractError
from brinell.core.ledger import Ledger
from brinell.core.losses import targeted_margin
from brinell.core.model import Access

SIX = Domain(kind="vector", shape=(6,))


def setting(batch_size=3, **settings):
    module = mlp(6, 4)
    x = torch.rand(7, 6, generator=torch.Generator().manual_seed(1))
    model = Recorder(module, SIX, classes=4)
    batch = batch_of(x, [0, 1, 2, 3, 0, 1, 2])
    return (
        module,
        batch,
        model,
        Ledger(model, batch, threat_of(0.5, domain=SIX, n=7), batch_size=batch_size, **settings),
    )


def test_values_and_gradients_are_those_of_the_targeted_margin():
    module, batch, _, ledger = setting()
    classes = (batch.y[:, None] + torch.tensor([1, 2, 3])) % 4
    answer = ledger.oracle().differences(batch.ids, batch.x, classes)
    torch.testing.assert_close(answer.logits, module(batch.x).detach())
    assert answer.lead.shape == (7, 3) and answer.grad.shape == (7, 3, 6)
    for j in range(3):
        single = setting()[3].oracle().gradient(batch.ids, batch.x, targeted_margin, classes[:, j])
        torch.testing.assert_close(answer.lead[:, j], single.loss)
        torch.testing.assert_close(answer.grad[:, j], single.grad)
    assert not answer.lead.requires_grad and not answer.grad.requires_grad


@pytest.mark.parametrize("k", [1, 3])
def test_one_forward_and_a_backward_for_each_class(k):
    passes = []
    _, batch, model, ledger = setting(on_pass=lambda *counts: passes.append(counts))
    ids = torch.tensor([2, 5, 2, 0])
    ledger.oracle().differences(ids, batch.x[ids], ((batch.y[ids] + 1) % 4)[:, None].expand(-1, k))
    assert ledger.costs.forwards.tolist() == [1, 0, 2, 0, 0, 1, 0]
    assert ledger.costs.backwards.tolist() == [k, 0, 2 * k, 0, 0, k, 0]
    ledger.oracle().differences(batch.ids, batch.x, ((batch.y + 1) % 4)[:, None].expand(-1, k))
    assert ledger.costs.backwards.tolist() == [2 * k, k, 3 * k, k, k, 2 * k, k]
    assert model.queries == sum(f for f, _ in passes) == 11 and sum(b for _, b in passes) == 11 * k


def test_a_success_counts_and_the_budget_holds():
    _, batch, _, ledger = setting(queries=1)
    wrong = batch_of(batch.x, batch.y)
    answer = ledger.oracle().differences(batch.ids, batch.x, ((batch.y + 1) % 4)[:, None])
    assert torch.equal(ledger.fooled, answer.logits.argmax(1) != wrong.y)
    with pytest.raises(ContractError, match="budget of 1"):
        ledger.oracle().differences(batch.ids, batch.x, ((batch.y + 1) % 4)[:, None])


def test_needs_access_to_gradients():
    _, batch, _, ledger = setting(access=Access.SCORES)
    with pytest.raises(ContractError, match="gradients"):
        ledger.oracle().differences(batch.ids, batch.x, batch.y[:, None])


def test_zero_where_the_model_does_not_depend_on_its_input():
    model = Recorder(lambda x: torch.tensor([[1.0, 0.0, -1.0]]).expand(len(x), 3), SIX, classes=3)
    batch = batch_of(torch.full((2, 6), 0.5), [0, 0])
    answer = (
        Ledger(model, batch, threat_of(0.5, domain=SIX, n=2))
        .oracle()
        .differences(batch.ids, batch.x, torch.tensor([[1, 2], [2, 1]]))
    )
    assert answer.lead.tolist() == [[-1, -2], [-2, -1]] and (answer.grad == 0).all()


def test_a_minimal_attack_may_stop_at_eps():
    _, batch, _, _ = setting()
    for minimal, stop, stands in (
        (True, False, True),
        (True, True, False),
        (False, False, False),
        (False, True, False),
    ):
        ledger = setting(minimal=minimal)[3]
        ledger.oracle().scores(batch.ids, batch.x)
        fooled = ledger.fooled
        assert fooled.any() and not fooled.all()
        assert ledger.oracle().active(batch.ids, stop).tolist() == [
            stands or not is_fooled for is_fooled in fooled
        ]
