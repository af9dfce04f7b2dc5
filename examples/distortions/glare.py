"""Glare: a custom distortion, named as `examples/distortions/glare.py:Glare`.

Nothing else has to be written.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Glare:
    """A lamp in the upper left corner, whose light falls off towards the lower right."""

    domains = frozenset({"image", "video"})

    def draws(self, shape):
        """One version: nothing is random."""
        return 1

    def __call__(self, x, severity, rng, draw):
        """(n, *shape) in [0, 1], brighter towards the corner."""
        down, right = (torch.linspace(1, 0, side, device=x.device) for side in x.shape[-2:])
        return (x + 0.2 * severity.reshape(-1, *[1] * (x.ndim - 1)) * down[:, None] * right).clamp(
            0, 1
        )
