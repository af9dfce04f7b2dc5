"""Flicker: the light swells and fades from frame to frame, as under lamps on mains current.

A sine over time with a random phase and a period of 2 to 10 frames is added to all values of a
frame.

Limit: it is weaker than the highest severities of other distortions, since between its peaks the
light is as it was.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled

SLOWEST, FASTEST = 0.1, 0.5
"""Swells in a frame's time; half of one is the fastest that frames can show."""


@dataclass(frozen=True, kw_only=True)
class Flicker(Scaled):
    """The brightness of a video's frames swells and fades."""

    domains = frozenset({"video"})
    scale = Scale.constant(0.26, 0.35, 0.46, 0.6, 0.76)
    """The most that is added or taken away, as a share of the range."""

    def distort(self, x: Tensor, swell: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, frames, H, W) and a wave over time of this amplitude (n,)."""
        chance = rng.uniform(2)
        pace = SLOWEST + (FASTEST - SLOWEST) * chance[:, :1]
        time = torch.arange(x.shape[2], device=x.device)
        light = swell[:, None] * torch.sin(2 * math.pi * (pace * time + chance[:, 1:]))
        return (x + light[:, None, :, None, None]).clamp(0, 1)
