"""Frame drop: frames are lost, and the screen is black or shows the last that came.

Limit: the strength of `shows=last` depends on the video:
nothing where nothing moves. Its severities are those of black frames. Before the first frame
nothing has come, so there it is never lost.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled


@dataclass(frozen=True, kw_only=True)
class FrameDrop(Scaled):
    """Random frames of a video are lost: black, or the last one again."""

    shows: Literal["black", "last"] = "black"
    """Replacement of a lost frame: black, or last (the latest frame that was received)."""

    domains = frozenset({"video"})
    scale = Scale.constant(0.059, 0.12, 0.21, 0.34, 0.53)
    """Share of the frames that are lost."""

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, frames, H, W) with this share (n,) of the frames lost."""
        dropped = rng.uniform(x.shape[2]) < share[:, None]
        if self.shows == "black":
            return torch.where(dropped[:, None, :, None, None], 0.0, x)
        dropped[:, 0] = False
        number = torch.arange(x.shape[2], device=x.device)
        # The number of the last frame that came, up to each place.
        came = torch.where(dropped, 0, number).cummax(1).values
        return x.gather(2, came[:, None, :, None, None].expand_as(x))
