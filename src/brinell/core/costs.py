"""The ledger's counters: the queries of each sample (`Costs`) and the best inputs found
(`Best`).
"""

import torch
from torch import Tensor

NEVER = torch.iinfo(torch.int64).max


class Costs:
    """Forward and backward evaluations of each sample."""

    def __init__(self, n: int, device: torch.device) -> None:
        # Sums on the device of the batch: nothing is read back while an attack runs.
        self.forwards = torch.zeros(n, dtype=torch.int64, device=device)
        """(n,): forward evaluations spent on each sample."""
        self.backwards = torch.zeros(n, dtype=torch.int64, device=device)
        """(n,): backward evaluations."""
        self.surrogate_passes = torch.zeros_like(self.forwards)
        """(n,): passes of surrogates, each a forward and a backward evaluation of one of them."""

    def add(self, ids: Tensor, times: Tensor, backwards: int) -> None:
        """Count the `times` (n,) forwards of answered rows, with so many backwards for each.

        `ids` (n,) are the samples of the rows.
        """
        self.forwards.index_add_(0, ids, times)
        if backwards:
            self.backwards.index_add_(0, ids, times if backwards == 1 else times * backwards)


class Best:
    """The best inputs of each sample.

    They are the first success, the closest adversarial input, and the input of the largest margin.

    Args:
        x: (n, *shape) the clean inputs.
        classes: the number of classes of the model.
        keeps_strongest: True to keep the inputs of the largest margins, at the cost of one copy per
            improvement.
    """

    # Copies of the clean batch are made once something is found: most samples are never fooled.
    def __init__(self, x: Tensor, classes: int, *, keeps_strongest: bool = False) -> None:
        n, device = len(x), x.device
        self._x, self._keeps_strongest = x, keeps_strongest

        self.first_success = torch.zeros(n, dtype=torch.int64, device=device)
        """(n,): the forward at which the sample was first fooled, counted from 1; 0 for never."""
        self.distance = torch.full((n,), torch.inf, device=device)
        """(n,): distance of the closest adversarial input, inf for none."""
        self.margin = torch.full((n,), -torch.inf, device=device)
        """(n,): largest margin of the criterion in any answer to an input within eps; -inf
        before the first. An answer in TF32 counts only if it was so far below zero that it was
        not repeated in float32."""

        # The clean batch stands for the inputs until the first success, so that no copy is made for
        # nothing.
        self.strongest = x
        """(n, *shape): for samples without a success, the input within eps of the largest
        margin, if these are kept; the clean input before the first query."""
        self.closest = x
        """(n, *shape): the closest adversarial input; the clean input if there is none."""
        self.answer = torch.zeros(n, classes, device=device)
        """(n, classes): the model's logits for the closest adversarial input; zeros if there is
        none."""

    def raise_margins(self, ids: Tensor, x: Tensor, margin: Tensor, repeats: bool) -> None:
        """Record the margins (n,) of answered inputs, -inf for inputs beyond eps.

        `repeats` says whether a sample has several of the rows. Call it before `note_successes`.
        """
        rows = (
            ((margin > self.margin[ids]) & (self.first_success[ids] == 0)).nonzero()[:, 0]
            if self._keeps_strongest
            else ()
        )

        if len(rows):
            # Until the first improvement the clean batch itself stands for it: no copy.
            if self.strongest is self._x:
                self.strongest = self._x.clone()
            if repeats:
                # Of several rows of one sample the largest margin, which comes first.
                rows = rows[torch.argsort(margin[rows], descending=True, stable=True)]
                rows = rows[earlier_rows(ids[rows]) == 0]
            self.strongest[ids[rows]] = x[rows]

        self.margin.scatter_reduce_(0, ids, margin, "amax")

    def note_successes(
        self, ids: Tensor, x: Tensor, logits: Tensor, distance: Tensor, totals: Tensor
    ) -> None:
        """Record m successes: the query and the distance of each.

        Args:
            ids: (m,) the sample of each success.
            x: (m, *shape) the adversarial inputs.
            logits: (m, classes) the answers to them.
            distance: (m,) their distances from the clean inputs.
            totals: (m,) the forwards that the sample had cost up to this success.
        """
        # Until the first success the clean inputs stand for the closest ones, without a copy.
        if self.closest is self._x:
            self.closest = self._x.clone()
        earliest = torch.full_like(self.first_success, NEVER).scatter_reduce_(
            0, ids, totals, "amin"
        )
        # A sample without a success so far has 0.
        new = (self.first_success == 0) & (earliest < NEVER)
        self.first_success[new] = earliest[new]

        # Of several successes of one sample the closest, which comes first.
        order = torch.argsort(distance, stable=True)
        order = order[
            (distance[order] < self.distance[ids[order]]) & (earlier_rows(ids[order]) == 0)
        ]
        samples = ids[order]
        self.distance[samples] = distance[order]
        self.closest[samples] = x[order]
        self.answer[samples] = logits[order]


def running_totals(ids: Tensor, values: Tensor) -> Tensor:
    """Cumulative sums of `values` by id, (n,): for each row, over the rows up to it with its id."""
    order = torch.argsort(ids, stable=True)
    ordered = ids[order]
    total = values[order].cumsum(0)
    # Less what the ids before it in the order sum to, which is known where each of them begins.
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    before = torch.cummax(torch.where(first, total - values[order], 0), 0).values
    return torch.empty_like(total).index_copy_(0, order, total - before)


def earlier_rows(ids: Tensor) -> Tensor:
    """The number of earlier rows with the same id, (n,)."""
    return running_totals(ids, torch.ones_like(ids)) - 1
