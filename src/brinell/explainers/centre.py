"""A control: the nearer to the middle, the more a place matters.

Photographers put things there, so it is hard to beat.

Of a video the middle of every frame. No deviations; there is nothing to deviate from.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Access, Batch, Domain, Oracle, Streams
from brinell.core.settings import Checked, NotNegative
from brinell.explainers._asking import places_of
from brinell.explainers._cells import smooth_maps


@dataclass(frozen=True, kw_only=True)
class Centre(Checked):
    """Nearness to the middle (a control)."""

    look: NotNegative = 0.0
    """As in rlab: spread of colours within which places share their importance; 0 ignores
    colours."""

    access = Access.LABELS
    domains = frozenset({"image", "signal", "video"})

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places), 1 in the middle and less the farther from it, each side counted as 1.

        Asks nothing.
        """
        places = places_of(domain)
        squares = torch.zeros(places, device=batch.x.device)
        # Height and width, or time; of a video not its frames.
        for axis, length in list(enumerate(places))[-2:]:
            offsets = (torch.arange(length, device=batch.x.device) + 0.5) / length - 0.5
            squares = squares + offsets.square().reshape(-1, *[1] * (len(places) - axis - 1))
        maps = (1 - squares.sqrt()).expand(len(batch), *places).clone()
        return smooth_maps(maps, batch.x, domain, self.look)
