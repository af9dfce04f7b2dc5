"""Lines below and above an activation on the range of its argument, and how coefficients pass through them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.bounds._graph import Activation, MaxPool, Range
from brinell.bounds._rows import Rows

__all__ = ["Lines", "Windows", "relax", "relax_maxima"]

BISECTIONS = 40
"""Halvings of the interval that holds the point of a tangent."""
SHIFT = 1e-12
"""The distance by which lines of smooth functions are moved outwards for the rounding of the function."""


@dataclass(frozen=True, eq=False)
class Lines:
    """For each value of each sample: `low_slope * x + low_shift <= f(x) <= high_slope * x + high_shift`."""

    low_slope: Tensor
    high_slope: Tensor
    low_shift: Tensor | None
    """None where all are 0."""
    high_shift: Tensor
    largest: Tensor
    """The largest absolute value that a line takes at the ends of the range, products apart."""

    def pull(self, rows: Rows) -> tuple[Rows, Tensor]:
        """Coefficients of the argument that bound the functions from below, and the constants that go with them."""
        positive = rows.a.clamp(min=0)
        negative = rows.a - positive
        a = positive * rows.pick(self.low_slope) + negative * rows.pick(self.high_slope)
        constant = (negative * rows.pick(self.high_shift)).flatten(1).sum(1)
        if self.low_shift is not None:
            constant = constant + (positive * rows.pick(self.low_shift)).flatten(1).sum(1)
        # Slopes outside of the map are 0.
        return replace(rows, a=a, clipped=True), constant


def relax(activation: Activation, argument: Range, low_slope: Tensor | None = None) -> Lines:
    """Lines of an activation on a range.

    Args:
        activation: the function.
        argument: the range of its argument.
        low_slope: slopes of the lines below a ReLU where its argument may have both signs, from 0 to 1. Default: CROWN's, 1 where
            the positive part of the range is the larger one, otherwise 0.
    """
    low, high = argument
    if activation.is_piecewise and activation.slope >= 0 and activation.slope <= 1:
        lines = _piecewise(activation.slope, low, high, low_slope)
    elif activation.is_piecewise:
        lines = _chords_of_steep(activation.slope, low, high)
    elif activation.name == "sigmoid":
        lines = _sigmoid_like(torch.sigmoid, lambda y: y * (1 - y), low, high)
    else:
        lines = _sigmoid_like(torch.tanh, lambda y: 1 - y * y, low, high)
    low_slope_, low_shift, high_slope, high_shift = lines
    ends = torch.maximum(low.abs(), high.abs())
    largest = torch.maximum(low_slope_.abs(), high_slope.abs()) * ends + torch.maximum(low_shift.abs(), high_shift.abs())
    shift = None if activation.is_piecewise and 0 <= activation.slope <= 1 else low_shift
    return Lines(low_slope_, high_slope, shift, high_shift, largest.detach())


FourMaps = tuple[Tensor, Tensor, Tensor, Tensor]
"""Slope and shift of the lines below, slope and shift of the lines above."""


def _piecewise(slope: float, low: Tensor, high: Tensor, slopes: Tensor | None) -> FourMaps:
    """ReLU, and leaky ReLU of a slope from 0 to 1, which is a weighted sum of ReLU and identity."""
    crossing = (low < 0) & (high > 0)
    above = torch.where(crossing, (high / (high - low).clamp_min(torch.finfo(low.dtype).tiny)), (low >= 0).to(low.dtype))
    below = (high >= -low).to(low.dtype) if slopes is None else slopes
    below = torch.where(crossing, below, above)
    shift = torch.where(crossing, -above * low, 0.0)
    return slope + (1 - slope) * below, torch.zeros_like(low), slope + (1 - slope) * above, (1 - slope) * shift


def _chords_of_steep(slope: float, low: Tensor, high: Tensor) -> FourMaps:
    """Leaky ReLU of another slope: chord on one side, and the piece of the larger part of the range on the other."""
    crossing = (low < 0) & (high > 0)
    at_low, at_high = torch.where(low < 0, slope * low, low), torch.where(high < 0, slope * high, high)
    chord = torch.where(
        crossing, (at_high - at_low) / (high - low).clamp_min(torch.finfo(low.dtype).tiny), torch.where(low >= 0, 1.0, slope)
    )
    shift = torch.where(crossing, at_low - chord * low, 0.0)
    piece = torch.where(crossing, torch.where(high >= -low, 1.0, slope), chord)
    none = torch.zeros_like(low)
    # Above a slope of 1 the function is concave, below a slope of 1 convex.
    return (chord, shift, piece, none) if slope > 1 else (piece, none, chord, shift)


def _sigmoid_like(
    function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor], low: Tensor, high: Tensor
) -> FourMaps:
    """An increasing function that is convex below 0, concave above and symmetric about its value at 0."""
    below = _line_below(function, derivative, low, high)
    # The line above is that below of the function turned by half a circle about its centre.
    centre = function(torch.zeros_like(low))
    turned = _line_below(function, derivative, -high, -low)
    return below[0], below[1] - SHIFT, turned[0], 2 * centre - turned[1] + SHIFT


def _line_below(
    function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor], low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """Slope and shift of a line below the function: a tangent in the convex part, or the chord."""
    at_low, at_high = function(low), function(high)
    width = (high - low).clamp_min(1e-9)
    chord = (at_high - at_low) / width
    # A chord must not be steeper than the function at its upper end, or rounding would lift it above.
    chord = torch.where(high - low < 1e-9, torch.minimum(derivative(at_low), derivative(at_high)), chord)

    def tangent(point: Tensor) -> tuple[Tensor, Tensor]:
        value = function(point)
        slope = derivative(value)
        return slope, value - slope * point

    # The largest point of the convex part whose tangent still passes below the upper end.
    first, last = low, torch.minimum(high, torch.zeros_like(high))
    for _ in range(BISECTIONS):
        middle = (first + last) / 2
        slope, shift = tangent(middle)
        fits = slope * high + shift <= at_high
        first, last = torch.where(fits, middle, first), torch.where(fits, last, middle)
    convex = (low + high) / 2
    point = torch.where(high <= 0, convex, torch.minimum(first, torch.where(low < 0, first, low)))
    slope, shift = tangent(point)
    usable = (slope * high + shift <= at_high) & (low < 0)
    shift_of_chord = torch.minimum(at_low - chord * low, at_high - chord * high)
    return torch.where(usable, slope, chord), torch.where(usable, shift, shift_of_chord)


@dataclass(frozen=True, eq=False)
class Windows:
    """Lines of a maximum over windows.

    Below, the value of one position. Above, that value where it is the largest for certain, otherwise a constant.
    """

    selection: Tensor
    """(n, positions of the kernel, channels, h, w): 1 at the position that the lines take."""
    certain: Tensor
    """(n, channels, h, w): 1 where no other position can be larger."""
    high: Tensor
    """(n, channels, h, w): the constant above; 0 where the largest position is certain."""
    pool: MaxPool
    shape: tuple[int, ...]
    """Shape of the argument."""
    largest: Tensor
    """The largest absolute value of each window."""

    def pull(self, rows: Rows) -> tuple[Rows, Tensor]:
        """Coefficients of the argument that bound the functions from below, and the constants that go with them."""
        positive = rows.a.clamp(min=0)
        negative = rows.a - positive
        constant = (negative * rows.pick(self.high)).flatten(1).sum(1)
        a = positive + negative * rows.pick(self.certain)
        pool, (height, width) = self.pool, rows.a.shape[2:]
        extent = [(n - 1) * s + k for n, s, k in zip((height, width), pool.stride, pool.kernel, strict=True)]
        out = a.new_zeros(*a.shape[:2], *extent)
        for position in range(pool.kernel[0] * pool.kernel[1]):
            down, across = divmod(position, pool.kernel[1])
            part = a * rows.pick(self.selection[:, position])
            out[:, :, down : down + (height - 1) * pool.stride[0] + 1 : pool.stride[0],
                across : across + (width - 1) * pool.stride[1] + 1 : pool.stride[1]] += part  # fmt: skip
        corner = rows.corner if rows.corner is not None else torch.zeros(len(a), 2, dtype=torch.long, device=a.device)
        corner = corner * torch.tensor(pool.stride, device=a.device) - torch.tensor(pool.padding, device=a.device)
        windows = Rows(out, rows.sample, corner, (self.shape[1], self.shape[2]), False, rows.groups)
        return (windows.dense(self.shape) if rows.corner is None else windows), constant


def relax_maxima(pool: MaxPool, argument: Range) -> Windows:
    """Lines of a maximum on the range (n, channels, height, width) of its argument."""
    low, high = argument

    def windows(value: Tensor, fill: float) -> Tensor:
        """(n, channels, positions of the kernel, h, w)."""
        padded = F.pad(value, (pool.padding[1], pool.padding[1], pool.padding[0], pool.padding[0]), value=fill)
        parts = padded.unfold(2, pool.kernel[0], pool.stride[0]).unfold(3, pool.kernel[1], pool.stride[1])
        return parts.flatten(4).movedim(4, 2)

    lows, highs = windows(low, -torch.inf), windows(high, -torch.inf)
    best = lows.argmax(2, keepdim=True)
    rivals = highs.scatter(2, best, -torch.inf).amax(2)
    certain = lows.gather(2, best)[:, :, 0] >= rivals
    selection = torch.zeros_like(lows).scatter(2, best, 1.0)
    constant = torch.where(certain, 0.0, highs.amax(2))
    largest = pool.value(torch.maximum(low.abs(), high.abs()))
    shape = (low.shape[1], *low.shape[2:])
    return Windows(selection.movedim(2, 1), certain.to(low.dtype), constant, pool, shape, largest)
