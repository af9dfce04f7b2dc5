"""Inputs at chosen multiples of the distance of a first success, each a step further on one path.

The path of a sample begins at its clean input. The distortion that clean-up left grows to its full
strength; then further patches are distorted, one after another, in the order of the gains that the
linear model predicts for them; when all are, everything grows by one factor, each value up to the
bound of the data. Distances along the path are known without a query. Without overlap the distance
never falls along it, so every multiple has one place.

arXiv 2403.18985 and the released code of its authors distort on past the first success, patch after
patch, and save the input when a multiple is passed. Deviation: an input lies at its multiple and
not beyond, and a multiple that cannot be reached is not stored.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core import norms
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.distort import CLEAN, DRAW_STREAM, DistortedInputs, Variant
from brinell.rlab.episodes import EpisodeOutcomes
from brinell.rlab.prior import sums

BISECTIONS, LARGEST = 60, 1e6
"""Steps of the bisection for the factor by which everything grows in the end, and its bound."""
VALUES = 2**25
"""Distorted values that are held together when predictions are compared."""


class Graded(NamedTuple):
    """Inputs at one multiple of each sample's distance at the flip."""

    x: Tensor
    """(n, *shape): the clean input where the multiple cannot be reached."""
    reached: Tensor
    """(n,) bool: whether it can."""
    variant: Tensor
    """(n, patches) int64: the variant on each patch, CLEAN for nothing."""
    strength: Tensor
    """(n, patches): the share of the distortion's change that is there; above 1 where everything
    has grown."""


@dataclass(frozen=True)
class Path:
    """The paths of a batch.

    Args:
        clean: (n, *shape).
        threat: the domain; budgets play no part.
        distorted: the distorted inputs of the samples.
        grid: the patches.
        standing: (n, patches) int64 the assignment at the flip.
        fitted: (n, *shape) its inputs at full strength within the budget of the episode.
        strength: (n,) the share of that which the flip needs.
        order: (n, patches) int64 patches in the order in which they are added, those that are
            distorted at the flip first.
        offers: (n, patches) int64 what is put on each, CLEAN where nothing would change.
    """

    clean: Tensor
    threat: Threat
    distorted: DistortedInputs
    grid: PatchGrid
    standing: Tensor
    fitted: Tensor
    strength: Tensor
    order: Tensor
    offers: Tensor

    def stage(self, number: Tensor) -> Tensor:
        """(n, patches): the assignment at the end of a stage (n,).

        Stage 0 has nothing, 1 the flip at full strength, then one patch more each.
        """
        position = torch.arange(self.order.shape[1], device=self.order.device)
        rank = torch.empty_like(self.order)
        rank.scatter_(1, self.order, position.expand_as(self.order))
        already = (self.standing != CLEAN).sum(1)
        # Stage 2 adds one patch to those that are changed already, so stage k adds k - 1.
        added = (rank < (already + number - 1)[:, None]) & (number > 1)[:, None]
        variant = torch.where((self.standing == CLEAN) & added, self.offers, self.standing)
        return torch.where((number > 0)[:, None], variant, CLEAN)

    @property
    def last(self) -> Tensor:
        """(n,): the stage at which every patch has something."""
        return 1 + (self.standing == CLEAN).sum(1)

    def inputs(self, number: Tensor) -> Tensor:
        """(n, *shape): the inputs at the end of the stages (n,)."""
        rows = torch.arange(len(self.clean), device=self.clean.device)
        return self.distorted.render(rows, self.stage(number), self.grid)

    def flip(self) -> Tensor:
        """(n, *shape): the inputs that clean-up left, bit by bit as they were asked about."""
        strength = per_sample(self.strength, self.clean)
        x = self.threat.domain.clamp(self.clean + strength * (self.fitted - self.clean))
        return torch.where(strength == 1, self.fitted, x)

    def fraction(self) -> Tensor:
        """(n,): the share of the distortions' change that is there at the flip."""
        end = norms.l2(self.inputs(torch.ones_like(self.last)) - self.clean)
        return self.strength * norms.l2(self.fitted - self.clean) / end.clamp_min(1e-12)

    def grade(self, distance: Tensor) -> Graded:
        """The inputs at these L2 distances (n,) from the clean ones."""
        # By bisection the first stage `high` at or beyond the distance, and the one before it.
        low = torch.zeros_like(self.last)
        high = self.last
        beyond = norms.l2(self.inputs(high) - self.clean) < distance
        for _ in range(int(self.last.max()).bit_length()):
            middle = (low + high) // 2
            short = norms.l2(self.inputs(middle) - self.clean) < distance
            moving = high - low > 1
            low = torch.where(moving & short, middle, low)
            high = torch.where(moving & ~short, middle, high)

        x, share = self._between(low, high, distance)
        variant = self.stage(high)
        before = self.stage(low)
        strength = torch.where(variant != before, share[:, None], 1.0)
        # What the whole path does not reach, one factor for all values may; it stops at the bounds.
        grown, factor = self._grow(distance.float())
        reached = ~beyond | torch.isclose(norms.l2(grown - self.clean), distance.float(), rtol=1e-5)
        path_x = torch.where(per_sample(beyond, x), grown, x)
        x = torch.where(per_sample(reached, x), path_x, self.clean)
        strength = torch.where(beyond[:, None], factor[:, None], strength)
        is_distorted = (variant != CLEAN) & reached[:, None]
        return Graded(x, reached, variant, torch.where(is_distorted, strength, 0.0))

    def _between(self, low: Tensor, high: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (n, *shape) between two stages, and how far (n,) along the way they are."""
        start = self.inputs(low)
        end = self.inputs(high)
        offset = (start - self.clean).flatten(1).double()
        step = (end - start).flatten(1).double()

        # |offset + t step| = distance is a t**2 + 2 b t + c = 0, with one root between 0 and 1.
        a = step.square().sum(1)
        b = (offset * step).sum(1)
        c = offset.square().sum(1) - distance.double().square()
        root = (b.square() - a * c).clamp_min(0).sqrt()
        share = ((root - b) / a.clamp_min(1e-300)).clamp(0, 1).float()
        return self.threat.domain.clamp(start + per_sample(share, start) * (end - start)), share

    def _grow(self, distance: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (n, *shape) with all patches, and the factors (n,) by which their change grew."""
        change = self.inputs(self.last) - self.clean
        least = torch.ones_like(distance)
        most = torch.full_like(distance, LARGEST)
        for _ in range(BISECTIONS):
            # The geometric mean, since the factor lies anywhere between 1 and a million.
            middle = (least * most).sqrt()
            x = self.threat.domain.clamp(self.clean + per_sample(middle, change) * change)
            short = norms.l2(x - self.clean) < distance
            least = torch.where(short, middle, least)
            most = torch.where(short, most, middle)
        return self.threat.domain.clamp(self.clean + per_sample(most, change) * change), most


def path(
    batch: Batch,
    threat: Threat,
    rng: Streams,
    *,
    grid: PatchGrid,
    variants: tuple[Variant, ...],
    results: EpisodeOutcomes,
) -> Path:
    """The paths of samples whose episodes were run and met the criterion.

    Batch, threat, streams, patches and variants are those of the episodes, and `results` is what
    became of them.
    """
    rows = torch.arange(len(batch), device=batch.x.device)
    distorted = DistortedInputs(len(batch), threat.domain, variants, batch.x.device)
    distorted.put(rows, batch.x, rng.fold(DRAW_STREAM), threat)
    standing = results.variant.long()
    end = distorted.render(rows, standing, grid)
    fitted = replace(threat, eps=results.eps).project(end.clone(), batch.x)

    # Patches that are distorted at the flip come first, those that nothing changes last.
    promise, offers = _promises(distorted, grid, results.slope, rng.fold("grading"))
    promise = torch.where(offers == CLEAN, -torch.inf, promise)
    promise = promise.masked_fill(standing != CLEAN, torch.inf)
    order = promise.argsort(dim=1, descending=True, stable=True)
    return Path(batch.x, threat, distorted, grid, standing, fitted, results.strength, order, offers)


def _promises(
    distorted: DistortedInputs, grid: PatchGrid, slope: Tensor, rng: Streams
) -> tuple[Tensor, Tensor]:
    """(n, patches): the highest predicted gain for its length on each patch, and its variant.

    If no gain is predicted, the variant is random; if no variant changes the patch, it is CLEAN.
    """
    n = len(distorted)
    patches = len(grid)
    best = torch.full((n, patches), -torch.inf, device=slope.device)
    choice = torch.full((n, patches), CLEAN, device=slope.device)
    chance = rng.uniform(len(distorted.variants), patches)
    size = max(1, VALUES // slope[0].numel())
    all_numbers = torch.arange(len(distorted.variants), device=slope.device)

    for row in range(n):
        jitter = 1e-6 * slope[row].norm() + 1e-12  # decides where no gain is predicted
        for numbers in torch.split(all_numbers, size):
            change = distorted.inputs(torch.full_like(numbers, row), numbers) - distorted.x[row]
            change = change.view(len(numbers), grid.channels, grid.places)
            gain = sums((change * slope[row]).sum(1), grid)
            square = sums(change.square().sum(1), grid)

            score = gain / square.sqrt().clamp_min(1e-12) + jitter * chance[row, numbers]
            top = score.masked_fill(square == 0, -torch.inf).max(0)
            improved = top.values > best[row]
            best[row] = torch.where(improved, top.values, best[row])
            choice[row] = torch.where(improved, numbers[top.indices], choice[row])
    return best, choice
