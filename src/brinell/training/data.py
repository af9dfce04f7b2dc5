"""The samples of a training: batches in an order by the seed, and simple augmentation."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Dataset

Augment = Literal["none", "shift", "shift-flip"]
Positions = np.ndarray[Any, np.dtype[np.int64]]
IN_MEMORY = 2**30
"""Bytes of inputs up to which all are read at once."""
PIXELS = 8
"""An image is shifted by up to this part of its side, as 4 of 32 pixels."""


@dataclass(frozen=True, kw_only=True)
class TrainingSamples:
    """Labelled inputs to train on."""

    dataset: Dataset
    positions: Positions
    """(n,) the samples, as positions in the data."""
    labels: Tensor
    """(n,) int64."""
    inputs: Tensor | None = field(repr=False)
    """(n, *shape) all inputs, where they fit into memory."""

    @classmethod
    def of(cls, dataset: Dataset, positions: Positions, device: torch.device) -> "TrainingSamples":
        """The samples at these positions of a data set."""
        labels = np.asarray(dataset.labels(), dtype=np.int64)[positions]
        size = 4 * len(positions) * int(np.prod(dataset.domain.shape))  # bytes of float32
        inputs = dataset.load(positions.tolist()).to(device) if size <= IN_MEMORY else None
        return cls(
            dataset=dataset,
            positions=positions,
            labels=torch.from_numpy(labels).to(device),
            inputs=inputs,
        )

    def __len__(self) -> int:
        return len(self.positions)

    def load(self, rows: Tensor) -> Tensor:
        """(k, *shape) the inputs of some rows."""
        if self.inputs is not None:
            return self.inputs.index_select(0, rows)
        positions = self.positions[rows.cpu().numpy()]
        return self.dataset.load(positions.tolist()).to(self.labels.device)


def order(n: int, seed: int, epoch: int) -> Tensor:
    """(n,) the order of the samples in an epoch."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))


def augment(x: Tensor, augmentation: Augment, rng: torch.Generator) -> Tensor:
    """(n, C, H, W) images, each shifted by up to an eighth of its side, half of them mirrored.

    He et al. 2015, Deep residual learning, section 4.2: four pixels of padding and a crop for 32 x
    32. Theirs pads with zeros, ours with the image mirrored at its edge: a black border, which no
    test image has, would shift what batch norm remembers.
    """
    if augmentation == "none":
        return x
    n, _, height, width = x.shape
    if augmentation == "shift-flip":
        mirrored = torch.rand(n, generator=rng, device=x.device) < 0.5
        x = torch.where(mirrored[:, None, None, None], x.flip(3), x)

    down = height // PIXELS
    right = width // PIXELS
    padded = F.pad(x, (right, right, down, down), mode="reflect")

    # A crop of the old size at a random place of the padded image.
    top_offset = torch.randint(2 * down + 1, (n, 1), generator=rng, device=x.device)
    left_offset = torch.randint(2 * right + 1, (n, 1), generator=rng, device=x.device)
    rows = (top_offset + torch.arange(height, device=x.device))[:, None, :, None]
    columns = (left_offset + torch.arange(width, device=x.device))[:, None, None, :]
    samples = torch.arange(n, device=x.device)[:, None, None, None]
    channels = torch.arange(x.shape[1], device=x.device)[None, :, None, None]
    return padded[samples, channels, rows, columns]
