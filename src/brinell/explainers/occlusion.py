"""Occlusion: how much probability the class loses when a window is hidden, window after window.

Zeiler & Fergus 2014, Visualizing and understanding convolutional networks, section 4.2. Deviations:
the hidden window shows the blurred input and not grey, which would add edges; overlapping windows
are averaged.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.core.patches import PatchGrid
from brinell.core.settings import Checked, Count
from brinell.explainers._asking import clean_value, hidden_fill, masked_values, places_of


@dataclass(frozen=True, kw_only=True)
class OcclusionExplainer(Checked):
    """Probability lost when a window is hidden."""

    windows: Count = 14
    """Windows along each axis of an image; of signals their square, of videos so many that there
    are as many in all."""

    access = Access.SCORES
    domains = frozenset(KINDS)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places). Asks one question for each window, and one about the clean input."""
        places = places_of(domain)
        windows = max(1, round(self.windows ** (2 / len(places))))
        # Windows of twice their step overlap by half, so that borders between them leave no seam.
        stride = tuple(max(1, -(-length // windows)) for length in places)
        patch = tuple(min(2 * step, length) for step, length in zip(stride, places, strict=True))
        grid = PatchGrid(domain.shape, patch, stride)
        single = torch.eye(len(grid), dtype=torch.bool, device=batch.x.device)
        # Which places each window hides: in all channels alike, so that the first one says it.
        hides = grid.covered_values(single).reshape(len(grid), -1, *places)[:, 0].float()
        fill = hidden_fill(batch.x, domain)

        def masks(first: int, last: int) -> Tensor:
            """(n, last - first, *places): the masks of these numbers."""
            return (1 - hides[first:last])[None].expand(len(batch), -1, *places)

        clean = clean_value(oracle, batch)
        answers = masked_values(oracle, batch, domain, len(grid), masks, fill)
        values = torch.cat([part for _, part in answers], 1)
        drops = clean[:, None] - values
        # A place that several windows hide gets the mean of their drops.
        maps: Tensor = torch.tensordot(drops, hides, 1) / hides.sum(0).clamp_min(1)
        return maps
