"""Lines below and above an activation on a range, and how coefficients pass through them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.bounds._functions import SmoothFunction
from brinell.bounds._graph import Activation, MaxPool, Product, Range, centred
from brinell.bounds._rows import LinearForms, total

SLOPES, STEPS = 8, 48
"""Tangents of a function that are tried as lines on either side, and steps of the grid on which
they are compared with it."""


@dataclass(frozen=True, eq=False)
class ActivationLines:
    """`low_slope x + low_shift <= f(x) <= high_slope x + high_shift`, by value and sample."""

    low_slope: Tensor
    high_slope: Tensor
    low_shift: Tensor | None
    """None where all are 0."""
    high_shift: Tensor
    largest: Tensor
    """The largest absolute value that a line takes at the ends of the range, products apart."""
    roundings = 3

    def pull(self, rows: LinearForms) -> tuple[LinearForms, Tensor]:
        """Coefficients of the argument that bound the functions from below, and their constants."""
        # From below: a positive coefficient takes the line below, a negative one the line above.
        positive = rows.a.clamp(min=0)
        negative = rows.a - positive
        a = positive * rows.pick(self.low_slope) + negative * rows.pick(self.high_slope)
        constant = total(negative * rows.pick(self.high_shift))
        if self.low_shift is not None:
            constant = constant + total(positive * rows.pick(self.low_shift))
        # Slopes outside of the map are 0.
        return replace(rows, a=a, clipped=True), constant


def relax(
    activation: Activation, argument: Range, low_slope: Tensor | None = None
) -> ActivationLines:
    """Lines of an activation on a range.

    `low_slope` are slopes of the lines below a ReLU where its argument may have both signs, from 0
    to 1. Default: CROWN's, 1 where the positive part of the range is the larger one, otherwise 0.
    """
    low, high = argument
    if activation.is_piecewise:
        lines = _piecewise(activation.slope, low, high, low_slope)
        # The weight of ReLU is negative above a slope of 1, which turns the lines upside down.
        lines = lines if activation.has_slopes else (*lines[2:], *lines[:2])
    else:
        lines = _smooth(activation.function, low, high)
    low_slope_, low_shift, high_slope, high_shift = lines

    ends = torch.maximum(low.abs(), high.abs())
    steepest = torch.maximum(low_slope_.abs(), high_slope.abs())
    largest = steepest * ends + torch.maximum(low_shift.abs(), high_shift.abs())
    # Free lines below pass through 0.
    shift = None if activation.has_slopes else low_shift
    return ActivationLines(low_slope_, high_slope, shift, high_shift, largest.detach())


FourMaps = tuple[Tensor, Tensor, Tensor, Tensor]
"""Slope and shift of the lines below, slope and shift of the lines above."""


def _piecewise(slope: float, low: Tensor, high: Tensor, slopes: Tensor | None) -> FourMaps:
    """ReLU and leaky ReLU, which is a weighted sum of identity and ReLU.

    The lines of slopes above 1 change sides.
    """
    crossing = (low < 0) & (high > 0)
    # Ranges of one point would divide by zero, and have exact lines anyway.
    width = (high - low).clamp_min(torch.finfo(low.dtype).tiny)
    above = torch.where(crossing, high / width, (low >= 0).to(low.dtype))
    # Without slopes the line below is that of the smaller area, as in CROWN (Zhang et al. 2018).
    below = (high >= -low).to(low.dtype) if slopes is None else slopes
    below = torch.where(crossing, below, above)
    shift = torch.where(crossing, -above * low, 0.0)

    weight = 1 - slope
    return (
        slope + weight * below,
        torch.zeros_like(low),
        slope + weight * above,
        weight * shift,
    )


def _smooth(function: SmoothFunction, low: Tensor, high: Tensor) -> FourMaps:
    """Lines of a smooth function on a range.

    They are tangent and chord where it is convex or concave, otherwise the best of some slopes on
    each side. For a slope k the lines are moved until they pass `f(x) - k x` at all points of a
    grid, and on by what a function of this curvature can do between two points,
    `curvature * step^2 / 8`.
    """
    # Nothing is known of the function where its argument must be positive and is not.
    if function.positive:
        low = torch.where(low > 0, low, torch.nan)
    low = low.clamp(min=0) if function.bend < 0 else low

    width = high - low
    at_low = function.value(low)
    at_high = function.value(high)
    unit = torch.finfo(low.dtype).eps
    middle = (low + high) / 2
    tangent = function.derivative(middle)
    # On a narrower range rounding would decide the slope of a chord.
    chord = torch.where(width > 1e-9, (at_high - at_low) / width.clamp_min(1e-9), tangent)
    ends = torch.maximum(low.abs(), high.abs())
    # A valley between the ends is less than 1 deep, of those functions that have one beside 0.
    size = torch.maximum(at_low.abs(), at_high.abs()) + (1 if function.valley else 0)

    def rounding(slope: Tensor) -> Tensor:
        """The largest error of some eight operations on values and lines of this slope."""
        return 8 * unit * (size + slope.abs() * ends)

    if function.bend:
        # Tangent and chord, moved outwards by their rounding.
        touching = function.value(middle) - tangent * middle - function.bend * rounding(tangent)
        outer = torch.maximum if function.bend > 0 else torch.minimum
        crossing = outer(at_low - chord * low, at_high - chord * high)
        crossing = crossing + function.bend * rounding(chord)
        if function.bend > 0:
            return tangent, touching, chord, crossing
        return chord, crossing, tangent, touching

    # The slopes in the middles of SLOPES equal parts of the range, beside that of the chord.
    places = torch.linspace(0, 1, 2 * SLOPES + 1, dtype=low.dtype, device=low.device)[1::2]
    slopes = torch.stack([chord, *(function.derivative(low + place * width) for place in places)])
    least = torch.full_like(slopes, torch.inf)
    most = torch.full_like(slopes, -torch.inf)
    for place in torch.linspace(0, 1, STEPS + 1, dtype=low.dtype, device=low.device):
        point = low + place * width
        difference = function.value(point) - slopes * point
        least = torch.minimum(least, difference)
        most = torch.maximum(most, difference)

    # By how much the function may pass its values at two neighbours of the grid.
    sagitta = function.curvature / 8 * (width / STEPS) ** 2
    slack = sagitta * (1 + 1e-3) + rounding(slopes)
    below = least - slack
    above = most + slack

    # The best lines are those that lie closest in the middle of the range.
    first = (slopes * middle + below).argmax(0, keepdim=True)
    second = (slopes * middle + above).argmin(0, keepdim=True)
    return (
        slopes.gather(0, first)[0],
        below.gather(0, first)[0],
        slopes.gather(0, second)[0],
        above.gather(0, second)[0],
    )


@dataclass(frozen=True, eq=False)
class Planes:
    """Planes of a product of two values, about their centres (McCormick 1976).

    `x y` is `y0 x + x0 y - x0 y0` up to `spread`.
    """

    product: Product
    first: Tensor
    """The centres of the first value."""
    second: Tensor
    spread: Tensor
    """(n, *shape) of the product."""
    largest: Tensor
    """The largest absolute value that a plane takes, products apart."""

    @property
    def roundings(self) -> int:
        """Roundings of one coefficient on the way back, at most."""
        if not self.product.matrices:
            # Those of its product, and of the sum and the half of its centre.
            return 3
        # A product of matrices sums along one of its sides.
        longest: int = max(*self.first.shape[-2:], *self.second.shape[-2:])
        return longest

    def pull(self, rows: LinearForms) -> tuple[LinearForms, LinearForms, Tensor]:
        """Coefficients of both values that bound the functions from below, and their constants."""
        rows = rows.dense(self.spread.shape[1:])
        first = rows.pick(self.first)
        second = rows.pick(self.second)
        if self.product.matrices:
            a = rows.a @ second.transpose(-1, -2)
            b = first.transpose(-1, -2) @ rows.a
        else:
            a = rows.a * second
            b = rows.a * first
        constant = rows.a * self.product.value(first, second)
        # The constant of a line holds at the middle of both ranges; the spread is what that may
        # miss.
        constant = constant + rows.a.abs() * rows.pick(self.spread)
        return rows.replaced(a), rows.replaced(b), -total(constant)


def relax_product(product: Product, first: Range, second: Range) -> Planes:
    """Planes of a product on the ranges of both values."""
    unit = 2 * torch.finfo(first[0].dtype).eps
    x, dx = centred(*first)
    y, dy = centred(*second)
    # The centres are rounded.
    dx = dx + unit * (x.abs() + dx)
    dy = dy + unit * (y.abs() + dy)

    spread = product.value(dx, dy)
    # The terms y0 x, x0 y and x0 y0 at their largest.
    largest = (
        product.value(x.abs() + dx, y.abs())
        + product.value(x.abs(), y.abs() + dy)
        + product.value(x.abs(), y.abs())
    )
    return Planes(product, x, y, spread, largest + spread)


@dataclass(frozen=True, eq=False)
class Windows:
    """Lines of a maximum over windows.

    Below, the value of one position. Above, that value where it is the largest for certain,
    otherwise a constant.
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

    @property
    def roundings(self) -> int:
        """Roundings of one coefficient on the way back."""
        return self.selection.shape[1]

    def pull(self, rows: LinearForms) -> tuple[LinearForms, Tensor]:
        """Coefficients of the argument that bound the functions from below, and their constants."""
        # From below: a positive coefficient takes the line below, a negative one the line above.
        positive = rows.a.clamp(min=0)
        negative = rows.a - positive
        constant = total(negative * rows.pick(self.high))
        a = positive + negative * rows.pick(self.certain)

        pool = self.pool
        height, width = rows.a.shape[2:]
        # The part of the argument that the windows of these functions cover.
        extent = [
            (n - 1) * stride + kernel
            for n, stride, kernel in zip((height, width), pool.stride, pool.kernel, strict=True)
        ]
        out = a.new_zeros(*a.shape[:2], *extent)
        for position in range(pool.kernel[0] * pool.kernel[1]):
            # The values at one position of the kernel lie a stride apart.
            row, column = divmod(position, pool.kernel[1])
            down = slice(row, row + (height - 1) * pool.stride[0] + 1, pool.stride[0])
            across = slice(column, column + (width - 1) * pool.stride[1] + 1, pool.stride[1])
            out[:, :, down, across] += a * rows.pick(self.selection[:, position])

        # A whole map is one window from its corner (0, 0) on.
        corner = rows.corner
        if corner is None:
            corner = torch.zeros(len(a), 2, dtype=torch.long, device=a.device)
        stride_ = torch.tensor(pool.stride, device=a.device)
        corner = corner * stride_ - torch.tensor(pool.padding, device=a.device)
        windows = LinearForms(
            out,
            rows.sample,
            corner,
            size=(self.shape[1], self.shape[2]),
            clipped=False,
            groups=rows.groups,
        )
        return (windows.dense(self.shape) if rows.corner is None else windows), constant


def relax_maxima(pool: MaxPool, argument: Range) -> Windows:
    """Lines of a maximum on the range (n, channels, height, width) of its argument."""
    low, high = argument

    def windows(value: Tensor, fill: float) -> Tensor:
        """(n, channels, positions of the kernel, h, w)."""
        down, across = pool.padding
        padded = F.pad(value, (across, across, down, down), value=fill)
        parts = padded.unfold(2, pool.kernel[0], pool.stride[0])
        parts = parts.unfold(3, pool.kernel[1], pool.stride[1])
        return parts.flatten(4).movedim(4, 2)

    lows = windows(low, -torch.inf)
    highs = windows(high, -torch.inf)
    # The value with the largest lower bound is certainly the maximum if no other can reach it.
    best = lows.argmax(2, keepdim=True)
    rivals = highs.scatter(2, best, -torch.inf).amax(2)
    certain = lows.gather(2, best)[:, :, 0] >= rivals

    selection = torch.zeros_like(lows).scatter(2, best, 1.0)
    # Otherwise the maximum is at most the largest upper bound, whatever the inputs are.
    constant = torch.where(certain, 0.0, highs.amax(2))
    largest = pool.value(torch.maximum(low.abs(), high.abs()))
    shape = (low.shape[1], *low.shape[2:])
    return Windows(selection.movedim(2, 1), certain.to(low.dtype), constant, pool, shape, largest)


Relaxed = ActivationLines | Windows | Planes
"""What takes the place of an operation that is not linear; `roundings` are those of one
coefficient on the way back."""
