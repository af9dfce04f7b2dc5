"""Sound linear bounds on any node of a network, for all inputs within a budget."""

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
    Node,
    Operation,
    Product,
    Range,
)
from brinell.bounds._relaxations import Relaxed, relax, relax_maxima, relax_product
from brinell.bounds._rows import LinearForms, total

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


def rounding_unit(value: Tensor) -> float:
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
        # The ends are rounded themselves.
        slack = rounding_unit(self.x) * 4 * (self.x.abs() + eps)
        low = torch.maximum(self.x - eps - slack, self.low)
        high = torch.minimum(self.x + eps + slack, self.high)
        return low, high

    def to(self, dtype: torch.dtype) -> "Ball":
        """The ball in another precision."""
        return Ball(
            self.x.to(dtype), self.eps.to(dtype), self.low.to(dtype), self.high.to(dtype), self.norm
        )

    def select(self, keep: Tensor) -> "Ball":
        """The balls at some positions; `allowance` is shared with them."""
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
        rows: LinearForms,
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
        pending = {node: rows}  # the functions as sums over the values of these nodes
        rounding = rows.a.new_zeros(len(rows.a), dtype=torch.float64)
        constant = rounding

        # From the node back to `stop`, the functions are put in terms of the arguments.
        for k in range(node, stop, -1):
            current = pending.pop(k, None)
            if current is None:
                continue
            spec = self.graph.nodes[k]
            size = self._size(k, current)

            parts: tuple[LinearForms, ...]
            if k in lines:
                if record is not None:
                    record[k] = current.dense(spec.shape).a
                # Each coefficient takes the line below or the one above, by its sign.
                *pulled, shift = lines[k].pull(current)
                roundings = lines[k].roundings
                if penalties and k in penalties:
                    (argument,) = pulled
                    argument = argument.dense(self.graph.nodes[spec.arguments[0]].shape)
                    # A Lagrange multiplier of a sign that a branch has fixed.
                    pulled = [argument.replaced(argument.a - penalties[k])]
                parts = tuple(pulled)
            else:
                operation = spec.operation
                assert operation is not None and not isinstance(operation, NONLINEAR)
                if isinstance(operation, Linear):
                    current = current.dense(spec.shape)
                shift = operation.offset(current)
                roundings = operation.roundings[1]
                shapes = [self.graph.nodes[j].shape for j in spec.arguments]
                parts = operation.adjoint(current, shapes)

            # What does not depend on the arguments.
            constant = constant + shift
            rounding = rounding + (roundings + current.additions + EXTRA) * size

            for j, part in zip(spec.arguments, parts, strict=True):
                # A value that several later nodes use gets the coefficients of all of them.
                if j in pending:
                    part = pending[j].plus(part, self.graph.nodes[j].shape)
                pending[j] = part

        bounds, allowance = self._concretized(pending, constant, rounding)
        self._record_allowance(node, rows, allowance)
        return bounds

    def _concretized(
        self, pending: Mapping[int, LinearForms], constant: Tensor, rounding: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Lower bounds (rows,) of sums over several nodes, and the allowance for their rounding."""
        for k, rows in pending.items():
            least, size = self._concretize(k, rows)
            constant = constant + least
            rounding = rounding + (rows.additions + EXTRA) * size
        # Roundings of the coefficients and products, whose sizes carry no gradient (`_size`).
        of_products = rounding_unit(self.ball.x) * rounding
        # The constant is a sum of about one term from each node. Its size carries no gradient
        # either: lines are chosen for tight bounds, not for small roundings.
        of_sum = rounding_unit(constant) * len(self.graph.nodes) * constant.detach().abs()
        allowance = of_products + of_sum
        return constant - allowance, allowance

    def _record_allowance(self, node: int, rows: LinearForms, allowance: Tensor) -> None:
        """Note the largest allowance for rounding in a bound on scores, sample by sample."""
        if node != len(self.graph.nodes) - 1:
            return
        sample = self.ball.sample[rows.sample]
        source = allowance.detach().to(self.ball.allowance)
        self.ball.allowance.scatter_reduce_(0, sample, source, "amax")

    def _size(self, node: int, rows: LinearForms) -> Tensor:
        """(rows,): the sum of absolute products of functions of the value of a node."""
        return total(rows.a.detach().abs() * rows.pick(self.largest[node]))

    def within_ranges(self, node: int, rows: LinearForms) -> Tensor:
        """(rows,): lower bounds of functions of the value of a node from its range alone."""
        zero = rows.a.new_zeros(len(rows.a), dtype=torch.float64)
        bounds, allowance = self._concretized({node: rows}, zero, zero)
        self._record_allowance(node, rows, allowance)
        return bounds

    def select(self, sample: Tensor) -> "Relaxation":
        """The relaxation of chosen samples, each as often as it is named; its lines are
        made anew.
        """
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
        """(n, classes - 1) float64: bounds of the score of the class (n,) less each other score."""
        rows = margin_rows(labels, self.graph.classes, self.ball.x.dtype)
        return self.backward_bounds(len(self.graph.nodes) - 1, rows).view(len(labels), -1)

    def _concretize(self, node: int, rows: LinearForms) -> tuple[Tensor, Tensor]:
        """(rows,): least value of functions on the range of a node; sum of absolute products."""
        low, high = self.ranges[node]
        # The least value takes the lower end where a coefficient is positive.
        positive = rows.a.clamp(min=0)
        negative = rows.a - positive
        least = total(positive * rows.pick(low) + negative * rows.pick(high))
        ends = torch.maximum(low.abs(), high.abs())
        size = total(rows.a.detach().abs() * rows.pick(ends))

        # On an l2 ball the inequality of Cauchy and Schwarz may be tighter than the box.
        if node == 0 and self.ball.norm == "l2":
            # The dual norm, rounded up.
            length = rows.a.flatten(1).norm(dim=1) * (1 + rows.a[0].numel() * rounding_unit(rows.a))
            centre = total(rows.a * rows.pick(self.ball.x))
            least = torch.maximum(least, centre - self.ball.eps[rows.sample] * length)

        return least, size

    def backward_bounds(self, node: int, rows: LinearForms) -> Tensor:
        """As `backward_bound`, without gradients and in parts that fit into MEGABYTES."""
        # The coefficients of the widest node are the most that is held at once.
        widest = max(prod(spec.shape) for spec in self.graph.nodes[: node + 1])
        count = max(1, MEGABYTES * 2**20 // (rows.a.element_size() * widest))
        parts = torch.split(torch.arange(len(rows.a), device=rows.a.device), count)
        with torch.no_grad():
            return torch.cat([self.backward_bound(node, rows.select(part)) for part in parts])


Tighten = Callable[["Relaxation", int, LinearForms], Tensor]
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
    # One rounding of the input is relative to its values; those of later nodes, to their products.
    state.largest.append(torch.maximum(low.abs(), high.abs()))

    box = {0}  # nodes whose values each depend on one value of the input
    # Nodes that interval arithmetic bounds exactly; like `box` it is filled by `_extend_exact`.
    exact = {0} if ball.norm == "linf" else set[int]()
    # The work that refining may still cost, input by input; `_refine` subtracts.
    products_left = torch.full((len(ball.x),), MOST_PRODUCTS, device=ball.x.device)

    # Node 0 is the input, whose range is the ball's box.
    for k, spec in enumerate(graph.nodes[1:], start=1):
        operation = spec.operation
        assert operation is not None
        arguments = [state.ranges[j] for j in spec.arguments]
        least, most = operation.interval(*arguments)

        if isinstance(operation, NONLINEAR):
            # Not a sum of products: few operations make each value from its argument.
            products = torch.maximum(least.abs(), most.abs())
            roundings = 4
        else:
            sizes = [torch.maximum(first.abs(), last.abs()) for first, last in arguments]
            products = operation.products(*sizes)
            roundings = operation.roundings[0]
            _extend_exact(k, spec, box, exact)

        # Every operation rounds; ranges are widened by what all roundings together can change.
        slack = rounding_unit(low) * (roundings + EXTRA) * products
        state.ranges.append((least - slack, most + slack))
        state.largest.append(products)

        # CROWN cannot better the range of a node that interval arithmetic bounds exactly.
        if refine and k in graph.before_nonlinear and k not in exact:
            _refine(state, k, state.backward_bounds, products_left)
            if tighten is not None:
                _refine(state, k, functools.partial(tighten, state), products_left)

        if isinstance(operation, NONLINEAR):
            lines = _relaxed(operation, [state.ranges[j] for j in spec.arguments])
            state.lines[k] = lines
            state.largest[k] = products if isinstance(operation, MaxPool) else lines.largest

    return state


def _extend_exact(node: int, spec: Node, box: set[int], exact: set[int]) -> None:
    """Add a linear node to those with values of one input each, and with exact ranges.

    The range of a linear map is exact where the values of its argument vary independently.
    """
    if len(spec.arguments) != 1 or spec.arguments[0] not in box:
        return
    if spec.arguments[0] in exact:
        exact.add(node)
    # Those maps make each value from one value of the argument.
    if type(spec.operation).__name__ in ("Scaling", "Reshape"):
        box.add(node)


def _relaxed(operation: Operation | None, ranges: Sequence[Range]) -> Relaxed:
    """Lines or planes of an operation that is not linear, on the ranges of its arguments."""
    assert isinstance(operation, NONLINEAR)
    if isinstance(operation, Product):
        return relax_product(operation, *ranges)
    if isinstance(operation, Activation):
        return relax(operation, ranges[0])
    return relax_maxima(operation, ranges[0])


def _refine(
    state: Relaxation, node: int, lower: Callable[[int, LinearForms], Tensor], products: Tensor
) -> None:
    """Bound those values of a node whose sign is open, as far as `products` (n,) are left."""
    nodes = state.graph.nodes
    spec = nodes[node]
    if isinstance(spec.operation, Activation | MaxPool):
        return  # its range follows from that of its argument
    if len(spec.shape) != 3 and prod(spec.shape) > MOST_REFINED:
        return

    low, high = state.ranges[node]
    low = low.flatten(1).clone()
    high = high.flatten(1).clone()
    following = {k: user.operation for k, user in enumerate(nodes) if node in user.arguments}
    # Both ends of a range make the lines of a smooth function, whatever the signs are.
    is_smooth = any(
        isinstance(f, Product) or (isinstance(f, Activation) and not f.is_piecewise)
        for f in following.values()
    )
    # A maximum may follow at once, or behind an activation.
    is_pooled = any(
        isinstance(user.operation, MaxPool)
        for user in nodes
        if {node, *following} & set(user.arguments)
    )

    open_ = (low < 0) & (high > 0)
    # A maximum needs to know which of its values are larger.
    open_ |= is_pooled & (high > 0)
    open_ |= is_smooth | (open_.double().mean(1, keepdim=True) > MOST_OPEN)

    cost = open_.sum(1) * state.graph.products[node]
    is_affordable = cost <= products
    open_ &= is_affordable[:, None]
    # Written into the caller's budget, which all nodes share.
    products -= torch.where(is_affordable, cost, 0)

    sample, place = open_.nonzero().T
    if len(sample):
        rows = LinearForms.of_values(spec.shape, sample, place, low.dtype)
        least = _below(lower(node, rows), low.dtype)
        low[sample, place] = torch.maximum(low[sample, place], least)

        # An upper bound is the lower bound of the negative.
        rows = rows.replaced(-rows.a)
        most = -_below(lower(node, rows), low.dtype)
        high[sample, place] = torch.minimum(high[sample, place], most)

    state.ranges[node] = low.view(-1, *spec.shape), high.view(-1, *spec.shape)


def _below(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest numbers of another precision from below."""
    nearest = value.to(dtype)
    # Rounding to nearest may go up: then one number lower.
    next_lower = nearest.nextafter(torch.full_like(nearest, -torch.inf))
    return torch.where(nearest > value, next_lower, nearest)


def margin_rows(labels: Tensor, classes: int, dtype: torch.dtype = torch.float64) -> LinearForms:
    """Rows of the score of the true class less that of each other class, sample by sample."""
    n = len(labels)
    rivals = torch.arange(classes, device=labels.device).expand(n, classes)
    rivals = rivals[rivals != labels[:, None]].reshape(n, classes - 1).flatten()
    sample = torch.arange(n, device=labels.device).repeat_interleave(classes - 1)
    a = torch.zeros(len(sample), classes, dtype=dtype, device=labels.device)
    a[torch.arange(len(a), device=a.device), labels[sample]] = 1.0
    a[torch.arange(len(a), device=a.device), rivals] -= 1.0
    return LinearForms(a, sample)
