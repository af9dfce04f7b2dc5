"""Frame repeat: the picture freezes on one frame, then goes on from where the video is by then.

Limit: its strength depends on the video. Nothing changes where nothing
moves; its severities are those of natural clips with much motion, and at 224 pixels a side, on
calmer ones, the highest fall short.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled


@dataclass(frozen=True, kw_only=True)
class FrameRepeat(Scaled):
    """A video freezes: one frame is shown again and again."""

    domains = frozenset({"video"})
    scale = Scale.constant(0.15, 0.26, 0.4, 0.6, 0.82)
    """Share of the frames that show an earlier one, of all but the first; one at least."""

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, frames, H, W) with a frame shown in place of this share (n,) of others."""
        most = x.shape[2] - 1
        if most < 1:
            return x.clone()
        chance = rng.uniform(2)
        # Rounded up or down at random, so that the mean over inputs is the share.
        repeats = (share * most + chance[:, 0]).floor().clamp(1, most)[:, None]
        first = (chance[:, 1:] * (most + 1 - repeats)).floor()
        number = torch.arange(most + 1, device=x.device)
        frames = torch.where((number > first) & (number <= first + repeats), first.long(), number)
        return x.gather(2, frames[:, None, :, None, None].expand_as(x))
