"""Gradient sign: each value one step along the sign of the loss's gradient. For white-box targets.

Goodfellow, Shlens & Szegedy 2015, Explaining and harnessing adversarial examples, section 4, as a
distortion: placed on patches it is the strongest change of its Linf norm, to first order.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from brinell.core.contracts import KINDS, Access, Kind, Streams
from brinell.core.settings import Checked, Positive
from brinell.distortions._shared import Scale, per_sample


@dataclass(frozen=True, kw_only=True)
class GradientSign(Checked):
    """A step of fixed size along the sign of the gradient."""

    factor: Positive = 1.0
    """Multiplies the step."""

    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    access: ClassVar[Access] = Access.GRADIENTS
    scale: ClassVar[Scale] = Scale(small=(0.031, 0.048, 0.073, 0.11, 0.17), large=(0.044, 0.072, 0.12, 0.19, 0.3))
    """The step, as a share of the range."""

    def draws(self, shape: tuple[int, ...]) -> int | None:
        return 1

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor, gradient: Tensor) -> Tensor:
        """(n, *shape) in [0, 1], one step on."""
        return self.distort(x, self.scale(severity, x), gradient)

    def distort(self, x: Tensor, step: Tensor, gradient: Tensor) -> Tensor:
        return (x + self.factor * per_sample(step, x) * gradient.sign()).clamp(0, 1)
