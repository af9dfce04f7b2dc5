import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _helpers import VECTOR, Recorder, batch_of, distance, mlp, threat_of, threshold
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import ContractError, ModelError
from brinell.core.ledger import Ledger
from brinell.core.losses import cross_entropy, dlr, margin
from brinell.core.model import Access
from brinell.core.threat import Threat
from brinell.models._torch_model import TorchModel

SIX = Domain(kind="vector", shape=(6,))


def ledger_of(n=4, eps=0.2, boundary=0.5, x0=0.4, **settings):
    """`n` samples at 0.4 in front of a threshold at 0.5: class 0, and 0.1 away from class 1."""
    model = Recorder(threshold(boundary))
    batch = batch_of(np.full((n, 2), x0), [0] * n)
    return Ledger(model, batch, threat_of(eps, n=n), **settings), batch, model


def points(values):
    """Inputs whose first value is given; the second stays at 0.4."""
    values = torch.as_tensor(values, dtype=torch.float32)
    return torch.stack([values, torch.full_like(values, 0.4)], 1)


# Counting


queries = st.lists(
    st.tuples(
        st.sampled_from(["scores", "labels", "gradient"]),
        st.lists(st.integers(0, 5), min_size=1, max_size=14),
    ),
    min_size=1,
    max_size=5,
)


@given(queries, st.integers(1, 9))
def test_counts_what_the_model_saw_whatever_was_asked(queries, batch_size):
    ledger, batch, model = ledger_of(6, batch_size=batch_size)
    oracle, forwards, backwards, passes = ledger.oracle(), np.zeros(6), np.zeros(6), []
    ledger._on_pass = lambda f, b: passes.append((f, b))
    for kind, ids in queries:
        ids = torch.tensor(ids)
        x = batch.x[ids]
        oracle.gradient(ids, x, margin) if kind == "gradient" else getattr(oracle, kind)(ids, x)
        np.add.at(forwards, ids.numpy(), 1)
        np.add.at(backwards, ids.numpy(), kind == "gradient")
    assert ledger.costs.forwards.tolist() == forwards.tolist()
    assert ledger.costs.backwards.tolist() == backwards.tolist()
    assert model.queries == forwards.sum() == sum(f for f, _ in passes)
    assert backwards.sum() == sum(b for _, b in passes)
    assert max(len(x) for x in model.calls) <= batch_size


# Success


def test_a_success_is_a_wrong_class_within_the_threat():
    ledger, batch, _ = ledger_of()
    ledger.oracle().scores(batch.ids, points([0.45, 0.55, 0.6, 0.4]))
    assert ledger.fooled.tolist() == [False, True, True, False]
    assert ledger.best.first_success.tolist() == [0, 1, 1, 0]
    torch.testing.assert_close(
        ledger.best.distance, torch.tensor([torch.inf, 0.15, 0.2, torch.inf])
    )
    assert torch.equal(
        ledger.best.closest,
        torch.where(ledger.fooled[:, None], points([0.45, 0.55, 0.6, 0.4]), batch.x),
    )
    assert torch.equal(batch.x, points([0.4] * 4)), "noting a success wrote into the clean inputs"


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_repeated_ids_in_one_query_across_micro_batches(batch_size):
    """Sample 0 is asked about five times: wrong at its third and fifth row, the fifth one closer."""
    ledger, _, model = ledger_of(2, batch_size=batch_size)
    ids = torch.tensor([0, 1, 0, 0, 1, 0, 0])
    ledger.oracle().scores(ids, points([0.41, 0.6, 0.42, 0.59, 0.55, 0.43, 0.51]))
    assert ledger.costs.forwards.tolist() == [5, 2]
    assert ledger.best.first_success.tolist() == [3, 1]
    torch.testing.assert_close(ledger.best.distance, torch.tensor([0.11, 0.15]))
    torch.testing.assert_close(ledger.best.closest, points([0.51, 0.55]))
    assert model.queries == 7


def test_standing_is_not_fooled_and_not_spent():
    ledger, batch, _ = ledger_of(3, queries=2)
    oracle = ledger.oracle()
    oracle.scores(torch.tensor([0, 0, 1]), points([0.41, 0.42, 0.55]))
    assert oracle.active(batch.ids).tolist() == [False, False, True]
    assert ledger.affordable(batch.ids).tolist() == [False, True, True]


def test_a_minimal_attack_goes_on_with_the_fooled():
    ledger, batch, _ = ledger_of(2, minimal=True, queries=2)
    oracle = ledger.oracle()
    oracle.scores(batch.ids, points([0.55, 0.41]))
    assert oracle.active(batch.ids).tolist() == [True, True]
    oracle.scores(batch.ids[:1], points([0.52]))
    assert oracle.active(batch.ids).tolist() == [False, True]


def test_a_minimal_attack_may_look_beyond_eps_but_is_not_credited():
    ledger, batch, _ = ledger_of(1, eps=0.05, minimal=True)
    ledger.oracle().scores(batch.ids, points([0.9]))
    assert not ledger.fooled.any() and ledger.best.distance.isinf().all()


def test_within_its_reach_an_attack_may_look_beyond_eps_but_is_not_credited():
    ledger, batch, _ = ledger_of(2, eps=0.05, reach=3.0, strongest=True)
    oracle = ledger.oracle()
    oracle.scores(batch.ids, points([0.55, 0.43]))
    assert (
        not ledger.fooled.any()
        and ledger.best.distance.isinf().all()
        and torch.equal(ledger.best.closest, batch.x)
    )
    assert oracle.active(batch.ids).all() and ledger.best.margin.isinf().tolist() == [True, False]
    assert torch.equal(ledger.best.strongest[0], batch.x[0]) and ledger.best.strongest[
        1, 0
    ] == pytest.approx(0.43)
    with pytest.raises(ContractError, check=refused("core.ledger.Ledger._check_reach")):
        oracle.scores(batch.ids, points([0.6, 0.43]))


def test_a_success_by_the_last_digit_counts_if_the_input_alone_has_it_too():
    """The first of equal logits leads.

    In company the lead of the model may be another than alone.
    """
    step = 2.0**-23
    for in_company, alone, counts, confirmations in (
        (step, step, True, 2),
        (step, 0.0, False, 2),
        (0.0, 1.0, False, 0),
        (0.1, 0.0, True, 0),
    ):
        model = Recorder(
            lambda x, two=in_company, one=alone: torch.tensor(
                [1.0, 1.0 + (one if len(x) == 1 else two)]
            ).expand(len(x), 2)
        )
        batch = batch_of([[0.4, 0.4], [0.3, 0.3]], [0, 0])
        ledger = Ledger(model, batch, threat_of(0.2, n=2))
        ledger.oracle().scores(batch.ids, batch.x)
        assert (
            ledger.fooled.tolist() == [counts] * 2
            and ledger.costs.forwards.tolist() == [1, 1]
            and ledger.confirmations.tolist() == [confirmations] * 2
        )
        assert bool((ledger.best.margin > 0).all()) == counts
    batch = batch_of([[0.4, 0.4], [0.3, 0.3]], [1, 0])
    ledger = Ledger(Recorder(lambda x: torch.ones(len(x), 2)), batch, threat_of(0.2, n=2))
    ledger.oracle().scores(batch.ids, batch.x)
    assert ledger.fooled.tolist() == [True, False]


# What is refused


@pytest.mark.parametrize(
    ("access", "denied"),
    [
        (Access.LABELS, ["scores", "gradient"]),
        (Access.SCORES, ["gradient"]),
        (Access.GRADIENTS, []),
    ],
)
def test_access(access, denied):
    ledger, batch, model = ledger_of(access=access)
    queries = {
        "labels": lambda: ledger.oracle().labels(batch.ids, batch.x),
        "scores": lambda: ledger.oracle().scores(batch.ids, batch.x),
        "gradient": lambda: ledger.oracle().gradient(batch.ids, batch.x, margin),
    }
    for name, ask in queries.items():
        before = model.queries
        if name in denied:
            with pytest.raises(ContractError, match=f"has access to {access.name.lower()} only"):
                ask()
            assert model.queries == before
        else:
            ask()
            assert model.queries == before + 4


def test_query_budget_per_sample():
    ledger, batch, model = ledger_of(3, queries=2)
    oracle = ledger.oracle()
    oracle.scores(batch.ids, batch.x)
    oracle.scores(batch.ids[:1], batch.x[:1])
    with pytest.raises(ContractError, match="budget of 2 queries is spent"):
        oracle.scores(batch.ids, batch.x)
    assert model.queries == 4, "the model saw a query that was refused"
    oracle.gradient(batch.ids[1:], batch.x[1:], margin)
    assert ledger.costs.forwards.tolist() == [2, 2, 2]


@pytest.mark.parametrize("x", [1.1, -0.1, torch.nan, torch.inf])
def test_out_of_bounds(x):
    ledger, batch, _ = ledger_of(eps=5.0)
    inputs = batch.x.clone()
    inputs[2, 1] = x
    with pytest.raises(ContractError, match="left the bounds of the data"):
        ledger.oracle().scores(batch.ids, inputs)
    assert not ledger.costs.forwards.any() and not ledger.fooled.any()


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_over_budget(norm):
    model = Recorder(threshold(0.5))
    batch = batch_of([[0.4, 0.4]], [0])
    ledger = Ledger(model, batch, threat_of(0.2, norm))
    step = torch.tensor([[0.2, 0.0]])
    ledger.oracle().scores(batch.ids, batch.x + step)
    with pytest.raises(ContractError, match=f"left the budget: 0.0001 beyond eps in {norm}"):
        ledger.oracle().scores(batch.ids, batch.x + 1.0005 * step)


def test_queries_that_do_not_fit_together():
    ledger, batch, _ = ledger_of()
    for ids, x in [
        (batch.ids[:2], batch.x),
        (batch.ids[:0], batch.x[:0]),
        (batch.ids, batch.x[:, :1]),
    ]:
        with pytest.raises(ContractError, match="came with inputs of shape"):
            ledger.oracle().scores(ids, x)


def test_answers_that_are_no_numbers(subtests):
    for ask in ["scores", "gradient"]:
        for value in [torch.nan, torch.inf]:
            with subtests.test(ask=ask, value=value):
                model = Recorder(lambda x: torch.where(x[:, :1] > 0.45, value, 1.0) * x)
                batch = batch_of(np.full((2, 2), 0.4), [0, 0])
                ledger = Ledger(model, batch, threat_of(0.2, n=2))
                extra = (margin,) if ask == "gradient" else ()
                with pytest.raises(ModelError, match="NaN or infinity"):
                    getattr(ledger.oracle(), ask)(batch.ids, points([0.4, 0.5]), *extra)


# What the attack may hold


def test_gradients_are_autograds(subtests):
    for loss in [cross_entropy, margin, dlr]:
        for batch_size in [2, 5, 64]:
            with subtests.test(loss=loss, batch_size=batch_size):
                module = mlp()
                x = torch.rand(7, 6, generator=torch.Generator().manual_seed(0))
                y = torch.arange(7) % 3
                ledger = Ledger(
                    TorchModel(module, SIX),
                    batch_of(x, y),
                    threat_of(0.1, domain=SIX, n=7),
                    batch_size=batch_size,
                )
                answer = ledger.oracle().gradient(torch.arange(7), x, loss)
                leaf = x.clone().requires_grad_()
                value = loss(module(leaf), y)
                (grad,) = torch.autograd.grad(value.sum(), leaf)
                torch.testing.assert_close(answer.grad, grad)
                torch.testing.assert_close(answer.loss, value.detach())
                torch.testing.assert_close(answer.logits, module(x).detach())
                assert not any(tensor.requires_grad for tensor in answer)
                assert all(parameter.grad is None for parameter in module.parameters()), (
                    "weights were given gradients"
                )


def test_no_gradient_leaks_through_scores_or_labels():
    ledger, batch, _ = ledger_of()
    x = batch.x.clone().requires_grad_()
    with torch.enable_grad():
        scores, labels = ledger.oracle().scores(batch.ids, x), ledger.oracle().labels(batch.ids, x)
    assert not scores.requires_grad and scores.grad_fn is None and not labels.requires_grad
    assert torch.is_grad_enabled()


# Writing into what one was given


def test_an_attack_cannot_move_the_bar():
    ledger, batch, _ = ledger_of(2)
    threat = ledger._threat
    own_threat = Threat(distance=distance("linf"), eps=torch.full((2,), 0.2), domain=VECTOR)
    ledger = Ledger(Recorder(threshold(0.5)), batch, own_threat)
    own_threat.eps.fill_(1.0)
    batch.y.fill_(1)
    with pytest.raises(ContractError, check=refused("core.ledger.Ledger._check_reach")):
        ledger.oracle().scores(batch.ids, points([0.95, 0.95]))
    ledger.oracle().scores(batch.ids, batch.x)
    assert not ledger.fooled.any()
    batch.x.add_(0.1)
    with pytest.raises(ContractError, match="wrote into the clean inputs"):
        ledger.oracle().scores(batch.ids, points([0.6, 0.6]))
    assert threat.eps.tolist() == pytest.approx([0.2, 0.2])


def test_a_loss_that_writes_into_the_logits_changes_no_verdict():
    def lying(logits, y):
        value = logits.sum(1)
        y.fill_(1)
        logits.data.copy_(logits.data.flip(1))
        return value

    ledger, batch, _ = ledger_of()
    answer = ledger.oracle().gradient(batch.ids, batch.x, lying)
    assert not ledger.fooled.any()
    assert (answer.logits[:, 0] > answer.logits[:, 1]).all()


def test_writing_into_the_ids_is_noticed():
    """The ledger remembers the last ids it was given; other numbers in the same tensor are another
    query.
    """
    batch = batch_of([[0.4, 0.4], [0.6, 0.4]], [0, 1])
    ledger = Ledger(Recorder(threshold(0.5)), batch, threat_of(0.05, n=2))
    ids = torch.tensor([0])
    ledger.oracle().scores(ids, batch.x[:1])
    ids += 1
    ledger.oracle().scores(ids, batch.x[1:])
    assert ledger.costs.forwards.tolist() == [1, 1] and not ledger.fooled.any()


def test_what_was_found_does_not_change_with_the_attacks_tensors():
    ledger, batch, _ = ledger_of(1)
    x = points([0.55])
    ledger.oracle().scores(batch.ids, x)
    x.fill_(0.0)
    torch.testing.assert_close(ledger.best.closest, points([0.55]))


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 100))
def test_batch_size_changes_nothing(batch_size, rows, seed):
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(0, 6, rows))
    x = points(rng.uniform(0.25, 0.6, rows))
    states = []
    for size in (1000, batch_size):
        ledger, _, _ = ledger_of(6, batch_size=size, eps=0.2)
        scores = ledger.oracle().scores(ids, x)
        states.append(
            [
                scores,
                ledger.costs.forwards,
                ledger.best.first_success,
                ledger.best.distance,
                ledger.best.closest,
            ]
        )
    for first, second in zip(*states, strict=True):
        assert torch.equal(first, second)
