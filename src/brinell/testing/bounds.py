"""The rules that every method of proof keeps. `check_bound` names the first one that is broken.

A bound that lies above the truth once makes every certificate worthless. So bounds are compared
with margins that are known: of linear networks in closed form, of networks with one input by
enumeration, and of networks of every kind of layer against the smallest margins that descent finds.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.bounds._bounding import Ball, margin_rows
from brinell.bounds._graph import Graph
from brinell.bounds._trace import trace
from brinell.testing.form import check_form, check_settings, contained, demand, generator_states

CLASSES, ROWS = 3, 4
LINES, LAYERED = 25, 10
"""Number of networks with one input, and of networks with layers of many kinds."""
EXACT = 1e-10
"""The amount by which a bound may exceed an exact margin: the rounding of that margin."""
TIGHT = 1e-3
"""A budget at which samples with a clear margin must be proven."""
SYNONYMS = {
    "eps": "nothing: the ball has it",
    "norm": "nothing: the ball has it",
    "seed": "nothing: a proof is not drawn",
}

Bound = Callable[[Graph, Ball, Tensor], Tensor]
"""A method: lower bounds (n, classes - 1) of the margins to the other classes, from the network,
balls and labels (n,)."""


def check_bound(plugin: type[Any], **settings: Any) -> None:
    """Run every rule over a method of proof.

    Args:
        plugin: the class of the method.
        settings: settings to check it with, where not its defaults.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    check_form(plugin, declares=(), synonyms=SYNONYMS)
    bound: Bound = plugin(**settings)
    check_settings(bound)
    for rule in _RULES:
        rule(bound)


def _demand(bound: Bound, holds: bool, rule: str) -> None:
    """Demand a rule of a method."""
    demand(f"bound {type(bound).__name__}", holds, rule)


def _lower(bound: Bound, graph: Graph, ball: Ball, labels: Tensor) -> Tensor:
    """(n, classes - 1) float64: the bounds.

    Raises:
        ContractError: they have another shape, hold something else than numbers, or the method
            fails.
    """
    with contained(f"bound {type(bound).__name__}"):
        lower = bound(graph, ball, labels)
    expected = (len(labels), graph.classes - 1)
    is_numbers = isinstance(lower, Tensor) and lower.is_floating_point()

    _demand(
        bound,
        is_numbers and lower.shape == expected,
        f"gives something else than real numbers of shape {expected}",
    )
    _demand(bound, not bool(lower.isnan().any()), "gives NaN")
    return lower.detach().double()


def _ball(x: Tensor, eps: float, norm: str, dtype: torch.dtype = torch.float64) -> Ball:
    """Balls of one budget around inputs in [0, 1]."""
    low = torch.zeros(x.shape[1:], dtype=torch.float64)
    high = torch.ones(x.shape[1:], dtype=torch.float64)
    eps_by_row = torch.full((len(x),), eps, dtype=torch.float64)
    return Ball(x.double(), eps_by_row, low, high, norm).to(dtype)


def _line_network(seed: int) -> tuple[nn.Sequential, Tensor, Tensor, float]:
    """A ReLU network of one input, an input of it, its class, and a budget."""
    generator = torch.Generator().manual_seed(seed)
    widths = [1, *torch.randint(2, 6, (2,), generator=generator).tolist(), CLASSES]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [_filled(nn.Linear(before, after), generator), nn.ReLU()]
    net = nn.Sequential(*layers[:-1]).eval()
    x = torch.rand(1, 1, generator=generator)
    eps = 0.02 + 0.3 * float(torch.rand((), generator=generator))
    return net, x, net(x).argmax(1), eps


def _filled(layer: nn.Linear, generator: torch.Generator) -> nn.Linear:
    """The layer with random weights."""
    # Scaled so that values keep their size from layer to layer.
    weight = torch.randn(layer.weight.shape, generator=generator)
    layer.weight.data = weight * 1.5 / layer.in_features**0.5
    layer.bias.data = torch.randn(layer.bias.shape, generator=generator) * 0.5
    return layer


def _least_on_line(net: nn.Sequential, low: float, high: float, rows: Tensor) -> Tensor:
    """(rows,): the least values of functions of the scores between two inputs.

    They are taken at the ends and where an activation turns: the function is linear in between.
    """
    points = [low, high]
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    for depth in range(1, len(layers)):
        points = sorted(points)
        value = _values_at(points, layers[:depth])
        for k, (first, last) in enumerate(itertools.pairwise(value.detach().unbind())):
            turns = first * last < 0
            share = (first / (first - last))[turns]
            # The place where a value passes 0 between two points.
            points += (points[k] + (points[k + 1] - points[k]) * share).tolist()

    with torch.no_grad():
        value = _values_at(points, layers)
    return (value @ rows.T).amin(0)


def _values_at(points: list[float], layers: list[nn.Linear]) -> Tensor:
    """(points, width) float64: the values of the last of some layers with ReLU between them."""
    value = torch.tensor(points, dtype=torch.float64)[:, None]
    for k, layer in enumerate(layers):
        value = value if k == 0 else value.clamp(min=0)
        value = F.linear(value, layer.weight.double(), layer.bias.double())
    return value


class _Layered(nn.Module):
    """A network with a convolution, a residual sum, pooling and each activation, by number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        generator = torch.Generator().manual_seed(number)
        self.first = nn.Conv2d(2, 3, 3, padding=1)
        self.second = nn.Conv2d(3, 3, 3, stride=number % 2 + 1, padding=1)
        self.last = nn.Linear(3 * (9 if number % 2 == 0 else 4), CLASSES)
        for parameter in self.parameters():
            scale = 0.6 if parameter.dim() > 1 else 0.2
            parameter.data = torch.randn(parameter.shape, generator=generator) * scale

    def forward(self, x: Tensor) -> Tensor:
        """(n, 2, 6, 6) to (n, CLASSES)."""
        activations = (torch.relu, torch.sigmoid, torch.tanh, F.leaky_relu, lambda z: z.clamp(0, 1))
        activation = activations[self.number % 5]
        y = activation(self.first((x - 0.4) / 0.5))
        step = self.number % 2 + 1
        z = torch.relu(self.second(y) + y[:, :, ::step, ::step])  # (n, 3, 6, 6) or (n, 3, 3, 3)
        pooled = F.max_pool2d(z, 2) if step == 1 else F.avg_pool2d(z, 2, 1)
        scores: Tensor = self.last(pooled.flatten(1))
        return scores


def _keeps_to_linear_margins(bound: Bound) -> None:
    """Check that bounds of a linear network are at most its exact margins."""
    generator = torch.Generator().manual_seed(0)
    net = _filled(nn.Linear(6, CLASSES), generator)
    x = 0.2 + 0.6 * torch.rand(ROWS, 6, generator=generator)
    labels = torch.arange(ROWS) % CLASSES
    graph = trace(net, x)
    # The least score difference in closed form: that at the middle less eps times the dual
    # norm.
    rows = margin_rows(labels, CLASSES)
    weight = rows.a @ net.weight.double().detach()
    middle = (weight * x.double()[rows.sample]).sum(1) + rows.a @ net.bias.double().detach()
    for norm, sizes in (("linf", weight.abs().sum(1)), ("l2", weight.norm(dim=1))):
        exact = (middle - 0.1 * sizes).view(ROWS, -1)
        for dtype in (torch.float64, torch.float32):
            lower = _lower(bound, graph.to(dtype), _ball(x, 0.1, norm, dtype), labels)
            name = str(dtype).removeprefix("torch.")
            is_kept = bool((lower <= exact + EXACT).all())
            rule = f"is above the margin of a linear network in {norm} and {name}"
            _demand(bound, is_kept, rule)


def _keeps_to_enumerated_margins(bound: Bound) -> None:
    """Check that bounds of networks with one input are at most their least margins."""
    for seed in range(LINES):
        net, x, labels, eps = _line_network(seed)
        rows = margin_rows(labels, CLASSES)
        # The ball within the bounds of the data.
        low = max(0.0, float(x) - eps)
        high = min(1.0, float(x) + eps)
        exact = _least_on_line(net, low, high, rows.a)
        lower = _lower(bound, trace(net, x), _ball(x, eps, "linf"), labels)[0]
        is_kept = bool((lower <= exact + EXACT).all())
        rule = f"is above the least margin of a network with one input (number {seed})"
        _demand(bound, is_kept, rule)


class _LayeredProblem(NamedTuple):
    """A network of many layers, with the smallest margins that descent finds in some balls."""

    graph: Graph
    x: Tensor
    labels: Tensor
    least: dict[tuple[str, float], Tensor]
    """(n * (classes - 1),) float64 by norm and budget."""


@functools.cache
def _layered_problem(number: int) -> _LayeredProblem:
    """The problem of this number, made once."""
    net = _Layered(number).eval()
    generator = torch.Generator().manual_seed(number)
    x = torch.rand(2, 2, 6, 6, generator=generator)
    labels = net(x).argmax(1)
    least = {}
    for eps, norm in ((0.05, "linf"), (0.4, "l2")):
        least[norm, eps] = _descend(net, x, labels, eps, norm, generator)
    return _LayeredProblem(trace(net, x), x, labels, least)


def _keeps_to_descent(bound: Bound) -> None:
    """Check that descent finds no margin below the bounds of networks of many layers.

    It is done in each norm, and in either precision.
    """
    for number in range(LAYERED):
        graph, x, labels, least = _layered_problem(number)
        for index, ((norm, eps), smallest) in enumerate(least.items()):
            dtype = (torch.float64, torch.float32)[(number // 2 + index) % 2]
            lower = _lower(bound, graph.to(dtype), _ball(x, eps, norm, dtype), labels.clone())
            # Descent is in float32, so its margins are known to its rounding.
            below = bool((lower.flatten() <= smallest + 1e-6).all())
            rule = f"is above a margin that an input of the ball has in {norm} (network {number})"
            _demand(bound, below, rule)


def _descend(
    net: nn.Module, x: Tensor, labels: Tensor, eps: float, norm: str, generator: torch.Generator
) -> Tensor:
    """(n * (classes - 1),) float64: the smallest margins that descent from three starts meets."""
    rows = margin_rows(labels, CLASSES, torch.float32)
    centre = x[rows.sample]
    least = torch.full((len(centre),), torch.inf, dtype=torch.float64)
    for start in range(3):
        # The first start is the input itself, the others lie at random in its ball.
        delta = (torch.rand(centre.shape, generator=generator) * 2 - 1) * eps * (start > 0)
        for _ in range(12):
            # Into the ball, a gradient there, and a step down.
            if norm == "linf":
                delta = delta.clamp(-eps, eps)
            else:
                # A little less than eps, which rounding could exceed.
                size = delta.flatten(1).norm(dim=1).clamp_min(1e-12)
                delta = delta * (0.99999 * eps / size).clamp(max=1)[:, None, None, None]
            point = (centre + delta).clamp(0, 1).requires_grad_()
            margin = (net(point) * rows.a).sum(1)
            least = torch.minimum(least, margin.detach().double())

            gradient = torch.autograd.grad(margin.sum(), point)[0]
            if norm == "linf":
                direction = gradient.sign()
            else:
                length = gradient.flatten(1).norm(dim=1).clamp_min(1e-12)
                direction = gradient / length[:, None, None, None]
            delta = point.detach() - centre - 0.3 * eps * direction
    return least


def _proves_what_is_clear(bound: Bound) -> None:
    """Check that samples with a clear margin are proven in a small ball."""
    net, x, labels, _ = _line_network(seed=1)
    scores = net(x)[0].detach()
    clear = float(scores[labels[0]] - scores.scatter(0, labels, -torch.inf).max()) > 0.1
    lower = _lower(bound, trace(net, x), _ball(x, TIGHT, "linf"), labels)
    is_proven = not clear or bool((lower > 0).all())
    rule = f"proves nothing in a ball of {TIGHT:g}, where the margin is clear"
    _demand(bound, is_proven, rule)


def _leaves_all_as_it_was(bound: Bound) -> None:
    """Check that inputs, labels, constants and generators are unchanged."""
    net = _Layered(0).eval()
    x = torch.rand(ROWS, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    labels = net(x).argmax(1)
    graph = trace(net, x)
    ball = _ball(x, 0.02, "linf")
    states = generator_states()
    weights = [
        value
        for node in graph.nodes
        for value in vars(node.operation or object).values()
        if isinstance(value, Tensor)
    ]
    tensors = (ball.x, ball.eps, labels, *weights)
    before = [tensor.clone() for tensor in tensors]

    _lower(bound, graph, ball, labels)
    unchanged = all(torch.equal(old, new) for old, new in zip(before, tensors, strict=True))
    _demand(bound, unchanged, "wrote into what it was given")
    _demand(bound, generator_states() == states, "drew from a global random generator")


def _repeats_itself(bound: Bound) -> None:
    """Check that bounds repeat, and that a sample alone has those that it has in company."""
    net = _Layered(5).eval()
    x = torch.rand(ROWS, 2, 6, 6, generator=torch.Generator().manual_seed(5))
    labels = net(x).argmax(1)
    graph = trace(net, x)
    first = _lower(bound, graph, _ball(x, 0.02, "linf"), labels)
    second = _lower(bound, graph, _ball(x, 0.02, "linf"), labels)
    _demand(bound, torch.equal(first, second), "gave two bounds of the same balls")

    singles = []
    for k in range(ROWS):
        ball = _ball(x[k : k + 1], 0.02, "linf")
        singles.append(_lower(bound, graph, ball, labels[k : k + 1]))
    equal = torch.allclose(torch.cat(singles), first, rtol=1e-4, atol=1e-4)
    _demand(bound, equal, "gave other bounds when the batch was split")


_RULES: tuple[Callable[[Bound], None], ...] = (
    _leaves_all_as_it_was,  # first, because the problems of later rules are shared
    _keeps_to_linear_margins,
    _keeps_to_enumerated_margins,
    _keeps_to_descent,
    _proves_what_is_clear,
    _repeats_itself,
)
