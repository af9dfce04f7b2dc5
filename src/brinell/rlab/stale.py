"""What was learned about a patch grows stale as the rest of its input changes, and is asked about again in time.

The linear model of the answers keeps its covariance (`rlab.posterior`), so by itself it is as sure of what it learned long ago. Here
the age of an entry is how much of the input has changed since the patch was last part of a question: the number of other patches
that were given something else or cleared, as a share of all patches.
"""

import torch
from torch import Tensor

EVERY = 10
"""Questions from one refreshed entry to the next at least: after large steps most entries are stale at once."""


class Stale:
    """The ages of the entries of n slots.

    Args:
        slots: how many.
        patches: entries of each.
        forget: the age at which what was learned counts half, and above which an entry is refreshed; 0 for never.
        device: where the tensors live.
    """

    def __init__(self, slots: int, patches: int, forget: float, device: torch.device) -> None:
        self._forget = forget
        self.age = torch.zeros(slots, patches, device=device)
        """(n, patches): see above."""
        self._known = torch.zeros(slots, patches, dtype=torch.bool, device=device)
        self._wait = torch.zeros(slots, dtype=torch.int64, device=device)

    def clear(self, rows: Tensor) -> None:
        """New samples in these slots (m,)."""
        self.age[rows], self._known[rows], self._wait[rows] = 0, False, EVERY

    def visits(self, rows: Tensor, visits: Tensor) -> Tensor:
        """(m, patches): what so many visits (m, patches) still count."""
        return visits / (1 + self.age[rows] / self._forget) if self._forget else visits

    def learn(self, rows: Tensor, patches: Tensor, changed: Tensor) -> None:
        """What one question for each of these slots (m,) renews and makes stale.

        Args:
            rows: (m,) distinct slots.
            patches: (m, k) what the question was about, filled up with a patch that there is not.
            changed: (m, patches) bool, what stands differently since.
        """
        asked = torch.zeros(len(rows), changed.shape[1] + 1, dtype=torch.bool, device=rows.device)
        asked = asked.scatter_(1, patches, True)[:, :-1]
        share = changed.float() / changed.shape[1]
        age = self.age[rows] + share.sum(1, keepdim=True) - share
        self.age[rows] = torch.where(asked, 0, age)
        self._known[rows] |= asked
        self._wait[rows] -= 1

    def instead(self, rows: Tensor, add: Tensor, remove: Tensor, doubt: Tensor) -> tuple[Tensor, Tensor]:
        """The picks (m, k) and (m, l) of these slots, or where it is time the one stale patch of the highest doubt.

        Args:
            rows: (m,) slots.
            add: patches to be given something, -1 for none.
            remove: patches to be cleared, -1 for none.
            doubt: (m, patches) how uncertain a patch of that age is at most; 0 for those that do not promise anything.
        """
        if not self._forget:
            return add, remove
        stale = self._known[rows] & (self.age[rows] > self._forget)
        worst, patch = (doubt * self.age[rows] * stale).max(1)
        now = ((worst > 0) & (self._wait[rows] <= 0))[:, None]
        self._wait[rows[now[:, 0]]] = EVERY
        alone = torch.full_like(add, -1)
        alone[:, 0] = patch
        return torch.where(now, alone, add), remove.masked_fill(now, -1)


__all__ = ["EVERY", "Stale"]
