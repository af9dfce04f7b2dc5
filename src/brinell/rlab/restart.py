"""Restarts of episodes that are stuck because they gain nothing, or too little to succeed.

A step is kept where it raises the margin, so an episode climbs to the nearest maximum and stays there. Most often that is a
maximum towards the class that came second from the start. First the whole input is distorted, with each variant that the budget
allows. After that two measures take turns: a large step from the present input that is kept whatever it brings, and a restart
from the clean input towards another class. The posterior of the input is kept throughout.
"""

import torch
from torch import Tensor
from torch.nn import functional

from brinell.rlab.cache import CLEAN

WINDOW = 2
"""Spans of patience over which a gain is measured."""
LITTLE = 0.1
"""Share of what is missing below which that gain is too little."""
AIMS = 4
"""Classes that are aimed at, those that came nearest to the lead in any answer."""


class Restarts:
    """State of stuck slots, out of n, and their next action.

    The variants `wholes` (w,) are placed on all patches in their order; `patience` is that of `Rules`, and `aims` says whether
    the criterion leaves several of the `classes` to aim at.
    """

    def __init__(self, slots: int, classes: int, wholes: Tensor, patience: int, aims: bool, device: torch.device) -> None:
        self._wholes, self._patience, self._aims = wholes, patience, aims and classes > 2
        self.aim = torch.full((slots,), -1, dtype=torch.int64, device=device)
        """(n,): the class that an episode aims at, -1 for any."""
        self.laid = torch.full((slots,), CLEAN, dtype=torch.int64, device=device)
        """(n,): the variant that the next query places on all patches, CLEAN for none."""
        self.kept = torch.zeros(slots, dtype=torch.bool, device=device)
        """(n,): whether the next step is kept whatever it brings."""
        self.since, self._idle, self._leapt, self._rounds, self._count = torch.zeros(5, slots, dtype=torch.int64, device=device)
        self._mark = torch.zeros(slots, device=device)
        self.clean, self._lead, self._tries = torch.zeros(3, slots, classes, device=device)

    def clear(self, rows: Tensor) -> None:
        """New samples in these slots (m,)."""
        self.aim[rows], self.laid[rows], self.kept[rows] = -1, CLEAN, False
        self._leapt[rows] = self._rounds[rows] = 0
        self._lead[rows], self._tries[rows] = -torch.inf, 0
        self._begin(rows)

    def _begin(self, rows: Tensor) -> None:
        self.since[rows] = self._idle[rows] = self._count[rows] = 0
        self._mark[rows] = -torch.inf

    def note(self, rows: Tensor, logits: Tensor, y: Tensor) -> None:
        """Note how near each class (m, classes) came to the lead; the first answer is that to the clean input."""
        first = self._lead[rows].isinf().all(1)
        self.clean[rows] = torch.where(first[:, None], logits, self.clean[rows])
        lead = (logits - logits.gather(1, y[:, None])).scatter(1, y[:, None], -torch.inf)
        self._lead[rows] = torch.maximum(self._lead[rows], lead)

    def wait(self, rows: Tensor, improved: Tensor, margin: Tensor) -> None:
        """Count queries without a gain, and windows with too small a gain; `margin` (m,) is that of the input that is kept."""
        self.since[rows] += 1
        self._count[rows] += 1
        due = self._count[rows] >= WINDOW * self._patience
        slow = due & (margin - self._mark[rows] < -LITTLE * margin)
        self._mark[rows] = torch.where(due, margin, self._mark[rows])
        self._count[rows] = torch.where(due, 0, self._count[rows])
        idle = torch.where(improved, 0, self._idle[rows] + 1)
        self._idle[rows] = torch.where(slow, idle.clamp_min(self._patience), idle)

    def stuck(self, rows: Tensor) -> Tensor:
        """(m,) bool."""
        stuck: Tensor = self._idle[rows] >= self._patience
        return stuck & (self._patience > 0)

    def whole(self, rows: Tensor) -> Tensor:
        """(m,): the next variant to place on all patches, CLEAN where all have been tried."""
        numbers = torch.cat([self._wholes, torch.full_like(self._wholes[:1], CLEAN)])[self._leapt[rows]]
        self._leapt[rows] += (numbers != CLEAN).long()
        return numbers

    def restart(self, rows: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """Begin with large steps again; the rows among (m,) that restart towards another class. The others keep their next step.

        Of the classes that came nearest it is the one that was tried least.
        """
        self._begin(rows)
        anew = (self._rounds[rows] % 2 == 1) & self._aims
        self._rounds[rows] += 1
        self.kept[rows] |= ~anew
        self.aim[rows] = -1
        places = anew.nonzero()[:, 0]
        rows, logits, y = rows[places], logits[places], y[places]
        if len(rows):
            leader = logits.scatter(1, y[:, None], -torch.inf).argmax(1)
            self._tries[rows, leader] += 1
            nearest = self._lead[rows].topk(min(AIMS, logits.shape[1] - 1), dim=1).indices
            tries = self._tries[rows].gather(1, nearest) * nearest.shape[1] + torch.arange(nearest.shape[1], device=rows.device)
            self.aim[rows] = nearest.gather(1, tries.argmin(1, keepdim=True))[:, 0]
        return rows


def lay(targets: Tensor, variants: Tensor, cover: Tensor, patches: int) -> tuple[Tensor, Tensor]:
    """Edits (m, k) of patches, -1 for none; where `cover` (m,) names a variant it is placed on every patch instead."""
    laid = (cover != CLEAN)[:, None]
    wanting = max(0, patches - targets.shape[1])
    targets, variants = functional.pad(targets, (0, wanting), value=-1), functional.pad(variants, (0, wanting), value=CLEAN)
    place = torch.arange(targets.shape[1], device=targets.device)
    targets = torch.where(laid, torch.where(place < patches, place, -1), targets)
    return targets, torch.where(laid, torch.where(place < patches, cover[:, None], CLEAN), variants)
