"""A network as a graph of affine maps and activations in float64, as bounds need it.

Node 0 is the input. Every other node applies an operation to nodes before it. Operations know four
things: their value, the range of their value if the ranges of their arguments are known (interval
arithmetic), the adjoint of their linear part on coefficients (`_rows.LinearForms`), and a bound on
the sum of absolute products, from which rounding is bounded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.bounds._functions import FUNCTIONS, SmoothFunction
from brinell.bounds._rows import LinearForms, total

Range = tuple[Tensor, Tensor]
"""Least and largest values (n, *shape)."""


def centred(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius of ranges."""
    return (low + high) / 2, (high - low) / 2


def _zero(rows: LinearForms) -> Tensor:
    """(rows,): the constant of functions that get none."""
    return rows.a.new_zeros(len(rows.a), dtype=torch.float64)


class _Weighted:
    """A map with a weight and a bias."""

    weight: Tensor
    bias: Tensor | None
    apply: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    """The map of an argument with other constants of the same shapes."""

    def value(self, x: Tensor) -> Tensor:
        return self.apply(x, self.weight, self.bias)

    def interval(self, argument: Range) -> Range:
        # |W (x - centre)| <= |W| radius for every x of the range.
        centre, radius = centred(*argument)
        middle = self.value(centre)
        spread = self.apply(radius, self.weight.abs(), None)
        return middle - spread, middle + spread

    def products(self, largest: Tensor) -> Tensor:
        """The sums of absolute products, from the largest absolute values of the argument."""
        bias = None if self.bias is None else self.bias.abs()
        return self.apply(largest, self.weight.abs(), bias)


@dataclass(frozen=True, eq=False)
class Convolution(_Weighted):
    """A two-dimensional convolution of (n, channels, h, w); one-dimensional ones have height 1."""

    weight: Tensor
    bias: Tensor | None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def roundings(self) -> tuple[int, int]:
        """Additions on the way of a product to a value, and to a coefficient by the adjoint."""
        return self.weight[0].numel() + 1, self.weight.shape[0] * self.weight[0, 0].numel()

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def adjoint(
        self, rows: LinearForms, shapes: Sequence[tuple[int, ...]]
    ) -> tuple[LinearForms, ...]:
        arguments = rows.convolved(
            self.weight, self.stride, self.padding, self.dilation, self.groups, shapes[0]
        )
        return (arguments,)

    def offset(self, rows: LinearForms) -> Tensor:
        """The bias at each position."""
        return _zero(rows) if self.bias is None else total(rows.clip().a, 2) @ self.bias.double()


@dataclass(frozen=True, eq=False)
class Linear(_Weighted):
    """A matrix product on the last axis of (n, ..., features)."""

    weight: Tensor
    bias: Tensor | None

    @property
    def roundings(self) -> tuple[int, int]:
        """As of `Convolution`."""
        return self.weight.shape[1] + 1, self.weight.shape[0]

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def adjoint(
        self, rows: LinearForms, shapes: Sequence[tuple[int, ...]]
    ) -> tuple[LinearForms, ...]:
        return (rows.replaced(rows.a @ self.weight),)

    def offset(self, rows: LinearForms) -> Tensor:
        return _zero(rows) if self.bias is None else total(rows.a * self.bias)


@dataclass(frozen=True, eq=False)
class Scaling(_Weighted):
    """`x * weight + bias` of the shape of a value: batch norm, sums with constants."""

    weight: Tensor
    bias: Tensor
    roundings = 2, 1

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return x * weight if bias is None else x * weight + bias

    def adjoint(
        self, rows: LinearForms, shapes: Sequence[tuple[int, ...]]
    ) -> tuple[LinearForms, ...]:
        return (rows.replaced(rows.a * rows.pick(self.weight)),)

    def offset(self, rows: LinearForms) -> Tensor:
        return total(rows.a * rows.pick(self.bias))


class _WithoutBias:
    def offset(self, rows: LinearForms) -> Tensor:
        return _zero(rows)


class _Move(_WithoutBias):
    """An operation that moves values and computes nothing."""

    value: Callable[..., Tensor]
    roundings: tuple[int, int] = (0, 0)

    def interval(self, *ranges: Range) -> Range:
        return self.value(*(low for low, _ in ranges)), self.value(*(high for _, high in ranges))

    def products(self, *largest: Tensor) -> Tensor:
        return self.value(*largest)


@dataclass(frozen=True, eq=False)
class Reshape(_Move):
    """The same values in another shape."""

    shape: tuple[int, ...]

    def value(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), *self.shape)

    def adjoint(
        self, rows: LinearForms, shapes: Sequence[tuple[int, ...]]
    ) -> tuple[LinearForms, ...]:
        return (rows.dense(self.shape).reshaped(shapes[0]),)


@dataclass(frozen=True, eq=False)
class Gather(_Move):
    """Values at positions of the flattened argument, or 0 at -1 (slices, permutations, padding)."""

    index: Tensor
    """Positions, in the shape of the value."""

    @cached_property
    def roundings(self) -> tuple[int, int]:  # type: ignore[override]
        # The adjoint adds up the coefficients of all places that a value goes to. Counted from 1,
        # so that the -1 of padding comes first and is cut off.
        uses = torch.bincount(self.index.flatten() + 1)[1:]
        return 0, int(uses.max()) if len(uses) else 0

    def value(self, x: Tensor) -> Tensor:
        # A zero behind the values is what the index -1 reads.
        flat = torch.cat([x.flatten(1), x.new_zeros(len(x), 1)], 1)
        return flat[:, self.index.where(self.index >= 0, flat.shape[1] - 1)]

    def adjoint(
        self, rows: LinearForms, shapes: Sequence[tuple[int, ...]]
    ) -> tuple[LinearForms, ...]:
        """Coefficients added up at their positions."""
        shape = shapes[0]
        size = int(torch.tensor(shape).prod())
        rows = rows.dense(tuple(self.index.shape))
        # Coefficients of padding go to a place that is cut off.
        index = torch.where(self.index < 0, size, self.index).flatten()
        flat = rows.a.new_zeros(len(rows.a), size + 1)
        flat = flat.index_add(1, index, rows.a.flatten(1))[:, :-1]
        return (rows.replaced(flat.reshape(len(flat), *shape)),)


@dataclass(frozen=True, eq=False)
class Sum(_WithoutBias):
    """Weighted sum of two values of the same shape."""

    factors: tuple[float, float] = (1.0, 1.0)
    roundings = 3, 1

    def value(self, first: Tensor, second: Tensor) -> Tensor:
        return self.factors[0] * first + self.factors[1] * second

    def interval(self, first: Range, second: Range) -> Range:
        terms = []
        for factor, (least, most) in zip(self.factors, (first, second), strict=True):
            # A negative factor swaps the ends.
            low, high = (least, most) if factor >= 0 else (most, least)
            terms.append((factor * low, factor * high))
        return terms[0][0] + terms[1][0], terms[0][1] + terms[1][1]

    def adjoint(
        self, rows: LinearForms, shapes: Sequence[tuple[int, ...]]
    ) -> tuple[LinearForms, ...]:
        return tuple(
            rows if factor == 1 else rows.replaced(factor * rows.a) for factor in self.factors
        )

    def products(self, first: Tensor, second: Tensor) -> Tensor:
        return abs(self.factors[0]) * first + abs(self.factors[1]) * second


@dataclass(frozen=True, eq=False)
class Concatenation(_Move):
    """Values side by side along an axis of a value, counted without the batch."""

    axis: int

    def value(self, *arguments: Tensor) -> Tensor:
        return torch.cat(arguments, self.axis + 1)

    def adjoint(
        self, rows: LinearForms, shapes: Sequence[tuple[int, ...]]
    ) -> tuple[LinearForms, ...]:
        joined_shape = list(shapes[0])
        joined_shape[self.axis] = sum(shape[self.axis] for shape in shapes)
        rows = rows.dense(tuple(joined_shape))
        extents = [shape[self.axis] for shape in shapes]
        # Coefficients have the functions along their first axis.
        parts = torch.split(rows.a, extents, self.axis + 1)
        return tuple(map(rows.replaced, parts))


@dataclass(frozen=True, eq=False)
class Activation:
    """A function of each value: `relu`, `leaky_relu`, or one of `FUNCTIONS`."""

    name: str
    slope: float = 0.0
    """Slope of leaky ReLU below 0."""

    def value(self, x: Tensor) -> Tensor:
        if self.name == "relu":
            return x.clamp(min=0)
        if self.name == "leaky_relu":
            return torch.where(x >= 0, x, self.slope * x)
        return FUNCTIONS[self.name].value(x)

    def interval(self, argument: Range) -> Range:
        """Values at both ends, and at the valley of the function where the range holds it."""
        ends = self.value(argument[0]), self.value(argument[1])
        low = torch.minimum(*ends)
        high = torch.maximum(*ends)

        valley = self._valley()
        if valley is not None:
            least = self.value(torch.full_like(low, valley))
            # A function that falls and rises has its least value inside of such a range.
            has_valley = (argument[0] < valley) & (argument[1] > valley)
            low = torch.where(has_valley, torch.minimum(low, least), low)

        # Outside of its domain nothing bounds the function, as the reciprocal at 0.
        if not self.is_piecewise and self.function.positive:
            low = torch.where(argument[0] > 0, low, -torch.inf)
            high = torch.where(argument[0] > 0, high, torch.inf)
        return low, high

    def _valley(self) -> float | None:
        """The place of the least value of a function that falls and rises, None for others."""
        if not self.is_piecewise:
            return self.function.valley
        return 0.0 if self.name == "leaky_relu" and self.slope < 0 else None

    @property
    def function(self) -> SmoothFunction:
        """What is known of a function that is not piecewise linear."""
        return FUNCTIONS[self.name]

    @property
    def is_piecewise(self) -> bool:
        """True for functions of two linear pieces, which meet at 0."""
        return self.name in ("relu", "leaky_relu")

    @property
    def has_slopes(self) -> bool:
        """True for those with a free line below: ReLU, and leaky ReLU of a slope up to 1."""
        return self.is_piecewise and self.slope <= 1


@dataclass(frozen=True, eq=False)
class MaxPool:
    """The largest value of each window."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)

    def value(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, self.kernel, self.stride, self.padding)

    def interval(self, argument: Range) -> Range:
        return self.value(argument[0]), self.value(argument[1])


@dataclass(frozen=True, eq=False)
class Product:
    """The product of two values that depend on the input: of entries, or of matrices.

    Matrices are (..., k, m) and (..., m, n).
    """

    matrices: bool = False

    def value(self, first: Tensor, second: Tensor) -> Tensor:
        return first @ second if self.matrices else first * second

    def interval(self, first: Range, second: Range) -> Range:
        """All corners of entries; centre and radius of matrices, whose terms are summed."""
        if not self.matrices:
            # A bilinear function has its extremes at corners.
            corners = torch.stack([left * right for left in first for right in second])
            return corners.amin(0), corners.amax(0)
        (x, dx) = centred(*first)
        (y, dy) = centred(*second)
        middle = x @ y
        # (x + u)(y + v) with |u| <= dx and |v| <= dy differs from xy by these three terms at most.
        spread = x.abs() @ dy + dx @ y.abs() + dx @ dy
        return middle - spread, middle + spread


AffineMap = Convolution | Linear | Scaling | Reshape | Gather | Sum | Concatenation
"""Coefficients of its value become coefficients of its arguments (`adjoint`) and a constant
(`offset`). `roundings` are those on the way of a product through the map, and through its
adjoint, and `products` the sum of the absolute values of all products, from the largest absolute
values of the arguments."""
Operation = AffineMap | Activation | MaxPool | Product
"""Function of a node: `value` of (n, *shape) each, and its range by `interval`, which knows no
rounding."""


NONLINEAR = Activation | MaxPool | Product


@dataclass(frozen=True, eq=False)
class Node:
    """An operation, the nodes that it takes, and the shape of its value without the batch."""

    operation: Operation | None
    """None at the input."""
    arguments: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which each comes after its arguments; the last one holds the scores."""

    nodes: tuple[Node, ...]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.nodes[-1].shape[0]

    @cached_property
    def before_nonlinear(self) -> frozenset[int]:
        """The nodes that are arguments of operations that are not linear."""
        nonlinear = [node for node in self.nodes if isinstance(node.operation, NONLINEAR)]
        return frozenset(argument for node in nonlinear for argument in node.arguments)

    @cached_property
    def products(self) -> list[int]:
        """The products that a function of each node costs on its way to the input as whole maps."""
        costs = []
        for node in self.nodes:
            terms = 0
            if isinstance(node.operation, Convolution | Linear):
                terms = node.operation.roundings[0]
            # Each of its values touches `terms` coefficients, or one where values only move.
            costs.append(prod(node.shape) * (1 + terms))
        return list(accumulate(costs))

    def to(self, dtype: torch.dtype, device: torch.device | None = None) -> "Graph":
        """The same network with its constants in another precision, and on another device."""
        nodes = []
        for node in self.nodes:
            operation = node.operation
            if isinstance(operation, _Weighted):
                bias = None if operation.bias is None else operation.bias.to(device, dtype)
                operation = replace(operation, weight=operation.weight.to(device, dtype), bias=bias)  # type: ignore[arg-type]
            elif isinstance(operation, Gather):
                operation = Gather(operation.index.to(device))
            nodes.append(Node(operation, node.arguments, node.shape))
        return Graph(tuple(nodes))

    def values(self, x: Tensor) -> list[Tensor]:
        """The value (n, *shape) of every node at inputs (n, *shape) in float64."""
        values = [x]
        for node in self.nodes[1:]:
            assert node.operation is not None
            values.append(node.operation.value(*(values[k] for k in node.arguments)))
        return values
