"""Windows into a grid of values: their sides, the places they cover, and the bump that fills them.

Pure functions of shapes, for any number of axes: segments of a signal, rectangles of an image,
blocks of a video; and the bounds of the values in a window. A grid is the shape of one channel;
places are counted in it as if it were flat, the last axis running fastest.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from brinell.core.contracts import Domain, Streams

Sides = tuple[int, ...]

TILES = 5
"""Section 3.3 of Andriushchenko et al. 2020: tiles along each axis of the L2 start."""


def sides(grid: Sequence[int], fraction: float, least: int = 1) -> Sides:
    """Sides of a window that covers `fraction` of the grid and is as near to a cube as can be.

    On a square image this is the integer nearest to sqrt(fraction * width**2), for both sides. If
    an axis is shorter than that, the window covers it completely and the other sides grow to
    compensate. No side is below `least` unless its axis is.
    """
    volume = fraction * math.prod(grid)
    lengths = [0] * len(grid)

    for rank, axis in enumerate(sorted(range(len(grid)), key=lambda axis: grid[axis])):
        # Short axes first: what they cannot take goes to the longer ones.
        edge = min(grid[axis], volume ** (1 / (len(grid) - rank)))
        volume /= edge
        lengths[axis] = min(grid[axis], max(least, round(edge)))
    return tuple(lengths)


def strides(grid: Sequence[int]) -> Sides:
    """How far apart neighbours along each axis lie in the flat grid."""
    return tuple(math.prod(grid[axis + 1 :]) for axis in range(len(grid)))


def offsets(grid: Sequence[int], window: Sequence[int]) -> Tensor:
    """(volume,) int64: places of a window that starts at place 0 of the grid."""
    flat = torch.zeros(1, dtype=torch.int64)
    for side, stride in zip(window, strides(grid), strict=True):
        # The last axis runs fastest, as in the flat grid.
        flat = (flat[:, None] + stride * torch.arange(side)).flatten()
    return flat


def starts(grid: Sequence[int], window: Sequence[int]) -> Sides:
    """Number of places along each axis at which a window can start and stay inside."""
    return tuple(size - side + 1 for size, side in zip(grid, window, strict=True))


def bump(window: Sequence[int]) -> Tensor:
    """(*window): a hill of nested boxes; the k-th one from the middle adds 1 / k**2.

    Andriushchenko et al. 2020, eq. 2: at Chebyshev distance d from place floor(side / 2) of each
    axis it is sum_(k=0)^(n-d) 1 / (n + 1 - k)**2 with n = floor(longest side / 2).
    """
    distance = torch.zeros(*window, dtype=torch.int64)
    for axis, side in enumerate(window):
        # The Chebyshev distance is the largest of those along the axes.
        away = (torch.arange(side) - side // 2).abs()
        distance = torch.maximum(distance, away.reshape(-1, *[1] * (len(window) - axis - 1)))

    steps = [1 / (j + 1) ** 2 for j in range(max(window) // 2 + 1)]
    heights = [math.fsum(steps[d:]) for d in range(len(steps))]
    height: Tensor = torch.tensor(heights)[distance]
    return height


def opposite_bumps(window: Sequence[int]) -> Tensor:
    """(orientations, volume): a hill beside a hole, along each axis of two values; of length 1.

    Section 3.2 after eq. 2 of the same paper, where the window is a square and there are two
    orientations.
    """
    shapes = []
    for axis, side in enumerate(window):
        if side > 1:
            hill = (*window[:axis], side // 2, *window[axis + 1 :])
            hole = (*window[:axis], side - side // 2, *window[axis + 1 :])
            shapes.append(torch.cat([bump(hill), -bump(hole)], dim=axis).flatten())

    # A window of one value has no orientation.
    stacked = torch.stack(shapes) if shapes else bump(window).reshape(1, -1)
    unit: Tensor = stacked / torch.linalg.vector_norm(stacked, dim=1, keepdim=True)
    return unit


def tiles(grid: Sequence[int], count: int) -> tuple[Sides, Tensor, Tensor, Tensor]:
    """A tiling of the middle of the grid with `count` equal tiles along each axis.

    There are fewer where an axis is shorter.

    Returns the sides of a tile; the places (places,) that are covered; and for each its tile and
    its offset within it, all flat.
    """
    side = tuple(max(1, size // count) for size in grid)
    number = tuple(min(count, size) for size in grid)

    # Each axis extends the flat numbers: those before it times its length, plus the place on it.
    place = torch.zeros(1, dtype=torch.int64)
    tile = place
    offset = place
    for axis in range(len(grid)):
        positions = torch.arange(side[axis] * number[axis])
        # What the tiles do not cover is shared by both ends.
        margin = (grid[axis] - len(positions)) // 2
        place = (place[:, None] * grid[axis] + margin + positions).flatten()
        tile = (tile[:, None] * number[axis] + positions // side[axis]).flatten()
        offset = (offset[:, None] * side[axis] + positions % side[axis]).flatten()
    return side, place, tile, offset


class Box:
    """The bounds of the values at chosen places of the flat input, on the device of `like`."""

    def __init__(self, domain: Domain, inputs: Tensor) -> None:
        bounds = domain.bounds(inputs)
        self._everywhere = [float(bound) for bound in bounds if bound.ndim == 0]
        self._bounds = [bound.expand(1, *domain.shape).flatten() for bound in bounds]

    def clamp(self, values: Tensor, places: Tensor) -> Tensor:
        """Move `values` at as many `places` (int64) of the input into their bounds, in place."""
        # Numbers are twice as fast as tensors.
        if len(self._everywhere) == len(self._bounds):
            return values.clamp_(*self._everywhere)
        low = self._bounds[0][places].view_as(values)
        high = self._bounds[1][places].view_as(values)
        return torch.clamp(values, low, high, out=values)


class Deals:
    """Windows and signs from streams of random numbers, drawn for a block of steps at once.

    The values of a vector have no order, so its windows are segments of a random one, with a random
    sign for each value; both are drawn anew with each block.

    `least` is the shortest side of a window; where `weighted`, signs carry a random weight between
    0 and 1.
    """

    def __init__(self, domain: Domain, rng: Streams, *, least: int, weighted: bool) -> None:
        shape = domain.shape
        self._vector = domain.kind == "vector"
        self._weighted = weighted
        self.grid = domain.grid
        self.channels = 1 if self._vector else shape[0]
        self._least = least
        self._rng = rng
        self._device = rng.keys.device
        self._drawn: dict[str, Tensor] = {}
        # The order (n, places) in which windows of one value take turns.
        self._turns: Tensor | None = None
        self._sides: list[Sides] = []
        # The sides that were asked for last, with what `_cut_to` says of them.
        self._cut: tuple[Sides, Tensor, Tensor] | None = None

    def select(self, keep: Tensor) -> None:
        """Keep the streams and draws of some samples; `keep` is (n,) bool or int64."""
        self._rng = self._rng.select(keep)
        self._turns = None if self._turns is None else self._turns[keep]
        self._drawn = {name: value[keep] for name, value in self._drawn.items()}

    @property
    def places(self) -> int:
        """How many values a channel has."""
        return math.prod(self.grid)

    def single(self, fraction: float) -> bool:
        """True if windows that cover this fraction of the input hold one value of each channel."""
        return math.prod(sides(self.grid, fraction, self._least)) == 1

    def draw(self, block: int, fractions: list[float], turns: Tensor | None = None) -> None:
        """Draw for the steps of a block.

        Args:
            block: its number.
            fractions: what its windows cover of the input, for each step.
            turns: (steps,) int64: how many steps before each had windows of one value in turn, all
                of which lie elsewhere until every place had one; below 0, or without it, the window
                is drawn.
        """
        rng = self._rng.fold(f"block {block}")
        axes = len(self.grid)
        self._sides = [sides(self.grid, fraction, self._least) for fraction in fractions]
        room = torch.tensor([starts(self.grid, side) for side in self._sides], device=self._device)
        stride = torch.tensor(strides(self.grid), device=self._device)

        # One draw for all that a block needs: a draw for each step costs a kernel each. Remainders
        # of numbers below 2^40 are as good as uniform for any room.
        numbers = rng.integers(1 << 40, len(fractions), 2 * axes + 1 + self.channels)
        self._drawn = {
            "first": (numbers[..., :axes] % room * stride).sum(2),
            "second": (numbers[..., axes : 2 * axes] % room * stride).sum(2),
            "turn": numbers[..., 2 * axes],
            "sign": self._sign(numbers[..., 2 * axes + 1 :]),
        }

        if self._vector:
            # One draw serves both: its rank is the order, its lowest bit the sign.
            shuffle = rng.fold("order").bits(self.grid[0])
            self._drawn |= {"order": shuffle.argsort(1), "flip": 1.0 - 2.0 * (shuffle & 1)}

        # Turns ascend: the last one says whether any step of the block has one.
        if turns is not None and int(turns[-1]) >= 0:
            turns = turns.to(self._device)
            if self._turns is None:
                self._turns = self._rng.fold("turns").bits(self.places).argsort(1)
            places = self._turns[:, turns.clamp_min(0) % self.places]
            # `window` looks places up in the order of the block, which its inverse undoes here.
            if self._vector:
                places = self._drawn["order"].argsort(1).gather(1, places)
            self._drawn["first"] = torch.where(turns < 0, self._drawn["first"], places)

    def window(self, step: int, choice: Literal["first", "second"] = "first") -> Tensor:
        """(n, channels * volume) int64: places of the step's window, in all channels."""
        # Steps of a block mostly have windows of the same sides.
        if self._cut is None or self._cut[0] != self._sides[step]:
            self._cut = self._sides[step], *self._cut_to(self._sides[step])
        places = self._drawn[choice][:, step, None] + self._cut[1]
        return self._drawn["order"].gather(1, places) if self._vector else places

    def signs(self, step: int, window: Tensor) -> Tensor:
        """(n, channels, 1) of +-1, one for each channel of a window.

        For vectors (n, 1, volume), one for each value.
        """
        signs = self._drawn["sign"][:, step, :, None]
        if not self._vector:
            return signs
        return signs * self._drawn["flip"].gather(1, window)[:, None]

    def shapes(self, step: int) -> Tensor:
        """(n, 1, volume): eta, with which Algorithm 3 fills the window.

        Call it after `window`, which cuts the shapes to the sides of this step.
        """
        assert self._cut is not None
        _, _, shapes = self._cut
        return shapes[self._drawn["turn"][:, step] % len(shapes), None]

    def _cut_to(self, sides: Sides) -> tuple[Tensor, Tensor]:
        """(channels * volume,) places of a window at 0; (orientations, volume) what fills it."""
        positions = offsets(self.grid, sides)
        channels = math.prod(self.grid) * torch.arange(self.channels)
        places = (channels[:, None] + positions).flatten()
        if self._vector:
            shapes = torch.full((1, len(positions)), len(positions) ** -0.5)
        else:
            shapes = opposite_bumps(sides)
        return places.to(self._device), shapes.to(self._device)

    def stripes(self) -> Tensor:
        """(n, channels, 1, ..., width) of +-1: section 3.2's start in Linf, stripes."""
        width = self.grid[-1]
        signs = self._sign(self._rng.fold("stripes").bits(self.channels, width))
        if self._vector:
            return signs[:, 0]
        return signs.reshape(-1, self.channels, *[1] * (len(self.grid) - 1), width)

    def bumps(self) -> Tensor:
        """(n, *shape): section 3.3's start in L2: in each tile opposite bumps, turned and signed.

        Their length is any.
        """
        rng = self._rng.fold("bumps")
        # A vector has no neighbourhood in which a bump could rise.
        if self._vector:
            return self._sign(rng.bits(self.grid[0]))
        sides, place, tile, offset = tiles(self.grid, TILES)
        place = place.to(self._device)
        tile = tile.to(self._device)
        offset = offset.to(self._device)
        shapes = opposite_bumps(sides).to(self._device)
        count = int(tile[-1]) + 1  # the last place lies in the last tile

        turns = rng.fold("turns").integers(len(shapes), count)
        # (n, places): at each place the value of its tile's shape; all channels have the same
        # shape, each with a sign of its own.
        turned = shapes[turns[:, tile], offset]
        signs = self._sign(rng.bits(self.channels, count))
        delta = torch.zeros(len(rng), self.channels, math.prod(self.grid), device=self._device)
        delta[:, :, place] = turned[:, None] * signs[:, :, tile]
        return delta.reshape(-1, self.channels, *self.grid)

    def _sign(self, bits: Tensor) -> Tensor:
        """+-1 from the lowest bit, times a weight in (0, 1] from the next 20 if they are weighted."""
        # Bit 0 to +1, bit 1 to -1.
        signs = 1.0 - 2.0 * (bits & 1)
        return signs * ((bits >> 1) % 2**20 + 1) / 2**20 if self._weighted else signs
