"""The background of pictures: the one value that they have more often than any other."""

import torch
from torch import Tensor

from brinell.core.domain import Domain

BINS = 256
"""Levels of a value, as pictures of 8 bits have."""
SHARE = 0.2
"""Share of all values that must be the background for there to be one."""


def most_frequent(x: Tensor, domain: Domain) -> tuple[Tensor, float]:
    """The value that each channel of (n, C, ...) inputs has most often, and its share of all.

    The value is exact to half a level and has the shape (1, C, 1, ...).
    """
    low, high = domain.bounds(x)
    levels = ((x - low) / (high - low) * (BINS - 1)).round().long().clamp(0, BINS - 1)
    bins = levels.transpose(0, 1).flatten(1)

    counts = torch.stack([torch.bincount(channel, minlength=BINS) for channel in bins])
    share = float(counts.max(1).values.sum() / bins.numel())
    mode = counts.argmax(1).to(x.dtype).reshape(1, -1, *[1] * (x.ndim - 2)) / (BINS - 1)
    return low + mode * (high - low), share
