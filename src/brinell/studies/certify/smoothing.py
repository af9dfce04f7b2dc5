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
- With `early` the bound is a confidence sequence (`analysis.sequences`), as arXiv 2606.27694 has it
  for a named radius. Ours also ends once all draws would hardly prove the radius, and chooses the
  class by its lead.
"""

import math
from bisect import bisect_left
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

CHUNK, LEAST = 2**20, 16
"""Numbers that are drawn together, and the least number of noisy inputs; both fix the noise,
whatever the size of a batch."""
LOOK_GROWTH = 8
"""Where draws end early, each look comes after an n-th of the draws before it, and at least
`LEAST`."""
LEAD = 8
"""Draws by which a class leads all others where it is chosen early: of two classes with the odds
3 to 2 the more frequent one is then chosen with a probability of 0.96."""
GIVE_UP = 0.01
"""Largest probability that a radius is given up that all draws would prove with even odds: it costs
a proof and is never a false one."""
Counter = Callable[[Tensor], Array]
"""(classes,) counts of the predicted classes of noisy inputs (n, *shape)."""


class Bound(NamedTuple):
    """A lower bound of the probability of a class under noise."""

    prediction: int
    low: float
    draws: int
    """Noisy inputs that were drawn, also those that chose the class."""


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
    """Whether draws end once each radius that is asked for is proven, or will hardly be by all
    draws, most often after some dozens; `draws` and `first` are then the most. Its bound holds at
    every look (a confidence sequence)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.largest:
            # Of so few draws even unanimous ones bound a share by one half at most.
            least = math.floor(math.log(self.alpha) / math.log(0.5)) + 1
            raise ValueError(
                f"{self.draws} draws cannot tell any class at alpha "
                f"{self.alpha:g}: {least} are the least"
            )

    @property
    def largest(self) -> float:
        """The largest radius that the draws allow."""
        if self.early:
            unanimous = ValueCounts(zeros=0, halves=0, ones=self.draws)
            return self.radius(float(lower_end(unanimous, self.alpha)))
        # The exact bound (Clopper-Pearson) if all draws are of one class.
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
        if not self.early:
            # The class is chosen on other draws than those that bound its probability.
            votes = self._counts(count, x, f"{seed} first {sample}", self.first)
            prediction = int(votes.argmax())
            hits = int(self._counts(count, x, f"{seed} later {sample}", self.draws)[prediction])
            low = clopper_pearson_low(hits, self.draws, self.alpha)
            return Bound(prediction, low, self.first + self.draws)

        votes = self._votes(count, x, f"{seed} first {sample}")
        prediction = int(votes.argmax())
        shares = np.array([NormalDist().cdf(radius / self.sigma) for radius in radii])
        provable = np.array([self._provable(share) for share in shares])
        hits = 0
        n = 0
        # Each look adds draws, until every radius is proven or given up.
        while n < self.draws:
            step = min(max(LEAST, n // LOOK_GROWTH), self.draws - n)
            counts = self._counts(count, x, f"{seed} look {n} {sample}", step)
            hits += int(counts[prediction])
            n += step

            # Draws of other classes count 0, those of the class 1, and none a half. A wealth of
            # 1 / alpha against a share is reached with a probability of at most alpha where it is
            # the true one (Ville's inequality).
            seen = ValueCounts(zeros=n - hits, halves=0, ones=hits)
            is_proven = log_wealth(seen, shares) >= -math.log(self.alpha)
            is_hopeless = log_wealth(seen.mirrored(), 1 - provable) >= -math.log(GIVE_UP)
            if (is_proven | is_hopeless).all():
                break
        return Bound(prediction, float(lower_end(seen, self.alpha)), int(votes.sum()) + n)

    def _votes(self, count: Counter, x: Tensor, key: str) -> Array:
        """(classes,) counts of the predicted classes, until one leads clearly."""
        votes = self._counts(count, x, f"{key} 0", min(LEAST, self.first))
        while (n := int(votes.sum())) < self.first:
            second, most = np.sort(votes)[-2:]
            if most - second >= LEAD:
                break
            votes = votes + self._counts(count, x, f"{key} {n}", min(LEAST, self.first - n))
        return votes

    def _provable(self, share: float) -> float:
        """The least share of the class among all draws that proves it to be at least `share`;
        nearly 1 where none does.
        """

        def wealth(hits: int) -> float:
            counts = ValueCounts(zeros=self.draws - hits, halves=0, ones=hits)
            return float(log_wealth(counts, share))

        # The wealth grows with the hits, so the least that suffice are found by bisection.
        least = bisect_left(range(self.draws), -math.log(self.alpha), key=wealth)
        return least / (self.draws + 1)

    def _counts(self, count: Counter, x: Tensor, key: str, draws: int) -> Array:
        """(classes,) counts of the predicted classes."""
        # The noise of a chunk follows from its key alone, whatever comes before or after it.
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
    """Counts the predicted classes of noisy inputs (n, *shape), moved into the bounds
    of the data.
    """

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
