"""CROWN: linear relaxation of every activation, passed from the margins back to the input.

Zhang et al. 2018, Efficient neural network robustness certification with general activation
functions (NeurIPS; arXiv 1811.00866), sections 3.2 and 3.3, with the adaptive lower lines of ReLU.
For graphs: Xu et al. 2020 (arXiv 2002.12920).

Deviations:
- Ranges are those of CROWN where interval arithmetic leaves the sign of an argument open, and those
  of interval arithmetic elsewhere, since these lines are exact there.
- A maximum over a window takes the position of the largest lower bound for its line below, and the
  line above is constant unless that position is the largest for certain.
- Rounding is accounted for: each step subtracts a bound on its own rounding error from the bound.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.bounds._bounding import Ball, propagate
from brinell.bounds._graph import Graph


@dataclass(frozen=True, kw_only=True)
class Crown:
    """Linear relaxation from the margins back to the input."""

    def __call__(self, graph: Graph, ball: Ball, labels: Tensor) -> Tensor:
        with torch.no_grad():
            return propagate(graph, ball, refine=True).margins(labels)
