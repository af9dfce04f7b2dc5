"""Sparse-PGD against Algorithm 1, and what it changes."""

import pytest
import torch

from _helpers import Recorder, mlp, run_attack
from brinell.attacks.sparse_pgd import SparsePGD
from brinell.core.domain import Domain
from brinell.core.streams import Streams

IMAGE = Domain(kind="image", shape=(2, 3, 4))


def sparse_pgd_of_the_paper(function, x0, y, k, steps, projected, start, scores):
    """Algorithm 1 for one image in pixels: every input that is looked at, in order.

    It begins with the values `start` (C, H, W) and the scores (1, H, W); scores are never drawn
    anew.
    """
    points = []
    change = start - x0
    for _ in range(steps + 1):
        top = scores.flatten().topk(k).indices
        mask = torch.zeros(scores.numel()).scatter(0, top, 1.0).reshape(scores.shape)
        points.append(x0 + change * mask)

        # The gradient at the masked input, and what the chain rule makes of it.
        leaf = points[-1].clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(function(leaf[None]), torch.tensor([y]))
        (grad,) = torch.autograd.grad(loss, leaf)
        soft = scores.clone().requires_grad_()
        (rise,) = torch.autograd.grad((grad * change * soft.sigmoid()).sum(), soft)

        slope = grad * mask if projected else grad * scores.sigmoid()
        change = (x0 + change + 0.25 * slope.sign()).clamp(0, 1) - x0
        scores = scores + 0.25 * scores.numel() ** 0.5 * rise / rise.norm()
    return torch.stack(points)


@pytest.mark.parametrize("projected", [False, True])
def test_goes_where_algorithm_1_goes(projected):
    """On a network that it never fools, since the label's logit is raised out of reach."""
    for seed in range(4):
        module = mlp(24, 3, seed)

        def function(x, module=module):
            return module(x.flatten(1)) + torch.tensor([12.0, 0.0, 0.0])

        x0 = torch.rand(1, 2, 3, 4, generator=torch.Generator().manual_seed(seed))
        model = Recorder(function, IMAGE, classes=3)
        attack = SparsePGD(steps=20, projected=projected, patience=100)
        ledger = run_attack(attack, model, x0, [0], 3.0, "pixels", seed=seed)
        assert not ledger.fooled.any()

        rng = Streams.of(seed, torch.zeros(1, dtype=torch.int64)).fold("test")
        start = (x0 + 2 * rng.uniform(2, 3, 4) - 1).clamp(0, 1)
        scores = rng.fold("mask").normal(1, 3, 4)
        expected = sparse_pgd_of_the_paper(
            function, x0[0], 0, 3, 20, projected, start[0], scores[0]
        )
        torch.testing.assert_close(torch.cat(model.calls), expected, atol=1e-5, rtol=0)


def test_draws_the_scores_anew_where_the_mask_stays(subtests):
    """A constant model moves no scores; after every second step with one mask another is tried."""
    for patience in (2, 3):
        with subtests.test(patience=patience):
            domain = Domain(kind="vector", shape=(40,))
            model = Recorder(lambda x: x[:, :2] * 0 + torch.tensor([1.0, 0.0]), domain)
            attack = SparsePGD(steps=4 * patience, patience=patience)
            run_attack(attack, model, torch.full((1, 40), 0.5), [0], 4.0, "l0")
            masks = [tuple(call[0].ne(0.5).nonzero()[:, 0].tolist()) for call in model.calls]
            assert len(set(masks)) == 5 and len(set(masks[:patience])) == 1


def test_in_pixels_all_channels_of_a_place_change_together():
    """Two channels weigh against each other, and one pixel may change."""
    weight = torch.tensor([1.0, -1.0])[:, None, None].expand(2, 3, 4)
    model = Recorder(
        lambda x: torch.stack([torch.full((len(x),), 0.9), (x * weight).sum((1, 2, 3))], 1), IMAGE
    )
    ledger = run_attack(SparsePGD(), model, torch.full((3, 2, 3, 4), 0.5), [0] * 3, 1.0, "pixels")
    assert ledger.fooled.all()
    changed = ledger.best.closest.ne(0.5)
    assert changed.any(1).sum((1, 2)).tolist() == [1] * 3 and changed.sum() == 6
