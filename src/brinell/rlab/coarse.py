"""Coarse to fine: distorted values on blocks of patches first, then on halves of those whose answers rose most.

A block is a box of the patch lattice. The first question of a tree is about the whole lattice under one variant; a block that
was asked about can be split into halves along its longest axis, which are asked about next, both of them. Of all blocks that are
not split yet the one whose answer brought the goal nearest goes first (best first); where none brought it nearer, another tree
begins with another variant, as long as there are any. One sensitive patch of 256 is so found in 1 + 2 log2(256) questions.
"""

import torch
from torch import Tensor
from torch.nn import functional

from brinell.core.patches import PatchGrid
from brinell.rlab.cache import CLEAN


class Blocks:
    """The trees of n slots, in lockstep.

    Args:
        slots: how many.
        queries: questions of a sample at most.
        grid: the patches.
        variants: how many may stand on them.
        device: where the tensors live.
    """

    def __init__(self, slots: int, queries: int, grid: PatchGrid, variants: int, device: torch.device) -> None:
        self._queries, self._variants = queries, variants
        self._lattice = torch.tensor(grid.lattice, device=device)
        self._at = torch.cartesian_prod(*(torch.arange(count, device=device) for count in grid.lattice)).view(len(grid), -1)
        # Each question adds one block, and the last split one that is never asked about.
        size = queries + 1
        self._low, self._high = torch.zeros(2, slots, size, len(grid.lattice), dtype=torch.int64, device=device)
        self._variant = torch.full((slots, size), CLEAN, device=device)
        self._rise = torch.full((slots, size), -torch.inf, device=device)
        """Infinite for blocks not asked about yet, minus infinity for those that have been split, or cannot be."""
        self._order = torch.zeros(slots, variants, dtype=torch.int64, device=device)
        self._count, self._trees, self._asked, self._left = torch.zeros(4, slots, dtype=torch.int64, device=device)

    def forget(self, rows: Tensor, keys: Tensor) -> None:
        """New samples in these slots (m,), which try the variants in the order of their keys (m, variants)."""
        self._order[rows], self._rise[rows] = keys.argsort(1), -torch.inf
        self._count[rows] = self._trees[rows] = 0
        self._left[rows] = self._queries

    def ask(self, rows: Tensor, ready: Tensor) -> Tensor:
        """(m, patches): the variant that the next question of distinct slots (m,) lays on each patch, CLEAN for none.

        CLEAN everywhere where a slot is not `ready` (m,), its questions are spent or nothing is left to split.
        """
        rise, block = self._rise[rows].max(1)
        going = ready & (self._left[rows] > 0)
        fresh = going & (rise <= 0) & (self._trees[rows] < self._variants)
        self._plant(rows[fresh])
        split = going & ~fresh & rise.isfinite()
        self._split(rows[split], block[split])
        rise, block = self._rise[rows].max(1)
        going &= rise == torch.inf
        self._asked[rows] = block
        self._left[rows] -= going.long()
        low, high = self._low[rows, block, None], self._high[rows, block, None]
        inside = ((self._at >= low) & (self._at < high)).all(2)
        return torch.where(inside & going[:, None], self._variant[rows, block, None], CLEAN)

    def learn(self, rows: Tensor, rise: Tensor) -> None:
        """By how much (m,) the answers to the last questions of these slots brought the goal nearer."""
        block = self._asked[rows]
        single = (self._high[rows, block] - self._low[rows, block] == 1).all(1)
        self._rise[rows, block] = torch.where(single, -torch.inf, rise)

    def _plant(self, rows: Tensor) -> None:
        variant = self._order[rows, self._trees[rows]]
        self._trees[rows] += 1
        self._add(rows, torch.zeros_like(self._lattice).expand(len(rows), -1), self._lattice.expand(len(rows), -1), variant)

    def _split(self, rows: Tensor, block: Tensor) -> None:
        low, high, variant = self._low[rows, block], self._high[rows, block], self._variant[rows, block]
        length = high - low
        longest = functional.one_hot(length.argmax(1), length.shape[1]).bool()
        middle = low + length // 2
        self._rise[rows, block] = -torch.inf
        self._add(rows, low, torch.where(longest, middle, high), variant)
        self._add(rows, torch.where(longest, middle, low), high, variant)

    def _add(self, rows: Tensor, low: Tensor, high: Tensor, variant: Tensor) -> None:
        at = self._count[rows]
        self._low[rows, at], self._high[rows, at], self._variant[rows, at] = low, high, variant
        self._rise[rows, at] = torch.inf
        self._count[rows] += 1


def lay(chosen: Tensor, variants: Tensor, laid: Tensor) -> tuple[Tensor, Tensor]:
    """Edits (m, k) of patches, -1 for none, with `laid` (m, patches) in their place in the rows where it says anything."""
    rows = (laid != CLEAN).any(1)
    if not bool(rows.any()):
        return chosen, variants
    patches = laid.shape[1]
    chosen = functional.pad(chosen, (0, max(0, patches - chosen.shape[1])), value=-1)
    variants = functional.pad(variants, (0, chosen.shape[1] - variants.shape[1]), value=CLEAN)
    laid = functional.pad(laid[rows], (0, chosen.shape[1] - patches), value=CLEAN)
    chosen[rows] = torch.where(laid == CLEAN, -1, torch.arange(chosen.shape[1], device=chosen.device))
    variants[rows] = laid
    return chosen, variants


__all__ = ["Blocks", "lay"]
