"""The assignment of variants of distortions to the patches of each sample, and the resulting inputs.

An input is a function of its assignment alone: each place shows the variant of the lowest-numbered patch over it that has one,
and the clean value where no patch has one. So the order in which patches are distorted and cleared plays no part, clearing a
patch is the exact inverse of distorting it, and the input that the model is asked about is bit by bit the one that is kept. Where
patches overlap, the patch of the lower number hides the other one as long as it has a variant.
"""

import torch
from torch import Tensor

from brinell.core.patches import PatchGrid
from brinell.rlab.cache import CLEAN, DistortionCache
from brinell.rlab.rows import write_where

ROOM = 2**24
"""Values that are looked at together."""


class Assignment:
    """The assignments of a batch of samples, changed in place.

    An edit gives a patch a variant, in place of what stood there, or takes it away (CLEAN). Edits of one candidate are given as
    rows (m,) with patches and variants (m,) or (m, k); shorter lists of edits are filled up with patch `len(grid)` and CLEAN.
    """

    def __init__(self, grid: PatchGrid, cache: DistortionCache) -> None:
        if grid.shape != cache.domain.shape:
            raise ValueError(f"patches over inputs of shape {grid.shape} and samples of shape {cache.domain.shape}")
        self.grid, self.cache, device = grid, cache, cache.x.device
        self._members = torch.cat([grid.members, torch.zeros(1, grid.members.shape[1], dtype=torch.int64)]).to(device)
        self._covers = grid.covers.to(device)
        # One patch more than there are, which never has a variant: it fills up lists of patches.
        self._variant = torch.full((len(cache), len(grid) + 1), CLEAN, device=device)
        self.x = cache.x.clone()
        """(n, *shape): the distorted inputs. Never write into them."""

    @property
    def variant(self) -> Tensor:
        """(n, patches) int64: the variant on each patch, CLEAN for nothing. A view; never write into it."""
        return self._variant[:, :-1]

    def candidates(self, rows: Tensor, patches: Tensor, variants: Tensor) -> Tensor:
        """(m, *shape): the inputs after the edits of each candidate; the state stays as it is."""
        patches, variants = _columns(patches), _columns(variants)
        x = self.x[rows]
        places = self._members[patches].flatten(1)
        after = self._variant[rows].scatter_(1, patches, variants)
        flat = x.view(len(rows), self.grid.channels, self.grid.places)
        for part in self._parts(len(rows), places.shape[1]):
            new = self._values(rows[part], after[part], places[part])
            flat[part].scatter_(2, places[part, None].expand_as(new), new)
        return x

    def render(self, rows: Tensor, variant: Tensor) -> Tensor:
        """(m, *shape): the inputs of whole assignments (m, patches) on the samples `rows` (m,), whatever the state."""
        padded = torch.cat([variant, torch.full_like(variant[:, :1], CLEAN)], 1)
        places = torch.arange(self.grid.places, device=rows.device).expand(len(rows), -1)
        parts = [self._values(rows[p], padded[p], places[p]) for p in self._parts(len(rows), self.grid.places)]
        return torch.cat(parts).view(len(rows), *self.grid.shape)

    def edit(self, rows: Tensor, patches: Tensor, variants: Tensor, x: Tensor | None = None) -> None:
        """Make the edits of distinct samples `rows` (m,) part of the state; `x` is what `candidates` made of them, if it did."""
        self.x[rows] = self.candidates(rows, patches, variants) if x is None else x
        self._variant[rows] = self._variant[rows].scatter_(1, _columns(patches), _columns(variants))

    def accept(self, rows: Tensor, mask: Tensor, patches: Tensor, variants: Tensor, x: Tensor) -> None:
        """Make the edits (m, k) of distinct samples `rows` (m,) part of the state, as far as `mask` (m,) bool is True.

        `x` is what `candidates` made of them.
        """
        write_where(self.x, rows, mask, x)
        write_where(self._variant, rows, mask, self._variant[rows].scatter_(1, patches, variants))

    def clear(self, rows: Tensor) -> None:
        """Clear all patches of these samples, as after `DistortionCache.replace`."""
        self._variant[rows] = CLEAN
        self.x[rows] = self.cache.x[rows]

    def _values(self, rows: Tensor, variant: Tensor, places: Tensor) -> Tensor:
        """(m, channels, k): the values at the places (m, k) under the assignments (m, patches + 1)."""
        over = self._covers[places]
        standing = variant.gather(1, over.flatten(1)).view(over.shape)
        lowest = (standing != CLEAN).to(torch.uint8).argmax(2, keepdim=True)
        return self.cache.values(rows, standing.gather(2, lowest)[..., 0], places, self.grid.channels)

    def gather(self, x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """(m, channels, k): the values of `x` (n, *shape) at the places (m, k) of the rows (m,)."""
        channels = torch.arange(self.grid.channels, device=rows.device)
        return x.view(len(x), self.grid.channels, self.grid.places)[rows[:, None, None], channels[:, None], places[:, None]]

    def _parts(self, count: int, places: int) -> list[slice]:
        """Slices of candidates whose values at so many places are looked at together."""
        size = max(1, ROOM // max(1, places * max(self.grid.channels, self._covers.shape[1])))
        return [slice(start, start + size) for start in range(0, count, size)]


def _columns(edits: Tensor) -> Tensor:
    return edits[:, None] if edits.ndim == 1 else edits
