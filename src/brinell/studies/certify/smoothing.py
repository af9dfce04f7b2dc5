"""Randomised smoothing: noisy copies of each sample, their classes counted, and the radius that the
count allows.

Cohen, Rosenfeld & Kolter 2019, Certified adversarial robustness via randomized smoothing (ICML;
arXiv 1902.02918), section 3.2, algorithm CERTIFY with theorem 1.

Deviations:
- Noisy inputs are moved into the bounds of the data before the model sees them. The smoothed model
  is that of the clipped model, so the theorem holds as it stands.
- The noise of a sample follows from the seed and its position in the data, so that pieces and
  batches change nothing. It is drawn by torch on the processor, five times as fast as by
  `core.streams`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell.analysis.sequences import ValueCounts, log_wealth, lower_end
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, option
from brinell.core.intervals import clopper_pearson_low
from brinell.core.model import Model, ask
from brinell.core.record import Array
from brinell.core.settings import Checked, Count, Positive, Range
from brinell.core.streams import token

FIRST_LOOK, LOOK_GROWTH = 32, 1.5
"""Draws before the first look where draws end early, and the factor from look to look."""
GIVE_UP = 0.01
"""Probability that a radius is given up that more draws would prove: it costs a proof and is never
a false one."""
CHUNK, LEAST = 2**20, 16
"""Numbers that are drawn together, and the least number of noisy inputs; both fix the noise,
whatever the size of a batch."""
Counter = Callable[[Tensor], Array]
"""(classes,) counts of the predicted classes of noisy inputs (n, *shape)."""


class Bound(NamedTuple):
    """A lower bound of the probability of a class under noise."""

    prediction: int
    low: float
    draws: int
    """Noisy inputs behind the bound, without those that chose the class."""


@dataclass(frozen=True, kw_only=True)
class Smoothing(Checked):
    """Randomised smoothing."""

    sigma: Positive = 0.25
    """Standard deviation of the noise, in the units of the data. Larger noise allows larger
    radii and costs accuracy."""
    draws: Annotated[int, Range("[2, inf)")] = 10_000
    """Noisy inputs by which the share of the class is bounded. More draws allow larger radii: at
    most 2.46, 3.20 and 3.81 times sigma for 1,000, 10,000 and 100,000 at alpha 0.001."""
    first: Count = 100
    """Other noisy inputs, by which the class is chosen."""
    alpha: Annotated[float, Range("(0, 0.5)")] = 0.001
    """Largest probability that a radius is too large, for each sample."""
    early: bool = False
    """Whether draws end once each radius that is asked for is decided, most often after some
    dozens; `draws` are then the most. Its bound holds at every look (a confidence sequence)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.largest:
            least = math.floor(math.log(self.alpha) / math.log(0.5)) + 1
            raise ValueError(
                f"{self.draws} draws cannot tell any class at alpha "
                f"{self.alpha:g}: {least} are the least"
            )

    @property
    def largest(self) -> float:
        """The largest radius that the draws allow."""
        if self.early:
            return self.radius(float(lower_end(ValueCounts(0, 0, self.draws), self.alpha)))
        return self.radius(self.alpha ** (1 / self.draws))

    def radius(self, low: float) -> float:
        """The L2 radius within which a class of at least this probability stays the most probable
        one (theorem 1).
        """
        return self.sigma * NormalDist().inv_cdf(low) if low > 0.5 else 0.0

    def check_radius(self, radius: float) -> None:
        """Refuse a radius that the draws cannot prove."""
        if radius > self.largest:
            sigma = math.ceil(100 * radius / self.largest * self.sigma) / 100
            raise RequestError(
                f"{option('eps')} names a radius of {radius:g}, and {self.draws} "
                f"draws at sigma {self.sigma:g} prove at most "
                f"{self.largest:.3g}: take sigma={sigma:g}, or more draws, or "
                "leave larger radii out"
            )

    def bound(
        self, count: Counter, x: Tensor, seed: int, sample: int, radii: Sequence[float] = (0.0,)
    ) -> Bound:
        """The most frequent class of a sample (*shape) under noise, and a lower bound of its
        probability: the exact one (Clopper-Pearson), or with `early` a confidence sequence that
        ends once the `radii` are decided.
        """
        prediction = int(self._counts(count, x, f"{seed} first {sample}", self.first).argmax())
        if not self.early:
            hits = int(self._counts(count, x, f"{seed} later {sample}", self.draws)[prediction])
            return Bound(prediction, clopper_pearson_low(hits, self.draws, self.alpha), self.draws)

        hits = 0
        n = 0
        end = FIRST_LOOK
        while n < self.draws and not self._are_decided(hits, n, radii):
            end = min(end, self.draws)
            counts = self._counts(count, x, f"{seed} look {n} {sample}", end - n)
            hits += int(counts[prediction])
            n = end
            end = int(end * LOOK_GROWTH)
        return Bound(prediction, float(lower_end(ValueCounts(n - hits, 0, hits), self.alpha)), n)

    def _are_decided(self, hits: int, n: int, radii: Sequence[float]) -> bool:
        """True if `hits` among `n` draws prove each radius or make it hopeless."""
        if not n:
            return False
        counts = ValueCounts(n - hits, 0, hits)
        shares = np.array([NormalDist().cdf(radius / self.sigma) for radius in radii])
        is_proven = log_wealth(counts, shares) >= -math.log(self.alpha)
        is_hopeless = log_wealth(counts.mirrored(), 1 - shares) >= -math.log(GIVE_UP)
        return bool((is_proven | is_hopeless).all())

    def _counts(self, count: Counter, x: Tensor, key: str, draws: int) -> Array:
        """(classes,) counts of the predicted classes."""
        size = max(LEAST, CHUNK // x.numel())
        generator, counts = torch.Generator(), []
        for start in range(0, draws, size):
            generator.manual_seed(token(f"{key} {start}") % 2**63)
            noise = torch.randn(min(size, draws - start), *x.shape, generator=generator).mul_(
                self.sigma
            )
            counts.append(count(noise.add_(x)))
        total: Array = np.sum(counts, 0)
        return total


def counter(model: Model, domain: Domain, device: torch.device, batch_size: int) -> Counter:
    """Counts the predicted classes of noisy inputs (n, *shape), moved into the bounds of the data."""

    def count(noisy: Tensor) -> Array:
        parts = (domain.clamp(part).to(device) for part in torch.split(noisy, batch_size))
        with torch.no_grad():
            answers = [
                torch.bincount(ask(model, part).argmax(1), minlength=model.classes)
                for part in parts
            ]
        counts: Array = torch.stack(answers).sum(0).cpu().numpy()
        return counts

    return count
