"""The boundary walk: known answers, bounds and costs, and scores that mislead wherever the model is sure."""

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import Recorder, mlp, run_attack, threshold
from brinell.attacks.boundary_walk import BoundaryWalk
from brinell.core.domain import Domain
from brinell.testing.linear import linear_problem

SHORT = BoundaryWalk(steps=6, restarts=3)


def raised(module, beyond, slope, weights):
    """The first class, raised by a pattern along `weights` beyond a lead; the class is the module's."""

    def scores(x):
        z = module(x)
        top = z.topk(2, 1)
        bonus = (top.values[:, :1] - top.values[:, 1:] - beyond).relu() * (1 + torch.sin(slope * (x.flatten(1) @ weights)))[
            :, None
        ]
        return z.scatter_add(1, top.indices[:, :1], 20 * bonus)

    return scores


@settings(max_examples=4)
@given(st.integers(0, 10**6), st.sampled_from(["linf", "l2", "l1"]), st.floats(0.01, 0.1), st.floats(5, 50))
def test_scores_that_mislead_where_the_model_is_sure_change_nothing(seed, norm, beyond, slope):
    """The distances are those of the honest scores, but for a few walks that end at another stretch of the boundary."""
    generator = torch.Generator().manual_seed(seed)
    domain, module = Domain(kind="vector", shape=(12,)), mlp(12, 4, seed % 50)
    x, weights = torch.rand(8, 12, generator=generator), torch.randn(12, generator=generator)
    y = module(x).argmax(1)
    honest, bent = (
        run_attack(SHORT, Recorder(function, domain, classes=4), x, y, 100.0, norm).best.distance
        for function in (module, raised(module, beyond, slope, weights))
    )
    assert (bent <= 1.1 * honest).sum() >= 5


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from(["linf", "l2", "l1"]))
def test_bounds_and_fixed_values_hold_and_what_is_recorded_is_adversarial(seed, norm):
    kind = ("image", "signal", "video", "vector")[seed % 4]
    problem = linear_problem(kind, norm, seed=seed, n=4)
    ledger = run_attack(SHORT, problem.model, problem.batch.x, problem.batch.y, 100.0, norm)
    assert problem.model.domain.excess(ledger.best.closest) <= 0
    assert (problem.model.predict(ledger.best.closest).argmax(1) != problem.batch.y)[ledger.fooled].all()
    assert (ledger.best.distance >= 0.999 * problem.margin).all() and ledger.fooled.all()


def test_budgets_hold_and_the_declared_costs_too():
    problem = linear_problem("signal", "l2", n=6)
    for queries in (1, 7, 33, 60, None):
        ledger = run_attack(SHORT, problem.model, problem.batch.x, problem.batch.y, 10.0, "l2", queries=queries)
        most = (queries or SHORT.cost(5)[0], SHORT.cost(5)[1])
        assert (ledger.costs.forwards <= most[0]).all() and (ledger.costs.backwards <= most[1]).all()


def test_a_sample_does_the_same_alone_and_leaves_at_eps():
    problem = linear_problem("vector", "linf", n=5)
    batched, separate = (run_attack(SHORT, problem.model, problem.batch.x[:n], problem.batch.y[:n], 10.0, "linf") for n in (5, 1))
    torch.testing.assert_close(batched.best.distance[:1], separate.best.distance, atol=1e-4, rtol=1e-3)
    early = run_attack(replace(SHORT, stop_at_eps=True), problem.model, problem.batch.x, problem.batch.y, 10.0, "linf")
    assert early.fooled.all() and (early.costs.forwards < batched.costs.forwards).all()


def test_where_nothing_is_adversarial_the_tries_are_all_that_is_asked():
    model = Recorder(threshold(2.0))
    ledger = run_attack(SHORT, model, [[0.2, 0.4], [0.3, 0.3]], [0, 0], 1.0, "l2")
    assert not ledger.fooled.any() and ledger.costs.backwards.tolist() == [36, 36] == ledger.costs.forwards.tolist()
