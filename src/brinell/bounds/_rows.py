"""Linear functions of the value of one node, many at once: of whole maps, or of their windows.

A neuron of a convolution sees a window of the map before it, and through another convolution a
larger window. Kept as windows, the linear functions of all neurons of a layer take a small share of
the memory and time that whole maps take (the patches of Zhang et al. 2020, arXiv 2002.12920,
appendix; Xu et al. 2020, arXiv 2011.13824).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

GROUP = 64
"""Numbers that are added up in the precision of a network; their sums are added up in float64."""
SMALL = 16
"""Positions of a window up to which a transposed convolution is faster as one product with a
matrix."""


def total(x: Tensor, axis: int = 1) -> Tensor:
    """Float64: the sums over all axes from this one on."""
    flat = x.flatten(axis)

    count = flat.shape[-1] // GROUP
    groups = flat[..., : count * GROUP]
    remainder = flat[..., count * GROUP :]
    # Sums of groups in the precision of the network, sums of sums in float64.
    sums = groups.reshape(*flat.shape[:-1], count, GROUP).sum(-1)
    return sums.double().sum(-1) + remainder.sum(-1)


@lru_cache(maxsize=64)
def _spread(
    weight: Tensor, stride: tuple[int, int], dilation: tuple[int, int], window: tuple[int, int]
) -> tuple[Tensor, tuple[int, ...]]:
    """The transposed convolution of windows of a size as a matrix, and the shape of its results."""
    count = weight.shape[0] * prod(window)
    unit = torch.eye(count, dtype=weight.dtype, device=weight.device)
    unit = unit.reshape(count, weight.shape[0], *window)
    matrix = F.conv_transpose2d(unit, weight, stride=stride, dilation=dilation)
    return matrix.flatten(1), tuple(matrix.shape[1:])


@dataclass(frozen=True, eq=False)
class LinearForms:
    """Linear functions `a . value`, each of one sample."""

    a: Tensor
    """(rows, *shape) coefficients of whole values, or (rows, channels, h, w) of windows."""
    sample: Tensor
    """(rows,) the sample of each."""
    corner: Tensor | None = None
    """(rows, 2) the upper left corner of each window in its map, which may lie outside; None for
    whole values."""
    size: tuple[int, int] | None = None
    """Height and width of the map, for windows."""
    clipped: bool = True
    """True if coefficients outside of the map are 0."""
    groups: tuple[Tensor, Tensor] | None = None
    """Functions whose windows are the same: one row (groups,) of each group, and the group (rows,)
    of each row."""
    alike: bool = False
    """True if all are of the same sample."""

    @property
    def additions(self) -> int:
        """Roundings of a sum of all coefficients by `total`."""
        count = self.a[0].numel()
        return min(count, GROUP) + (count // GROUP if self.a.dtype == torch.float64 else 1)

    def grouped(self) -> "LinearForms":
        """The same functions with what is known of them all."""
        if self.corner is None:
            return replace(self, alike=bool((self.sample == self.sample[:1]).all()))
        keys = torch.cat([self.sample[:, None], self.corner], 1)
        keys, group = torch.unique(keys, dim=0, return_inverse=True)
        # The last row that is written stays; any row of a group would do.
        member = torch.zeros(len(keys), dtype=torch.long, device=group.device)
        member[group] = torch.arange(len(group), device=group.device)
        return replace(self, groups=(member, group))

    @classmethod
    def of_values(
        cls, shape: Sequence[int], sample: Tensor, place: Tensor, dtype: torch.dtype
    ) -> "LinearForms":
        """Single values of samples (rows,), by their places (rows,) in the flattened value.

        Functions of a map (channels, height, width) are windows of one position.
        """
        corner = None
        size = None
        entries = tuple(shape)
        # On maps a function of few places is kept as a patch with its corner: a dense one would not
        # fit.
        if len(shape) == 3:
            size = (shape[1], shape[2])
            entries = (shape[0], 1, 1)
            position = place % prod(size)
            place = place // prod(size)
            corner = torch.stack([position // size[1], position % size[1]], 1)

        a = torch.zeros(len(place), *entries, dtype=dtype, device=place.device)
        a.view(len(place), prod(entries)).scatter_(1, place[:, None], 1.0)
        return cls(a, sample, corner, size)

    def select(self, index: Tensor) -> "LinearForms":
        """The functions at some positions."""
        corner = None if self.corner is None else self.corner[index]
        return replace(self, a=self.a[index], sample=self.sample[index], corner=corner).grouped()

    def replaced(self, a: Tensor) -> "LinearForms":
        """The same windows or maps with other coefficients."""
        return replace(self, a=a)

    def reshaped(self, shape: Sequence[int]) -> "LinearForms":
        """The same functions of a value in another shape."""
        return self.replaced(self.a.reshape(len(self.a), *shape))

    def pick(self, value: Tensor) -> Tensor:
        """The parts of values on which the functions depend.

        `value` is (n, *shape), or (*shape) where it is the same for all samples.
        """
        alike = value.dim() < self.a.dim()
        if self.corner is None:
            if alike:
                return value
            # Functions of one sample share its value by broadcasting.
            return value[self.sample[:1] if self.alike else self.sample]

        padded, above, before = self._padded(value[None] if alike else value)
        windows = padded.unfold(2, self.a.shape[2], 1).unfold(3, self.a.shape[3], 1)
        sample = torch.zeros_like(self.sample) if alike else self.sample
        down = self.corner[:, 0] + above
        across = self.corner[:, 1] + before
        if self.groups is None:
            return windows[sample, :, down, across]

        # Each window is copied once for all functions that share it.
        member, group = self.groups
        return windows[sample[member], :, down[member], across[member]][group]

    def _padded(self, value: Tensor) -> tuple[Tensor, int, int]:
        """A map with zeros wherever windows reach, and the margin above and on the left."""
        assert self.corner is not None
        (top, side) = self.corner.amin(0).tolist()
        (bottom, right) = self.corner.amax(0).tolist()
        height, width = value.shape[2:]
        above = max(0, -top)
        before = max(0, -side)
        below = max(0, bottom + self.a.shape[2] - height)
        after = max(0, right + self.a.shape[3] - width)
        return F.pad(value, (before, after, above, below)), above, before

    def clip(self) -> "LinearForms":
        """The same functions, with coefficients outside of the map set to 0."""
        if self.clipped or self.corner is None:
            return self
        assert self.size is not None

        # Coefficients in the padding of a map belong to no value: they would bound what is not
        # there.
        masks = []
        for axis in (0, 1):
            offsets = torch.arange(self.a.shape[2 + axis], device=self.a.device)
            positions = self.corner[:, axis, None] + offsets
            masks.append((positions >= 0) & (positions < self.size[axis]))
        mask = masks[0][:, None, :, None] & masks[1][:, None, None, :]
        return replace(self, a=self.a * mask, clipped=True)

    def dense(self, shape: Sequence[int]) -> "LinearForms":
        """The same functions of whole values (*shape)."""
        if self.corner is None:
            return self.reshaped(shape)
        rows = self.clip()
        (height, width) = shape[1:]

        # The place of each coefficient in the flattened map; those outside go to a last column.
        down = self.corner[:, 0, None] + torch.arange(self.a.shape[2], device=self.a.device)
        across = self.corner[:, 1, None] + torch.arange(self.a.shape[3], device=self.a.device)
        is_above = (down < 0) | (down >= height)
        is_beside = (across < 0) | (across >= width)
        outside = is_above[:, :, None] | is_beside[:, None, :]
        index = down[:, :, None] * width + across[:, None, :]
        index = index.masked_fill(outside, height * width).flatten(1)

        flat = self.a.new_zeros(len(self.a), shape[0], height * width + 1)
        flat = flat.scatter_add(2, index[:, None].expand(-1, shape[0], -1), rows.a.flatten(2))
        # Without the last column.
        return LinearForms(flat[:, :, :-1].reshape(len(flat), *shape), self.sample)

    def convolved(
        self,
        weight: Tensor,
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
        groups: int,
        shape: tuple[int, ...],
    ) -> "LinearForms":
        """The functions of the argument (*shape) of a convolution."""
        if self.corner is None:
            # What the stride left over at the end of an axis comes back as padding of the output.
            output_padding = []
            for axis in (0, 1):
                kernel = dilation[axis] * (weight.shape[2 + axis] - 1) + 1
                extent = (self.a.shape[2 + axis] - 1) * stride[axis] - 2 * padding[axis] + kernel
                output_padding.append(shape[1 + axis] - extent)
            return self.replaced(
                F.conv_transpose2d(
                    self.a,
                    weight,
                    stride=stride,
                    padding=padding,
                    output_padding=output_padding,
                    groups=groups,
                    dilation=dilation,
                )
            )

        rows = self.clip()
        if rows.a.shape[2] * rows.a.shape[3] <= SMALL and groups == 1:
            matrix, size = _spread(weight, stride, dilation, tuple(rows.a.shape[2:]))
            a = (rows.a.flatten(1) @ matrix).reshape(len(rows.a), *size)
        else:
            a = F.conv_transpose2d(rows.a, weight, stride=stride, groups=groups, dilation=dilation)

        # Where the window of each begins in the argument: a stride apart, less the padding.
        origin = torch.tensor(padding, device=a.device)
        corner = self.corner * torch.tensor(stride, device=a.device) - origin
        windows = LinearForms(
            a,
            self.sample,
            corner,
            size=(shape[1], shape[2]),
            clipped=False,
            groups=self.groups,
        )
        # A window as large as the map saves nothing.
        return windows.dense(shape) if a.shape[2] * a.shape[3] >= prod(shape[1:]) else windows

    def plus(self, addend: "LinearForms", shape: Sequence[int]) -> "LinearForms":
        """The sum of two functions of the same value (*shape) for each row."""
        shift = None
        if self.corner is not None and addend.corner is not None:
            shift = addend.corner - self.corner
        if shift is None or bool((shift != shift[:1]).any()):
            whole_maps = self.dense(shape)
            return whole_maps.replaced(whole_maps.a + addend.dense(shape).a)

        # All pairs of windows lie alike: one window around both takes the sum.
        parts = (self.clip(), addend.clip())
        starts = (torch.zeros_like(shift[0]), shift[0])
        origin = torch.minimum(*starts)
        ends = [
            start + start.new_tensor(part.a.shape[2:])
            for start, part in zip(starts, parts, strict=True)
        ]

        height, width = (torch.maximum(*ends) - origin).tolist()
        a = self.a.new_zeros(*self.a.shape[:2], height, width)
        for start, part in zip(starts, parts, strict=True):
            down, across = (start - origin).tolist()
            a[:, :, down : down + part.a.shape[2], across : across + part.a.shape[3]] += part.a

        assert self.corner is not None
        groups = self.groups  # the same shift everywhere keeps windows together
        return replace(self, a=a, corner=self.corner + origin, clipped=True, groups=groups)
