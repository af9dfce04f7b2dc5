"""The sensitivity of patches: a linear model of the answers to one input's queries.

It predicts the effect of changes that were never asked about.

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
`Trust.deviation`. The same filter learns gradient and coefficients together. An answer that goes
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
HELD = 2**24
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
    """How far surrogates are trusted before the first query.

    Mean and standard deviation of their coefficients, in units; queries after which they are asked
    again, where the input has moved; and the share of the energies that comes from their gradients.
    They were chosen by queries on images of CIFAR-10 (design/0011-rlab.md).
    """

    mean: float = 0.2
    deviation: float = 0.1
    every: int = 2
    energy: float = 0.5


TRUST = Trust()
"""The trust where none is given."""


def kept_answers(values: int) -> int:
    """How many answers reduce the covariance of so many values."""
    return min(ANSWERS, HELD // values)


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
        if covariance is None:
            covariance = torch.eye(channels)
        self.covariance = covariance.to(device=device)
        # Of `unit`: the sum of squared effects over their expected squares, and their number.
        self._squares, self._count = torch.zeros(2, slots, device=device)
        # Root mean squares of the surrogates' first gradients; 0 before there is one.
        self._scale = torch.zeros(slots, surrogates, device=device)
        self._noise = noise
        self._trust = trust
        self._values = channels * places

        # The state: the part of the gradient that is not the surrogates', then their coefficients.
        # What is expected of it are two sums, since the unit becomes known by and by: what was
        # learned from answers, and what is left of the prior, in units.
        size = channels * places + surrogates
        self._learned, self._prior = torch.zeros(2, slots, size, device=device)
        if not surrogates:
            # The same memory: what is learned is then the mean itself.
            self.mean = self._learned.view_as(self.mean)

        # Factors v of what the answers took away: the covariance is that of the prior less the sum
        # of v v'. No slot has more than `_most` of them.
        answers = kept_answers(channels * places)
        self._factors = torch.zeros(slots, answers, size, device=device)
        self._number = torch.zeros(slots, dtype=torch.int64, device=device)
        self._most = 0

    @property
    def unit(self) -> Tensor:
        """(n,): root mean square of the effects of changes of prior variance 1; 1 at first."""
        return torch.where(self._count > 0, self._squares / self._count.clamp_min(1), 1.0).sqrt()

    def forget(self, rows: Tensor, energy: Tensor) -> None:
        """New samples in these slots (m,), with their energies (m, places)."""
        self.mean[rows] = 0
        self.energy[rows] = energy
        self.slopes[rows] = 0
        self._learned[rows] = 0
        self._prior[rows] = 0
        # Only the surrogates' part of the posterior has a mean to begin with.
        self._prior[rows, self._values :] = self._trust.mean
        self._squares[rows] = 0
        self._count[rows] = 0
        self._number[rows] = 0
        self._scale[rows] = 0
        # Where all slots begin anew, nothing of the posterior is left.
        if len(rows) == len(self._number):
            self._most = 0

    def update(self, rows: Tensor, change: Tensor, effect: Tensor) -> None:
        """Update the model by one answer for each of some distinct slots (m,).

        `change` (m, channels, places) and `effect` (m,) are the differences of the input and its
        answer from the previous ones.
        """
        projection, covariance, expected, total = self._effect_moments(rows, change)
        gain = covariance / total[:, None]  # of Kalman
        learned = self._learned[rows]
        # What the model did not predict corrects the state, along the covariance.
        surprise = effect - (learned * projection).sum(1)
        self._learned[rows] = learned + surprise[:, None] * gain
        if self.slopes.shape[1]:
            prediction = (self._prior[rows] * projection).sum(1, keepdim=True)
            # The expected state is the learned one and units of that of the prior (`_expect`), so
            # both are taught the same answer.
            self._prior[rows] -= prediction * gain

        # The answer takes v v' from the covariance, with v = covariance / sqrt(total).
        self._keep(rows, covariance / total.sqrt()[:, None])
        # The unit is learned as the ratio of squares to their expected values.
        self._squares[rows] += effect.square() / expected
        self._count[rows] += 1
        self._expect(rows)

    def _effect_moments(
        self, rows: Tensor, change: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Effects of changes (m, channels, places), by the model.

        Returns their projections on the state and the covariances of their effects with it, (m,
        state) each; then (m,) each, in squared units, the expected squares of the effects under the
        prior, and the variances of the effects.
        """
        direction = torch.einsum("mck,ce->mek", change, self.covariance)  # k: the places
        # Prior covariance of the gradient: energy of the place times covariance of the channels.
        direction = direction.mul_(self.energy[rows, None])
        energy = (direction * change).sum((1, 2)).clamp_min(RIDGE)
        if self.slopes.shape[1]:
            return self._guided_moments(rows, change, direction, energy)

        projection = change.flatten(1)
        covariance = self._reduced(rows, projection, direction.flatten(1))
        variance = (covariance * projection).sum(1).clamp_min(0)
        total = (variance + self._noise * energy).clamp_min(RIDGE)
        return projection, covariance, energy, total

    def _guided_moments(
        self, rows: Tensor, change: Tensor, direction: Tensor, energy: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same with surrogates, whose coefficients are part of the state."""
        slope = torch.einsum("mscp,mcp->ms", self.slopes[rows], change)
        projection = torch.cat([change.flatten(1), slope], 1)
        # The expected square of what the surrogates let expect: that of its mean, and its variance.
        square = (self._trust.mean * slope.sum(1)).square()
        guided = square + self._trust.deviation**2 * slope.square().sum(1)

        direction = torch.cat([direction.flatten(1), self._trust.deviation**2 * slope], 1)
        covariance = self._reduced(rows, projection, direction)
        variance = (covariance * projection).sum(1).clamp_min(0)
        noise = self._noise * (energy + GUIDED * guided)
        return projection, covariance, energy + guided, (variance + noise).clamp_min(RIDGE)

    def follow(self, rows: Tensor, slopes: Tensor) -> None:
        """Take the gradients (m, surrogates, channels, places) at the present inputs."""
        # The first gradient of an episode sets the scale of the later ones.
        root = slopes.square().mean((2, 3)).sqrt()
        self._scale[rows] = torch.where(self._scale[rows] > 0, self._scale[rows], root)
        self.slopes[rows] = slopes / self._scale[rows].clamp_min(1e-30)[:, :, None, None]
        self._expect(rows)

    def mixed(self, rows: Tensor, slopes: Tensor) -> Tensor:
        """(m, values): gradients of surrogates (m, surrogates, values), by the trust in each."""
        weights = self.coefficients[rows] / self._scale[rows].clamp_min(1e-30)
        return torch.einsum("ms,msv->mv", weights, slopes)

    def energies(self, rows: Tensor, prior: Tensor, grid: PatchGrid) -> Tensor:
        """(m, patches): energies of the `prior` with a share of the surrogates', by their trust."""
        members, valid = patch_places(grid, rows.device)
        # Mean square gradient of each surrogate on each patch, in shares of the mean patch.
        square = self.slopes[rows].square().mean(2)
        patch = (square[:, :, members] * valid).sum(3) / valid.sum(1)
        patch = patch / patch.mean(2, keepdim=True).clamp_min(1e-12)

        # A surrogate that answers contradict has no say about energies either.
        trust = (self.coefficients[rows] / self._trust.mean).clamp(0, 1)
        trust = trust * self._trust.energy / patch.shape[1]
        mixed = (1 - trust.sum(1, keepdim=True)) * prior + (trust[:, :, None] * patch).sum(1)
        return mixed.clamp_min(LEAST)

    @property
    def coefficients(self) -> Tensor:
        """(n, surrogates): the expected coefficients, in units."""
        learned = self._learned[:, self._values :]
        coefficients: Tensor = learned / self.unit[:, None] + self._prior[:, self._values :]
        return coefficients

    def _expect(self, rows: Tensor) -> None:
        """Add what the surrogates let expect to the mean gradient of slots (m,)."""
        if not self.slopes.shape[1]:
            return  # the mean is the state itself
        state = self._learned[rows] + self.unit[rows, None] * self._prior[rows]
        own = state[:, : self._values]
        coefficients = state[:, self._values :]
        guided = torch.einsum("ms,mscp->mcp", coefficients, self.slopes[rows])
        self.mean[rows] = own.view_as(self.mean[rows]) + guided

    def _reduced(self, rows: Tensor, change: Tensor, direction: Tensor) -> Tensor:
        """(m, values): the covariance times changes (m, values).

        `direction` (m, values) is that of the prior times them.
        """
        if self._factors.device.type == "cpu":
            return self._reduced_by_row(rows, change, direction)

        # All slots together, those that were not asked about with a change of 0: the factors are
        # not copied. The sums are the processor's in another order.
        factors = self._factors[:, : self._most]
        everywhere = factors.new_zeros(2, len(factors), factors.shape[2])
        everywhere.index_copy_(1, rows, torch.stack([direction, change]))
        products = torch.bmm(factors, everywhere[1, :, :, None])

        # Factors that a slot does not have yet, or has no more, count nothing.
        unused = torch.arange(self._most, device=rows.device) >= self._number[:, None]
        products = products.masked_fill_(unused[:, :, None], 0)
        prior = everywhere[0, :, None]
        reduced = torch.baddbmm(prior, products.transpose(1, 2), factors, alpha=-1)
        return reduced[rows, 0]

    def _reduced_by_row(self, rows: Tensor, change: Tensor, direction: Tensor) -> Tensor:
        """The same on the processor, slot by slot.

        That is three times as fast, since the factors of one slot stay in the cache between the
        products.
        """
        reduced = direction.clone()
        numbers = self._number[rows].tolist()
        for index, (row, number) in enumerate(zip(rows.tolist(), numbers, strict=True)):
            # A number beyond the ring, which counts overwritten factors too, selects all of it.
            factors = self._factors[row, :number]
            reduced[index].addmv_(factors.T, factors.mv(change[index]), alpha=-1)
        return reduced

    def _keep(self, rows: Tensor, factor: Tensor) -> None:
        """Write the factors (m, values) of the newest answers over the oldest ones."""
        answers = self._factors.shape[1]
        if answers:
            number = self._number[rows]
            # A ring: forgetting an old answer only makes the covariance larger.
            self._factors[rows, number % answers] = factor
            self._number[rows] = number + 1
            self._most = min(answers, self._most + 1)


def class_weights(margin: Callable[[Tensor], Tensor], logits: Tensor, rng: Streams) -> Tensor:
    """(n, classes): how much each logit counts for a margin (n,) of logits (n, classes).

    It is the derivative, averaged over Gumbel noise. Surrogates are asked about the sum of their
    logits with these weights. A margin depends on the rival that leads alone, and on the way
    another one may come to lead; the average counts each rival with the probability that a softmax
    gives it.
    """
    scale = SPREAD * logits.std(1, keepdim=True)
    total = torch.zeros_like(logits)

    for number in range(RIVALS):
        # Gumbel noise by inversion; 2**-24 is the least uniform number above 0 in float32.
        uniform = rng.fold("rivals").fold(number).uniform(logits.shape[1]).clamp_min(2.0**-24)
        shifted = (logits - scale * (-uniform.log()).log()).requires_grad_()
        with torch.enable_grad():
            total += torch.autograd.grad(margin(shifted).sum(), shifted)[0]

    return total / RIVALS


@dataclass(frozen=True)
class Predictions:
    """Predictions of the linear models of all slots for variants on patches.

    `full` (m, *shape) are the distorted inputs of the slots `rows` (m,) and `radius` (m,) their
    budgets in `distance`.
    """

    inputs: DistortedInputs
    grid: PatchGrid
    posterior: Posterior
    distance: Distance
    temperature: float
    most: float = 1.0
    """By how much the values that are compared are larger than those of the inputs."""

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
        """(m, k): on each patch the variant of the highest score, and that score.

        A score is the predicted gain less the price and with as much of what is not known as chance
        says. Where no variant would change anything, the variant is CLEAN and the score -inf.

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
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            for start in range(0, patches.shape[1], width):
                columns = slice(start, start + width)
                choices[part, columns], scores[part, columns] = self._best(
                    rows[part],
                    full[part],
                    radius[part],
                    price[part],
                    visits[part],
                    offers[part],
                    patches[part, columns].clamp_min(0),
                    chance[part, columns],
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
        """(m, k): as `choose`, of patches that all exist and few enough to compare together.

        `price` (m,) is that of a squared length, of `standing`.
        """
        posterior = self.posterior
        members, valid = patch_places(self.grid, rows.device)
        all_rows = torch.arange(len(rows), device=rows.device)

        # (m, channels, volume, k, offers): what is summed over lies outside, which is faster than
        # inside.
        places = members[patches].transpose(1, 2)
        new = self.inputs.values(rows, offers, places[..., None], self.grid.channels)
        # All as changes from the clean input, on whose length the price depends.
        clean = self._gather(self.inputs.x, rows, places)[..., None]
        current = self._gather(full, all_rows, places)[..., None]
        energy = posterior.energy[rows[:, None, None], places][..., None]
        new = new.sub_(clean)
        old = current - clean

        # Places that fill up a patch at an edge are repeated and count once. The grid is on the
        # processor, where reading costs nothing.
        if not bool(self.grid.not_repeated.all()):
            real = valid[patches].transpose(1, 2)[..., None]
            new = new * real[:, None]
            old = old * real[:, None]
            energy = energy * real
        new_change = self._legal(new, radius)
        old_change = self._legal(old, radius)
        change = new_change - old_change

        # What the mean gradient predicts, less the price of the length that is added.
        slope = self._gather(posterior.mean, rows, places)[..., None]
        gain = (change * slope).sum((1, 2))
        # In place, since only `change` is needed below.
        longer = new_change.square_().sum((1, 2)) - old_change.square().sum((1, 2))
        cost = price[:, None, None] * longer

        # Thompson sampling: the deviation of the prediction times a random number.
        covaried = (posterior.covariance.T @ change.flatten(2)).view_as(change)
        variance = covaried.mul_(change).sum(1).mul_(energy).sum(1).clamp_min_(0)
        doubt = variance.div_((1 + visits.gather(1, patches))[:, :, None]).sqrt_()
        score = gain - cost + self.temperature * posterior.unit[rows, None, None] * doubt * chance

        unchanged = change.abs_().amax((1, 2)) == 0
        best = score.masked_fill_(unchanged, -torch.inf).max(2)
        return offers.gather(1, best.indices), best.values

    def _gather(self, x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """(m, channels, ...): values of `x` (n, ...) in the rows (m,) at places (m, ...)."""
        channels = torch.arange(self.grid.channels, device=rows.device)
        flat = places.flatten(1)
        planes = x.view(len(x), self.grid.channels, self.grid.places)
        # The three indices together are (m, channels, places).
        values = planes[rows[:, None, None], channels[:, None], flat[:, None]]
        return values.view(len(rows), self.grid.channels, *places.shape[1:])

    def _legal(self, change: Tensor, radius: Tensor) -> Tensor:
        """Changes as they would be asked about: clipped where the budget limits each value."""
        if self.distance.name != "linf":
            return change
        # In Linf each value is cut at eps; in other norms the whole change is scaled.
        limit = self.most * radius.view(-1, *[1] * (change.ndim - 1))
        return torch.maximum(torch.minimum(change, limit), -limit)

    def standing(self, rows: Tensor, full: Tensor, radius: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predicted contribution and squared length of each patch (m, patches), and the price (m,).

        The price is what a unit of squared length costs of the margin where the budget is full,
        since all is scaled down to fit it: the predicted margin of an assignment u scaled to length
        eps is <g, u> eps / |u|; its derivative to |u|**2, over eps / |u|.
        """
        # The distortion before it is fitted to the budget.
        change = (full - self.inputs.x[rows]).view(len(rows), self.grid.channels, self.grid.places)
        worth = (self._legal(change, radius) * self.posterior.mean[rows]).sum(1)
        square = change.square().sum(1)

        price = torch.zeros(len(rows), device=rows.device)
        if self.distance.name == "l2":
            length = square.sum(1)
            total = worth.sum(1)
            slope = 0.5 * total.clamp_min(0) / length.clamp_min(1e-12)
            price = torch.where(length.sqrt() >= NEARLY * radius, slope, 0)
        return sums(worth, self.grid), sums(square, self.grid), price

    def map(self, rows: Tensor) -> Tensor:
        """(m, patches, distortions): the sensitivity map.

        It is the expected effect, in logits, of each distortion on each patch.
        """
        clean = self.inputs.x[rows]
        mean = self.posterior.mean[rows]
        energy = self.posterior.energy[rows]
        squared_unit = self.posterior.unit[rows].square()[:, None]

        maps = []
        for numbers in looked_at(self.inputs.variants):
            total = torch.zeros(len(rows), len(self.grid), device=rows.device)
            for number in numbers:
                change = self.inputs.inputs(rows, torch.full_like(rows, number)) - clean

                # The expected square of its effect, averaged over the draws.
                change = change.view(len(rows), self.grid.channels, self.grid.places)
                predicted = sums((change * mean).sum(1), self.grid)
                turned = torch.einsum("mcp,ce->mep", change, self.posterior.covariance)
                # Of a normal variable the mean square is that of its mean, and its variance.
                variance = sums((turned * change).sum(1).clamp_min(0) * energy, self.grid)
                total += predicted.square() + squared_unit * variance
            maps.append((total / len(numbers)).sqrt())
        return torch.stack(maps, 2)


def looked_at(variants: Sequence[Variant]) -> list[list[int]]:
    """For each distortion the variants by which it is judged: `DRAWS` of its middle severity."""
    groups = []
    # By identity: two distortions with equal settings are two.
    for distortion in {id(variant.distortion): variant.distortion for variant in variants}.values():
        own = [variant for variant in variants if variant.distortion is distortion]
        severities = sorted({variant.severity for variant in own})
        middle = severities[len(severities) // 2]
        numbers = [
            number
            for number, variant in enumerate(variants)
            if variant.distortion is distortion and variant.severity == middle
        ]
        groups.append(numbers[:DRAWS])
    return groups
