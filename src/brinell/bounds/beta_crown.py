"""Branch and bound on the signs of ReLU arguments, with multipliers for the splits.

Wang et al. 2021, Beta-CROWN: efficient bound propagation with per-neuron split constraints for
neural network robustness verification (NeurIPS; arXiv 2103.06624), sections 3.1 to 3.3. A margin
that stays open is split in two: an argument of a ReLU is at least 0 in one half and at most 0 in
the other, where its line is exact. The margin is proven when all parts are.

The neuron to split is the one whose line loses most, as in Bunel et al. 2020 (arXiv 1909.06588),
section 5.2, without the bias terms; among the first few of them the pair of halves with the better
weaker bound is taken (De Palma et al. 2021, arXiv 2104.06718, section 5).

Deviations:
- Ranges are made once, before the first split; a split changes that of its neuron alone.
- Slopes and multipliers of a part begin with those of the part that was split.
"""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.bounds._bounding import Ball, Relaxation, margin_rows, propagate
from brinell.bounds._graph import Graph
from brinell.bounds._rows import LinearForms
from brinell.bounds._slopes import optimise
from brinell.bounds._subproblems import Subproblems
from brinell.core.settings import Checked, Count, NotNegative

EXACT = 200
"""Steps of Adam for a part in which all signs are known."""
LARGEST = 256
"""Most arguments of a layer that are bounded with separate slopes."""


@dataclass(frozen=True, kw_only=True)
class BetaCrown(Checked):
    """Branch and bound with optimised slopes and multipliers."""

    parts: Count = 2_000
    """The most parts into which one margin is split."""
    seconds: NotNegative = 0.0
    """The most processor time of one sample; 0 for no limit. With a limit the machine decides
    what stays open."""
    batch: Count = 32
    """Number of parts that are split together."""
    steps: Count = 4
    """Steps of Adam for each part."""

    def __call__(self, graph: Graph, ball: Ball, labels: Tensor) -> Tensor:
        lower = ball.x.new_empty(len(labels), graph.classes - 1, dtype=torch.float64)
        for k in range(len(labels)):
            start = time.process_time()
            index = torch.tensor([k], device=labels.device)
            with torch.no_grad():
                state = propagate(graph, ball.select(index), refine=True, tighten=self._tightened)
                lower[k] = state.margins(labels[index])[0]

            # The margins that are open, hardest first: one that stays so leaves the sample open.
            rows = margin_rows(labels[index], graph.classes, ball.x.dtype)
            order = lower[k].argsort()
            end = start + self.seconds if self.seconds else float("inf")
            for j in order[lower[k][order] <= 0].tolist():
                lower[k, j] = torch.maximum(lower[k, j], self._split(state, rows.a[j], end))
                if lower[k, j] <= 0:
                    break
        return lower

    def _tightened(self, state: Relaxation, node: int, rows: LinearForms) -> Tensor:
        """(rows,): better bounds of the arguments of a small layer, each with separate slopes."""
        if rows.corner is not None or len(rows.a) > LARGEST:
            return rows.a.new_full((len(rows.a),), -torch.inf)
        with torch.enable_grad():
            subset = state.select(rows.sample)
            functions = LinearForms(rows.a, torch.arange(len(rows.a), device=rows.a.device))
            return optimise(subset, functions, steps=self.steps, rate=0.2, node=node).lower

    def _split(self, state: Relaxation, a: Tensor, end: float) -> Tensor:
        """The largest bound that splitting reaches before the processor time `end`."""
        # The whole gets more steps than its parts, which start from its slopes and multipliers.
        waiting = Subproblems.of(state, a).bounded(steps=6 * self.steps)
        count = 1
        while len(waiting) and not bool((waiting.lower > 0).all()):
            if count >= self.parts or time.process_time() > end:
                break

            # The parts with the lowest bounds are split first.
            order = waiting.lower.argsort()
            leading = waiting.select(order[: self.batch])
            remainder = waiting.select(order[self.batch :])
            halves, exact = leading.branched()
            if len(exact):
                # Every sign is known: the bound is exact up to the multipliers.
                exact = exact.bounded(steps=EXACT)
                if bool((exact.lower <= 0).any()):
                    return exact.lower.min()

            halves = halves.bounded(steps=self.steps) if len(halves) else halves
            count += len(halves) - len(leading)
            waiting = remainder.joined(halves.select((halves.lower <= 0).nonzero()[:, 0]))
        if len(waiting):
            return waiting.lower.min()
        # All parts are proven; the bound is some positive number.
        return a.new_tensor(torch.finfo(a.dtype).tiny)
