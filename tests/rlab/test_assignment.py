"""The state of what stands where: known answers on tiny inputs, then the laws that any history of edits must keep."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _placing import Plus
from brinell.core.domain import Domain
from brinell.core.errors import ContractError, RequestError
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.distortions.gaussian_blur import GaussianBlur
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.distortions.gradient_sign import GradientSign
from brinell.distortions.signed_patch import SignedPatch
from brinell.rlab.assignment import Assignment
from brinell.rlab.cache import CLEAN, DistortionCache
from brinell.rlab.variants import Variant, variants


@dataclass(frozen=True, kw_only=True)
class Counted(Plus):
    """Counts its calls."""

    calls: list[Any]

    def __call__(self, x, severity, rng, draw):
        self.calls.append(severity.tolist())
        return super().__call__(x, severity, rng, draw)


def state(shape, patch, stride=None, *, kind="image", n=1, x=None, distortions=None, severities=(2, 4), **settings):
    """An assignment, by default of a distortion that adds 2/16 (variant 0) or 4/16 (variant 1)."""
    domain = Domain(kind=kind, shape=shape)
    x = torch.zeros(n, *shape) if x is None else x
    distortions = [Counted(calls=[])] if distortions is None else distortions
    variant_list = variants(distortions, domain, severities, draws=2)
    cache = DistortionCache(x, domain, variant_list, Streams.of(0, torch.arange(len(x))), **settings)
    return Assignment(PatchGrid(shape, patch, stride), cache)


def ints(*values):
    return torch.tensor(values)


def test_patches_by_hand():
    a = state((1, 2, 4), (2, 2))
    a.edit(ints(0), ints(1), ints(0))
    assert (a.x * 16).tolist() == [[[[0, 0, 2, 2], [0, 0, 2, 2]]]]
    assert a.variant.tolist() == [[CLEAN, 0]]
    a.edit(ints(0), ints(0), ints(1))
    a.edit(ints(0), ints(1), ints(1))
    assert (a.x * 16).tolist() == [[[[4, 4, 4, 4], [4, 4, 4, 4]]]]


def test_overlap_by_hand():
    """Where patches overlap the lower number stands, and hides the higher as long as it does."""
    a = state((1, 5), (3,), (2,), kind="signal")
    a.edit(ints(0), ints(1), ints(1))
    assert (a.x * 16).tolist() == [[[0, 0, 4, 4, 4]]]
    a.edit(ints(0), ints(0), ints(0))
    assert (a.x * 16).tolist() == [[[2, 2, 2, 4, 4]]]
    a.edit(ints(0), ints(0), ints(CLEAN))
    assert (a.x * 16).tolist() == [[[0, 0, 4, 4, 4]]]


def test_several_edits_of_one_candidate_and_filled_up_lists():
    a = state((1, 1, 6), (1, 2), n=2)
    rows, none_chosen = ints(0, 1), len(a.grid)
    x = a.candidates(rows, torch.tensor([[0, 2], [1, none_chosen]]), torch.tensor([[0, 1], [0, CLEAN]]))
    assert (x[:, 0, 0] * 16).tolist() == [[2, 2, 0, 0, 4, 4], [0, 0, 2, 2, 0, 0]]
    assert not a.x.any(), "a candidate leaves the state as it is"
    a.edit(rows, torch.tensor([[0, 2], [1, none_chosen]]), torch.tensor([[0, 1], [0, CLEAN]]))
    assert torch.equal(a.x, x)


def test_no_edits_at_all_are_the_clean_inputs():
    a = state((1, 1, 6), (1, 2), n=2)
    rows, none = ints(0, 1), torch.zeros(2, 0, dtype=torch.int64)
    assert torch.equal(a.candidates(rows, none, none), a.cache.x)
    a.edit(rows, none, none)
    assert torch.equal(a.x, a.cache.x)


def test_mixtures():
    x = Streams.of(1, torch.arange(1)).uniform(3, 8, 8)
    a = state((3, 8, 8), (4, 4), x=x, distortions=[GaussianNoise(), GaussianBlur(), SignedPatch()], severities=(3,))
    noise, blur, signed = 0, 2, 3
    a.edit(ints(0), torch.tensor([[0, 1, 2]]), torch.tensor([[noise, blur, signed]]))
    for patch, variant in enumerate((noise, blur, signed)):
        full = a.cache.inputs(ints(0), ints(variant))
        mask = a.grid.covered_values(torch.arange(4)[None] == patch)
        assert torch.equal(a.x[mask], full[mask])
    assert torch.equal(a.x[..., 4:, 4:], x[..., 4:, 4:])


def test_another_sample_takes_the_row():
    a = state((1, 4), (2,), kind="signal", n=2)
    a.edit(ints(0, 1), ints(0, 1), ints(1, 1))
    a.cache.replace(ints(1), torch.full((1, 1, 4), 0.5), Streams.of(3, ints(9)))
    a.clear(ints(1))
    assert a.variant.tolist() == [[1, CLEAN], [CLEAN, CLEAN]]
    assert (a.x * 16).tolist() == [[[4, 4, 0, 0]], [[8, 8, 8, 8]]]
    a.edit(ints(1), ints(0), ints(0))
    assert (a.x[1] * 16).tolist() == [[10, 10, 8, 8]]


def test_a_grid_of_other_inputs_is_refused():
    cache = state((1, 4), (2,), kind="signal").cache
    with pytest.raises(ValueError, match="patches over inputs of shape"):
        Assignment(PatchGrid((1, 5), (2,)), cache)


HISTORY = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99), st.integers(CLEAN, 8)), min_size=1, max_size=12)
GRIDS = [
    ((2, 7), (3,), None),
    ((2, 7), (3,), (1,)),
    ((3, 5, 6), (2, 4), None),
    ((3, 5, 6), (3, 3), (2, 1)),
    ((1, 2, 4, 4), (2, 2, 3), None),
]
KIND = {2: "signal", 3: "image", 4: "video"}
OF: dict[int, Assignment] = {}


def fresh(kind):
    """Four random samples of a shape, with nothing on them; banks are kept, since they never change."""
    shape, patch, stride = GRIDS[kind]
    if kind not in OF:
        x = Streams.of(kind, torch.arange(4)).uniform(*shape)
        distortions = [GaussianNoise(), GaussianBlur(), SignedPatch()]
        OF[kind] = state(shape, patch, stride, kind=KIND[len(shape)], x=x, distortions=distortions, severities=(1, 5))
    return Assignment(OF[kind].grid, OF[kind].cache)


def edits(a, history):
    return [
        (ints(row), ints(patch % len(a.grid)), ints(min(variant, len(a.cache.variants) - 1))) for row, patch, variant in history
    ]


@settings(max_examples=20)
@given(st.integers(0, len(GRIDS) - 1), HISTORY)
def test_adding_then_removing_is_the_identity(kind, history):
    a = fresh(kind)
    for edit in edits(a, history):
        a.edit(*edit)
    x, before = a.x.clone(), a.variant.clone()
    row, patch, variant = edits(a, history)[0]
    previous = a.variant[row, patch].clone()
    a.edit(row, patch, ints((int(variant) + 1) % len(a.cache.variants)))
    a.edit(row, patch, previous)
    assert torch.equal(a.x, x) and torch.equal(a.variant, before)
    for patch in range(len(a.grid)):
        a.edit(torch.arange(4), torch.full((4,), patch), torch.full((4,), CLEAN))
    assert torch.equal(a.x, a.cache.x)


@settings(max_examples=20)
@given(st.integers(0, len(GRIDS) - 1), HISTORY, st.randoms())
def test_the_order_plays_no_part(kind, history, chance):
    first, two = fresh(kind), fresh(kind)
    last = list({(row, patch % len(first.grid)): (row, patch, variant) for row, patch, variant in history}.values())
    for edit in edits(first, last):
        first.edit(*edit)
    chance.shuffle(last)
    for edit in edits(two, last):
        two.edit(*edit)
    assert torch.equal(first.x, two.x) and torch.equal(first.variant, two.variant)


@settings(max_examples=20)
@given(st.integers(0, len(GRIDS) - 1), HISTORY)
def test_what_was_probed_is_what_is_applied(kind, history):
    a = fresh(kind)
    for rows, patches, new_variants in edits(a, history[:6]):
        probed = a.candidates(rows, patches, new_variants)
        a.edit(rows, patches, new_variants)
        assert torch.equal(a.x[rows], probed)
    assert torch.equal(a.render(torch.arange(4), a.variant), a.x)
    naive = a.cache.x.clone()
    for patch in reversed(range(len(a.grid))):
        mask = a.grid.covered_values(torch.arange(len(a.grid))[None] == patch)[0]
        for row in (a.variant[:, patch] != CLEAN).nonzero().flatten():
            naive[row][mask] = a.cache.inputs(row[None], a.variant[row, patch][None])[0][mask]
    assert torch.equal(a.x, naive)


@settings(max_examples=20)
@given(st.integers(0, len(GRIDS) - 1), st.data())
def test_a_whole_assignment_at_once(kind, data):
    """A list of edits in one candidate is those edits one after another."""
    a, b = fresh(kind), fresh(kind)
    count = data.draw(st.integers(1, len(a.grid)))
    patches = torch.stack([torch.tensor(data.draw(st.permutations(range(len(a.grid))))[:count]) for _ in range(4)])
    variant_grid = torch.tensor(data.draw(st.lists(st.integers(CLEAN, 8), min_size=4 * count, max_size=4 * count))).view(4, count)
    a.edit(torch.arange(4), patches, variant_grid)
    for column in range(count):
        b.edit(torch.arange(4), patches[:, column], variant_grid[:, column])
    assert torch.equal(a.x, b.x)


# The cache


def noisy(memory, n=6):
    x = Streams.of(0, torch.arange(n)).uniform(3, 6, 6)
    return state((3, 6, 6), (2, 2), x=x, distortions=[GaussianNoise(), GaussianBlur()], severities=(1, 3, 5), memory=memory)


def test_memory_bounds_the_bank_and_what_was_dropped_comes_back_the_same():
    plenty, scarce = noisy(2**20), noisy(4 * 108 * 12)
    assert plenty.cache.capacity == 6 * 9 and scarce.cache.capacity == 12
    rows = torch.arange(6).repeat_interleave(9 * 9)
    patches = torch.arange(9).repeat(6 * 9)
    variant_grid = torch.arange(9).repeat_interleave(9).repeat(6)
    for _ in range(2):
        assert torch.equal(plenty.candidates(rows, patches, variant_grid), scarce.candidates(rows, patches, variant_grid))
    assert plenty.cache.made == 54 and scarce.cache.made > 54
    assert len(scarce.cache._values) == 6 + 12


@settings(max_examples=15)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), min_size=1, max_size=14), min_size=2, max_size=8))
def test_any_history_of_requests_gives_the_same_as_plenty_of_memory(requests):
    scarce = noisy(4 * 108 * 10).cache
    for request in requests:
        rows, variant_numbers = torch.tensor(request).unbind(1)
        if len(request) % 3 == 0:
            scarce.replace(rows[:1], PLENTY.x[rows[:1]], Streams.of(0, rows[:1]))
        assert torch.equal(scarce.inputs(rows, variant_numbers), PLENTY.inputs(rows, variant_numbers))
    before = scarce._slot[:, :-1][scarce._slot[:, :-1] >= 0].tolist()
    assert sorted(before + scarce._free) == list(range(6, 16)), "each place is free or held once"


PLENTY = noisy(2**20).cache


@pytest.mark.parametrize("memory", [2**20, 4 * 108 * 10])
def test_offers_are_the_whole_inputs_at_these_places(memory):
    """With little memory they are taken in halves."""
    cache, rows = noisy(memory).cache, ints(4, 0, 5)
    variants_offered, places = torch.tensor([[8, 1, -1, 3], [0, 0, 7, 2], [6, -1, 5, 4]]), torch.arange(18).view(3, 3, 2) * 2
    values = cache.values(rows, variants_offered, places.transpose(1, 2)[..., None], 3)
    assert values.shape == (3, 3, 2, 3, 4)
    assert cache.values(rows[:0], variants_offered[:0], places[:0, ..., None], 3).shape == (0, 3, 3, 2, 4)
    for row, sample in enumerate(rows.tolist()):
        for number, variant in enumerate(variants_offered[row].tolist()):
            full = PLENTY.inputs(ints(sample), ints(variant)).view(3, 36)
            assert torch.equal(values[row, ..., number], full[:, places[row].T])


def test_what_is_held_is_not_made_again_for_what_is_missing():
    cache = noisy(0, n=2).cache
    cache.inputs(torch.zeros(6, dtype=torch.int64), torch.arange(6))
    cache.inputs(torch.ones(3, dtype=torch.int64), torch.arange(3))  # three places are left for this sample's six
    cache.replace(ints(0), cache.x[:1].clone(), Streams.of(0, ints(0)))
    before = cache.made
    cache.inputs(ints(1), ints(3))
    assert cache.made == before + 3
    assert len(cache._free) == cache.capacity - 6


def test_one_sample_fits_whatever_the_memory():
    a = noisy(0)
    assert a.cache.capacity == 9
    a.candidates(torch.zeros(9, dtype=torch.int64), torch.arange(9), torch.arange(9))


def test_nothing_is_made_before_it_is_asked_for_nor_twice():
    plus = Counted(calls=[])
    a = state((1, 4), (2,), kind="signal", n=3, distortions=[plus])
    counts = [[2, 4], [2, 4]]
    assert plus.calls == counts, "all severities, twice, on the first sample: the distortion is tried before anything is spent"
    for _ in range(2):
        a.candidates(ints(1, 1, 2), ints(0, 1, 0), ints(0, 1, 1))
    assert plus.calls[len(counts) :] == [[2, 4], [2, 4]], "one call for each sample, with all severities"
    a.edit(ints(0), ints(0), ints(CLEAN))
    assert len(plus.calls) == len(counts) + 2


def test_results_do_not_depend_on_the_company():
    full = noisy(2**20)
    single = state(
        (3, 6, 6), (2, 2), x=full.cache.x[4:5].clone(), distortions=[GaussianNoise(), GaussianBlur()], severities=(1, 3, 5)
    )
    single.cache.replace(ints(0), full.cache.x[4:5].clone(), Streams.of(0, ints(4)))
    for variant in range(9):
        assert torch.equal(full.cache.inputs(ints(4), ints(variant)), single.cache.inputs(ints(0), ints(variant)))


def test_draws_differ_and_severities_share_their_noise():
    a = noisy(2**20)
    noise = [a.cache.inputs(ints(0), ints(v))[0] - a.cache.x[0] for v in range(6)]
    assert not torch.equal(noise[0], noise[1])
    assert torch.equal(noise[0].sign()[noise[4] != 0], noise[4].sign()[noise[4] != 0]), "the same field, stronger"


def test_bounds_of_the_data():
    x = torch.tensor([[[-4.0, 0.1, 3.0], [10.0, 12.0, 20.0]]])
    domain = Domain(kind="signal", shape=(2, 3), low=(-5.0, 10.0), high=(5.0, 20.0))
    cache = DistortionCache(x, domain, [Variant(SignedPatch(factor=100.0), 5, 0)], Streams.of(0, ints(0)))
    assert cache.inputs(ints(0), ints(0)).tolist() == [[[5.0] * 3, [20.0] * 3]]
    plus = DistortionCache(x, domain, [Variant(Counted(calls=[]), 4, 0)], Streams.of(0, ints(0)))
    torch.testing.assert_close(plus.inputs(ints(0), ints(0)), torch.tensor([[[-1.5, 2.6, 5.0], [12.5, 14.5, 20.0]]]))
    assert torch.equal(plus.inputs(ints(0), ints(0))[x == 20], x[x == 20])


def test_gradients_are_asked_for_once_and_in_the_units_of_the_data():
    gradient_calls = []

    def gradient(rows):
        gradient_calls.append(rows.tolist())
        return torch.tensor([[1.0, -1.0, 0.0]]).expand(len(rows), 3)

    domain = Domain(kind="vector", shape=(3,), low=-10.0, high=10.0)
    variant_list = variants([GradientSign()], domain, (1, 5))
    cache = DistortionCache(torch.zeros(2, 3), domain, variant_list, Streams.of(0, torch.arange(2)), gradient=gradient)
    step = GradientSign.scale(ints(1), torch.zeros(1, 3)) * 20
    torch.testing.assert_close(cache.inputs(ints(1), ints(0)), torch.tensor([[1.0, -1.0, 0.0]]) * step)
    cache.inputs(ints(0, 1), ints(0, 1))
    assert gradient_calls == [[0], [1]]
    cache.replace(ints(1), torch.zeros(1, 3), Streams.of(0, ints(5)))
    cache.inputs(ints(1), ints(0))
    assert gradient_calls == [[0], [1], [1]]


@dataclass(frozen=True, kw_only=True)
class Slope(Plus):
    """Follows the gradient with its size."""

    access: ClassVar[Access] = Access.GRADIENTS

    def __call__(self, x, severity, rng, draw, gradient):
        return (x + gradient).clamp(0, 1)


def test_a_gradient_is_handed_in_as_that_of_the_unit_range():
    """A loss that rises by 0.01 per volt rises by 0.2 over a range of 20 volts."""
    domain = Domain(kind="vector", shape=(2,), low=-10.0, high=10.0)
    cache = DistortionCache(
        torch.zeros(1, 2),
        domain,
        variants([Slope()], domain, (1,)),
        Streams.of(0, ints(0)),
        gradient=lambda rows: torch.tensor([[0.01, -0.01]]),
    )
    torch.testing.assert_close(cache.inputs(ints(0), ints(0)), torch.tensor([[4.0, -4.0]]))


@dataclass(frozen=True, kw_only=True)
class Fickle(Counted):
    """Another answer each time, from no generator that anybody could watch."""

    def __call__(self, x, severity, rng, draw):
        self.calls.append(1)
        return x + 0.01 * len(self.calls)


@dataclass(frozen=True, kw_only=True)
class Nan(Plus):
    def __call__(self, x, severity, rng, draw):
        return x * torch.nan


def test_refused_before_anything_is_spent(subtests):
    for distortions, names, error, message in [
        ([Fickle(calls=[])], {}, ContractError, "distortion Fickle gave two answers to the same input and streams"),
        ([Nan()], {}, ContractError, "distortion Nan answered NaN or infinity"),
        ([GradientSign()], {}, RequestError, "needs gradients, which this model does not give"),
        ([], {}, RequestError, "no distortion is left to place"),
        ([Counted(calls=[])], {"severities": (0,)}, RequestError, "severities are 1 to 5"),
        ([Counted(calls=[])], {"severities": ()}, RequestError, "severities are 1 to 5"),
        (
            [GaussianBlur()],
            {"kind": "vector", "shape": (4,)},
            RequestError,
            "distorts image, signal, video, and the data is of kind vector",
        ),
    ]:
        with subtests.test(distortions=distortions, names=names, error=error):
            with pytest.raises(error, match=message) as refusal:
                state(**{"shape": (1, 4), "patch": (2,), "kind": "signal", "distortions": distortions} | names)
            assert "\n" not in str(refusal.value)
