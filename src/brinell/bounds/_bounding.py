"""Sound bounds on linear functions of any node of a network, for all inputs within a budget, by linear relaxation."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from brinell.bounds._graph import NONLINEAR, Activation, Graph, Linear, MaxPool, Product, Range
from brinell.bounds._relaxations import Relaxed, relax, relax_maxima, relax_product
from brinell.bounds._rows import Rows, total

EXTRA = 16
"""Roundings of a step apart from the sums of its map: signs, slopes, sums of branches."""
MOST_REFINED = 2_000
"""Values of a node, other than a map, above which its range is that of interval arithmetic."""
MOST_PRODUCTS = 2**41
"""Products that refining a node may cost for a sample; above, its range is that of interval arithmetic."""
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
    """(all samples,): the largest allowance for rounding in bounds on the scores of each, from `backward_bound`."""
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
        return torch.maximum(self.x - eps - slack, self.low), torch.minimum(self.x + eps + slack, self.high)

    def to(self, dtype: torch.dtype) -> "Ball":
        return Ball(self.x.to(dtype), self.eps.to(dtype), self.low.to(dtype), self.high.to(dtype), self.norm)

    def select(self, keep: Tensor) -> "Ball":
        low, high = (b[keep] if b.dim() == self.x.dim() else b for b in (self.low, self.high))
        return Ball(self.x[keep], self.eps[keep], low, high, self.norm, self.allowance, self.sample[keep])


@dataclass(eq=False)
class Relaxation:
    """Ranges of all nodes of a network on some balls, and lines of its activations."""

    graph: Graph
    ball: Ball
    ranges: list[Range] = field(default_factory=list)
    lines: dict[int, Relaxed] = field(default_factory=dict)
    largest: list[Tensor] = field(default_factory=list)
    """(n, *shape) for each node: the sum of absolute products of its operation, which bounds what one rounding changes."""

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
            penalties: (rows, *shape) by activation: subtracted from the coefficients of its argument. Where such a coefficient
                has the sign of the argument, the bound stays sound.
            stop: the node at which the functions are bounded by its range.
            record: gets the coefficients of the value of each activation.
        """
        lines = {**self.lines, **(lines or {})}
        pending, rounded = {node: rows}, rows.a.new_zeros(len(rows.a), dtype=torch.float64)
        constant = rounded
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
                parts = operation.adjoint(rows_, [self.graph.nodes[j].shape for j in spec.arguments])
            constant = constant + shift
            rounded = rounded + (roundings + rows_.additions + EXTRA) * size
            for j, part in zip(spec.arguments, parts, strict=True):
                pending[j] = pending[j].plus(part, self.graph.nodes[j].shape) if j in pending else part
        if stop in pending:
            least, size = self._concretize(pending[stop]) if stop == 0 else self._concretize_range(stop, pending[stop])
            constant, rounded = constant + least, rounded + (pending[stop].additions + EXTRA) * size
        allowance = unit(rows.a) * rounded + unit(constant) * len(self.graph.nodes) * constant.detach().abs()
        self._record(node, rows, allowance)
        return constant - allowance

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
        least, size = self._concretize_range(node, rows)
        allowance = unit(rows.a) * (rows.additions + EXTRA) * size
        self._record(node, rows, allowance)
        return least - allowance

    def select(self, sample: Tensor) -> "Relaxation":
        """The relaxation of chosen samples, each as often as it is named; its lines are made anew."""
        ranges = [(low[sample], high[sample]) for low, high in self.ranges]
        selection = Relaxation(self.graph, self.ball.select(sample), ranges, {}, [value[sample] for value in self.largest])
        selection.lines = lines_of(self.graph, ranges)
        return selection

    def _concretize_range(self, node: int, rows: Rows) -> tuple[Tensor, Tensor]:
        """(rows,): the least value on the range of a node, and the sum of absolute products."""
        low, high = self.ranges[node]
        positive = rows.a.clamp(min=0)
        least = positive * rows.pick(low) + (rows.a - positive) * rows.pick(high)
        size = rows.a.detach().abs() * rows.pick(torch.maximum(low.abs(), high.abs()))
        return total(least), total(size)

    def _concretize(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """(rows,): the least value of functions of the input, and the sum of absolute products."""
        least, size = self._concretize_range(0, rows)
        if self.ball.norm == "l2":
            flat = rows.a.flatten(1)
            centre = total(rows.a * rows.pick(self.ball.x))
            least = torch.maximum(
                least, centre - self.ball.eps[rows.sample] * flat.norm(dim=1) * (1 + flat.shape[1] * unit(flat))
            )
        return least, size

    def backward_bounds(self, node: int, rows: Rows) -> Tensor:
        """As `backward_bound`, with few rows at a time, without gradients."""
        with torch.no_grad():
            return torch.cat([self.backward_bound(node, part) for part in in_parts(rows, self._widest(node))])

    def _widest(self, node: int) -> int:
        """Number of coefficients of the largest node before a node."""
        return max(prod(spec.shape) for spec in self.graph.nodes[: node + 1])


def in_parts(rows: Rows, width: int) -> Iterator[Rows]:
    """Rows, so many at a time that windows of `width` values fit into the memory that is set aside."""
    count = max(1, MEGABYTES * 2**20 // (rows.a.element_size() * width))
    for start in range(0, len(rows.a), count):
        part = slice(start, start + count)
        corner = None if rows.corner is None else rows.corner[part]
        yield Rows(rows.a[part], rows.sample[part], corner, rows.size, rows.clipped).grouped()


Tighten = Callable[["Relaxation", int, Rows], Tensor]
"""Lower bounds (rows,) of functions of the value of a node, better than those of CROWN."""


def propagate(graph: Graph, ball: Ball, refine: bool, tighten: Tighten | None = None) -> Relaxation:
    """Ranges and lines of all nodes.

    With `refine` arguments of activations are bounded by CROWN; otherwise all ranges are those of interval arithmetic. `tighten`
    is a better bound for those arguments whose sign CROWN leaves open.
    """
    state = Relaxation(graph, ball)
    low, high = ball.box
    state.ranges.append((low, high))
    state.largest.append(torch.maximum(low.abs(), high.abs()))
    before = {j for k in graph.activations for j in graph.nodes[k].arguments}
    box, exact = {0}, {0} if ball.norm == "linf" else set[int]()
    for k, spec in enumerate(graph.nodes[1:], start=1):
        operation = spec.operation
        assert operation is not None
        arguments = [state.ranges[j] for j in spec.arguments]
        least, most = operation.interval(*arguments)
        if isinstance(operation, NONLINEAR):
            products, roundings = torch.maximum(least.abs(), most.abs()), 4
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
            _refine(state, k, state.backward_bounds)
            if tighten is not None:
                _refine(state, k, functools.partial(tighten, state))
        if isinstance(operation, NONLINEAR):
            state.lines[k] = _relaxed(operation, [state.ranges[j] for j in spec.arguments])
            state.largest[k] = state.lines[k].largest if not isinstance(operation, MaxPool) else products
    return state


def _relaxed(operation: Activation | MaxPool | Product, ranges: Sequence[Range]) -> Relaxed:
    if isinstance(operation, Product):
        return relax_product(operation, *ranges)
    return relax(operation, ranges[0]) if isinstance(operation, Activation) else relax_maxima(operation, ranges[0])


def lines_of(graph: Graph, ranges: Sequence[Range]) -> dict[int, Relaxed]:
    """The relaxations of all operations that are not linear, on the ranges of their arguments."""
    operations = {k: spec for k, spec in enumerate(graph.nodes) if isinstance(spec.operation, NONLINEAR)}
    return {k: _relaxed(spec.operation, [ranges[j] for j in spec.arguments]) for k, spec in operations.items()}  # type: ignore[arg-type]


def _refine(state: Relaxation, node: int, lower: Callable[[int, Rows], Tensor]) -> None:
    """Bound the values of a node where their ranges do not tell their sign."""
    shape = state.graph.nodes[node].shape
    if isinstance(state.graph.nodes[node].operation, Activation | MaxPool) or (len(shape) != 3 and prod(shape) > MOST_REFINED):
        return  # its range follows from that of its argument
    low, high = state.ranges[node]
    smooth = any(
        (isinstance(spec.operation, Product) or (isinstance(spec.operation, Activation) and not spec.operation.is_piecewise))
        and node in spec.arguments
        for spec in state.graph.nodes
    )
    open_ = torch.ones_like(low, dtype=torch.bool) if smooth else (low < 0) & (high > 0)
    affordable = open_.flatten(1).sum(1) * state.graph.products[node] <= MOST_PRODUCTS
    index = (open_ & affordable.view(-1, *[1] * len(shape))).nonzero()
    if not len(index):
        return
    sample = index[:, 0]
    if len(shape) == 3:
        corner, size = index[:, 2:], (shape[1], shape[2])
        unit = torch.zeros(len(index), shape[0], 1, 1, dtype=low.dtype, device=low.device)
    else:
        corner, size = None, None
        unit = torch.zeros(len(index), *shape, dtype=low.dtype, device=low.device)
    unit.view(len(index), -1).scatter_(1, index[:, 1:2] if len(shape) in (1, 3) else _flat(index[:, 1:], shape), 1.0)
    position = tuple(index.T)
    low, high = low.clone(), high.clone()
    low[position] = torch.maximum(low[position], _below(lower(node, Rows(unit, sample, corner, size)), low.dtype))
    high[position] = torch.minimum(high[position], -_below(lower(node, Rows(-unit, sample, corner, size)), low.dtype))
    state.ranges[node] = low, high


def _below(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers of another precision that are no larger."""
    rounded = value.to(dtype)
    return torch.where(rounded > value, rounded.nextafter(torch.full_like(rounded, -torch.inf)), rounded)


def _flat(index: Tensor, shape: tuple[int, ...]) -> Tensor:
    flat = torch.zeros(len(index), dtype=torch.long, device=index.device)
    for axis, extent in enumerate(shape):
        flat = flat * extent + index[:, axis]
    return flat[:, None]


def margin_rows(labels: Tensor, classes: int, dtype: torch.dtype = torch.float64) -> tuple[Rows, Tensor]:
    """Rows of the score of the true class less that of each other class, sample by sample, and the other classes (rows,)."""
    n = len(labels)
    rivals = torch.arange(classes, device=labels.device).expand(n, classes)
    rivals = rivals[rivals != labels[:, None]].reshape(n, classes - 1).flatten()
    sample = torch.arange(n, device=labels.device).repeat_interleave(classes - 1)
    a = torch.zeros(len(sample), classes, dtype=dtype, device=labels.device)
    a[torch.arange(len(a), device=a.device), labels[sample]] = 1.0
    a[torch.arange(len(a), device=a.device), rivals] -= 1.0
    return Rows(a, sample), rivals
