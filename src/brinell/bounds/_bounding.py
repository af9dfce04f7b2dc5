"""Sound bounds on linear functions of any node of a network, for all inputs within a budget, by
linear relaxation.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from brinell.bounds._graph import (
    NONLINEAR,
    Activation,
    Graph,
    Linear,
    MaxPool,
    Operation,
    Product,
    Range,
)
from brinell.bounds._relaxations import Relaxed, relax, relax_maxima, relax_product
from brinell.bounds._rows import Rows, total

EXTRA = 16
"""Roundings of a step apart from the sums of its map: signs, slopes, sums of branches."""
MOST_REFINED = 2_000
"""Values of a node, other than a map, above which its range is that of interval arithmetic."""
MOST_PRODUCTS = 2**40
"""Products that refining may cost for a sample in all; a node that would cost more keeps the
range of interval arithmetic."""
MOST_OPEN = 0.5
"""Share of values of a node with an open sign above which all its values are bounded: wide
ranges of a node make the signs of the next ones open."""
MEGABYTES = 24
"""Size of the coefficients that are passed through the network at a time."""


def unit(value: Tensor) -> float:
    """Twice the largest relative error of one operation in the precision of a value."""
    return torch.finfo(value.dtype).eps


@dataclass(frozen=True, eq=False)
class Ball:
    """All inputs within `eps` of `x`, and within the bounds of the data."""

    x: Tensor
    """(n, *shape) float64."""
    eps: Tensor
    """(n,) float64."""
    low: Tensor
    """(n, *shape) or (*shape): lower bound of the data."""
    high: Tensor
    norm: str
    """linf or l2."""
    allowance: Tensor = field(default_factory=lambda: torch.empty(0))
    """(all samples,): the largest allowance for rounding in bounds on the scores of each, from
    `backward_bound`."""
    sample: Tensor = field(default_factory=lambda: torch.empty(0))
    """(n,) the place of each sample in `allowance`."""

    def __post_init__(self) -> None:
        if not len(self.allowance):
            object.__setattr__(self, "allowance", torch.zeros_like(self.eps))
            object.__setattr__(self, "sample", torch.arange(len(self.eps), device=self.eps.device))

    @property
    def box(self) -> Range:
        """The smallest box that holds the ball, rounded outwards."""
        eps = self.eps.reshape(-1, *[1] * (self.x.dim() - 1))
        slack = unit(self.x) * 4 * (self.x.abs() + eps)
        return torch.maximum(self.x - eps - slack, self.low), torch.minimum(
            self.x + eps + slack, self.high
        )

    def to(self, dtype: torch.dtype) -> "Ball":
        return Ball(
            self.x.to(dtype), self.eps.to(dtype), self.low.to(dtype), self.high.to(dtype), self.norm
        )

    def select(self, keep: Tensor) -> "Ball":
        low = self.low[keep] if self.low.dim() == self.x.dim() else self.low
        high = self.high[keep] if self.high.dim() == self.x.dim() else self.high
        return Ball(
            self.x[keep], self.eps[keep], low, high, self.norm, self.allowance, self.sample[keep]
        )


@dataclass(eq=False)
class Relaxation:
    """Ranges of all nodes of a network on some balls, and lines of its activations."""

    graph: Graph
    ball: Ball
    ranges: list[Range] = field(default_factory=list)
    lines: dict[int, Relaxed] = field(default_factory=dict)
    largest: list[Tensor] = field(default_factory=list)
    """(n, *shape) for each node: the sum of absolute products of its operation, which bounds
    what one rounding changes."""

    def __len__(self) -> int:
        return len(self.ball.x)

    def backward_bound(
        self,
        node: int,
        rows: Rows,
        lines: Mapping[int, Relaxed] | None = None,
        penalties: Mapping[int, Tensor] | None = None,
        stop: int = 0,
        record: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """(rows,) float64: lower bounds of linear functions of the value of a node.

        Args:
            node: the node.
            rows: the functions.
            lines: other lines of some activations.
            penalties: (rows, *shape) by activation: subtracted from the coefficients of its
                argument. Where such a coefficient has the sign of the argument, the bound stays
                sound.
            stop: the node at which the functions are bounded by its range.
            record: gets the coefficients of the value of each activation.
        """
        lines = {**self.lines, **(lines or {})}
        pending = {node: rows}
        rounding = rows.a.new_zeros(len(rows.a), dtype=torch.float64)
        constant = rounding
        for k in range(node, stop, -1):
            if (rows_ := pending.pop(k, None)) is None:
                continue
            spec = self.graph.nodes[k]
            size = self._size(k, rows_)
            parts: tuple[Rows, ...]
            if k in lines:
                if record is not None:
                    record[k] = rows_.dense(spec.shape).a
                *pulled, shift = lines[k].pull(rows_)
                roundings = lines[k].roundings
                if penalties and k in penalties:
                    (argument,) = pulled
                    argument = argument.dense(self.graph.nodes[spec.arguments[0]].shape)
                    pulled = [argument.replaced(argument.a - penalties[k])]
                parts = tuple(pulled)
            else:
                operation = spec.operation
                assert operation is not None and not isinstance(operation, NONLINEAR)
                rows_ = rows_.dense(spec.shape) if isinstance(operation, Linear) else rows_
                shift = operation.offset(rows_)
                roundings = operation.roundings[1]
                parts = operation.adjoint(
                    rows_, [self.graph.nodes[j].shape for j in spec.arguments]
                )
            constant = constant + shift
            rounding = rounding + (roundings + rows_.additions + EXTRA) * size
            for j, part in zip(spec.arguments, parts, strict=True):
                pending[j] = (
                    pending[j].plus(part, self.graph.nodes[j].shape) if j in pending else part
                )
        bounds, allowance = self._concretized(pending, constant, rounding)
        self._record(node, rows, allowance)
        return bounds

    def _concretized(
        self, pending: Mapping[int, Rows], constant: Tensor, rounding: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(rows,): lower bounds of functions of several nodes from their ranges, and the allowance
        for rounding in them.
        """
        for k, rows in pending.items():
            least, size = self._concretize(k, rows)
            constant = constant + least
            rounding = rounding + (rows.additions + EXTRA) * size
        allowance = (
            unit(self.ball.x) * rounding
            + unit(constant) * len(self.graph.nodes) * constant.detach().abs()
        )
        return constant - allowance, allowance

    def _record(self, node: int, rows: Rows, allowance: Tensor) -> None:
        """Note the largest allowance for rounding in a bound on scores, sample by sample."""
        if node == len(self.graph.nodes) - 1:
            self.ball.allowance.scatter_reduce_(
                0, self.ball.sample[rows.sample], allowance.detach().to(self.ball.allowance), "amax"
            )

    def _size(self, node: int, rows: Rows) -> Tensor:
        """(rows,): the sum of absolute products of functions of the value of a node."""
        return total(rows.a.detach().abs() * rows.pick(self.largest[node]))

    def within_ranges(self, node: int, rows: Rows) -> Tensor:
        """(rows,): lower bounds of functions of the value of a node from its range alone."""
        zero = rows.a.new_zeros(len(rows.a), dtype=torch.float64)
        bounds, allowance = self._concretized({node: rows}, zero, zero)
        self._record(node, rows, allowance)
        return bounds

    def select(self, sample: Tensor) -> "Relaxation":
        """The relaxation of chosen samples, each as often as it is named; its lines are made anew."""
        ranges = [(low[sample], high[sample]) for low, high in self.ranges]
        arguments = {k: [ranges[j] for j in self.graph.nodes[k].arguments] for k in self.lines}
        lines = {k: _relaxed(self.graph.nodes[k].operation, ends) for k, ends in arguments.items()}
        return Relaxation(
            self.graph,
            self.ball.select(sample),
            ranges,
            lines,
            [value[sample] for value in self.largest],
        )

    def margins(self, labels: Tensor) -> Tensor:
        """(n, classes - 1) float64: lower bounds of the score of the true class (n,) less that of
        each other class.
        """
        rows = margin_rows(labels, self.graph.classes, self.ball.x.dtype)
        return self.backward_bounds(len(self.graph.nodes) - 1, rows).view(len(labels), -1)

    def _concretize(self, node: int, rows: Rows) -> tuple[Tensor, Tensor]:
        """(rows,): the least value of functions on the range of a node, and the sum of absolute
        products.
        """
        low, high = self.ranges[node]
        positive = rows.a.clamp(min=0)
        least = total(positive * rows.pick(low) + (rows.a - positive) * rows.pick(high))
        size = total(rows.a.detach().abs() * rows.pick(torch.maximum(low.abs(), high.abs())))
        if node == 0 and self.ball.norm == "l2":
            length = rows.a.flatten(1).norm(dim=1) * (1 + rows.a[0].numel() * unit(rows.a))
            least = torch.maximum(
                least, total(rows.a * rows.pick(self.ball.x)) - self.ball.eps[rows.sample] * length
            )
        return least, size

    def backward_bounds(self, node: int, rows: Rows) -> Tensor:
        """As `backward_bound`, with so few rows at a time that they fit into the memory that is set
        aside, without gradients.
        """
        widest = max(prod(spec.shape) for spec in self.graph.nodes[: node + 1])
        count = max(1, MEGABYTES * 2**20 // (rows.a.element_size() * widest))
        parts = torch.split(torch.arange(len(rows.a), device=rows.a.device), count)
        with torch.no_grad():
            return torch.cat([self.backward_bound(node, rows.select(part)) for part in parts])


Tighten = Callable[["Relaxation", int, Rows], Tensor]
"""Lower bounds (rows,) of functions of the value of a node, better than those of CROWN."""


def propagate(graph: Graph, ball: Ball, refine: bool, tighten: Tighten | None = None) -> Relaxation:
    """Ranges and lines of all nodes.

    With `refine` arguments of activations are bounded by CROWN; otherwise all ranges are those of
    interval arithmetic. `tighten` is a better bound for those arguments whose sign CROWN leaves
    open.
    """
    state = Relaxation(graph, ball)
    low, high = ball.box
    state.ranges.append((low, high))
    state.largest.append(torch.maximum(low.abs(), high.abs()))
    before = {
        j for spec in graph.nodes if isinstance(spec.operation, NONLINEAR) for j in spec.arguments
    }
    box = {0}
    exact = {0} if ball.norm == "linf" else set[int]()
    products_left = torch.full((len(ball.x),), MOST_PRODUCTS, device=ball.x.device)
    for k, spec in enumerate(graph.nodes[1:], start=1):
        operation = spec.operation
        assert operation is not None
        arguments = [state.ranges[j] for j in spec.arguments]
        least, most = operation.interval(*arguments)
        if isinstance(operation, NONLINEAR):
            products = torch.maximum(least.abs(), most.abs())
            roundings = 4
        else:
            products = operation.products(*(torch.maximum(a.abs(), b.abs()) for a, b in arguments))
            roundings = operation.roundings[0]
            if all(j in box for j in spec.arguments) and len(spec.arguments) == 1:
                exact |= {k} if spec.arguments[0] in exact else set()
                box |= {k} if type(operation).__name__ in ("Scale", "Reshape") else set()
        slack = unit(low) * (roundings + EXTRA) * products
        state.ranges.append((least - slack, most + slack))
        state.largest.append(products)
        if refine and k in before and k not in exact:
            _refine(state, k, state.backward_bounds, products_left)
            if tighten is not None:
                _refine(state, k, functools.partial(tighten, state), products_left)
        if isinstance(operation, NONLINEAR):
            state.lines[k] = _relaxed(operation, [state.ranges[j] for j in spec.arguments])
            state.largest[k] = (
                state.lines[k].largest if not isinstance(operation, MaxPool) else products
            )
    return state


def _relaxed(operation: Operation | None, ranges: Sequence[Range]) -> Relaxed:
    assert isinstance(operation, NONLINEAR)
    if isinstance(operation, Product):
        return relax_product(operation, *ranges)
    return (
        relax(operation, ranges[0])
        if isinstance(operation, Activation)
        else relax_maxima(operation, ranges[0])
    )


def _refine(
    state: Relaxation, node: int, lower: Callable[[int, Rows], Tensor], products: Tensor
) -> None:
    """Bound the values of a node where their ranges do not tell their sign, as far as `products`
    (n,) are left.
    """
    spec = state.graph.nodes[node]
    if isinstance(spec.operation, Activation | MaxPool) or (
        len(spec.shape) != 3 and prod(spec.shape) > MOST_REFINED
    ):
        return  # its range follows from that of its argument
    low, high = (end.flatten(1).clone() for end in state.ranges[node])
    following = {
        k: spec.operation for k, spec in enumerate(state.graph.nodes) if node in spec.arguments
    }
    is_smooth = any(
        isinstance(f, Product) or (isinstance(f, Activation) and not f.is_piecewise)
        for f in following.values()
    )
    pooled = any(
        isinstance(f.operation, MaxPool)
        for f in state.graph.nodes
        if {node, *following} & set(f.arguments)
    )
    open_ = (low < 0) & (high > 0) | (
        pooled & (high > 0)
    )  # a maximum needs to know which of its values are larger
    open_ |= is_smooth | (open_.double().mean(1, keepdim=True) > MOST_OPEN)
    cost = open_.sum(1) * state.graph.products[node]
    open_ &= (cost <= products)[:, None]
    products -= torch.where(cost <= products, cost, 0)
    sample, place = open_.nonzero().T
    if len(sample):
        rows = Rows.of_values(spec.shape, sample, place, low.dtype)
        low[sample, place] = torch.maximum(low[sample, place], _below(lower(node, rows), low.dtype))
        rows = rows.replaced(-rows.a)
        high[sample, place] = torch.minimum(
            high[sample, place], -_below(lower(node, rows), low.dtype)
        )
    state.ranges[node] = low.view(-1, *spec.shape), high.view(-1, *spec.shape)


def _below(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers of another precision that are no larger."""
    nearest = value.to(dtype)
    return torch.where(
        nearest > value, nearest.nextafter(torch.full_like(nearest, -torch.inf)), nearest
    )


def margin_rows(labels: Tensor, classes: int, dtype: torch.dtype = torch.float64) -> Rows:
    """Rows of the score of the true class less that of each other class, sample by sample."""
    n = len(labels)
    rivals = torch.arange(classes, device=labels.device).expand(n, classes)
    rivals = rivals[rivals != labels[:, None]].reshape(n, classes - 1).flatten()
    sample = torch.arange(n, device=labels.device).repeat_interleave(classes - 1)
    a = torch.zeros(len(sample), classes, dtype=dtype, device=labels.device)
    a[torch.arange(len(a), device=a.device), labels[sample]] = 1.0
    a[torch.arange(len(a), device=a.device), rivals] -= 1.0
    return Rows(a, sample)
