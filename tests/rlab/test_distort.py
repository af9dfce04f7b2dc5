"""What stands where: known answers on tiny inputs, then the laws that every assignment keeps."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import threat_of
from _placing import Plus
from brinell.core.domain import Domain
from brinell.core.errors import ContractError, RequestError
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.distortions.gaussian_blur import GaussianBlur
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.distortions.signed_patch import SignedPatch
from brinell.rlab.distort import (
    CLEAN,
    DistortedInputs,
    Variant,
    strength_remarks,
    strengths,
    variants,
)


@dataclass(frozen=True, kw_only=True)
class Counted(Plus):
    """Counts its calls."""

    calls: list[Any]

    def __call__(self, x, severity, rng, draw):
        self.calls.append(severity.tolist())
        return super().__call__(x, severity, rng, draw)


def held(x, domain, choices, seed=0):
    inputs = DistortedInputs(len(x), domain, choices, x.device)
    inputs.put(torch.arange(len(x)), x, Streams.of(seed, torch.arange(len(x))))
    return inputs


def ints(*values):
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("shape", "patch", "stride", "assignment", "sixteenths"),
    [
        ((1, 2, 4), (2, 2), None, [CLEAN, 0], [[[0, 0, 2, 2], [0, 0, 2, 2]]]),
        ((1, 2, 4), (2, 2), None, [1, 1], [[[4, 4, 4, 4], [4, 4, 4, 4]]]),
        ((1, 5), (3,), (2,), [CLEAN, 1], [[0, 0, 4, 4, 4]]),
        ((1, 5), (3,), (2,), [0, 1], [[2, 2, 2, 4, 4]]),
        ((1, 5), (3,), (2,), [CLEAN, CLEAN], [[0, 0, 0, 0, 0]]),
    ],
)
def test_assignments_by_hand(shape, patch, stride, assignment, sixteenths):
    """Where patches overlap the lower number stands, and hides the higher as long as it does."""
    domain = Domain(kind="signal" if len(shape) == 2 else "image", shape=shape)
    inputs = held(torch.zeros(1, *shape), domain, variants([Plus()], domain, (2, 4), 1))
    shown = inputs.render(ints(0), torch.tensor([assignment]), PatchGrid(shape, patch, stride))
    assert (shown[0] * 16).tolist() == sixteenths


GRIDS = [
    ((2, 7), (3,), None),
    ((2, 7), (3,), (1,)),
    ((3, 5, 6), (3, 3), (2, 1)),
    ((1, 2, 4, 4), (2, 2, 3), None),
]
KIND = {2: "signal", 3: "image", 4: "video"}


@settings(max_examples=25)
@given(st.integers(0, len(GRIDS) - 1), st.integers(0, 2**30))
def test_each_place_shows_the_lowest_patch_that_has_a_variant(kind, seed):
    """Whatever was there before, whoever else is asked about, and however many are looked at
    together."""
    shape, patch, stride = GRIDS[kind]
    domain, grid = Domain(kind=KIND[len(shape)], shape=shape), PatchGrid(shape, patch, stride)
    choices = variants([GaussianNoise(), GaussianBlur(), SignedPatch()], domain, (1, 5), 2)
    inputs = held(Streams.of(kind, torch.arange(3)).uniform(*shape), domain, choices)
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randint(3, (4,), generator=draw)
    assignment = torch.randint(CLEAN, len(choices), (4, len(grid)), generator=draw)
    naive = inputs.x[rows].clone()
    for number in reversed(range(len(grid))):
        mask = grid.covered_values(torch.arange(len(grid))[None] == number)[0]
        for index in (assignment[:, number] != CLEAN).nonzero().flatten().tolist():
            naive[index][mask] = inputs.inputs(rows[index, None], assignment[index, number, None])[
                0
            ][mask]
    assert torch.equal(inputs.render(rows, assignment, grid), naive)
    assert torch.equal(
        torch.cat([inputs.render(rows[i, None], assignment[i, None], grid) for i in range(4)]),
        naive,
    )


def noisy(rows):
    domain = Domain(kind="image", shape=(3, 6, 6))
    inputs = DistortedInputs(
        len(rows), domain, variants([GaussianNoise(), GaussianBlur()], domain, (1, 3, 5), 2), "cpu"
    )
    inputs.put(torch.arange(len(rows)), Streams.of(0, rows).uniform(3, 6, 6), Streams.of(0, rows))
    return inputs


def test_values_at_places_are_those_of_the_whole_inputs():
    inputs, rows = noisy(torch.arange(6)), ints(4, 0, 5)
    offered, places = (
        torch.tensor([[8, 1, -1, 3], [0, 0, 7, 2], [6, -1, 5, 4]]),
        torch.arange(18).view(3, 3, 2) * 2,
    )
    values = inputs.values(rows, offered, places.transpose(1, 2)[..., None], 3)
    assert values.shape == (3, 3, 2, 3, 4)
    assert inputs.values(rows[:0], offered[:0], places[:0, ..., None], 3).shape == (0, 3, 3, 2, 4)
    for row, sample in enumerate(rows.tolist()):
        for number, variant in enumerate(offered[row].tolist()):
            full = inputs.inputs(ints(sample), ints(variant)).view(3, 36)
            assert torch.equal(values[row, ..., number], full[:, places[row].T])


def test_results_do_not_depend_on_the_company_nor_on_what_was_in_the_slot():
    full, single = noisy(torch.arange(6)), noisy(ints(2))
    single.put(ints(0), full.x[4:5].clone(), Streams.of(0, ints(4)))
    for variant in range(CLEAN, 9):
        assert torch.equal(
            full.inputs(ints(4), ints(variant)), single.inputs(ints(0), ints(variant))
        )


def test_draws_differ_and_severities_share_their_noise():
    inputs = noisy(torch.arange(1))
    noise = [inputs.inputs(ints(0), ints(v))[0] - inputs.x[0] for v in range(6)]
    assert not torch.equal(noise[0], noise[1])
    assert torch.equal(noise[0].sign()[noise[4] != 0], noise[4].sign()[noise[4] != 0]), (
        "the same field, stronger"
    )


def test_a_distortion_is_called_once_for_a_sample_with_all_severities():
    plus, domain = Counted(calls=[]), Domain(kind="signal", shape=(1, 4))
    held(torch.zeros(3, 1, 4), domain, variants([plus], domain, (2, 4), 1))
    assert plus.calls == [[2, 4]] * 3


def test_bounds_of_the_data():
    x = torch.tensor([[[-4.0, 0.1, 3.0], [10.0, 12.0, 20.0]]])
    domain = Domain(kind="signal", shape=(2, 3), low=(-5.0, 10.0), high=(5.0, 20.0))
    signed = held(x, domain, [Variant(SignedPatch(factor=100.0), 5, 0)])
    assert signed.inputs(ints(0), ints(0)).tolist() == [[[5.0] * 3, [20.0] * 3]]
    plus = held(x, domain, [Variant(Plus(), 4, 0)]).inputs(ints(0), ints(0))
    torch.testing.assert_close(plus, torch.tensor([[[-1.5, 2.6, 5.0], [12.5, 14.5, 20.0]]]))
    assert torch.equal(plus[x == 20], x[x == 20])


def test_what_cannot_be_made_is_refused():
    domain = Domain(kind="vector", shape=(3,))
    with pytest.raises(RequestError, match="no distortion is left"):
        DistortedInputs(1, domain, (), "cpu")

    class Broken(Plus):
        def __call__(self, x, severity, rng, draw):
            return x + 2

    with pytest.raises(ContractError, match="left the bounds"):
        held(torch.zeros(1, 3), domain, variants([Broken()], domain, (1,), 1))


def test_severities_that_are_not_named_fit_the_budget():
    """The strongest of a whole input fills it twice, where there is a limit; what is named, or
    strong enough, stays as it is.
    """
    domain, x = Domain(kind="image", shape=(1, 8, 8)), torch.full((3, 1, 8, 8), 0.5)
    threat, rng = (
        threat_of(torch.tensor([2.0, 0.1, 7.9999]), "l2", domain, n=3),
        Streams.of(0, torch.arange(3)),
    )
    held_by = {}
    for severities in ((), (1, 2, 3, 4, 5)):
        inputs = DistortedInputs(3, domain, variants([SignedPatch()], domain, severities), x.device)
        inputs.put(torch.arange(3), x, rng, threat)
        held_by[severities] = inputs
    fitted, named = held_by.values()
    strongest = len(fitted.variants) - 1
    rows = torch.arange(3)
    sizes = threat.distance.size(fitted.inputs(rows, torch.full_like(rows, strongest)) - x)
    before = threat.distance.size(named.inputs(rows, torch.full_like(rows, strongest)) - x)
    assert sizes[0].item() == pytest.approx(4.0, rel=1e-3) and before[0].item() < 2
    assert fitted.fill[:, 0].tolist() == pytest.approx([2, float(before[1]) / 0.1, 1], rel=1e-3)
    assert torch.equal(sizes[1:], before[1:]), "strong enough, and a budget beyond every change"
    factors, fills = strengths(
        fitted.variants, x[:1], threat.select(rows[:1]), rng.select(rows[:1])
    )
    grown = strength_remarks(["signed-patch"], factors, fills)
    weak = strength_remarks(
        ["signed-patch"],
        *strengths(named.variants, x[:1], threat.select(rows[:1]), rng.select(rows[:1])),
    )
    assert (
        len(grown) == len(weak) == 1
        and "made stronger" in grown[0]
        and "do not fill eps: signed-patch" in weak[0]
    )
