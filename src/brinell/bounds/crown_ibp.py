"""CROWN-IBP: ranges by interval arithmetic, margins by linear relaxation.

Zhang et al. 2020, Towards stable and efficient training of verifiably robust neural networks (ICLR;
arXiv 1906.06316), section 3. Cheap, and between interval bounds and CROWN.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.bounds._bounding import Ball, propagate
from brinell.bounds._graph import Graph


@dataclass(frozen=True, kw_only=True)
class CrownIbp:
    """Linear relaxation of the margins on ranges by interval arithmetic."""

    def __call__(self, graph: Graph, ball: Ball, labels: Tensor) -> Tensor:
        with torch.no_grad():
            return propagate(graph, ball, refine=False).margins(labels)
