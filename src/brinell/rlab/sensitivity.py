"""The sensitivity map: how much each distortion on each patch alone is expected to change the margin.

One severity and a few draws of each distortion are taken. What the linear model predicts for a
variant has a mean and, from its prior, a deviation; the map holds the root of the mean square of
both over the draws. So a patch that no query was about has the value of the prior, and the map
costs no query.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.core.patches import PatchGrid
from brinell.rlab.cache import DistortionCache
from brinell.rlab.content import sums
from brinell.rlab.posterior import Posterior
from brinell.rlab.variants import Variant

DRAWS = 4
"""Draws of each distortion that are taken."""


def looked_at(variants: Sequence[Variant]) -> list[list[int]]:
    """For each distortion, in the order in which they come, the variants by which it is judged: of its middle severity."""
    groups = []
    for one in {id(variant.distortion): variant.distortion for variant in variants}.values():
        severities = sorted({variant.severity for variant in variants if variant.distortion is one})
        middle = severities[len(severities) // 2]
        numbers = [number for number, other in enumerate(variants) if other.distortion is one and other.severity == middle]
        groups.append(numbers[:DRAWS])
    return groups


def sensitivity(cache: DistortionCache, grid: PatchGrid, posterior: Posterior, rows: Tensor) -> Tensor:
    """(m, patches, distortions): the expected effect, in logits, of each distortion on each patch of the slots `rows` (m,)."""
    clean, mean, energy = cache.x[rows], posterior.mean[rows], posterior.energy[rows]
    unit = posterior.unit[rows].square()[:, None]
    maps = []
    for numbers in looked_at(cache.variants):
        total = torch.zeros(len(rows), len(grid), device=rows.device)
        for number in numbers:
            change = (cache.inputs(rows, torch.full_like(rows, number)) - clean).view(len(rows), grid.channels, grid.places)
            predicted = sums((change * mean).sum(1), grid)
            turned = torch.einsum("mcp,ce->mep", change, posterior.covariance)
            total += predicted.square() + unit * sums((turned * change).sum(1).clamp_min(0) * energy, grid)
        maps.append((total / len(numbers)).sqrt())
    return torch.stack(maps, 2)
