"""Waves: the order in which samples are attacked where an audit may end before all of them."""

import numpy as np
import torch

from brinell.core.record import Array
from brinell.core.streams import Streams

FIRST_WAVE = 24
"""Samples of the first wave: on fewer, checks of gradient masking are too few to tell anything."""
SMALLEST_WAVE = 4
GROWTH = 12
"""A wave has an n-th of the samples before it, so that looks are near each other in proportion."""


def wave_ends(n: int) -> list[int]:
    """The numbers of samples after which an audit of `n` samples looks at its figures."""
    ends: list[int] = []
    end = 0
    while end < n:
        wave = max(SMALLEST_WAVE, end // GROWTH) if end else FIRST_WAVE
        end = min(n, end + wave)
        ends.append(end)
    return ends


def draw_waves(ids: Array, seed: int) -> Array:
    """(n,) int64: the wave of each sample, drawn at random, whatever the others are."""
    draws = Streams.of(seed, torch.as_tensor(ids)).fold("waves").uniform().numpy()
    # The place of each sample in the order of the draws, and the wave that ends behind it.
    places = np.empty(len(ids), dtype=np.int64)
    places[np.argsort(draws, kind="stable")] = np.arange(len(ids))
    return np.searchsorted(wave_ends(len(ids)), places, side="right")
