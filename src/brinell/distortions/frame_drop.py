"""Frame drop: frames are lost on their way, each by itself, and in their place the screen is black or shows the last that came.

What `shows=last` cannot be: as strong as its severity. How much it changes is for the video to say:
nothing where nothing moves. Its severities are those of black frames. Before the first frame
nothing has come, so there it is never lost.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled

__all__ = ["FrameDrop"]


@dataclass(frozen=True, kw_only=True)
class FrameDrop(Scaled):
    """Random frames of a video are lost: black, or the last one again."""

    shows: Literal["black", "last"] = "black"
    """What is seen in place of a lost frame: black, or last, the one before it that came."""

    domains = frozenset({"video"})
    scale = Scale.same(0.059, 0.12, 0.21, 0.34, 0.53)
    """Share of the frames that are lost."""

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, T, H, W) with about this share (n,) of its frames lost. A larger share loses those of a smaller one too."""
        lost = rng.uniform(x.shape[2]) < share[:, None]
        if self.shows == "black":
            return torch.where(lost[:, None, :, None, None], 0.0, x)
        lost[:, 0] = False
        number = torch.arange(x.shape[2], device=x.device)
        came = torch.where(lost, 0, number).cummax(1).values
        return x.gather(2, came[:, None, :, None, None].expand_as(x))
