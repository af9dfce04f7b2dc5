"""A linear model of the answers to one input's queries. It predicts the effect of changes that were never queried.

The model assumes that a change `d` of the input raises the margin by <g, d>. The gradient g is unknown. Before the first query
it is normal around 0, and its covariance is the product of an energy for each place and of one covariance K over the channels:
Cov(g[c, i], g[e, i]) = unit**2 * energy[i] * K[c, e]. Each answer updates mean and covariance as in a Kalman filter. Because
the classifier is not linear, the noise is proportional to the variance that the prior gives the answer. Only the latest answers
reduce the covariance, since answers about distant inputs lose their value. The unit is estimated from the answers.

So one query about many patches at once informs about each of them, the same numbers predict adding and removing, and a variant
that was never tried is judged by the differences of its values.
"""

import torch
from torch import Tensor

RIDGE = 1e-12
"""Below every squared change that a query asks about, so that nothing is divided by zero."""
NOISE = 0.2
"""Of an answer, since the classifier is not linear."""
ANSWERS = 128
"""Answers of an input by which its covariance is reduced, the last ones."""
HELD = 2**20
"""Values that are kept of them for an input; large inputs keep fewer answers."""


class Posterior:
    """The linear models of n slots.

    The `covariance` (channels, channels) is K, of trace `channels`; the identity where nothing is known. The `noise` is the
    variance of an answer around the linear model, in shares of the variance that the prior gives it.
    """

    def __init__(
        self,
        slots: int,
        channels: int,
        places: int,
        *,
        covariance: Tensor | None = None,
        noise: float = NOISE,
        device: torch.device | None = None,
    ) -> None:
        self.mean = torch.zeros(slots, channels, places, device=device)
        """(n, channels, places): the expected gradient."""
        self.energy = torch.ones(slots, places, device=device)
        """(n, places): prior variance of the gradient at each place, in shares of the unit."""
        self.covariance = torch.eye(channels, device=device) if covariance is None else covariance.to(device=device)
        self._squares, self._count = torch.zeros(2, slots, device=device)
        self._noise = noise
        # Factors v of what the answers took away: the covariance is that of the prior less the sum of v v'.
        answers = min(ANSWERS, HELD // (channels * places))
        self._factors, self._number = torch.zeros(slots, answers, channels * places, device=device), [0] * slots

    @property
    def unit(self) -> Tensor:
        """(n,): the root of the mean squared effect of a change whose prior variance is 1; 1 before the first answer."""
        return torch.where(self._count > 0, self._squares / self._count.clamp_min(1), 1.0).sqrt()

    def forget(self, rows: Tensor, energy: Tensor) -> None:
        """New samples in these slots (m,), with their energies (m, places)."""
        self.mean[rows], self.energy[rows] = 0, energy
        self._squares[rows] = self._count[rows] = 0
        for row in rows.tolist():
            self._number[row] = 0

    def variance(self, change: Tensor, energy: Tensor) -> Tensor:
        """Prior variance, in squared units, of the effect of changes (..., channels, k) at places of energy (..., k)."""
        turned = torch.einsum("...ck,ce->...ek", change, self.covariance)
        return ((turned * change).sum(-2) * energy).sum(-1)

    def update(self, rows: Tensor, change: Tensor, effect: Tensor) -> None:
        """Update the model by one answer for each of some distinct slots (m,).

        `change` (m, channels, places) and `effect` (m,) are the differences of the input and its answer from the previous ones.
        """
        direction = torch.einsum("mck,ce->mek", change, self.covariance) * self.energy[rows, None]
        variance = (direction * change).sum((1, 2)).clamp_min(RIDGE)
        flat, factor = change.flatten(1), self._reduced(rows, change.flatten(1), direction.flatten(1))
        total = ((factor * flat).sum(1).clamp_min(0) + self._noise * variance).clamp_min(RIDGE)
        surprise = effect - (self.mean[rows] * change).sum((1, 2))
        self.mean[rows] += (surprise / total)[:, None, None] * factor.view_as(change)
        self._keep(rows, factor / total.sqrt()[:, None])
        self._squares[rows] += effect.square() / variance
        self._count[rows] += 1

    def _reduced(self, rows: Tensor, change: Tensor, direction: Tensor) -> Tensor:
        """(m, values): the covariance times the changes, from that of the prior times them; all (m, values).

        Row by row: a copy of the factors of many rows takes longer than the products.
        """
        reduced = direction.clone()
        for index, row in enumerate(rows.tolist()):
            factors = self._factors[row, : self._number[row]]
            reduced[index].addmv_(factors.T, factors.mv(change[index]), alpha=-1)
        return reduced

    def _keep(self, rows: Tensor, factor: Tensor) -> None:
        """Write the factors (m, values) of the newest answers over the oldest ones."""
        answers = self._factors.shape[1]
        if answers:
            for index, row in enumerate(rows.tolist()):
                self._factors[row, self._number[row] % answers] = factor[index]
                self._number[row] += 1
