"""After a success: patches that are not needed are cleared, and the rest is scaled down.

Every trial is a query and counts. Groups of patches are eliminated by delta debugging (Zeller & Hildebrandt 2002, Simplifying and
isolating failure-inducing input), those first that are predicted to contribute least; the scale is found by bisection. Many
samples are cleaned up in lockstep, and a sample that is done makes room for the next one, so that the batches shown to the model
stay full until the last samples.

The state lies on the device of the batch. The host looks at it once a query, at which samples came closer and which go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.assignment import Assignment
from brinell.rlab.cache import CLEAN, DistortionCache, Gradient
from brinell.rlab.outcomes import Outcomes
from brinell.rlab.rows import positions, select
from brinell.rlab.variants import Variant

GROUPS = 4
"""The first groups hold a quarter of the distorted patches."""
FAR = 0.2
"""The largest step of the scale: an input that has just met the criterion bears little."""


@dataclass(frozen=True, kw_only=True)
class CleanUp:
    """Number of queries of the clean-up."""

    eliminations: int = 24
    """Queries in which a group of patches is cleared."""
    halvings: int = 5
    """Queries at a smaller scale."""


class Cleaned(NamedTuple):
    """Result of the clean-up."""

    variant: Tensor
    """(n, patches) int64."""
    strength: Tensor
    """(n,): the share of the fitted distortion that is enough."""
    closest: Tensor
    """(n, patches) int64: the assignment of the closest input that met the criterion. It is usually `variant`. But with a full
    budget the remaining patches are scaled up to it again, and clearing patches brings the input no closer.
    """
    length: Tensor
    """(n,): the distance of that assignment before it is fitted and scaled."""


@dataclass
class _Pool:
    """Slots in which samples are cleaned up, each at its own point."""

    oracle: Oracle
    batch: Batch
    threat: Threat
    assignment: Assignment
    rng: Streams
    successes: Outcomes
    settings: CleanUp
    sample: Tensor

    def __post_init__(self) -> None:
        batch, assignment = self.batch, self.assignment
        self.successes = successes = self.successes._replace(variant=self.successes.variant.long())
        n, slots, device = len(batch), len(assignment.cache), batch.x.device
        strength, length = torch.ones(n, device=device), torch.zeros(n, device=device)
        self.cleaned = Cleaned(successes.variant.clone(), strength, successes.variant.clone(), length)
        self.start, self.group, self.tried, self.halved = torch.zeros(4, slots, dtype=torch.int64, device=device)
        self.strength, self.low, self.size = torch.ones(3, slots, device=device)
        self.alive, self.eliminating = torch.zeros(2, slots, dtype=torch.bool, device=device)
        self.next = 0
        self._run_in(self.sample[:0])
        self.refill()

    def _run_in(self, rows: Tensor) -> None:
        """The slots (m,) whose samples are being cleaned up, ascending."""
        self.rows, self.ids = rows, self.batch.ids[self.sample[rows]]

    def refill(self) -> None:
        """Put the next samples into the free slots, as long as there are any."""
        while self.next < len(self.batch) and len(self.rows) < len(self.alive):
            self._seat((~self.alive).nonzero()[:, 0][: len(self.batch) - self.next])
            self._run_in(self.alive.nonzero()[:, 0])

    def _seat(self, rows: Tensor) -> None:
        """Put the next samples into free slots."""
        sample = torch.arange(self.next, self.next + len(rows), device=rows.device)
        self.next += len(rows)
        self.sample[rows] = sample
        self.assignment.cache.replace(rows, self.batch.x[sample], self.rng.select(sample).fold("filters"))
        self.assignment.clear(rows)
        everywhere = torch.arange(len(self.assignment.grid), device=rows.device).expand(len(rows), -1)
        self.assignment.edit(rows, everywhere, self.successes.variant[sample])
        count = (self.successes.variant[sample] != CLEAN).sum(1)
        self.group[rows] = count.div(GROUPS, rounding_mode="floor").clamp_min(1)
        self.start[rows] = self.tried[rows] = self.halved[rows] = 0
        self.strength[rows], self.low[rows] = 1, 0
        self.cleaned.length[sample] = self.threat.distance.size(self.assignment.x[rows] - self.batch.x[sample])
        self.size[rows] = self.threat.distance.size(self.fit(rows, self.assignment.x[rows]) - self.batch.x[sample])
        self.eliminating[rows] = (count > 1) & (self.settings.eliminations > 0)
        busy = self.eliminating[rows] | (self.settings.halvings > 0)
        self.alive[rows] = busy & self.oracle.affordable(self.batch.ids[sample])

    def fit(self, rows: Tensor, x: Tensor) -> Tensor:
        """(m, *shape) distorted inputs, fitted to the budget at which the criterion was met."""
        sample = self.sample[rows]
        return replace(self.threat, eps=self.successes.eps[sample]).project(x, self.batch.x[sample])

    def run(self) -> Cleaned:
        """Clean up all samples."""
        while len(rows := self.rows):
            removed, sample = self._group(rows), self.sample[rows]
            clean = self.batch.x[sample]
            middle = self.strength[rows] - torch.minimum(
                (self.strength - self.low)[rows] / 2, torch.full_like(self.low[rows], FAR)
            )
            distorted = self.assignment.candidates(rows, removed, torch.full_like(removed, CLEAN))
            x = self.fit(rows, distorted)
            scaled = self.threat.domain.clamp(clean + per_sample(middle, x) * (x - clean))
            x = torch.where(per_sample(self.eliminating[rows], x), x, scaled)
            logits, criterion = self.oracle.scores(self.ids, x), self.threat.criterion.select(sample)
            adversarial = criterion.margin(logits, self.batch.y[sample], x) > 0
            self._eliminated(rows, removed, adversarial, distorted)
            self._scaled(rows, middle, adversarial)
            size = self.threat.distance.size(x - clean)
            closer = adversarial & (size < self.size[rows])
            self.size[rows] = torch.where(closer, size, self.size[rows])
            came_closer, goes_on = torch.stack([closer, self._settle(rows)]).tolist()
            if any(came_closer):
                self._closer(select(rows, positions(came_closer)))
            if not all(goes_on):
                self._run_in(select(rows, positions(goes_on)))
                self.refill()
        return self.cleaned

    def _group(self, rows: Tensor) -> Tensor:
        """(m, patches): the group that each slot tries to clear, filled up with a patch that there is not."""
        patches = len(self.assignment.grid)
        standing = self.assignment.variant[rows] != CLEAN
        value = self.successes.value[self.sample[rows]]
        order = value.masked_fill(~standing, torch.inf).argsort(dim=1, stable=True)
        place = torch.arange(patches, device=rows.device)
        count, first = standing.sum(1), self.start[rows]
        self.group[rows] = torch.minimum(self.group[rows], (count - 1).clamp_min(1))  # at least one patch stays distorted
        trial = (place >= first[:, None]) & (place < (first + self.group[rows])[:, None]) & (place < count[:, None])
        return torch.where(trial & self.eliminating[rows, None], order, patches)

    def _eliminated(self, rows: Tensor, removed: Tensor, adversarial: Tensor, distorted: Tensor) -> None:
        """Clear the groups without which the criterion is still met; `distorted` (m, *shape) are the inputs without them."""
        busy, group = self.eliminating[rows], self.group[rows]
        count = (self.assignment.variant[rows] != CLEAN).sum(1)
        self.assignment.accept(rows, adversarial & busy, removed, torch.full_like(removed, CLEAN), distorted)
        left = count - (removed < len(self.assignment.grid)).sum(1) * adversarial
        next_ = torch.where(adversarial, self.start[rows], self.start[rows] + group)
        wrapped = next_ >= left
        self.tried[rows] += busy.long()
        over = (wrapped & (group == 1)) | (left <= 1) | (self.tried[rows] >= self.settings.eliminations)
        self.start[rows] = torch.where(busy, torch.where(wrapped, 0, next_), self.start[rows])
        self.group[rows] = torch.where(busy & wrapped, (group // 2).clamp_min(1), group)
        # Told apart from slots that were scaling already by a count of -1, which the next lines
        # raise to 0.
        self.halved[rows] = torch.where(busy & over, -1, self.halved[rows])
        self.eliminating[rows] = busy & ~over

    def _scaled(self, rows: Tensor, middle: Tensor, adversarial: Tensor) -> None:
        """Bisect the scale of the samples whose groups are settled."""
        scaling = ~self.eliminating[rows] & (self.halved[rows] >= 0)
        self.halved[rows] += (~self.eliminating[rows]).long()
        self.strength[rows] = torch.where(scaling & adversarial, middle, self.strength[rows])
        self.low[rows] = torch.where(scaling & ~adversarial, middle, self.low[rows])

    def _closer(self, rows: Tensor) -> None:
        """Remember the assignments of the closest inputs that met the criterion."""
        sample = self.sample[rows]
        self.cleaned.closest[sample] = self.assignment.variant[rows]
        self.cleaned.length[sample] = self.threat.distance.size(self.assignment.x[rows] - self.batch.x[sample])

    def _settle(self, rows: Tensor) -> Tensor:
        """Note what is left; which samples go on, (m,) bool."""
        sample = self.sample[rows]
        self.cleaned.variant[sample], self.cleaned.strength[sample] = self.assignment.variant[rows], self.strength[rows]
        finished = ~self.eliminating[rows] & (self.halved[rows] >= self.settings.halvings)
        goes_on: Tensor = ~finished & self.oracle.affordable(self.ids)
        self.alive[rows] = goes_on
        return goes_on


def clean_up(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    rng: Streams,
    successes: Outcomes,
    *,
    grid: PatchGrid,
    variants: Sequence[Variant],
    settings: CleanUp,
    slots: int = 64,
    gradient: Gradient | None = None,
) -> Cleaned:
    """Clean up samples that met the criterion.

    The streams `rng` are those of the samples' episodes. Of `successes`, the patches whose `value` is least are cleared first.
    `settings` says how much is spent, and `slots` samples are cleaned up together. `gradient` is where distortions that look into
    the model get theirs from, by rows of the batch.
    """
    sample = torch.arange(min(slots, len(batch)), device=batch.x.device)
    gradient_of = None if gradient is None else lambda rows: gradient(sample[rows])
    cache = DistortionCache(batch.x[sample], threat.domain, variants, rng.select(sample).fold("filters"), gradient=gradient_of)
    return _Pool(oracle, batch, threat, Assignment(grid, cache), rng, successes, settings, sample).run()
