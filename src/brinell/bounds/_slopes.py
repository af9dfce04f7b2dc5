"""Optimisation of the slopes of lines below ReLU, and of the multipliers of splits.
Here each function is one sample, so that no two functions share slopes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.bounds._bounding import Relaxation
from brinell.bounds._graph import Activation, Range
from brinell.bounds._relaxations import Relaxed, relax
from brinell.bounds._rows import LinearForms

DECAY = 0.95
"""Factor of the step size at each step."""


class Optimised(NamedTuple):
    """The best bounds, and what led to them."""

    lower: Tensor
    """(rows,) lower bounds."""
    slopes: Mapping[int, Tensor]
    """(rows, *shape) slopes by activation."""
    multipliers: Mapping[int, Tensor]
    """(rows, *shape) multipliers of splits by activation."""


def optimise(
    state: Relaxation,
    rows: LinearForms,
    *,
    steps: int,
    rate: float,
    signs: Mapping[int, Tensor] | None = None,
    start: Optimised | None = None,
    node: int = -1,
) -> Optimised:
    """The best lower bounds of functions of the value of a node that gradient ascent meets.

    Every value of the slopes between 0 and 1 and every multiplier from 0 on gives a sound bound, so
    what is optimised never matters for soundness.

    Args:
        state: a relaxation with one sample for each function, in order.
        rows: the functions.
        steps: steps of Adam.
        rate: step size of Adam.
        signs: (rows, *shape) by activation: 1 where the argument is known to be at least 0, -1
            where it is known to be at most 0, by a split that the ranges contain already; 0
            elsewhere.
        start: slopes and multipliers to begin with.
        node: the node; by default the scores.
    """
    last = node % len(state.graph.nodes)  # -1 is the node of the scores
    signs = signs or {}

    free = _activations_with_slopes(state, last)
    arguments = {k: state.ranges[state.graph.nodes[k].arguments[0]] for k in free}

    slopes, multipliers = _initial(arguments, signs, start)
    parameters = [*slopes.values(), *multipliers.values()]
    # Without anything to optimise the bound is taken once; Adam needs a parameter all the same.
    steps = steps if parameters else 0
    adam = torch.optim.Adam(parameters or [torch.zeros(1, device=rows.a.device)], lr=rate)
    best = rows.a.new_full((len(rows.a),), -torch.inf, dtype=torch.float64)
    optima = [parameter.detach().clone() for parameter in parameters]

    def lower_bounds() -> Tensor:
        """Lower bounds (rows,) with the present slopes and multipliers."""
        lines: dict[int, Relaxed] = {
            k: relax(operation, arguments[k], slopes[k]) for k, operation in free.items()
        }
        penalties = {k: multipliers[k] * sign for k, sign in signs.items()}
        return state.backward_bound(last, rows, lines, penalties)

    for step in range(steps + 1):
        # After the last step there is only a look at what it gave.
        with torch.set_grad_enabled(step < steps):
            lower = lower_bounds()

        # Each function keeps what gave its own best bound.
        with torch.no_grad():
            gain = lower > best
            best = torch.where(gain, lower, best)
            for optimum, parameter in zip(optima, parameters, strict=True):
                optimum[gain] = parameter[gain]
        if step == steps or bool((best > 0).all()):
            break

        # Functions that are proved already need no further ascent.
        adam.zero_grad()
        torch.autograd.backward([-lower[best <= 0].sum()])
        adam.step()
        _project(slopes, multipliers)
        for group in adam.param_groups:
            group["lr"] *= DECAY

    # The optima are those of the slopes, then those of the multipliers, as in `parameters`.
    return Optimised(
        best,
        dict(zip(slopes, optima[: len(slopes)], strict=True)),
        dict(zip(multipliers, optima[len(slopes) :], strict=True)),
    )


def _activations_with_slopes(state: Relaxation, last: int) -> dict[int, Activation]:
    """The activations before a node whose lines below are free, by node."""
    return {
        k: node.operation
        for k, node in enumerate(state.graph.nodes[:last])
        if isinstance(node.operation, Activation) and node.operation.has_slopes
    }


def _initial(
    arguments: Mapping[int, Range], signs: Mapping[int, Tensor], start: Optimised | None
) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Slopes and multipliers to begin with: those of `start`, else CROWN's slopes and zeros."""
    slopes = {k: (high >= -low).to(low.dtype) for k, (low, high) in arguments.items()}
    multipliers = {k: torch.zeros_like(sign) for k, sign in signs.items()}
    if start is not None:
        slopes = {k: start.slopes.get(k, slope) for k, slope in slopes.items()}
        multipliers = {k: start.multipliers.get(k, value) for k, value in multipliers.items()}

    slopes = {k: slope.clone().requires_grad_() for k, slope in slopes.items()}
    multipliers = {k: value.clone().requires_grad_() for k, value in multipliers.items()}
    return slopes, multipliers


def _project(slopes: Mapping[int, Tensor], multipliers: Mapping[int, Tensor]) -> None:
    """Move slopes and multipliers back to where every value gives a sound bound."""
    with torch.no_grad():
        for slope in slopes.values():
            slope.clamp_(0, 1)
        for multiplier in multipliers.values():
            multiplier.clamp_(min=0)
