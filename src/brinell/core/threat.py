"""The threat model: inputs within `eps` of the clean one, inside the bounds of the data, and the
criterion of success.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor

from brinell.core.criterion import MISCLASSIFIED, Criterion
from brinell.core.domain import Domain
from brinell.core.streams import Streams

COUNTS = {"l0": "values", "pixels": "pixels", "patch": "places along a side"}
"""Distances that count what changes at all, by however much, and what they count."""


@runtime_checkable
class Distance(Protocol):
    """A norm on perturbations `delta` (n, *shape).

    Every method is a pure function, `eps` is (n,).
    """

    @property
    def name(self) -> str:
        """The file's name: linf, l2, ..."""

    def size(self, delta: Tensor) -> Tensor:
        """(n,): the norm of each perturbation."""

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """The nearest perturbation of size at most eps.

        It may be written into `delta`, which must not be used afterwards.
        """

    def ascent(self, grad: Tensor) -> Tensor:
        """The perturbation of size 1 along which a function with gradient `grad` rises fastest.

        0 where `grad` is 0.
        """

    def sample(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """(n, *shape): perturbations drawn uniformly from the unit ball."""

    def direction(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """(n, *shape): perturbations of size exactly 1, as APGD starts from."""


@runtime_checkable
class Relative(Protocol):
    """A distance that depends on the clean input as well as on the change.

    One between embeddings is of this kind. It implements `Distance` too: attacks use its methods on
    changes to scale their steps, but the ledger never judges by them.
    """

    def measure(self, x: Tensor, x0: Tensor) -> Tensor:
        """(n,): how far each of `x` (n, *shape) is from its clean input in `x0`."""

    def into(self, x: Tensor, x0: Tensor, eps: Tensor, domain: Domain) -> Tensor:
        """`x` moved within eps (n,) of `x0` and into the bounds, both at once.

        Neither argument is written into.
        """


@cache
def _is_relative(kind: type) -> bool:
    """True if a class has the methods of `Relative`."""
    return issubclass(kind, Relative)


def is_relative(distance: Distance) -> TypeGuard[Relative]:
    """True if a distance depends on the clean input.

    An `isinstance` check of a protocol is too slow for every query.
    """
    return _is_relative(type(distance))


@dataclass(frozen=True, kw_only=True)
class Threat:
    """The inputs that count: within `eps[i]` of clean input i, and inside the domain's bounds."""

    distance: Distance
    eps: Tensor
    """(n,) float32, one budget per sample, aligned with the batch."""
    domain: Domain
    criterion: Criterion = MISCLASSIFIED
    """Criterion of success, aligned with the batch."""

    def select(self, keep: Tensor) -> "Threat":
        """The threat to the chosen rows."""
        return replace(self, eps=self.eps[keep], criterion=self.criterion.select(keep))

    def project(self, x: Tensor, x0: Tensor) -> Tensor:
        """`x` moved into the set around `x0`.

        First onto the ball, then into the box; since x0 lies in the box the second step never
        leaves the ball of a norm.
        """
        if is_relative(self.distance):
            return self.distance.into(x, x0, self.eps, self.domain)
        return self.domain.clamp(self.distance.project(x - x0, self.eps).add_(x0))

    def tolerance(self) -> Tensor:
        """(n,): by how much float32 rounding may make a legal input look too far away."""
        return tolerance(self.eps, self.distance, self.domain)


def size(distance: Distance, x: Tensor, x0: Tensor) -> Tensor:
    """(n,): how far each of `x` (n, *shape) is from its clean input in `x0`."""
    return distance.measure(x, x0) if is_relative(distance) else distance.size(x - x0)


def extent(distance: Distance, domain: Domain) -> float:
    """A distance that no change within the bounds exceeds.

    Infinite where it depends on more than the change.
    """
    if is_relative(distance):
        return float("inf")
    free = domain.free
    low, high = free.bounds()
    return float(distance.size((high - low).expand(1, *free.shape)))


def tolerance(eps: Tensor, distance: Distance, domain: Domain) -> Tensor:
    """Slack for comparing a measured distance with `eps`.

    It is one part in 10**5, and at least what rounding can add. Adding a perturbation to an input
    rounds each value by at most `domain.rounding`. No perturbation grows by more than the size of
    such an error in every value, which is the triangle inequality. What L0 counts is not rounded: a
    value that was left alone is the clean one exactly, and one more is too many.
    """
    if distance.name in COUNTS:
        return torch.zeros_like(eps)
    error = distance.size(torch.full((1, *domain.shape), 2 * domain.rounding, device=eps.device))
    return torch.clamp_min(eps * 1e-5, max(domain.slack, float(error)))
