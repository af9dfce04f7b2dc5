"""RISE: the mean of random masks, each weighted by the class's probability when it alone shows.

Petsiuk, Das & Saenko 2018, RISE: randomized input sampling for explanation of black-box models,
section 3. Deviations: what a mask hides is replaced by the blurred input and not by zeros, as
everywhere here (`fill=grey` takes the mean of the bounds); far fewer masks than the published 4,000
to 8,000, for whose number the budget of a comparison decides; the mean is taken over the weight
that each place had, so that masks need not be of one size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from brinell.core.contracts import Access, Batch, Domain, Oracle, Streams
from brinell.core.settings import Checked, Count, Range
from brinell.explainers._asking import hidden_fill, masked_values, places_of, resized


@dataclass(frozen=True, kw_only=True)
class RISE(Checked):
    """Random masks weighted by the class's probability (RISE)."""

    masks: Count = 500
    """Random masks, a question each."""
    cells: Count = 7
    """Cells of a mask along each axis."""
    keep_probability: Annotated[float, Range("(0, 1)")] = 0.5
    """Probability that a cell shows."""
    fill: Literal["blur", "grey"] = "blur"
    """Values of the places that a mask hides."""

    access = Access.SCORES
    domains = frozenset({"image", "signal", "video"})

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places). Asks `masks` questions."""
        places = places_of(domain)
        low, high = domain.bounds(batch.x)
        grey = ((low + high) / 2).expand_as(batch.x)
        fill = hidden_fill(batch.x, domain) if self.fill == "blur" else grey
        draw = self._masks(rng, places)
        weighted, coverage = torch.zeros(2, len(batch), *places, device=batch.x.device)
        for mask, values in masked_values(oracle, batch, domain, self.masks, draw, fill):
            weighted += torch.einsum("nk,nk...->n...", values, mask)
            coverage += mask.sum(1)
        # Divided by how often a place was shown: at the edge it is less often.
        maps: Tensor = weighted / coverage.clamp_min(1e-6)
        return maps

    def _masks(self, rng: Streams, places: tuple[int, ...]) -> Callable[[int, int], Tensor]:
        """Random cells, enlarged and shifted at random by less than a cell."""
        cells = tuple(min(self.cells, length) for length in places)
        step = tuple(-(-length // count) for length, count in zip(places, cells, strict=True))
        # One cell more than fits, so that a shift by less than a cell leaves no empty edge.
        size = tuple((count + 1) * length for count, length in zip(cells, step, strict=True))
        shows = rng.uniform(self.masks, *(count + 1 for count in cells)) < self.keep_probability
        coarse = shows.float()
        shifts = [
            rng.fold(f"shift {axis}").integers(cell_length, self.masks)
            for axis, cell_length in enumerate(step)
        ]

        def draw(first: int, last: int) -> Tensor:
            """(n, last - first, *places): the masks of these numbers."""
            large = resized(coarse[:, first:last], size)
            for axis, (length, shift) in enumerate(zip(places, shifts, strict=True)):
                # The shift of each mask is taken by indices, since all masks of a batch are cut at
                # once.
                positions = torch.arange(length, device=large.device) + shift[:, first:last, None]
                sides = [length if i == axis else 1 for i in range(len(places))]
                index = positions.reshape(*positions.shape[:2], *sides)
                shape = (*large.shape[: 2 + axis], length, *large.shape[3 + axis :])
                large = large.gather(2 + axis, index.expand(shape))
            return large

        return draw
