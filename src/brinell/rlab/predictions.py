"""Predictions of the posterior for patches: the gain of each variant, and the contribution and cost of placed variants."""

from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.core.patches import PatchGrid
from brinell.core.threat import Distance
from brinell.rlab.assignment import Assignment
from brinell.rlab.cache import CLEAN, DistortionCache
from brinell.rlab.content import patch_places, sums
from brinell.rlab.posterior import Posterior
from brinell.rlab.variants import Variant

NEARLY = 0.98
"""Share of the budget from which on distortions compete for it."""
ROOM = 2**19
"""Values that are compared together when variants are chosen, as many as a cache of the processor holds."""
DEVICE_ROOM = 2**26
"""The same on a device, which has to be kept busy."""

DRAWS = 4
"""Draws of each distortion that are taken."""


class Predictions:
    """Predictions for n slots, as their assignments and posteriors are at the time of each call.

    The `radius` (n,) are the budgets, measured in `distance`; the environment changes them in place. The `temperature` is that of
    `Rules`.
    """

    def __init__(
        self, assignment: Assignment, posterior: Posterior, distance: Distance, radius: Tensor, temperature: float
    ) -> None:
        self._assignment, self._posterior, self._distance = assignment, posterior, distance
        self._grid, self._cache = assignment.grid, assignment.cache
        self._radius, self._temperature = radius, temperature
        self.members, self.inside = patch_places(self._grid, radius.device)
        self._whole = bool(self.inside.all())

    def choose(self, rows: Tensor, patches: Tensor, offers: Tensor, chance: Tensor, visits: Tensor) -> tuple[Tensor, Tensor]:
        """(m, k): on each patch the variant of the highest score, CLEAN where none would change anything; and these scores.

        A score is the predicted gain less the price and with as much of what is not known as chance says; it is -inf where
        nothing would change.

        Args:
            rows: (m,) slots.
            patches: (m, k) patches, -1 for none.
            offers: (m, offers) variants that are compared.
            chance: (m, k, offers) standard normal numbers.
            visits: (n, patches) how often each patch was changed: what was asked about often is less uncertain.
        """
        each = self.members.shape[1] * self._grid.channels * offers.shape[1]
        # With overlap a single input has more patches to choose for than there is room.
        room = ROOM if rows.device.type == "cpu" else DEVICE_ROOM
        width = max(1, min(patches.shape[1], room // each))
        size = max(1, room // (each * width))
        chosen, scores = torch.empty_like(patches), torch.empty_like(patches, dtype=chance.dtype)
        for part in (slice(first, first + size) for first in range(0, len(rows), size)):
            for start in range(0, patches.shape[1], width):
                columns = slice(start, start + width)
                shown = patches[part, columns].clamp_min(0)
                chosen[part, columns], scores[part, columns] = self._best(
                    rows[part], shown, offers[part], chance[part, columns], visits
                )
        still = (patches < 0) | (scores == -torch.inf)
        return torch.where(still, CLEAN, chosen), torch.where(still, -torch.inf, scores)

    def _best(self, rows: Tensor, patches: Tensor, offers: Tensor, chance: Tensor, visits: Tensor) -> tuple[Tensor, Tensor]:
        """The best variant of each patch by predicted effect."""
        posterior = self._posterior
        # (m, channels, volume, k, offers): what is summed over lies outside, which is faster than inside.
        places = self.members[patches].transpose(1, 2)
        values = self._cache.values(rows, offers, places[..., None], self._grid.channels)
        clean, current = (self._gather(x, rows, places)[..., None] for x in (self._cache.x, self._assignment.x))
        energy = posterior.energy[rows[:, None, None], places][..., None]
        new, old = values.sub_(clean), current - clean
        if not self._whole:
            inside = self.inside[patches].transpose(1, 2)[..., None]
            new, old, energy = new * inside[:, None], old * inside[:, None], energy * inside
        new, old = self._legal(new, rows), self._legal(old, rows)
        change = new - old
        gain = (change * self._gather(posterior.mean, rows, places)[..., None]).sum((1, 2))
        price = self.price(rows)[:, None, None] * (new.square_().sum((1, 2)) - old.square().sum((1, 2)))
        turned = (posterior.covariance.T @ change.flatten(2)).view_as(change)
        variance = turned.mul_(change).sum(1).mul_(energy).sum(1).clamp_min_(0)
        doubt = variance.div_((1 + visits[rows].gather(1, patches))[:, :, None]).sqrt_()
        score = gain - price + self._temperature * posterior.unit[rows, None, None] * doubt * chance
        unchanged = change.abs_().amax((1, 2)) == 0
        best = score.masked_fill_(unchanged, -torch.inf).max(2)
        return offers.gather(1, best.indices), best.values

    def _legal(self, change: Tensor, rows: Tensor) -> Tensor:
        """Changes as they would be asked about: clipped where the budget limits each value."""
        if self._distance.name != "linf":
            return change
        limit = self._radius[rows].view(-1, *[1] * (change.ndim - 1))
        return torch.maximum(torch.minimum(change, limit), -limit)

    def _gather(self, x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """(m, channels, ...): values of `x` (n, ...) at places (m, ...)."""
        return self._assignment.gather(x, rows, places.flatten(1)).view(len(rows), self._grid.channels, *places.shape[1:])

    def price(self, rows: Tensor) -> Tensor:
        """(m,): what a unit of squared length costs of the margin where the budget is full, since all is scaled down to fit it.

        The predicted margin of an assignment u scaled to length eps is <g, u> eps / |u|; its derivative to |u|**2, over eps /
        |u|.
        """
        if self._distance.name != "l2":
            return torch.zeros(len(rows), device=rows.device)
        change = self._change(rows)
        return self._priced(rows, change.square().sum((1, 2)), (self._posterior.mean[rows] * change).sum((1, 2)))

    def _priced(self, rows: Tensor, square: Tensor, worth: Tensor) -> Tensor:
        """Cost of the L2 that a change takes from a full budget."""
        full = square.sqrt() >= NEARLY * self._radius[rows]
        return torch.where(full, 0.5 * worth.clamp_min(0) / square.clamp_min(1e-12), 0)

    def _change(self, rows: Tensor) -> Tensor:
        """(m, channels, places): how the distorted inputs differ from the clean ones."""
        return (self._assignment.x[rows] - self._cache.x[rows]).view(len(rows), self._grid.channels, self._grid.places)

    def standing(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State of each patch: its predicted `contribution` and its squared length (m, patches); and the `price` (m,)."""
        change = self._change(rows)
        worth, square = (self._legal(change, rows) * self._posterior.mean[rows]).sum(1), change.square().sum(1)
        l2 = self._distance.name == "l2"
        price = self._priced(rows, square.sum(1), worth.sum(1)) if l2 else torch.zeros(len(rows), device=rows.device)
        return sums(worth, self._grid), sums(square, self._grid), price

    def contribution(self, rows: Tensor) -> Tensor:
        """(m, patches): what the variant on each patch is predicted to contribute to the margin."""
        return self.standing(rows)[0]


def looked_at(variants: Sequence[Variant]) -> list[list[int]]:
    """For each distortion, in the order in which they come, the variants by which it is judged: of its middle severity."""
    groups = []
    for distortion in {id(variant.distortion): variant.distortion for variant in variants}.values():
        severities = sorted({variant.severity for variant in variants if variant.distortion is distortion})
        middle = severities[len(severities) // 2]
        numbers = [number for number, other in enumerate(variants) if other.distortion is distortion and other.severity == middle]
        groups.append(numbers[:DRAWS])
    return groups


def sensitivity(cache: DistortionCache, grid: PatchGrid, posterior: Posterior, rows: Tensor) -> Tensor:
    """(m, patches, distortions): the expected effect, in logits, of each distortion on each patch of the slots `rows` (m,)."""
    clean, mean, energy = cache.x[rows], posterior.mean[rows], posterior.energy[rows]
    unit = posterior.unit[rows].square()[:, None]
    maps = []
    for numbers in looked_at(cache.variants):
        total = torch.zeros(len(rows), len(grid), device=rows.device)
        for number in numbers:
            change = (cache.inputs(rows, torch.full_like(rows, number)) - clean).view(len(rows), grid.channels, grid.places)
            predicted = sums((change * mean).sum(1), grid)
            turned = torch.einsum("mcp,ce->mep", change, posterior.covariance)
            total += predicted.square() + unit * sums((turned * change).sum(1).clamp_min(0) * energy, grid)
        maps.append((total / len(numbers)).sqrt())
    return torch.stack(maps, 2)
