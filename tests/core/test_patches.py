"""Patches as index sets: by hand first, then what holds for every shape, patch and stride."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell.core.errors import RequestError
from brinell.core.patches import PatchGrid, sides


@st.composite
def grids(draw):
    """Up to three divided axes, behind none, one or two others; with and without overlap."""
    axes = draw(st.integers(1, 3))
    lengths = draw(st.tuples(*[st.integers(1, 9)] * axes))
    before = draw(st.lists(st.integers(1, 3), max_size=2))
    patch = tuple(draw(st.integers(1, length)) for length in lengths)
    stride = draw(st.one_of(st.none(), st.tuples(*(st.integers(1, side) for side in patch))))
    return PatchGrid((*before, *lengths), patch, stride)


def sets(grid):
    """The places of each patch, without the repeated ones."""
    return [
        set(row[kept_mask].tolist())
        for row, kept_mask in zip(grid.members, grid.not_repeated, strict=True)
    ]


def test_a_signal_by_hand():
    grid = PatchGrid((2, 7), (3,), (2,))
    assert grid.lattice == (3,) and grid.channels == 2 and grid.places == 7
    assert sets(grid) == [{0, 1, 2}, {2, 3, 4}, {4, 5, 6}]
    assert grid.covers.tolist() == [[0, 3], [0, 3], [0, 1], [1, 3], [1, 2], [2, 3], [2, 3]]
    assert grid.neighbours.tolist() == [[-1, 1], [0, 2], [1, -1]]
    assert grid.centres.flatten().tolist() == pytest.approx([1.5 / 7, 3.5 / 7, 5.5 / 7])


def test_ragged_edges_by_hand():
    grid = PatchGrid((1, 3, 5), (2, 2))
    assert grid.lattice == (2, 3)
    assert sets(grid) == [{0, 1, 5, 6}, {2, 3, 7, 8}, {4, 9}, {10, 11}, {12, 13}, {14}]
    assert grid.members[2].tolist() == [4, 4, 9, 9] and grid.members[5].tolist() == [14] * 4
    assert grid.neighbours.tolist() == [
        [-1, 3, -1, 1],
        [-1, 4, 0, 2],
        [-1, 5, 1, -1],
        [0, -1, -1, 4],
        [1, -1, 3, 5],
        [2, -1, 4, -1],
    ]
    assert grid.centres[2].tolist() == pytest.approx([1 / 3, 0.9])


def test_patches_of_single_channels():
    grid = PatchGrid((2, 4), (1, 2))
    assert grid.channels == 1 and grid.lattice == (2, 2)
    assert grid.covered_values(torch.tensor([[False, True, True, False]])).tolist() == [
        [[False, False, True, True], [True, True, False, False]]
    ]


def test_refused(subtests):
    for shape, patch, stride, message in [
        (
            (3, 8, 8),
            (9, 8),
            None,
            "patch .9, 8. does not fit an input of shape .3, 8, 8.: a side must be between 1 and 8",
        ),
        ((3, 8, 8), (0, 8), None, "a side must be between 1 and 8"),
        ((8,), (2, 2), None, "does not fit an input of shape"),
        ((8,), (), None, "does not fit an input of shape"),
        (
            (8,),
            (2,),
            (3,),
            "stride .3,. with patch .2,.: a stride must be between 1 and the patch's side",
        ),
        ((8,), (2,), (0,), "a stride must be between 1"),
        ((8,), (2,), (1, 1), "does not fit an input of shape"),
    ]:
        with subtests.test(shape=shape, patch=patch, stride=stride, message=message):
            with pytest.raises(RequestError, match=message) as error:
                PatchGrid(shape, patch, stride)
            assert "\n" not in str(error.value)


@settings(max_examples=40)
@given(grids())
def test_every_place_is_covered_and_without_overlap_once(grid):
    covered = [place for places in sets(grid) for place in places]
    assert set(covered) == set(range(grid.places))
    if grid.steps == grid.patch:
        assert len(covered) == grid.places


@settings(max_examples=40)
@given(grids())
def test_sizes(grid):
    assert len(grid) == math.prod(grid.lattice) == len(grid.members) == len(grid.not_repeated)
    assert grid.members.shape[1] == math.prod(grid.patch)
    assert grid.places * grid.channels == math.prod(grid.shape)
    for places, row in zip(sets(grid), grid.members, strict=True):
        assert 1 <= len(places) <= math.prod(grid.patch)
        assert set(row.tolist()) == places, "what is filled in repeats places of the patch"


@settings(max_examples=12)
@given(grids())
def test_patches_are_boxes_at_even_distances(grid):
    for number, places in enumerate(sets(grid)):
        position = torch.unravel_index(torch.tensor(number), grid.lattice)
        box = [
            range(int(index) * step, min(int(index) * step + side, length))
            for index, step, side, length in zip(
                position, grid.steps, grid.patch, grid.places_along, strict=True
            )
        ]
        coordinates = {
            tuple(int(axis) for axis in torch.unravel_index(torch.tensor(p), grid.places_along))
            for p in places
        }
        assert coordinates == {
            tuple(c)
            for c in torch.cartesian_prod(*map(torch.tensor, box)).reshape(-1, len(box)).tolist()
        }


@settings(max_examples=40)
@given(grids())
def test_covers_are_the_members_turned_round(grid):
    members = sets(grid)
    for place, row in enumerate(grid.covers.tolist()):
        assert row == sorted(row)
        assert [patch for patch in row if patch < len(grid)] == [
            p for p, places in enumerate(members) if place in places
        ]


@settings(max_examples=40)
@given(grids())
def test_neighbours_are_mutual(grid):
    for patch, row in enumerate(grid.neighbours.tolist()):
        for direction, neighbour in enumerate(row):
            if neighbour >= 0:
                assert grid.neighbours[neighbour, direction ^ 1] == patch
    inner = sum(2 * math.prod(grid.lattice) // count * (count - 1) for count in grid.lattice)
    assert int((grid.neighbours >= 0).sum()) == inner


def test_sides_as_people_write_them():
    assert (
        sides(4, 3) == sides("4", 3) == (4, 4, 4)
        and sides("2x8x16", 3) == (2, 8, 16)
        and sides("1x5", 3) == (1, 5)
    )
    for wrong in ("4x", "x4", "-1", "4 x 4", "4.5", "", "\u00b2"):
        with pytest.raises(ValueError, match="are no sides: write one for all axes"):
            sides(wrong, 2)


@settings(max_examples=40)
@given(grids(), st.data())
def test_touched_values_are_those_under_the_patches(grid, data):
    masks = torch.tensor(
        [
            data.draw(st.lists(st.booleans(), min_size=len(grid), max_size=len(grid)))
            for _ in range(2)
        ]
    )
    covered = grid.covered_values(masks)
    assert covered.shape == (2, *grid.shape)
    members = sets(grid)
    for row, mask in zip(masks.tolist(), covered.view(2, grid.channels, -1), strict=True):
        places = set().union(*(members[patch] for patch, is_set in enumerate(row) if is_set))
        for channel in mask:
            assert set(channel.nonzero().flatten().tolist()) == places
