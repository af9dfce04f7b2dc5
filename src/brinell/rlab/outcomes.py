"""What an environment knows of each sample of its batch: whether and how the criterion was met, and what was done on the way."""

from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.patches import PatchGrid
from brinell.rlab.cache import CLEAN


class Outcomes(NamedTuple):
    """What became of the samples of a batch."""

    success: Tensor
    """(n,) bool: whether the criterion was met."""
    variant: Tensor
    """(n, patches) int16: the assignment that met it at the smallest distance, CLEAN everywhere for
    none."""
    eps: Tensor
    """(n,): the budget to which that assignment is to be fitted."""
    length: Tensor
    """(n,): distance of `closest` before it is fitted and scaled; NaN for none."""
    strength: Tensor
    """(n,): the share of the fitted distortion that is left after clean-up."""
    closest: Tensor
    """(n, patches) int16: the assignment of the closest of all inputs that met the criterion, which
    after clean-up need not be `variant`."""
    steps: Tensor
    """(n,): queries after the first until the criterion was first met."""
    value: Tensor
    """(n, patches): what each patch was predicted to contribute at that time, as a share of the
    clean input's margin; 0 for clean patches."""
    slope: Tensor
    """(n, channels, places): the linear model's gradient at that time, which predicts the effect of
    other distortions."""
    map: Tensor
    """(n, patches, distortions): the sensitivity map (`rlab.sensitivity`) when the episode ended;
    NaN where there is none."""
    visits: Tensor
    """(n, patches) int32: how often each patch was changed in an input that was asked about, kept
    or not."""
    given: Tensor
    """(n,): clean patches that were distorted in steps that were kept."""
    taken: Tensor
    """(n,): patches that were cleared, in steps that were kept."""
    size: Tensor
    """(n,): distance of the input at which the episode ended."""

    def select(self, rows: Tensor) -> "Outcomes":
        """The same of the chosen samples."""
        return Outcomes(*(column[rows] for column in self))


def no_outcomes(eps: Tensor, grid: PatchGrid, distortions: int) -> Outcomes:
    """Before the first step, for budgets (n,), the patches of a grid and so many distortions."""
    n, patches, counts = len(eps), len(grid), torch.zeros(3, len(eps), dtype=torch.int64, device=eps.device)
    return Outcomes(
        success=torch.zeros(n, dtype=torch.bool, device=eps.device),
        variant=torch.full((n, patches), CLEAN, dtype=torch.int16, device=eps.device),
        eps=eps.clone(),
        length=torch.full((n,), torch.nan, device=eps.device),
        strength=torch.ones_like(eps),
        closest=torch.full((n, patches), CLEAN, dtype=torch.int16, device=eps.device),
        steps=counts[0],
        value=torch.zeros(n, patches, device=eps.device),
        slope=torch.zeros(n, grid.channels, grid.places, device=eps.device),
        map=torch.full((n, patches, distortions), torch.nan, device=eps.device),
        visits=torch.zeros(n, patches, dtype=torch.int32, device=eps.device),
        given=counts[1],
        taken=counts[2],
        size=torch.zeros(n, device=eps.device),
    )
