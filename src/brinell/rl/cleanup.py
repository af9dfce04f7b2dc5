"""After the goal was reached: take away what was not needed, then scale down what is left. Every try is a query and counts.

Group elimination is delta debugging (Zeller & Hildebrandt 2002, Simplifying and isolating failure-inducing input) on the patches,
those first that are foretold to bring least; the scale is found by bisection.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brinell.core.assignment import Assignment
from brinell.core.bank import CLEAN
from brinell.core.batch import Batch
from brinell.core.ledger import Desk
from brinell.core.norms import per_sample
from brinell.core.threat import Threat
from brinell.rl.goals import Goal

GROUPS = 4
"""The first groups hold a quarter of what stands."""


@dataclass(frozen=True, kw_only=True)
class CleanUp:
    """How much is spent on it."""

    eliminations: int = 24
    """Queries that try to do without a group of patches."""
    halvings: int = 5
    """Queries that try a smaller scale."""


class _Search:
    """Samples whose goal is reached by what stands on them, cleaned up in lockstep."""

    def __init__(self, desk: Desk, batch: Batch, threat: Threat, assignment: Assignment, eps: Tensor, goal: Goal) -> None:
        self.desk, self.batch, self.threat, self.assignment, self.eps, self.goal = desk, batch, threat, assignment, eps, goal
        self.strength = torch.ones_like(eps)

    def fit(self, rows: Tensor, x: Tensor) -> Tensor:
        """(m, *shape) distorted inputs within the budget at which the goal was reached."""
        return replace(self.threat, eps=self.eps[rows]).project(x, self.batch.x[rows])

    def reaches(self, rows: Tensor, x: Tensor) -> Tensor:
        """(m,) bool: one query each."""
        return self.goal.height(self.desk.scores(self.batch.ids[rows], x), self.batch.y[rows]) > 0

    def afford(self, open_: Tensor) -> Tensor:
        """(m,) int64: which of the rows (n,) bool may still ask."""
        return (open_ & self.desk.affordable(self.batch.ids)).nonzero()[:, 0]

    def eliminate(self, value: Tensor, tries: int) -> None:
        """Clear groups of patches that are not needed; `value` (n, patches) says which go first."""
        patches = value.shape[1]
        start = torch.zeros(len(value), dtype=torch.int64, device=value.device)
        standing = self.assignment.variant != CLEAN
        group = standing.sum(1).div(GROUPS, rounding_mode="floor").clamp_min(1)
        done = standing.sum(1) <= 1
        for _ in range(tries):
            rows = self.afford(~done)
            if not len(rows):
                return
            standing = self.assignment.variant[rows] != CLEAN
            order = value[rows].masked_fill(~standing, torch.inf).argsort(dim=1, stable=True)
            place = torch.arange(patches, device=value.device)
            first, count = start[rows, None], standing.sum(1, keepdim=True)
            group[rows] = torch.minimum(group[rows], count[:, 0] - 1)  # something must stand
            trial = (place >= first) & (place < first + group[rows, None]) & (place < count)
            chosen = torch.where(trial, order, patches)
            gone = torch.full_like(chosen, CLEAN)
            held = self.reaches(rows, self.fit(rows, self.assignment.candidates(rows, chosen, gone)))
            self.assignment.edit(rows[held], chosen[held], gone[held])
            left = count[:, 0] - trial.sum(1) * held
            next_ = torch.where(held, start[rows], start[rows] + group[rows])
            wrapped = next_ >= left
            done[rows] = (wrapped & (group[rows] == 1)) | (left <= 1)
            start[rows] = torch.where(wrapped, 0, next_)
            group[rows] = torch.where(wrapped, (group[rows] // 2).clamp_min(1), group[rows])

    def scale(self, halvings: int) -> None:
        """The smallest strength in (0, 1] that bisection finds to be enough."""
        low = torch.zeros_like(self.strength)
        everything = torch.ones_like(low, dtype=torch.bool)
        for _ in range(halvings):
            rows = self.afford(everything)
            if not len(rows):
                return
            # The first tries stay near 1: what has just reached its goal bears little.
            middle = self.strength[rows] - torch.minimum((self.strength - low)[rows] / 2, torch.full_like(low[rows], 0.2))
            clean = self.batch.x[rows]
            x = self.fit(rows, self.assignment.x[rows])
            held = self.reaches(rows, self.threat.domain.clamp(clean + per_sample(middle, x) * (x - clean)))
            self.strength[rows] = torch.where(held, middle, self.strength[rows])
            low[rows] = torch.where(held, low[rows], middle)


def clean_up(
    desk: Desk,
    batch: Batch,
    threat: Threat,
    assignment: Assignment,
    eps: Tensor,
    value: Tensor,
    goal: Goal,
    settings: CleanUp,
) -> Tensor:
    """Clean up samples that reached their goal; `assignment` is changed in place.

    Args:
        desk: where the model is asked.
        batch: the samples.
        threat: the distance.
        assignment: what stands on them, in the order of the batch.
        eps: (n,) budgets that it was fitted to when the goal was reached.
        value: (n, patches) what each patch is foretold to bring; the least goes first.
        goal: what must stay reached.
        settings: how much is spent.

    Returns:
        (n,) strengths: the share of the fitted distortion that is enough.
    """
    search = _Search(desk, batch, threat, assignment, eps, goal)
    search.eliminate(value, settings.eliminations)
    search.scale(settings.halvings)
    return search.strength


__all__ = ["CleanUp", "clean_up"]
