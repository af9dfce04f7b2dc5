"""Alpha-CROWN: CROWN with slopes of the lower lines of ReLU that are optimised for each margin.

Xu et al. 2021, Fast and complete: enabling complete neural network verification with rapid and
massively parallel incomplete verifiers (ICLR; arXiv 2011.13824), section 3.

Deviations:
- Slopes are optimised for the margins alone; the ranges before the activations stay those of CROWN.
- Only margins that CROWN leaves open are optimised, and one leaves as soon as it is proven.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.bounds._bounding import Ball, margin_rows, propagate
from brinell.bounds._graph import Graph
from brinell.bounds._rows import LinearForms
from brinell.bounds._slopes import optimise
from brinell.core.settings import Checked, Count

AT_A_TIME = 128
"""Number of margins whose slopes are optimised together."""


@dataclass(frozen=True, kw_only=True)
class AlphaCrown(Checked):
    """CROWN with optimised slopes."""

    steps: Count = 20
    """Steps of Adam."""
    rate: float = 0.1
    """Step size of Adam; it falls by a tenth of itself every two steps."""

    def __call__(self, graph: Graph, ball: Ball, labels: Tensor) -> Tensor:
        with torch.no_grad():
            state = propagate(graph, ball, refine=True)
            lower = state.margins(labels).flatten()

        # What CROWN leaves open is optimised.
        rows = margin_rows(labels, graph.classes, ball.x.dtype)
        undecided = (lower <= 0).nonzero()[:, 0]
        for part in torch.split(undecided, AT_A_TIME) if len(undecided) else ():
            subset = state.select(rows.sample[part])
            functions = LinearForms(rows.a[part], torch.arange(len(part), device=part.device))
            best = optimise(subset, functions, steps=self.steps, rate=self.rate)
            lower[part] = torch.maximum(lower[part], best.lower)
        return lower.view(len(labels), -1)
