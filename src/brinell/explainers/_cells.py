"""A lattice of cells over the places of an input, and how alike cells are expected to matter.

Cells that lie near each other, and more so cells that look alike, are taken to matter alike: the
covariance of what they are worth is a mean over several lengths, each as the product of a Gaussian
of their distance and one of the difference of their mean colours. So a thing that is of one piece
is worth something as one piece, at whatever size it has.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Domain
from brinell.explainers._asking import places_of, resized

JITTER = 1e-4
"""Variance that each cell has for itself."""


@dataclass(frozen=True)
class Cells:
    """Cells of equal sides, about as long along one axis as along the others."""

    places: tuple[int, ...]
    counts: tuple[int, ...]
    """Cells along each axis."""

    @classmethod
    def over(cls, domain: Domain, most: int) -> "Cells":
        """At most about so many cells over the inputs of a domain."""
        places = places_of(domain)
        if domain.kind == "vector":
            return cls(places, places)
        side = max(1.0, (math.prod(places) / most) ** (1 / len(places)))
        return cls(places, tuple(max(1, round(length / side)) for length in places))

    def __len__(self) -> int:
        return math.prod(self.counts)

    @property
    def centres(self) -> Tensor:
        """(cells, axes): the middle of each cell, in shares of the longest side."""
        longest = max(self.places)
        positions = [
            (torch.arange(count) + 0.5) / count * length / longest
            for count, length in zip(self.counts, self.places, strict=True)
        ]
        axes = torch.meshgrid(*positions, indexing="ij")
        return torch.stack([axis.flatten() for axis in axes], 1)

    def means(self, x: Tensor) -> Tensor:
        """(n, cells, channels): the mean of each channel over each cell, of inputs (n, *shape)."""
        lattice = x.reshape(len(x), -1, *self.places)
        pools = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
        pool: Callable[..., Tensor] = pools[len(self.places) - 1]
        return pool(lattice, self.counts).flatten(2).mT

    def maps(self, values: Tensor) -> Tensor:
        """(n, k, *places): values (n, k, cells) between whose cells there is a linear passage."""
        return resized(values.reshape(*values.shape[:2], *self.counts), self.places)


SHARING = 0.2
"""Length over which cells that look alike share what they are worth, in shares of the longest
side."""


def bilateral_filter(worth: Tensor, x: Tensor, domain: Domain, cells: Cells, look: float) -> Tensor:
    """Smooth the importance of cells (n, cells) over nearby cells of similar appearance.

    A bilateral filter (Tomasi & Manduchi 1998) on cells. It uses the input and not the model, and
    it helps any map to follow objects: to compare the positions of two maps, apply it to both.

    `look` is the standard deviation of the Gaussian of mean colours, as a share of the spread of
    each of the inputs x (n, *shape); 0 returns `worth` unchanged.
    """
    if not look or domain.kind == "vector":
        return worth

    distances = torch.cdist(cells.centres, cells.centres).to(x.device).square()
    by_place = distances / (2 * SHARING**2)
    by_colour = _colour_distances(x, cells) / (2 * look**2)
    weight = torch.exp(-by_place - by_colour)
    # The weights of a cell add up to 1, so a constant map stays.
    weight = weight / weight.sum(2, keepdim=True)
    smoothed: Tensor = torch.einsum("nab,nb->na", weight, worth)
    return smoothed


def smooth_maps(maps: Tensor, x: Tensor, domain: Domain, look: float, most: int = 784) -> Tensor:
    """Maps (n, *places) of another method, brought to cells and shared by look as those of RLAB.

    They are as they are for a look of 0.
    """
    if not look or domain.kind == "vector":
        return maps
    cells = Cells.over(domain, most)
    # A map has one channel.
    worth = cells.means(maps)[..., 0]
    return cells.maps(bilateral_filter(worth, x, domain, cells, look)[:, None])[:, 0]


def _colour_distances(x: Tensor, cells: Cells) -> Tensor:
    """(n, cells, cells): squared distance of mean colours, in shares of the input's variance."""
    means = cells.means(x)
    variance = means.var(1, keepdim=True).sum(2, keepdim=True)
    return torch.cdist(means, means).square() / variance.clamp_min(1e-12)


def covariance(
    x: Tensor, domain: Domain, cells: Cells, lengths: tuple[float, ...], colour: float
) -> Tensor:
    """(n, cells, cells): how alike cells of each input (n, *shape) are expected to matter.

    There are ones on the diagonal.

    `lengths` are standard deviations of the Gaussians of distance, in shares of the longest side,
    and `colour` that of the Gaussian of mean colours, in shares of the input's own spread; 0 leaves
    colours out.
    """
    distances = torch.cdist(cells.centres, cells.centres).to(x.device).square()
    spatial = torch.stack([torch.exp(-distances / (2 * length**2)) for length in lengths]).mean(0)

    total = spatial.expand(len(x), -1, -1)
    if colour and domain.kind != "vector":
        total = total * torch.exp(-_colour_distances(x, cells) / (2 * colour**2))
    # The variance of its own keeps the matrix invertible.
    return total + JITTER * torch.eye(len(cells), device=x.device)
