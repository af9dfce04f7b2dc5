"""Glass blur as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published, smoothed


@dataclass(frozen=True, kw_only=True)
class GlassBlur(Published):
    """Smoothed, every pixel replaced by a random one near it several times, and smoothed again.

    Parameters: the deviation, how far a pixel is taken from, and how often. Pixels are gone through
    from below, each taking what its neighbour holds by then, as in the published sets (whose code
    means to exchange the two and copies).
    """

    small = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
    large = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))
    rising = False
    """Smoothing hides what moved pixels do, and grows where they move as often as before."""

    def distort(self, x: Tensor, parameters: tuple[float, int, int], rng: Streams) -> Tensor:
        """`x` (n, C, H, W), smoothed, shuffled and smoothed again."""
        deviation, reach, times = parameters
        n, channels, height, width = x.shape
        soft = smoothed(x, deviation).mul(255).floor().div(255)
        # Pixels stay whose neighbours may lie outside of the picture.
        rows = range(height - reach, reach, -1)
        columns = range(width - reach, reach, -1)
        if not len(rows) or not len(columns):
            return smoothed(soft, deviation)

        moves = rng.integers(2 * reach, times, len(rows), len(columns), 2).sub_(reach)
        # (H * W, n): which pixel of the smoothed picture is shown at each place; places first, so
        # that a step is one row.
        order = np.repeat(np.arange(height * width)[:, None], n, axis=1)
        samples = np.arange(n)
        moves_flat = (moves[..., 0] * width + moves[..., 1]).permute(1, 2, 3, 0).cpu().numpy()
        for turn in range(times):
            for at_row, row in enumerate(rows):
                for at_column, column in enumerate(columns):
                    place = row * width + column
                    order[place] = order[place + moves_flat[turn, at_row, at_column], samples]

        index = torch.from_numpy(order.T.copy()).to(x.device)[:, None].expand(-1, channels, -1)
        shuffled = soft.reshape(n, channels, -1).gather(2, index).reshape(x.shape)
        return smoothed(shuffled, deviation)
