"""Defences on a linear network, whose gradient is known: what they craft, what they minimise, and
AWP's move of the weights.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from _helpers import batch_of, distance
from brinell import plugins
from brinell.core.domain import Column, Domain
from brinell.core.errors import RequestError
from brinell.core.threat import Threat

D, N, EPS = 6, 40, 0.1
DOMAIN = Domain(kind="vector", shape=(D,))
SIGNS = torch.tensor([1.0, -1, 1, 1, -1, -1])


def build_defence(name, **settings):
    return plugins.build("defence", name, settings)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def linear(x):
    """Two classes; the first value of SIGNS leads to class 1, so the loss of class 0 rises along
    SIGNS.
    """
    z = (x - 0.5) @ SIGNS
    return torch.stack([-z, z], 1)


@pytest.fixture
def batch():
    x = 0.4 + 0.2 * torch.rand(N, D, generator=generator(1))
    return batch_of(x, torch.arange(N) % 2)


def threat(norm="linf", n=N, domain=DOMAIN, eps=EPS):
    return Threat(distance=distance(norm), eps=torch.full((n,), eps), domain=domain)


def away(batch):
    """(n, D): the direction in which each sample's loss rises."""
    return torch.where(batch.y[:, None] == 0, SIGNS, -SIGNS)


def test_ascent_ends_in_the_worst_corner(batch, subtests):
    for name in ["pgd", "mart", "alp"]:
        with subtests.test(name=name):
            x_adv = build_defence(name, steps=10).craft(linear, batch, threat(), generator())
            torch.testing.assert_close(x_adv, batch.x + EPS * away(batch))


def test_in_l2_it_ends_at_the_worst_point_of_the_sphere(batch):
    x_adv = build_defence("pgd", steps=20, step_size=1.0).craft(
        linear, batch, threat("l2"), generator()
    )
    torch.testing.assert_close(x_adv, batch.x + EPS * away(batch) / math.sqrt(D), atol=1e-4, rtol=0)
    assert bool(((x_adv - batch.x).norm(dim=1) <= EPS * (1 + 1e-5)).all())


def test_trades_goes_to_where_the_answer_differs_most(batch):
    x_adv = build_defence("trades").craft(linear, batch, threat(), generator())
    steps = (x_adv - batch.x) / EPS
    assert bool((steps.abs() > 0.999).all()), (
        "the divergence grows along SIGNS or against them, up to a corner"
    )
    assert bool(((steps * SIGNS).sum(1).abs() > D - 0.01).all())


def test_pgd_of_one_step_is_one_clipped_step_from_noise(batch):
    crafted = build_defence("pgd", steps=1, step_size=1.25).craft(
        linear, batch, threat(), generator()
    )
    steps = (crafted - batch.x) * away(batch) / EPS
    assert float(steps.min()) >= 0.25 - 1e-5 and float(steps.max()) <= 1 + 1e-5
    assert (steps > 1 - 1e-5).float().mean() == pytest.approx(0.625, abs=0.1), (
        "noise of -0.25 eps and more reaches the border"
    )


def test_n_fgsm_clips_nothing(batch):
    """Noise of up to 2 eps and a whole step stay: values go up to 3 eps, a quarter of them beyond 2
    eps.
    """
    steps = (
        (build_defence("n-fgsm").craft(linear, batch, threat(eps=0.05), generator()) - batch.x)
        * away(batch)
        / 0.05
    )
    assert float(steps.min()) >= -1 - 1e-4 and 2.5 < float(steps.max()) <= 3 + 1e-4
    assert (steps > 2).float().mean() == pytest.approx(0.25, abs=0.08)
    assert float(steps.mean()) == pytest.approx(1, abs=0.15)


def test_nothing_leaves_the_bounds_of_the_data():
    batch = batch_of(torch.tensor([[0.0] * D, [1.0] * D]), torch.tensor([0, 1]))
    for name in ("n-fgsm", "pgd", "trades", "alp"):
        x_adv = build_defence(name).craft(linear, batch, threat(n=2, eps=0.4), generator())
        assert DOMAIN.excess(x_adv) <= 0, name


def test_values_that_may_not_change_do_not():
    columns = tuple(Column(f"c{index}", fixed=index in (0, 3)) for index in range(D))
    domain = Domain(kind="vector", shape=(D,), columns=columns)
    batch = batch_of(torch.full((4, D), 0.5), torch.tensor([0, 1, 0, 1]))
    for name in ("n-fgsm", "pgd", "trades", "mart", "alp"):
        steps = (
            build_defence(name).craft(linear, batch, threat(n=4, domain=domain), generator())
            - batch.x
        ).abs() > 0
        assert not steps[:, [0, 3]].any() and steps[:, [1, 2, 4, 5]].any(1).all(), name


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_each_sample_keeps_to_its_own_budget(batch, norm):
    eps = torch.linspace(0.01, 0.1, N)
    threat_model = Threat(distance=distance(norm), eps=eps, domain=DOMAIN)
    x_adv = build_defence("pgd").craft(linear, batch, threat_model, generator())
    assert bool((threat_model.distance.size(x_adv - batch.x) <= eps * (1 + 1e-4) + 1e-7).all())


LOGITS = torch.tensor([[2.0, 0.5, -1.0], [0.1, 0.2, 0.3]])
ATTACKED = torch.tensor([[0.5, 1.5, 0.0], [-0.5, 1.0, 0.4]])
Y = torch.tensor([0, 2])


def losses(name, **settings):
    """The loss where clean inputs are answered by LOGITS and crafted ones by ATTACKED."""
    network = {0: LOGITS, 1: ATTACKED}
    batch = batch_of(torch.zeros(2, D), Y)
    return build_defence(name, **settings).loss(
        lambda x: network[int(x[0, 0])], batch, torch.ones(2, D)
    )


def test_trades_by_hand():
    kl = F.kl_div(ATTACKED.log_softmax(1), LOGITS.softmax(1), reduction="none").sum(1)
    torch.testing.assert_close(
        losses("trades", beta=3.0), F.cross_entropy(LOGITS, Y, reduction="none") + 3 * kl
    )


def test_mart_by_hand():
    p, q = LOGITS.softmax(1), ATTACKED.softmax(1)
    wrong = torch.tensor([max(q[0, 1], q[0, 2]), max(q[1, 0], q[1, 1])])
    boosted = -q[[0, 1], Y].log() - (1 - wrong).log()
    weighted = (p * (p / q).log()).sum(1) * (1 - p[[0, 1], Y])
    torch.testing.assert_close(
        losses("mart", weight=2.0), boosted + 2 * weighted, atol=1e-3, rtol=1e-3
    )


def test_alp_by_hand(batch):
    """The worst corner moves the linear network's two logits by D * EPS, one up and one down, so
    that their squared distance is (D * EPS)**2 = 0.36 in the mean; a clean input lies at the margin
    2 z, its adversarial one at 2 z - 2 D EPS, and softplus of the negative margin is the
    cross-entropy of two classes.
    """
    alp = build_defence("alp", weight=2.0)
    x_adv = alp.craft(linear, batch, threat(), generator())
    margin = -2 * ((batch.x - 0.5) * away(batch)).sum(1)
    both = (F.softplus(-margin) + F.softplus(2 * D * EPS - margin)) / 2
    torch.testing.assert_close(alp.loss(linear, batch, x_adv), both + 2 * 0.36)

    squared = torch.tensor([1.5**2 + 1 + 1, 0.6**2 + 0.8**2 + 0.1**2])
    crosses = [F.cross_entropy(logits, Y, reduction="none") for logits in (LOGITS, ATTACKED)]
    torch.testing.assert_close(losses("alp"), sum(crosses) / 2 + 0.5 * squared / 3)


def test_the_others_learn_what_was_crafted_alone(subtests):
    for name in ["pgd", "n-fgsm", "plain", "distortions", "benchmark-set"]:
        with subtests.test(name=name):
            torch.testing.assert_close(losses(name), F.cross_entropy(ATTACKED, Y, reduction="none"))


def test_awp_moves_each_layer_by_its_share_along_the_gradient_and_back():
    network = nn.Sequential(nn.Linear(D, 4), nn.ReLU(), nn.Linear(4, 2))
    rng = generator(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng))
    x, y = torch.rand(8, D, generator=rng), torch.arange(8) % 2
    parameters = list(network.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    loss = lambda: F.cross_entropy(network(x), y)  # noqa: E731
    first = float(loss().detach())
    grads = torch.autograd.grad(loss(), parameters)
    with build_defence("awp", gamma=0.02).perturbed(parameters, loss):
        for parameter, old, grad in zip(parameters, before, grads, strict=True):
            change = parameter.detach() - old
            if parameter.ndim == 1:
                assert not change.any(), "biases stay"
            else:
                torch.testing.assert_close(
                    change, 0.02 * old.norm() * grad / grad.norm(), atol=1e-6, rtol=1e-4
                )
        assert float(loss().detach()) > first
    assert all(
        torch.equal(parameter.detach(), old)
        for parameter, old in zip(parameters, before, strict=True)
    )


def test_distortions_follow_the_generator_alone():
    domain = Domain(kind="image", shape=(1, 8, 8))
    batch = batch_of(
        torch.rand(12, 1, 8, 8, generator=generator(2)), torch.zeros(12, dtype=torch.int64)
    )
    batch_threat = threat(n=12, domain=domain)
    defence = plugins.build_list(
        "defence", "distortions(distortions=brightness+gaussian-noise,severities=5)"
    )[0]
    first, second, third = (
        defence.craft(linear, batch, batch_threat, generator(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first, second) and not torch.equal(first, third)
    assert (
        bool(((first - batch.x).flatten(1).abs().amax(1) > 0).all()) and domain.excess(first) <= 0
    )


def test_settings_that_make_no_sense_are_refused(subtests):
    for text, line in [
        ("pgd(steps=0)", "steps is 0; it must be at least 1"),
        ("pgd(step_size=3)", "step_size is 3"),
        ("n-fgsm(noise=0)", "noise is 0"),
        ("trades(beta=-1)", "beta is -1"),
        ("alp(weight=0)", "weight is 0"),
        ("awp(gamma=0)", "gamma is 0"),
        ("distortions(severities=7)", "severities are"),
    ]:
        with subtests.test(text=text, line=line):
            with pytest.raises(RequestError, match=line.replace("(", r"\(")):
                plugins.build_list("defence", text)
