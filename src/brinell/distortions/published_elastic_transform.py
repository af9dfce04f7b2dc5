"""Elastic transform as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section
3).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Streams
from brinell.distortions._published import Published, smoothed


@dataclass(frozen=True, kw_only=True)
class ElasticTransform(Published):
    """Moved by a random field, at 32 pixels after a random affine map.

    Parameters, in shares of the side: how far the field may move a pixel before it is smoothed,
    times a factor; the deviation of the smoothing; and by how much three points of the picture
    move, which make the affine map. At 224 pixels they are those of the imagecorruptions package,
    which has no affine map; those of ImageNet-C, whose first two severities smooth over the whole
    picture, hardly deform anything but by their affine map.
    """

    small = (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    )
    large = tuple((0.005 * factor, 0.01, 0) for factor in (12.5, 16.25, 21.25, 25, 30))  # type: ignore[assignment]
    rising = False
    """At 32 pixels the field grows and the affine map shrinks."""

    def distort(self, x: Tensor, parameters: tuple[float, float, float], rng: Streams) -> Tensor:
        """`x` (n, C, H, W), moved by the affine map and then by the field."""
        amplitude, deviation, affine = parameters
        height, width = x.shape[-2:]
        if affine:
            x = _affine(x, affine * min(height, width), rng.fold("affine"))
        if not amplitude:
            return x

        # Smoothed in units of each side; of pictures that are not square by the mean of both.
        fields = rng.fold("field").uniform(2, height, width).mul_(2).sub_(1)
        side = (height + width) / 2
        fields = smoothed(fields, deviation * side, truncate=3.0, mode="symmetric")
        fields = fields * amplitude * height

        rows = torch.arange(height, device=x.device, dtype=x.dtype)
        columns = torch.arange(width, device=x.device, dtype=x.dtype)
        down = rows[:, None] + fields[:, 1]
        right = columns[None, :] + fields[:, 0]
        # Middles of pixels, as shares of the picture from -1 to 1.
        grid = torch.stack([(2 * right + 1) / width - 1, (2 * down + 1) / height - 1], -1)
        return F.grid_sample(
            x, grid, mode="bilinear", padding_mode="reflection", align_corners=False
        )


def _affine(x: Tensor, most: float, rng: Streams) -> Tensor:
    """`x` after three points about its middle moved by up to `most` pixels each way.

    They are a third of the shorter side away from the middle.
    """
    n, _, height, width = x.shape
    middle = torch.tensor([height // 2, width // 2], device=x.device, dtype=x.dtype)
    third = min(height, width) // 3
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]], device=x.device)
    corners = signs * third + middle
    targets = corners + (rng.uniform(3, 2) * 2 - 1) * most

    units = torch.ones(n, 3, 1, device=x.device)
    # The map from the new picture back to the old one: corners = [moved, 1] @ back.
    inverse = torch.linalg.lstsq(torch.cat([targets, units], 2), corners.expand(n, 3, 2)).solution

    rows = torch.arange(height, device=x.device)
    columns = torch.arange(width, device=x.device)
    across = columns.expand(height, width)
    down = rows[:, None].expand(height, width)
    points = torch.stack([across, down, torch.ones_like(across)], -1).to(x.dtype)
    source = points.reshape(-1, 3) @ inverse
    # From middles of pixels to -1 for the first one and 1 for the last.
    size = torch.tensor([max(width - 1, 1), max(height - 1, 1)], device=x.device, dtype=x.dtype)
    grid = (2 * source / size - 1).reshape(n, height, width, 2)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=True)
