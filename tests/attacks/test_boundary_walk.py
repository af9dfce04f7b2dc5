"""The boundary walk: known answers, bounds and costs, and scores that mislead wherever the model is
sure.
"""

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
    """The first class, raised by a pattern along `weights` beyond a lead; the class is the
    module's.
    """

    def scores(x):
        z = module(x)
        top = z.topk(2, 1)
        bonus = (top.values[:, :1] - top.values[:, 1:] - beyond).relu() * (
            1 + torch.sin(slope * (x.flatten(1) @ weights))
        )[:, None]
        return z.scatter_add(1, top.indices[:, :1], 20 * bonus)

    return scores


def test_scores_that_mislead_where_the_model_is_sure_change_nothing():
    """The distances are those of the honest scores, but for a few walks that end at another stretch
    of the boundary."""
    domain, alike = Domain(kind="vector", shape=(12,)), 0
    for seed in range(6):
        generator, module = torch.Generator().manual_seed(seed), mlp(12, 4, seed)
        x, weights = torch.rand(8, 12, generator=generator), torch.randn(12, generator=generator)
        bent, norm = (
            raised(module, 0.01 + 0.03 * (seed % 4), 5 + 9 * seed, weights),
            ("linf", "l2", "l1")[seed % 3],
        )
        found = [
            run_attack(
                SHORT, Recorder(function, domain, classes=4), x, module(x).argmax(1), 100.0, norm
            ).best.distance
            for function in (module, bent)
        ]
        alike += int((found[1] <= 1.1 * found[0]).sum())
    assert alike >= 40, "of 48"


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from(["linf", "l2", "l1"]))
def test_bounds_and_fixed_values_hold_and_what_is_recorded_is_adversarial(seed, norm):
    kind = ("image", "signal", "video", "vector")[seed % 4]
    problem = linear_problem(kind, norm, seed=seed, n=4)
    ledger = run_attack(SHORT, problem.model, problem.batch.x, problem.batch.y, 100.0, norm)
    assert problem.model.domain.excess(ledger.best.closest) <= 0
    assert (problem.model.predict(ledger.best.closest).argmax(1) != problem.batch.y)[
        ledger.fooled
    ].all()
    assert (ledger.best.distance >= 0.999 * problem.margin).all() and ledger.fooled.all()


def test_a_sample_does_the_same_alone_and_leaves_at_eps():
    problem = linear_problem("vector", "linf", n=5)
    batched, separate = (
        run_attack(SHORT, problem.model, problem.batch.x[:n], problem.batch.y[:n], 10.0, "linf")
        for n in (5, 1)
    )
    torch.testing.assert_close(
        batched.best.distance[:1], separate.best.distance, atol=1e-4, rtol=1e-3
    )
    early = run_attack(
        replace(SHORT, stop_at_eps=True),
        problem.model,
        problem.batch.x,
        problem.batch.y,
        10.0,
        "linf",
    )
    assert early.fooled.all() and (early.costs.forwards < batched.costs.forwards).all()


def test_where_nothing_is_adversarial_the_tries_are_all_that_is_asked():
    model = Recorder(threshold(2.0))
    ledger = run_attack(SHORT, model, [[0.2, 0.4], [0.3, 0.3]], [0, 0], 1.0, "l2")
    assert (
        not ledger.fooled.any()
        and ledger.costs.backwards.tolist() == [36, 36] == ledger.costs.forwards.tolist()
    )
