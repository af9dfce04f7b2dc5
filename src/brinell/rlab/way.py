"""The agent's way to an adversarial example: the inputs that it kept, one after another."""

import math

import torch
from torch import Tensor

from brinell.core.record import WAY
from brinell.rlab.distort import CLEAN

LENGTH = 24
"""Rows of a way at most. Of longer ones most are from the beginning; the first success and the last row
are among them."""


class Ways:
    """The ways of the samples of a batch, noted while an agent works, without a query.

    Args:
        ids: (n,) of the samples.
    """

    def __init__(self, ids: Tensor) -> None:
        self._ids = ids
        self._queries = torch.zeros(int(ids.max()) + 1 if len(ids) else 0, device=ids.device)
        self._steps: list[tuple[Tensor, Tensor]] = []

    def note(
        self,
        ids: Tensor,
        queried: Tensor,
        kept: Tensor,
        *,
        probability: Tensor,
        size: Tensor,
        before: Tensor,
        after: Tensor,
    ) -> None:
        """Note the answers to a question about each of some samples.

        Args:
            ids: (m,) of the samples.
            queried: (m,) bool on the host: whether the sample was asked about.
            kept: (m,) bool on the host: whether the agent goes on from its input.
            probability: (m,) of the true class.
            size: (m,) L2 distance of the input.
            before: (m, patches) the assignment that the agent went on from.
            after: (m, patches) that of the input.
        """
        device = ids.device
        self._queries.index_add_(0, ids, queried.to(device, non_blocking=True).float())
        index = (kept & queried).nonzero()[:, 0].to(device, non_blocking=True)

        before = before[index]
        after = after[index]
        is_distorted = after != CLEAN

        # Counted on the device: a count on the host would wait for it at each step.
        columns = (
            self._queries[ids[index]],
            probability[index],
            size[index],
            is_distorted.sum(1),
            (is_distorted & (after != before)).sum(1),
            ((before != CLEAN) & ~is_distorted).sum(1),
        )
        self._steps.append((ids[index], torch.stack([column.float() for column in columns], 1)))

    def table(self, success: Tensor) -> Tensor:
        """(n, LENGTH, 6): the rows of each sample; NaN behind the last one.

        `success` (n,) are the queries of the first successes.
        """
        table = torch.full((len(self._ids), LENGTH, len(WAY)), torch.nan)
        if not self._steps:
            return table
        ids = torch.cat([ids for ids, _ in self._steps]).cpu()
        steps = torch.cat([columns for _, columns in self._steps]).cpu()
        for row, (sample, query) in enumerate(
            zip(self._ids.tolist(), success.tolist(), strict=True)
        ):
            rows = thinned(steps[ids == sample], query)
            table[row, : len(rows)] = rows
        return table.to(self._ids.device)


def thinned(steps: Tensor, success: int) -> Tensor:
    """At most `LENGTH` of the rows (k, 6) of a way, with what was added and removed
    between them.

    The row of the query `success` is one of them.
    """
    index = torch.arange(len(steps))
    if len(steps) > LENGTH:
        # Equal ratios from one number to the next: few steps lead to the success, many come closer.
        counts = torch.logspace(0, math.log10(len(steps)), LENGTH - 1).round().long()
        is_success = steps[:, 0] == success
        index = torch.cat([counts - 1, is_success.nonzero()[:1, 0]]).sort().values
        index = torch.unique_consecutive(index)
    rows = steps[index]
    totals = steps[:, 4:].cumsum(0)[index]
    rows[1:, 4:] = totals[1:] - totals[:-1]
    return rows
