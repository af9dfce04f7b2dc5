"""Signed patch: a constant is added or taken away, with a sign for each channel.

The free distortion: no camera does this, but placed patch by patch, with the sign of each channel
and patch chosen, it spans the perturbations among which Square Attack (Andriushchenko et al. 2020)
and SimBA (Guo et al. 2019, Simple black-box adversarial attacks) search, so that what is learned
about where to strike can be compared with them at equal norms.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Kind, Streams
from brinell.core.settings import Checked, Positive
from brinell.distortions._shared import Scale, per_sample

CHANNELS = 4
"""Number of channels with independent signs; in further channels the signs repeat."""


@dataclass(frozen=True, kw_only=True)
class SignedPatch(Checked):
    """A constant of either sign on each channel; every combination of signs is a version."""

    factor: Positive = 1.0
    """Multiplies the constant."""

    constant: ClassVar[bool] = True
    """All values of a channel are moved by one constant, but for the bounds."""
    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    scale: ClassVar[Scale] = Scale(
        small=(0.033, 0.051, 0.076, 0.11, 0.17), large=(0.036, 0.058, 0.093, 0.15, 0.24)
    )
    """The constant, as a share of the range."""

    def draws(self, shape: tuple[int, ...]) -> int | None:
        """A version for each combination of signs."""
        return 1 << min(CHANNELS, _channels(shape))

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, *shape) in [0, 1]: bit c of `draw` is the sign of channel c, 0 for adding."""
        channels = _channels(tuple(x.shape[1:]))
        bits = draw[:, None] >> (torch.arange(channels, device=x.device) % CHANNELS) & 1
        return self.distort(x, self.scale(severity, x), 1.0 - 2.0 * bits)

    def distort(self, x: Tensor, constant: Tensor, signs: Tensor) -> Tensor:
        """`x` (n, *shape) with this constant (n,) times the signs (n, channels) added."""
        signs = signs.reshape(*signs.shape, *[1] * (x.ndim - 2))
        return (x + self.factor * per_sample(constant, x) * signs).clamp(0, 1)


def _channels(shape: tuple[int, ...]) -> int:
    """Channels of an input; the values of a vector are one."""
    return shape[0] if len(shape) > 1 else 1
