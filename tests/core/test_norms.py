"""Norms are as exact as a budget of the same size must be judged."""

import pytest
import torch

from brinell.core import norms


@pytest.mark.parametrize("layout", ["plain", "turned", "sparse", "large, then small"])
def test_l2_of_long_rows(layout):
    """Within a millionth of the double, however the values lie in memory: the tolerance of a budget
    is ten millionths.
    """
    for shape in ((3, 16, 32, 32), (3, 64, 64), (1, norms.BLOCK), (1, norms.BLOCK + 1), (5,)):
        delta = laid_out(layout, shape)
        exact = delta.double().flatten(1).norm(dim=1)
        torch.testing.assert_close(norms.l2(delta).double(), exact, rtol=1e-6, atol=1e-12)


def laid_out(layout, shape):
    """(4, *shape): perturbations whose values lie in memory in some way."""
    rng = torch.Generator().manual_seed(0)
    delta = torch.rand(4, *shape, generator=rng)
    if layout == "turned":
        delta = delta.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "sparse":
        delta = delta * (torch.rand(delta.shape, generator=rng) < 0.01)
    if layout == "large, then small":
        # Small squares are lost in a large sum: in one go this is off by 10**-5.
        delta = torch.where(
            torch.arange(delta[0].numel()).reshape(shape) < delta[0].numel() // 2,
            1.0,
            0.037 * delta,
        )
    return delta


def test_l2_by_hand():
    delta = torch.zeros(2, norms.BLOCK * 2 + 3)
    delta[0, 0], delta[0, -1] = 3.0, 4.0
    delta[1, norms.BLOCK] = -2.0
    assert norms.l2(delta).tolist() == [5.0, 2.0]
