"""What is seen of a patch: shapes in one, two and three dimensions, and what must make no
difference.
"""

import itertools

import pytest
import torch

from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.rlab.prior import FEATURES, _pool, describe

CASES = [
    ((9,), (1,), None),
    ((2, 40), (4,), None),
    ((2, 41), (6,), (3,)),
    ((3, 12, 16), (4, 4), None),
    ((3, 13, 9), (4, 2), (2, 1)),
    ((1, 4, 6, 8), (2, 2, 2), None),
    ((3, 4, 4), (1, 2, 2), None),
    ((2, 3, 4, 6), (2, 1, 2, 2), None),
    ((1, 1, 1), (1, 1), None),
]


def inputs(shape, n=3, seed=0):
    return Streams.of(seed, torch.arange(n)).uniform(*shape)


def test_shapes(subtests):
    for shape, patch, stride in CASES:
        with subtests.test(shape=shape, patch=patch, stride=stride):
            grid = PatchGrid(shape, patch, stride)
            features = describe(inputs(shape), grid)
            assert (
                features.shape == (3, len(grid), FEATURES)
                and features.dtype == torch.float32
                and features.isfinite().all()
            )


def test_company_and_units_make_no_difference(subtests):
    """Each input is described by itself; another offset or scale of its values changes nothing but
    rounding.
    """
    for shape, patch, stride in CASES:
        with subtests.test(shape=shape, patch=patch, stride=stride):
            grid, x = PatchGrid(shape, patch, stride), inputs(shape)
            features = describe(x, grid)
            for row in range(3):
                assert torch.allclose(
                    describe(x[row : row + 1], grid), features[row : row + 1], atol=1e-5
                )
            for scale, offset in ((0.5, 0.25), (1e-4, 0.0), (200.0, 1000.0)):
                assert torch.allclose(describe(scale * x + offset, grid), features, atol=0.01)


def test_flat_inputs_say_nothing(subtests):
    for value in [0.0, 0.3, 1.0]:
        with subtests.test(value=value):
            grid = PatchGrid((3, 8, 8), (2, 2))
            features = describe(torch.full((1, 3, 8, 8), value), grid)
            assert features[..., :-2].abs().max() < 0.02


def test_a_shift_of_the_input_shifts_what_is_seen():
    """Away from the edges, by a whole patch."""
    grid = PatchGrid((1, 64), (4,))
    x = torch.full((1, 1, 64), 0.5)
    x[0, 0, 24:28] = torch.tensor([0.1, 0.9, 0.2, 0.8])
    original, shifted = describe(x, grid), describe(x.roll(4, 2), grid)
    assert torch.allclose(original[:, 4:10, :-2], shifted[:, 5:11, :-2], atol=1e-4)


def test_the_loud_patch_stands_out_and_the_bright_one_too():
    grid = PatchGrid((1, 8, 8), (2, 2))
    x = torch.full((1, 1, 8, 8), 0.5)
    x[0, 0, 2:4, 2:4] = torch.tensor([[0.2, 0.8], [0.8, 0.2]])
    x[0, 0, 6:8, 6:8] = 1.0
    features = describe(x, grid)[0]
    assert features[:, 1].argmax() == 15, "mean in the smallest window: the last patch is bright"
    dark = x.clone()
    dark[0, 0, 6:8, 6:8] = 0.5
    assert describe(dark, grid)[0, :, 0].argmax() == 5, "deviation: patch (1, 1) is loud"


def test_where_a_patch_lies_by_hand():
    """Four patches along a signal: centres at 1/8, 3/8, ...; squares of 2c - 1."""
    features = describe(inputs((1, 8)), PatchGrid((1, 8), (2,)))
    assert features[0, :, -2].tolist() == pytest.approx([9 / 16, 1 / 16, 1 / 16, 9 / 16])
    square = describe(inputs((1, 4, 8)), PatchGrid((1, 4, 8), (4, 2)))
    assert square[0, :, -1].tolist() == pytest.approx([9 / 32, 1 / 32, 1 / 32, 9 / 32]), (
        "the mean over both axes"
    )


def test_means_over_boxes_end_at_the_edges(subtests):
    """Axis after axis gives what whole boxes give, counted one by one."""
    for shape in [(7,), (5, 6), (3, 5, 4)]:
        with subtests.test(shape=shape):
            x, sides = inputs((2, *shape)), [3, 5, 1][: len(shape)]
            pooled = _pool(x, sides)
            for place in itertools.product(*map(range, shape)):
                box = tuple(
                    slice(max(0, centre - side // 2), centre + side // 2 + 1)
                    for centre, side in zip(place, sides, strict=True)
                )
                assert torch.allclose(
                    pooled[(..., *place)], x[(..., *box)].flatten(2).mean(2), atol=1e-6
                )
