"""The sensitivity of patches: a linear model of the answers to one input's queries, and what it
predicts of changes never asked.

The model assumes that a change `d` of the input raises the margin by <g, d>. The gradient g is
unknown. Before the first query it is normal around 0, and its covariance is the product of an
energy for each place and of one covariance K over the channels: Cov(g[c, i], g[e, i]) = unit**2 *
energy[i] * K[c, e]. Each answer updates mean and covariance as in a Kalman filter. Because the
classifier is not linear, the noise is proportional to the variance that the prior gives the answer.
Only the latest answers reduce the covariance, since answers about distant inputs lose their value.
The unit is estimated from the answers.

So one query about many patches at once informs about each of them, the same numbers predict adding
and removing, and a variant that was never tried is judged by the differences of its values.

With surrogates the gradient has a second part, the sum of c[j] b[j]: b[j] is the gradient of
surrogate j at the present input, scaled to a root mean square of 1, and its coefficient c[j] is
random: before the first query normal around `Trust.mean` units, with the standard deviation
`Trust.spike`. The same filter learns gradient and coefficients together. An answer that goes
against a surrogate lowers its coefficient, so a surrogate of another kind of network loses its
influence within some queries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Distance
from brinell.rlab.distort import CLEAN, DistortedInputs, Variant
from brinell.rlab.prior import LEAST, patch_places, sums

RIDGE = 1e-12
"""Below every squared change that a query asks about, so that nothing is divided by zero."""
NOISE = 0.2
"""Of an answer, since the classifier is not linear."""
GUIDED = 0.1
"""Share of the expectation by surrogates that counts as noise of an answer: a small one, so that
trust is learned quickly."""
ANSWERS = 128
"""Answers of an input by which its covariance is reduced, the last ones."""
HELD = 2**20
"""Values that are kept of them for an input; large inputs keep fewer answers."""
RIVALS = 16
"""Random shifts of the logits over which the derivative of a margin is averaged."""
SPREAD = 0.5
"""Their scale, in standard deviations of the logits of an answer."""
NEARLY = 0.98
"""Share of the budget from which on distortions compete for it."""
ROOM = 2**19
"""Values that are compared together when variants are chosen, as many as a cache of the
processor holds."""
DEVICE_ROOM = 2**26
"""The same on a device, which has to be kept busy."""
DRAWS = 4
"""Draws of each distortion by which the map is made."""


class Trust(NamedTuple):
    """How far surrogates are trusted before the first query; chosen by queries on images of
    CIFAR-10 (design/0011-rlab.md).

    Mean and standard deviation of their coefficients, in units; queries after which they are asked
    again, where the input has moved; and the share of the energies that comes from their gradients.
    """

    mean: float = 0.2
    spike: float = 0.1
    every: int = 2
    energy: float = 0.5


TRUST = Trust()
"""The trust where none is given."""


class Posterior:
    """The linear models of n slots.

    The `covariance` (channels, channels) is K, of trace `channels`; the identity where nothing is
    known. The `noise` is the variance of an answer around the linear model, in shares of the
    variance that the prior gives it.
    """

    def __init__(
        self,
        slots: int,
        channels: int,
        places: int,
        *,
        covariance: Tensor | None = None,
        noise: float = NOISE,
        surrogates: int = 0,
        trust: Trust = TRUST,
        device: torch.device | None = None,
    ) -> None:
        self.mean = torch.zeros(slots, channels, places, device=device)
        """(n, channels, places): the expected gradient at the present inputs."""
        self.slopes = torch.zeros(slots, surrogates, channels, places, device=device)
        """(n, surrogates, channels, places): scaled gradients of the surrogates at the present
        inputs."""
        self.energy = torch.ones(slots, places, device=device)
        """(n, places): prior variance of the gradient at each place, in shares of the unit."""
        self.covariance = (
            torch.eye(channels, device=device)
            if covariance is None
            else covariance.to(device=device)
        )
        self._squares, self._count = torch.zeros(2, slots, device=device)
        self._scale = torch.zeros(slots, surrogates, device=device)
        self._noise = noise
        self._trust = trust
        self._values = channels * places
        # The state: the part of the gradient that is not the surrogates', then their coefficients.
        # What is expected of it are two sums, since the unit becomes known by and by: what answers
        # taught, and what is left of the prior, in units.
        self._taught, self._prior = torch.zeros(
            2, slots, channels * places + surrogates, device=device
        )
        if not surrogates:
            self.mean = self._taught.view_as(self.mean)
        # Factors v of what the answers took away: the covariance is that of the prior less the sum
        # of v v'. No slot has more than `_most` of them.
        answers = min(ANSWERS, HELD // (channels * places))
        self._factors = torch.zeros(slots, answers, self._taught.shape[1], device=device)
        self._number = torch.zeros(slots, dtype=torch.int64, device=device)
        self._most = 0

    @property
    def unit(self) -> Tensor:
        """(n,): the root of the mean squared effect of a change whose prior variance is 1; 1 before
        the first answer.
        """
        return torch.where(self._count > 0, self._squares / self._count.clamp_min(1), 1.0).sqrt()

    def forget(self, rows: Tensor, energy: Tensor) -> None:
        """New samples in these slots (m,), with their energies (m, places)."""
        self.mean[rows], self.energy[rows], self.slopes[rows] = 0, energy, 0
        self._taught[rows] = self._prior[rows] = 0
        self._prior[rows, self._values :] = self._trust.mean
        self._squares[rows] = self._count[rows] = self._number[rows] = 0
        self._scale[rows] = 0
        if len(rows) == len(self._number):
            self._most = 0

    def update(self, rows: Tensor, change: Tensor, effect: Tensor) -> None:
        """Update the model by one answer for each of some distinct slots (m,).

        `change` (m, channels, places) and `effect` (m,) are the differences of the input and its
        answer from the previous ones.
        """
        question, factor, expected, total = self._effect_moments(rows, change)
        step = factor / total[:, None]
        taught = self._taught[rows]
        self._taught[rows] = taught + (effect - (taught * question).sum(1))[:, None] * step
        if self.slopes.shape[1]:
            self._prior[rows] -= (self._prior[rows] * question).sum(1, keepdim=True) * step
        self._keep(rows, factor / total.sqrt()[:, None])
        self._squares[rows] += effect.square() / expected
        self._count[rows] += 1
        self._expect(rows)

    def _effect_moments(
        self, rows: Tensor, change: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Projections of changes (m, channels, places) on the state, and covariances of their
        effects with it, (m, state) each.

        Also (m,) each, in squared units: expected squares of the effects under the prior, and
        variances of the effects.
        """
        direction = torch.einsum("mck,ce->mek", change, self.covariance).mul_(
            self.energy[rows, None]
        )
        energy = (direction * change).sum((1, 2)).clamp_min(RIDGE)
        if not self.slopes.shape[1]:
            question = change.flatten(1)
            factor = self._reduced(rows, question, direction.flatten(1))
            return (
                question,
                factor,
                energy,
                ((factor * question).sum(1).clamp_min(0) + self._noise * energy).clamp_min(RIDGE),
            )
        slope = torch.einsum("mscp,mcp->ms", self.slopes[rows], change)
        question = torch.cat([change.flatten(1), slope], 1)
        guided = (
            self._trust.mean * slope.sum(1)
        ).square() + self._trust.spike**2 * slope.square().sum(1)
        direction = torch.cat([direction.flatten(1), self._trust.spike**2 * slope], 1)
        factor = self._reduced(rows, question, direction)
        noise = self._noise * (energy + GUIDED * guided)
        return (
            question,
            factor,
            energy + guided,
            ((factor * question).sum(1).clamp_min(0) + noise).clamp_min(RIDGE),
        )

    def follow(self, rows: Tensor, slopes: Tensor) -> None:
        """The gradients of the surrogates (m, surrogates, channels, places) at the inputs where
        these slots are now.
        """
        self._scale[rows] = torch.where(
            self._scale[rows] > 0, self._scale[rows], slopes.square().mean((2, 3)).sqrt()
        )
        self.slopes[rows] = slopes / self._scale[rows].clamp_min(1e-30)[:, :, None, None]
        self._expect(rows)

    def energies(self, rows: Tensor, prior: Tensor, grid: PatchGrid) -> Tensor:
        """(m, patches): the energies of the `prior` with a share of the surrogates' that is as
        large as their trust.
        """
        members, valid = patch_places(grid, rows.device)
        square = self.slopes[rows].square().mean(2)
        patch = (square[:, :, members] * valid).sum(3) / valid.sum(1)
        patch = patch / patch.mean(2, keepdim=True).clamp_min(1e-12)
        trust = (
            (self.coefficients[rows] / self._trust.mean).clamp(0, 1)
            * self._trust.energy
            / patch.shape[1]
        )
        mixed = (1 - trust.sum(1, keepdim=True)) * prior + (trust[:, :, None] * patch).sum(1)
        return mixed.clamp_min(LEAST)

    @property
    def coefficients(self) -> Tensor:
        """(n, surrogates): the expected coefficients, in units."""
        coefficients: Tensor = (
            self._taught[:, self._values :] / self.unit[:, None] + self._prior[:, self._values :]
        )
        return coefficients

    def _expect(self, rows: Tensor) -> None:
        if not self.slopes.shape[1]:
            return
        state = self._taught[rows] + self.unit[rows, None] * self._prior[rows]
        energy = state[:, : self._values]
        coefficients = state[:, self._values :]
        self.mean[rows] = energy.view_as(self.mean[rows]) + torch.einsum(
            "ms,mscp->mcp", coefficients, self.slopes[rows]
        )

    def _reduced(self, rows: Tensor, change: Tensor, direction: Tensor) -> Tensor:
        """(m, values): the covariance times the changes, from that of the prior times them; all (m,
        values).
        """
        if self._factors.device.type == "cpu":
            return self._reduced_by_row(rows, change, direction)
        # All slots together, those that were not asked about with a change of 0: the factors are
        # not copied. Factors that a slot does not have yet, or has no more, count nothing. The sums
        # are the processor's in another order.
        factors = self._factors[:, : self._most]
        everywhere = factors.new_zeros(2, len(factors), factors.shape[2]).index_copy_(
            1, rows, torch.stack([direction, change])
        )
        products = torch.bmm(factors, everywhere[1, :, :, None])
        unused = torch.arange(self._most, device=rows.device) >= self._number[:, None]
        products = products.masked_fill_(unused[:, :, None], 0)
        return torch.baddbmm(everywhere[0, :, None], products.transpose(1, 2), factors, alpha=-1)[
            rows, 0
        ]

    def _reduced_by_row(self, rows: Tensor, change: Tensor, direction: Tensor) -> Tensor:
        """The same on the processor, three times as fast: the factors of one slot stay in its cache
        between the products.
        """
        reduced = direction.clone()
        for index, (row, number) in enumerate(
            zip(rows.tolist(), self._number[rows].tolist(), strict=True)
        ):
            factors = self._factors[row, :number]
            reduced[index].addmv_(factors.T, factors.mv(change[index]), alpha=-1)
        return reduced

    def _keep(self, rows: Tensor, factor: Tensor) -> None:
        """Write the factors (m, values) of the newest answers over the oldest ones."""
        answers = self._factors.shape[1]
        if answers:
            number = self._number[rows]
            self._factors[rows, number % answers] = factor
            self._number[rows] = number + 1
            self._most = min(answers, self._most + 1)


def class_weights(margin: Callable[[Tensor], Tensor], logits: Tensor, rng: Streams) -> Tensor:
    """(n, classes): how much each logit counts for a margin (n,) of logits (n, classes), averaged
    over Gumbel noise.

    Surrogates are asked about the sum of their logits with these weights. A margin depends on the
    rival that leads alone, and on the way another one may come to lead; the average counts each
    rival with the probability that a softmax gives it.
    """
    scale = SPREAD * logits.std(1, keepdim=True)
    total = torch.zeros_like(logits)
    for number in range(RIVALS):
        uniform = rng.fold("rivals").fold(number).uniform(logits.shape[1]).clamp_min(2.0**-24)
        shifted = (logits - scale * (-uniform.log()).log()).requires_grad_()
        with torch.enable_grad():
            total += torch.autograd.grad(margin(shifted).sum(), shifted)[0]
    return total / RIVALS


@dataclass(frozen=True)
class Predictions:
    """What the linear models of all slots predict of variants on patches.

    `full` (m, *shape) are the distorted inputs of the slots `rows` (m,) and `radius` (m,) their
    budgets in `distance`.
    """

    inputs: DistortedInputs
    grid: PatchGrid
    posterior: Posterior
    distance: Distance
    temperature: float

    def choose(
        self,
        rows: Tensor,
        full: Tensor,
        radius: Tensor,
        visits: Tensor,
        patches: Tensor,
        offers: Tensor,
        chance: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """(m, k): on each patch the variant of the highest score, CLEAN where none would change
        anything; and these scores.

        A score is the predicted gain less the price and with as much of what is not known as chance
        says; it is -inf where nothing would change.

        Args:
            rows: (m,) slots.
            full: (m, *shape) as above.
            radius: (m,) as above.
            visits: (m, patches) how often each patch was changed: what was asked about often is
                less uncertain.
            patches: (m, k) patches, -1 for none.
            offers: (m, offers) variants that are compared.
            chance: (m, k, offers) standard normal numbers.
        """
        cost = self.grid.members.shape[1] * self.grid.channels * offers.shape[1]
        # With overlap a single input has more patches to choose for than there is room.
        room = ROOM if rows.device.type == "cpu" else DEVICE_ROOM
        width = max(1, min(patches.shape[1], room // cost))
        size = max(1, room // (cost * width))
        price = self.standing(rows, full, radius)[2]
        choices = torch.empty_like(patches)
        scores = torch.empty_like(patches, dtype=chance.dtype)
        for part in (slice(first, first + size) for first in range(0, len(rows), size)):
            state = rows[part], full[part], radius[part], price[part], visits[part], offers[part]
            for columns in (
                slice(start, start + width) for start in range(0, patches.shape[1], width)
            ):
                candidates = patches[part, columns].clamp_min(0)
                choices[part, columns], scores[part, columns] = self._best(
                    *state, candidates, chance[part, columns]
                )
        unusable = (patches < 0) | (scores == -torch.inf)
        return torch.where(unusable, CLEAN, choices), torch.where(unusable, -torch.inf, scores)

    def _best(
        self,
        rows: Tensor,
        full: Tensor,
        radius: Tensor,
        price: Tensor,
        visits: Tensor,
        offers: Tensor,
        patches: Tensor,
        chance: Tensor,
    ) -> tuple[Tensor, Tensor]:
        posterior = self.posterior
        (members, valid) = patch_places(self.grid, rows.device)
        all_rows = torch.arange(len(rows), device=rows.device)
        # (m, channels, volume, k, offers): what is summed over lies outside, which is faster than
        # inside.
        places = members[patches].transpose(1, 2)
        new = self.inputs.values(rows, offers, places[..., None], self.grid.channels)
        clean = self._gather(self.inputs.x, rows, places)[..., None]
        current = self._gather(full, all_rows, places)[..., None]
        energy = posterior.energy[rows[:, None, None], places][..., None]
        new = new.sub_(clean)
        old = current - clean
        if not bool(self.grid.not_repeated.all()):  # on the processor, where a look costs nothing
            real = valid[patches].transpose(1, 2)[..., None]
            new = new * real[:, None]
            old = old * real[:, None]
            energy = energy * real
        new = self._legal(new, radius)
        old = self._legal(old, radius)
        change = new - old
        gain = (change * self._gather(posterior.mean, rows, places)[..., None]).sum((1, 2))
        cost = price[:, None, None] * (new.square_().sum((1, 2)) - old.square().sum((1, 2)))
        turned = (posterior.covariance.T @ change.flatten(2)).view_as(change)
        variance = turned.mul_(change).sum(1).mul_(energy).sum(1).clamp_min_(0)
        doubt = variance.div_((1 + visits.gather(1, patches))[:, :, None]).sqrt_()
        score = gain - cost + self.temperature * posterior.unit[rows, None, None] * doubt * chance
        unchanged = change.abs_().amax((1, 2)) == 0
        best = score.masked_fill_(unchanged, -torch.inf).max(2)
        return offers.gather(1, best.indices), best.values

    def _gather(self, x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """(m, channels, ...): values of `x` (n, ...) in the rows (m,) at places (m, ...)."""
        channels = torch.arange(self.grid.channels, device=rows.device)
        flat = places.flatten(1)
        values = x.view(len(x), self.grid.channels, self.grid.places)[
            rows[:, None, None], channels[:, None], flat[:, None]
        ]
        return values.view(len(rows), self.grid.channels, *places.shape[1:])

    def _legal(self, change: Tensor, radius: Tensor) -> Tensor:
        """Changes as they would be asked about: clipped where the budget limits each value."""
        if self.distance.name != "linf":
            return change
        limit = radius.view(-1, *[1] * (change.ndim - 1))
        return torch.maximum(torch.minimum(change, limit), -limit)

    def standing(self, rows: Tensor, full: Tensor, radius: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What stands on each patch: its predicted contribution and squared length (m, patches);
        and the price (m,).

        The price is what a unit of squared length costs of the margin where the budget is full,
        since all is scaled down to fit it: the predicted margin of an assignment u scaled to length
        eps is <g, u> eps / |u|; its derivative to |u|**2, over eps / |u|.
        """
        change = (full - self.inputs.x[rows]).view(len(rows), self.grid.channels, self.grid.places)
        worth = (self._legal(change, radius) * self.posterior.mean[rows]).sum(1)
        square = change.square().sum(1)
        price = torch.zeros(len(rows), device=rows.device)
        if self.distance.name == "l2":
            length = square.sum(1)
            total = worth.sum(1)
            price = torch.where(
                length.sqrt() >= NEARLY * radius,
                0.5 * total.clamp_min(0) / length.clamp_min(1e-12),
                0,
            )
        return sums(worth, self.grid), sums(square, self.grid), price

    def map(self, rows: Tensor) -> Tensor:
        """(m, patches, distortions): the sensitivity map: the expected effect, in logits, of each
        distortion on each patch.
        """
        clean = self.inputs.x[rows]
        mean = self.posterior.mean[rows]
        energy = self.posterior.energy[rows]
        unit = self.posterior.unit[rows].square()[:, None]
        maps = []
        for numbers in looked_at(self.inputs.variants):
            total = torch.zeros(len(rows), len(self.grid), device=rows.device)
            for number in numbers:
                change = self.inputs.inputs(rows, torch.full_like(rows, number)) - clean
                change = change.view(len(rows), self.grid.channels, self.grid.places)
                predicted = sums((change * mean).sum(1), self.grid)
                turned = torch.einsum("mcp,ce->mep", change, self.posterior.covariance)
                total += predicted.square() + unit * sums(
                    (turned * change).sum(1).clamp_min(0) * energy, self.grid
                )
            maps.append((total / len(numbers)).sqrt())
        return torch.stack(maps, 2)


def looked_at(variants: Sequence[Variant]) -> list[list[int]]:
    """For each distortion, in the order in which they come, the variants by which it is judged: of
    its middle severity.
    """
    groups = []
    for distortion in {id(variant.distortion): variant.distortion for variant in variants}.values():
        severities = sorted(
            {variant.severity for variant in variants if variant.distortion is distortion}
        )
        middle = severities[len(severities) // 2]
        numbers = [
            number
            for number, other in enumerate(variants)
            if other.distortion is distortion and other.severity == middle
        ]
        groups.append(numbers[:DRAWS])
    return groups
