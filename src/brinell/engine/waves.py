"""Waves: the order in which samples are attacked where an audit may end before all of them."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from brinell.core.record import Array
from brinell.core.streams import Streams

if TYPE_CHECKING:
    from brinell.engine.plan import Plan

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
        end = min(n, end + max(SMALLEST_WAVE, end // GROWTH) if end else FIRST_WAVE)
        ends.append(end)
    return ends


def draw_waves(ids: Array, seed: int) -> Array:
    """(n,) int64: the wave of each sample, drawn at random, whatever the others are."""
    draws = Streams.of(seed, torch.as_tensor(ids)).fold("waves").uniform().numpy()
    places = np.empty(len(ids), dtype=np.int64)
    places[np.argsort(draws, kind="stable")] = np.arange(len(ids))
    return np.searchsorted(wave_ends(len(ids)), places, side="right")


def first_waves(plan: "Plan", count: int, *, grows: bool = False) -> "Plan":
    """The plan of the samples of the first waves; it `grows` where others may follow."""
    assert plan.waves is not None
    inside = plan.waves < count
    return replace(
        plan,
        ids=plan.ids[inside],
        labels=plan.labels[inside],
        units=plan.units[inside],
        waves=plan.waves[inside],
        whole=plan.all_ids,
        grows=grows,
    )


def wave_positions(plan: "Plan") -> list[Array]:
    """The positions of the samples of each wave; all at once without waves."""
    if plan.waves is None:
        return [np.arange(len(plan.ids))]
    return [np.flatnonzero(plan.waves == wave) for wave in np.unique(plan.waves)]
