"""Interval bounds: the range of every value from the ranges before it.

Gowal et al. 2018, On the effectiveness of interval bound propagation for training verifiably robust
models (arXiv 1810.12715), section 3. As there, the last affine map and the difference of two scores
are bounded as one map.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.bounds._bounding import Ball, margin_rows, propagate
from brinell.bounds._graph import NONLINEAR, Graph


@dataclass(frozen=True, kw_only=True)
class IntervalBounds:
    """Ranges by interval arithmetic."""

    def __call__(self, graph: Graph, ball: Ball, labels: Tensor) -> Tensor:
        with torch.no_grad():
            state = propagate(graph, ball, refine=False)
            rows = margin_rows(labels, graph.classes, ball.x.dtype)
            last = len(graph.nodes) - 1
            spec = graph.nodes[-1]
            if isinstance(spec.operation, NONLINEAR) or len(spec.arguments) != 1:
                return state.within_ranges(last, rows).view(len(labels), -1)
            # The last map and the difference of scores as one map, on the range of its argument.
            return state.backward_bound(last, rows, stop=spec.arguments[0]).view(len(labels), -1)
