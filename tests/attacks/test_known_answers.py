"""What each attack must do on targets whose answers are known."""

from dataclasses import replace
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import Recorder, ledger_settings, mlp, run_attack, threat_of, threshold
from brinell import plugins
from brinell.attacks._apgd_steps import ApgdState, checkpoints
from brinell.attacks.apgd import APGD
from brinell.attacks.fgsm import FGSM
from brinell.attacks.pgd import PGD
from brinell.core.criterion import MISCLASSIFIED, Targeted
from brinell.core.domain import KINDS, Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.core.threat import COUNTS
from brinell.testing import linear_problem

THREE = Domain(kind="vector", shape=(3,))
SLOPE = torch.tensor([3.0, -4.0, 0.0])


def sloped(x):
    """Two classes; the loss of class 0 rises along SLOPE."""
    z = x.flatten(1) @ SLOPE
    return torch.stack([5 - z, z - 5], 1)


# FGSM


def test_fgsm_is_one_step(subtests):
    for loss in ["ce", "margin", "dlr"]:
        with subtests.test(loss=loss):
            model = Recorder(sloped, THREE)
            ledger = run_attack(
                FGSM(loss=loss), model, [[0.5, 0.5, 0.5], [0.95, 0.5, 0.5]], [0, 0], 0.1
            )
            first_call, stepped = model.calls
            assert first_call.tolist() == [[0.5] * 3, pytest.approx([0.95, 0.5, 0.5])]
            # The sign of the gradient; the third value has none and stays; the second sample meets
            # its upper bound.
            torch.testing.assert_close(stepped, torch.tensor([[0.6, 0.4, 0.5], [1.0, 0.4, 0.5]]))
            assert ledger.costs.forwards.tolist() == [2, 2] and ledger.costs.backwards.tolist() == [
                1,
                1,
            ]


def test_fgsm_goes_on_with_the_others_where_one_is_fooled_already():
    model = Recorder(threshold(0.5))
    ledger = run_attack(FGSM(), model, [[0.6, 0.2], [0.45, 0.8]], [0, 0], 0.1)
    assert ledger.fooled.tolist() == [True, True] and ledger.costs.forwards.tolist() == [1, 2]


# PGD


def test_bim_steps_by_hand():
    model = Recorder(sloped, THREE)
    run_attack(PGD(steps=3, step_size=0.6, random_start=False), model, [[0.5, 0.5, 0.5]], [0], 0.1)
    expected = [[0.5, 0.5, 0.5], [0.56, 0.44, 0.5], [0.6, 0.4, 0.5], [0.6, 0.4, 0.5]]
    torch.testing.assert_close(torch.cat(model.calls), torch.tensor(expected))


def test_random_starts_differ_by_seed_sample_and_restart(subtests):
    for attack in [PGD(steps=2), APGD(steps=2)]:
        for norm in ["linf", "l2"]:
            with subtests.test(attack=attack, norm=norm):
                starts = []
                for seed in (0, 1):
                    model = Recorder(sloped, THREE)
                    restarted = type(attack)(steps=2, restarts=2)
                    run_attack(
                        restarted, model, [[0.5, 0.5, 0.5]] * 2, [0, 0], 0.1, norm, seed=seed
                    )
                    calls_a_run = 3
                    starts += [*model.calls[0], *model.calls[calls_a_run]]
                assert len({tuple(start.tolist()) for start in starts}) == len(starts) == 8
                sizes = torch.stack(starts) - 0.5
                sizes = sizes.abs().amax(1) if norm == "linf" else sizes.norm(dim=1)
                assert (sizes <= 0.1 + 1e-6).all()
                if isinstance(attack, APGD):
                    torch.testing.assert_close(sizes, torch.full((8,), 0.1))


@pytest.mark.parametrize("targets", [0, 1])
def test_apgd_s_later_restarts_go_side_by_side(targets):
    """One run, and one more for all the others; each row is the run that it would be by itself."""
    runs, loss = targets or 1, "margin" if targets else "ce"
    model, separate = Recorder(sloped, THREE), Recorder(sloped, THREE)
    run_attack(
        APGD(loss=loss, steps=2, restarts=4, targets=targets), model, [[0.5, 0.5, 0.5]], [0], 0.1
    )
    first = int(targets > 0)  # the clean input, by whose answer targets are ranked
    assert [len(call) for call in model.calls[first:]] == [runs] * 3 + [3 * runs] * 3
    run_attack(
        APGD(loss=loss, steps=2, restarts=2, targets=targets), separate, [[0.5, 0.5, 0.5]], [0], 0.1
    )
    for index in range(first, first + 6):
        torch.testing.assert_close(model.calls[index][:runs], separate.calls[index][:runs])


def test_the_last_iterate_is_judged(subtests):
    """The boundary lies so near to the rim of the ball that only the last point crosses it."""
    for attack in [
        PGD(steps=4, step_size=0.25, random_start=False),
        APGD(steps=1, random_start=False),
        FGSM(),
    ]:
        with subtests.test(attack=attack):
            model = Recorder(threshold(0.4999))
            ledger = run_attack(attack, model, [[0.4, 0.5]], [0], 0.1)
            assert ledger.fooled.all()
            assert ledger.best.first_success.tolist() == ledger.costs.forwards.tolist()
            assert (threshold(0.4999)(torch.cat(model.calls[:-1])).argmax(1) == 0).all()


# APGD


@given(st.integers(1, 1000))
def test_checkpoints_by_the_formula(steps):
    """Section 3.2: p_(j+1) = p_j + max(p_j - p_(j-1) - 0.03, 0.06), w_j = ceil(p_j N), in
    hundredths so that nothing rounds.
    """
    points = [0, 22]
    while points[-1] <= 100:
        points.append(points[-1] + max(points[-1] - points[-2] - 3, 6))
    expected = sorted({-(-point * steps // 100) for point in points if 0 < point} - {0})
    assert checkpoints(steps) == [w for w in expected if w <= steps]


def apgd_of_the_paper(function, x0, y, eps, steps):
    """Algorithm 1 for one sample in Linf, transcribed: every input whose value is asked for, in
    order.
    """
    points = [0, *checkpoints(steps)]

    def f(x):
        leaf = x.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(function(leaf), y, reduction="sum")
        return loss.item(), torch.autograd.grad(loss, leaf)[0]

    def project(x):
        return torch.minimum(torch.maximum(x, x0 - eps), x0 + eps).clamp(0, 1)

    eta, (loss, grad) = 2 * eps, f(x0)
    x_old, x = x0, project(x0 + eta * grad.sign())
    best, best_x, best_grad = loss, x0, grad
    eta_before, best_before = None, best
    inputs, rises, j = [x0, x], 0, 1
    for k in range(1, steps):
        before, (loss, grad) = loss, f(x)
        rises += loss > before
        if loss > best:
            best, best_x, best_grad = loss, x, grad
        if k == points[j]:
            stalled = rises <= 0.75 * (points[j] - points[j - 1])
            stuck = eta_before == eta and best_before == best
            eta_before, best_before, rises, j = eta, best, 0, min(j + 1, len(points) - 1)
            if stalled or stuck:
                eta, x, loss, grad = eta / 2, best_x, best, best_grad
        z = project(x + eta * grad.sign())
        x_old, x = x, project(x + 0.75 * (z - x) + 0.25 * (x - x_old))
        inputs.append(x)
    return torch.cat(inputs)


def test_apgd_in_linf_goes_where_algorithm_1_goes():
    """On a network that it never fools, since the label's logit is raised out of reach."""
    for seed in range(6):
        module = mlp(12, 3, seed)

        def function(x, module=module):
            return module(x) + torch.tensor([12.0, 0.0, 0.0])

        x0 = torch.rand(1, 12, generator=torch.Generator().manual_seed(seed))
        model = Recorder(function, Domain(kind="vector", shape=(12,)), classes=3)
        y = torch.tensor([0])
        ledger = run_attack(APGD(steps=100, random_start=False), model, x0, y, 0.2)
        assert not ledger.fooled.any()
        torch.testing.assert_close(
            torch.cat(model.calls), apgd_of_the_paper(function, x0, y, 0.2, 100), atol=1e-6, rtol=0
        )


def test_apgd_halves_where_at_most_three_quarters_of_the_steps_rose():
    """Condition 1 of section 3.1, over the first 22 steps, of which 16.5 would be three quarters;
    condition 2 is kept out.
    """
    zeros = torch.zeros(4)
    state = ApgdState(zeros[:, None], zeros, zeros[:, None], step_size=torch.full((4,), 0.2))
    state.rises, state.loss_max = torch.tensor([0.0, 16.0, 17.0, 22.0]), torch.ones(4)
    state.review(22)
    assert state.step_size.tolist() == pytest.approx([0.1, 0.1, 0.2, 0.2])
    # Condition 2: neither the step nor the best value has changed since the checkpoint before.
    state.rises = torch.full((4,), 19.0)
    state.review(19)
    assert state.step_size.tolist() == pytest.approx([0.1, 0.1, 0.1, 0.1])


# Every attack on linear models, whose exact margins are known


class Row(NamedTuple):
    """How an attack is run on linear models."""

    settings: dict[str, Any] = {}
    """Cheap settings that still find every sample."""
    most: dict[str, float] = {}
    """Exact margins within which every sample is found, by distance, where they are others than
    `most_of` says."""


ROWS = {
    "apgd": Row({"steps": 15, "restarts": 2}),
    "apgd-map": Row({"steps": 15}),
    "boundary-walk": Row({"steps": 4, "restarts": 4}),
    "fab": Row({"steps": 12}, {"linf": 1.02, "l2": 1.02, "l1": 1.02}),
    "fmn": Row({"steps": 30}, {"linf": 1.02, "l2": 1.02, "l1": 1.02}),
    "cgba": Row({"steps": 8, "samples": 60, "frequencies": 1}, {"l2": 1.2}),
    "hop-skip-jump": Row({"steps": 5, "samples": 100}, {"linf": 1.3, "l2": 1.2}),
    "pgd": Row({"steps": 15}),
    "pgd-estimated": Row({"steps": 10, "pairs": 8}),
    "ray-s": Row({"steps": 300}, {"linf": 1.4, "l2": 2.0}),
    "rlab": Row({"steps": "48", "draws": "1", "clean_up": "false"}, {"linf": 16.0, "l2": 16.0}),
    "simba": Row({"steps": 50}),
    "sparse-rs": Row({"steps": 50}),
    "square": Row({"steps": 100}, {"l1": 4.0, "l2": 4.0}),
}
"""Attacks whose defaults are dear, or that miss the nearest input by more than the others; a new
attack needs no row."""
NAMES = plugins.names("attack")
BY_GRADIENT = [name for name in NAMES if plugins.load("attack", name).access == Access.GRADIENTS]


def most_of(name, distance):
    """Exact margins within which an attack finds every sample: a little more than one by gradients;
    at three noise finds none.
    """
    usual = (
        3.0
        if name not in BY_GRADIENT
        else 1.04
        if plugins.load("attack", name).family == "minimal"
        else 1.05
    )
    return ROWS.get(name, Row()).most.get(distance, usual)


def problems(name):
    """(attack, distance, problem) for each distance, every time on another kind of input."""
    attack = plugins.build("attack", name, ROWS.get(name, Row()).settings)
    kinds = cycle(sorted(attack.domains))
    for seed, distance in enumerate(sorted(attack.distances & set(plugins.names("distance")))):
        yield attack, distance, linear_problem(next(kinds), distance, seed=seed, classes=4, n=6)


def run_linear(attack, distance, problem, eps, criterion=MISCLASSIFIED):
    """The ledger of an attack within `eps`, a budget for each sample."""
    threat = replace(threat_of(eps, distance, problem.model.domain), criterion=criterion)
    ledger = Ledger(problem.model, problem.batch, threat, **ledger_settings(attack, distance))
    attack(ledger.oracle(), problem.batch, threat, Streams.of(0, problem.batch.ids))
    return ledger


def less(margin, distance):
    """A little less than the margin, with which no attack wins; in L0 one value less."""
    return margin - 1 if distance in COUNTS else 0.95 * margin


def check_margins(name, subtests):
    """Never a success below the exact margin, always one a little above it; also where one class is
    the goal.
    """
    for number, (attack, distance, problem) in enumerate(problems(name)):
        nearest = 1 - problem.batch.y
        farthest = torch.full_like(problem.batch.y, 3)
        goals = (
            [MISCLASSIFIED, Targeted(nearest)]
            if attack.targeted and not number
            else [MISCLASSIFIED]
        )
        for criterion in goals:
            with subtests.test(
                distance=distance, kind=problem.model.domain.kind, criterion=criterion
            ):
                assert not run_linear(
                    attack, distance, problem, less(problem.margin, distance), criterion
                ).fooled.any()
                ledger = run_linear(
                    attack, distance, problem, most_of(name, distance) * problem.margin, criterion
                )
                assert (
                    ledger.fooled.all() and (ledger.best.distance >= 0.999 * problem.margin).all()
                )
                assert criterion is MISCLASSIFIED or torch.equal(
                    ledger.best.answer.argmax(1), nearest
                )
        if attack.targeted and not number:
            assert not run_linear(
                attack, distance, problem, 1.5 * problem.margin, Targeted(farthest)
            ).fooled.any()


@pytest.mark.parametrize("part", range(7))
def test_exact_margins_by_gradients(part, subtests):
    for name in BY_GRADIENT[part::7]:
        check_margins(name, subtests)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in BY_GRADIENT])
def test_exact_margins_without_gradients(name, subtests):
    check_margins(name, subtests)


@settings(max_examples=30)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(["linf", "l2", "l1"]),
    st.integers(0, 10**6),
    st.integers(2, 10),
)
def test_the_margins_are_exact(kind, norm, seed, classes):
    """The straight step along the dual direction wins just above the margin and does not just below
    it."""
    problem = linear_problem(kind, norm, seed=seed, classes=classes, n=8)
    distance, x, y = plugins.build("distance", norm, {}), problem.batch.x, problem.batch.y
    rival = problem.model.weight[1 - y] - problem.model.weight[y]
    step = distance.ascent(rival.reshape(x.shape))
    for factor, wins in ((0.999, False), (1.001, True)):
        shifted = x + step * (factor * problem.margin).reshape(-1, *[1] * (x.ndim - 1))
        assert ((problem.model.predict(shifted).argmax(1) != y) == wins).all()
        assert problem.model.domain.excess(shifted) <= 0
    assert (problem.model.predict(x).argmax(1) == y).all()


# Survivors only


ATTACKS = [
    PGD(steps=6, random_start=False),
    PGD(steps=3, restarts=2),
    APGD(steps=6, random_start=False),
    APGD(steps=4, restarts=2),
]


def test_a_fooled_sample_is_never_shown_again(subtests):
    """Samples are told apart by their second value, which no attack can move far; their distances
    to the boundary differ.
    """
    for attack in ATTACKS:
        for batch_size in [3, 100]:
            with subtests.test(attack=attack, batch_size=batch_size):
                n = 12
                x = torch.stack([torch.linspace(0.3, 0.49, n), torch.linspace(0.05, 0.95, n)], 1)
                model = Recorder(threshold(0.5))
                ledger = run_attack(attack, model, x, [0] * n, 0.03, batch_size=batch_size)
                fooled = set()
                counts = np.zeros(n, dtype=int)
                for call in model.calls:
                    ids = (call[:, 1:2] - x[:, 1]).abs().argmin(1).tolist()
                    assert not fooled & set(ids), "a fooled sample was shown to the model again"
                    fooled |= {
                        sample_id
                        for sample_id, wrong in zip(ids, (call[:, 0] > 0.5).tolist(), strict=True)
                        if wrong
                    }
                    np.add.at(counts, ids, 1)
                assert counts.tolist() == ledger.costs.forwards.tolist()
                assert 0 < len(fooled) < n
                assert ledger.fooled.nonzero()[:, 0].tolist() == sorted(fooled)
                most = attack.cost(2)[0]
                assert [count == most for count in counts] == [
                    index not in fooled for index in range(n)
                ]
