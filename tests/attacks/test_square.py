"""The Square Attack against its paper: schedule, starts, single updates, and models whose gradients
say nothing.
"""

import math
from dataclasses import replace

import pytest
import torch

from _helpers import Recorder, batch_of, load_network, run_attack, threat_of
from _square import IMAGE, proposals, record_queries, unbeaten
from brinell.attacks import _windows as windows
from brinell.attacks.pgd import PGD
from brinell.attacks.square import Square
from brinell.core.criterion import MISCLASSIFIED, Targeted
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.losses import margin
from brinell.core.streams import Streams

WIDE = {"low": -100.0, "high": 100.0}
"""Bounds that cut nothing off."""
DOMAINS = [
    IMAGE,
    Domain(kind="image", shape=(2, 7, 15)),
    Domain(kind="signal", shape=(2, 50)),
    Domain(kind="video", shape=(1, 4, 6, 6)),
    Domain(kind="vector", shape=(40,)),
]


# The schedule


def test_schedule_by_hand():
    full = Square(steps=10_000)
    halved = {
        0: 0,
        9: 0,
        10: 1,
        49: 1,
        50: 2,
        200: 3,
        500: 4,
        999: 4,
        1000: 5,
        2000: 6,
        4000: 7,
        6000: 8,
        7999: 8,
        8000: 9,
        9999: 9,
    }
    assert {step: math.log2(0.8 / full.fraction(step)) for step in halved} == halved
    short = Square(steps=1000)
    assert [short.fraction(step) for step in (0, 1, 5, 20, 50, 100, 999)] == [
        0.8 / 2**k for k in (0, 1, 2, 3, 4, 5, 9)
    ]
    fixed = Square(steps=1000, rescale_schedule=False)
    assert [fixed.fraction(step) for step in (0, 9, 10, 50, 200, 500, 999)] == [
        0.8 / 2**k for k in (0, 0, 1, 2, 3, 4, 4)
    ]


# Shapes


def test_bump_by_hand():
    """Eq. 2: n = 1, so 1 + 1/4 in the middle and 1/4 around it; for 5 x 5 n = 2 and 1/9 more
    everywhere.
    """
    around = [0.25, 0.25, 0.25]
    torch.testing.assert_close(
        windows.bump((3, 3)), torch.tensor([around, [0.25, 1.25, 0.25], around])
    )
    five = windows.bump((5, 5))
    assert five[2, 2] == pytest.approx(1 + 1 / 4 + 1 / 9) and five[1, 3] == pytest.approx(
        1 / 4 + 1 / 9
    )
    assert five[0, 4] == pytest.approx(1 / 9)
    torch.testing.assert_close(windows.bump((3,)), torch.tensor([0.25, 1.25, 0.25]))


def test_opposite_bumps_by_hand():
    """A 3 x 3 window is a 1 x 3 hill beside a 2 x 3 hole, and its transpose."""
    first, second = windows.opposite_bumps((3, 3)).reshape(2, 3, 3)
    by_hand = torch.tensor([[0.25, 1.25, 0.25], [-0.25, -0.25, -0.25], [-0.25, -1.25, -0.25]])
    torch.testing.assert_close(first, by_hand / by_hand.norm())
    torch.testing.assert_close(second, first.T)
    assert windows.opposite_bumps((4, 4, 4)).shape == (3, 64)
    assert windows.opposite_bumps((1, 4)).shape == (1, 4)
    assert windows.opposite_bumps((1,)).tolist() == [[1.0]]


# Starts


def test_stripes_are_constant_along_the_height():
    x, calls = record_queries(IMAGE, "linf", 0.1)
    delta = calls[0] - x
    torch.testing.assert_close(delta.abs(), torch.full_like(delta, 0.1))
    assert (delta.sign() == delta.sign()[:, :, :1]).all()
    columns = delta[:, :, 0].sign().flatten()
    assert 0 < (columns > 0).sum() < len(columns) and not torch.equal(delta[0], delta[1])


def test_bumps_lie_on_a_grid_of_five_by_five_tiles():
    """12 x 12 leaves 5 tiles of 2 x 2 and a rim of 1; each tile is one value up and one down, along
    either axis.
    """
    x, calls = record_queries(Domain(kind="image", shape=(3, 12, 12), **WIDE), "l2", 2.0)
    delta = calls[0] - x
    torch.testing.assert_close(
        delta.flatten(1).norm(dim=1), torch.full((3,), 2.0), atol=1e-4, rtol=0
    )
    rim = torch.ones(12, 12, dtype=torch.bool)
    rim[1:11, 1:11] = False
    assert (delta[:, :, rim].abs() < 1e-5).all()
    tiles = delta[:, :, 1:11, 1:11].unfold(2, 2, 2).unfold(3, 2, 2)
    assert (tiles.sum((4, 5)).abs() < 1e-3).all() and (tiles.abs().amax((4, 5)) > 0.05).all()
    alike = (tiles[..., 0, 0] * tiles[..., 0, 1] > 0).flatten()
    assert 0 < alike.sum() < len(alike)  # some are split along one axis and some along the other


# Updates


def box_of(changed):
    """Lengths along each axis of the box around what changed, and whether all of it changed."""
    places = changed.nonzero()
    lengths = (places.amax(0) - places.amin(0) + 1).tolist()
    return lengths, len(places) == math.prod(lengths)


def test_an_update_changes_one_window_by_two_eps(subtests):
    for domain, p_init, side in [
        (Domain(kind="image", shape=(3, 12, 12), **WIDE), 0.25, [6, 6]),
        (Domain(kind="signal", shape=(2, 50), **WIDE), 0.2, [10]),
        (Domain(kind="video", shape=(1, 6, 6, 6), **WIDE), 0.125, [3, 3, 3]),
    ]:
        with subtests.test(domain=domain, p_init=p_init, side=side):
            _, calls = record_queries(
                domain, "linf", 0.1, steps=9, p_init=p_init, rescale_schedule=False
            )
            most_equal = 0
            for best, proposal, _ in proposals(calls):
                change = proposal - best
                changed_values = change.abs() > 1e-6
                torch.testing.assert_close(
                    change[changed_values].abs(),
                    torch.full((int(changed_values.sum()),), 0.2),
                    atol=2e-5,
                    rtol=0,
                )
                for sample, changed_values_of_sample in zip(change, changed_values, strict=True):
                    assert (
                        changed_values_of_sample.any()
                    )  # no query is spent on a proposal that changes nothing
                    lengths, _ = box_of(changed_values_of_sample.any(0))
                    assert all(length <= most for length, most in zip(lengths, side, strict=True))
                    most_equal = max(
                        most_equal,
                        sum(length == most for length, most in zip(lengths, side, strict=True)),
                    )
                    # One colour a channel: what moved in a channel moved to the same side.
                    assert all(
                        len(channel[channel.abs() > 1e-6].sign().unique()) <= 1
                        for channel in sample
                    )
            assert most_equal == len(side)


def test_the_norm_stays_eps(subtests):
    """Where the bounds cut nothing off, Algorithm 3 loses nothing; but a bump drawn on its own
    opposite cancels out.
    """
    for domain in DOMAINS:
        for norm in ["l2", "l1"]:
            with subtests.test(domain=domain, norm=norm):
                wide = Domain(kind=domain.kind, shape=domain.shape, **WIDE)
                x, calls = record_queries(wide, norm, 1.5, steps=80)
                sizes = torch.linalg.vector_norm((calls - x).flatten(2), ord=int(norm[1]), dim=2)
                assert (sizes <= 1.5 + 1e-3).all() and (sizes >= 1.5 - 1e-3).float().mean() > 0.97


def test_l1_fills_values_to_the_end_of_their_range():
    """A corner of the intersection of ball and box: all values changed to the end of their range,
    but for one a window.
    """
    x, calls = record_queries(IMAGE, "l1", 6.0, steps=1)
    start = calls[0]
    changed = (start - x).abs() > 1e-6
    partly = changed & (start > 1e-6) & (start < 1 - 1e-6)
    assert (partly.flatten(1).sum(1) <= 1).all() and (changed.flatten(1).sum(1) >= 6).all()
    torch.testing.assert_close((start - x).abs().flatten(1).sum(1), torch.full((3,), 6.0))


def test_vectors_have_no_neighbours():
    """Windows of a vector are random subsets with a sign for each value: they differ, scattered,
    and cover everything.
    """
    domain = Domain(kind="vector", shape=(40,), **WIDE)
    x, calls = record_queries(
        domain, "linf", 0.1, n=20, steps=9, p_init=0.25, rescale_schedule=False
    )
    spans, two_signs, changed_places = [], 0, torch.zeros(40, dtype=torch.bool)
    for best, proposal, _ in proposals(calls):
        for change in proposal - best:
            places = (change.abs() > 1e-6).nonzero()[:, 0]
            assert 1 <= len(places) <= 10
            changed_places[places] = True
            spans.append(int(places.max() - places.min()) + 1)
            two_signs += len(change[places].sign().unique()) == 2
    assert changed_places.all() and sum(spans) / len(spans) > 20 and two_signs > len(spans) / 2


# The search


def test_only_better_inputs_are_kept(subtests):
    """What each proposal differs from is the best input so far, and the best margin never falls."""
    for norm in ["linf", "l2", "l1"]:
        for domain in DOMAINS:
            with subtests.test(norm=norm, domain=domain):
                x, calls = record_queries(domain, norm, 0.2 if norm == "linf" else 1.0, steps=80)
                y = torch.zeros(len(x), dtype=torch.long)
                accepted_count = 0
                for best, proposal, accepted in proposals(calls):
                    untouched = ((proposal - best).abs() < 1e-6).flatten(1).float().mean(1)
                    late = untouched[~accepted]
                    accepted_count += int(accepted.sum())
                assert (
                    late > 0.5
                    # The last windows are small, so most of each proposal is the best input itself.
                ).all()
                assert 0 < accepted_count < 80 * len(x)
                gain = margin(unbeaten()(best), y) - margin(unbeaten()(calls[0]), y)
                assert (gain > 0).all()


def quantised(levels=4):
    """A model that rounds its input: no gradient anywhere, but the scores move."""

    def logits(x):
        z = ((x * levels).round() / levels).flatten(1).mean(1) - 0.55
        return torch.stack([-z, z], 1) * 10

    return logits


def test_it_beats_a_model_whose_gradients_are_masked(subtests):
    for norm, eps in [("linf", 0.15), ("l2", 2.0), ("l1", 12.0)]:
        with subtests.test(norm=norm, eps=eps):
            domain = Domain(kind="image", shape=(1, 8, 8))
            x = Streams.of(2, torch.arange(6)).uniform(1, 8, 8) * 0.2 + 0.35
            black_box = run_attack(
                Square(steps=300), Recorder(quantised(), domain), x, [0] * 6, eps, norm
            )
            assert black_box.fooled.all()
            if norm == "linf":
                white_box = run_attack(
                    PGD(steps=40, random_start=False),
                    Recorder(quantised(), domain),
                    x,
                    [0] * 6,
                    eps,
                    norm,
                )
                assert not white_box.fooled.any()


def test_much_data_is_searched_in_groups(monkeypatch):
    batched = record_queries(IMAGE, "linf", 0.1, n=5, steps=12)[1]
    monkeypatch.setattr("brinell.attacks.square.ROOM", 2 * 3 * 12 * 12)
    model = Recorder(unbeaten(), IMAGE)
    x = Streams.of(9, torch.arange(5)).uniform(3, 12, 12) * 0.4 + 0.3
    run_attack(Square(steps=12), model, x, [0] * 5, 0.1)
    assert [len(call) for call in model.calls] == [2] * 26 + [1] * 13
    torch.testing.assert_close(torch.stack(model.calls[:13]), batched[:, :2])


def test_the_default_loss_is_the_paper_s_for_each_goal(subtests):
    """One value has two ends: each proposal is the end that is not the better one, by margin or by
    cross-entropy.
    """
    for criterion, low, high, default in [
        # (low, high): logits below and above 0.5. Untargeted: the margin is -1.1 and -1, the
        # cross-entropy 0.51 and 0.31.
        (MISCLASSIFIED, [2.0, 0.9, 0.9], [2.0, 1.0, -5.0], "margin"),
        # Towards class 1: the margin is -1.9 and -2, minus the cross-entropy -2.6 and -2.1.
        (Targeted(torch.ones(1, dtype=torch.long)), [1.9, 0.0, 1.8], [2.0, 0.0, -5.0], "ce"),
    ]:
        for seed in range(3):
            with subtests.test(criterion=criterion, low=low, high=high):
                domain = Domain(kind="vector", shape=(1,))
                batch = batch_of([[0.5]], [0])
                threat = replace(threat_of(0.2, domain=domain), criterion=criterion)
                last = {}
                for loss in (None, "margin", "ce"):
                    model = Recorder(
                        lambda x, high=high, low=low: torch.where(
                            x < 0.5, torch.tensor(low), torch.tensor(high)
                        ),
                        domain,
                        classes=3,
                    )
                    ledger = Ledger(model, batch, threat, access=Square.access)
                    Square(steps=5, loss=loss)(
                        ledger.oracle(), batch, threat, Streams.of(seed, batch.ids)
                    )
                    last[loss] = model.calls[-1].item()
                by_margin, by_ce = (0.3, 0.7) if criterion is MISCLASSIFIED else (0.7, 0.3)
                assert (last["margin"], last["ce"]) == (
                    pytest.approx(by_margin),
                    pytest.approx(by_ce),
                )
                assert last[None] == last[default]


# Real networks


@pytest.mark.slow
def test_an_undefended_network_falls_to_few_queries(root, shared):
    """At Linf 0.05 the published mean of undefended CIFAR-10 networks is 73 queries."""
    model, x, y = load_network(root, shared, "cifar10", "resnet20", "cifar10_weights/resnet20", 16)
    ledger = run_attack(Square(steps=500), model, x, y, 0.05)
    assert ledger.fooled.all() and ledger.best.first_success.float().mean() < 150
