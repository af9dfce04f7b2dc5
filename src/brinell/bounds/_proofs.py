"""The largest budget of each sample at which a proof succeeds, many samples at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.bounds._bounding import Ball, margin_rows, propagate
from brinell.bounds._graph import Graph
from brinell.core.domain import Domain

PROCESSOR = torch.device("cpu")
AT_A_TIME = 32
"""Number of samples that are bounded together."""
COST = 3.0
"""The largest loss of a bound by float32 in all, as a multiple of the allowance in its last
step: earlier ranges widen too."""
STRAIGHT = 3
"""Rounds in which the next budget is where a line through two bounds is 0; later ones halve what
is left."""
TOLERANCE = 1e-5
"""Share by which balls are larger than their budget: the ledger accepts inputs that exceed it by
rounding."""

Method = Callable[[Graph, Ball, Tensor], Tensor]
"""A bound: lower bounds (n, classes - 1) of the margins on balls, from the labels (n,)."""


@dataclass(frozen=True, eq=False)
class Prover:
    """A network and the threat, in both precisions."""

    graph: Graph
    coarse: Graph
    """The network in float32."""
    domain: Domain
    norm: str
    device: torch.device
    """This device computes the bounds; inputs and bounds lie on the processor."""

    @classmethod
    def of(
        cls, graph: Graph, domain: Domain, norm: str, device: torch.device = PROCESSOR
    ) -> "Prover":
        """A prover for a network in float64, which computes on a device."""
        return cls(
            graph.to(torch.float64, device), graph.to(torch.float32, device), domain, norm, device
        )

    def ball(self, x: Tensor, eps: Tensor) -> Ball:
        """The balls of budgets (n,) around inputs (n, *shape), a little larger than the budget."""
        low, high = self.domain.bounds(x)
        widened = eps.double() * (1 + TOLERANCE)
        return Ball(x.double(), widened, low.double(), high.double(), self.norm)

    def margins_without_change(self, x: Tensor, y: Tensor) -> Tensor:
        """(n,): the margins at inputs (n, *shape), positive where they are classified correctly."""
        scores = self.coarse.values(x.float().to(self.device))[-1].to(x.device)
        rivals = scores.scatter(1, y[:, None], -torch.inf).amax(1)
        return (scores.gather(1, y[:, None])[:, 0] - rivals).double()

    def margins(self, method: Method, x: Tensor, y: Tensor, eps: Tensor) -> Tensor:
        """(n,): lower bounds of the smallest margin at inputs (n, *shape) with budgets (n,)."""
        bounds = []
        for index in torch.split(torch.arange(len(x)), AT_A_TIME):
            inputs = x[index].to(self.device)
            labels = y[index].to(self.device)
            lower = self._margins(method, inputs, labels, eps[index].to(self.device))
            bounds.append(lower.to(x.device))
        return torch.cat(bounds)

    def _margins(self, method: Method, x: Tensor, y: Tensor, eps: Tensor) -> Tensor:
        """Bounds in float32, and in float64 where the allowance for rounding may cost the proof.

        In a deep network rounding alone, without a change of the input, may undo interval bounds;
        such samples are not tried in float32.
        """
        ball = self.ball(x, eps)
        # The bounds of the inputs themselves; a sample without a positive one goes to float64.
        centre = self.ball(x, torch.zeros_like(eps)).to(torch.float32)
        with torch.no_grad():
            state = propagate(self.coarse, centre, refine=False)
            differences = margin_rows(y, self.coarse.classes, torch.float32)
            last = len(self.coarse.nodes) - 1
            margins = state.within_ranges(last, differences).view(len(y), -1).amin(1)

        # float32 first; whoever was not tried there is open for float64.
        lower = torch.full_like(ball.eps, -torch.inf)
        is_open = torch.ones_like(y, dtype=torch.bool)
        index = (margins > 0).nonzero()[:, 0]
        if len(index):
            coarse = ball.select(index).to(torch.float32)
            bounds = method(self.coarse, coarse, y[index]).amin(1).double()
            lower[index] = bounds
            # A bound just below 0 may be lost to rounding alone.
            is_open[index] = (bounds <= 0) & (bounds + COST * coarse.allowance > 0)

        index = is_open.nonzero()[:, 0]
        if len(index):
            bounds = method(self.graph, ball.select(index), y[index]).amin(1)
            lower[index] = torch.maximum(lower[index], bounds)

        # A range that nothing is known about proves nothing.
        return lower.nan_to_num(-torch.inf)


@dataclass(eq=False)
class Proofs:
    """What is proven so far, for n samples and ascending budgets."""

    level: Tensor
    """(n,) the largest budget that is proven, by its position; -1 for none."""
    method: list[str]
    """(n,) the method of that proof; empty without one."""
    margin: Tensor
    """(n,) the lower bound there; NaN without a proof."""

    @classmethod
    def none(cls, n: int) -> "Proofs":
        """Nothing proven."""
        margin = torch.full((n,), torch.nan, dtype=torch.float64)
        return cls(torch.full((n,), -1), [""] * n, margin)

    def extend(
        self,
        prover: Prover,
        name: str,
        method: Method,
        x: Tensor,
        y: Tensor,
        levels: Sequence[float],
        limit: Tensor,
    ) -> None:
        """Raise the proven budgets by a method: a search between proven and open ones.

        The largest open budget comes first, then the one at which a line through two bounds is 0.

        Args:
            prover: the network.
            name: name of the method.
            method: the method.
            x: (n, *shape) inputs.
            y: (n,) labels.
            levels: ascending budgets.
            limit: (n,) position of the first budget that cannot be proven, since a counterexample
                is known.
        """
        # By position + 1: position -1, which nothing proves, is a budget of 0.
        budgets = torch.tensor([0.0, *levels], dtype=torch.float64)
        low = self.level.clone()
        high = limit.clone()
        # Bounds at `low` and `high`; NaN where none is known.
        below = torch.where(self.margin.isnan(), prover.margins_without_change(x, y), self.margin)
        above = torch.full_like(below, torch.nan)
        rounds = torch.zeros_like(low)

        while len(index := (high - low > 1).nonzero()[:, 0]):
            start = budgets[low[index] + 1]
            end = budgets[high[index].clamp(max=len(levels) - 1) + 1]

            # Where the line between both bounds is 0, after some rounds the middle.
            share = below[index] / (below[index] - above[index])
            zero = start + share * (end - start)
            # The last budget up to there: less one for it, and one for the 0 in front.
            line = torch.searchsorted(budgets, zero, right=True) - 2
            middle = (low[index] + high[index]) // 2
            candidates = torch.where(rounds[index] < STRAIGHT, line, middle)
            # The largest open budget where no bound is known there; always one between both.
            candidates = torch.where(share.isnan(), high[index] - 1, candidates)
            candidates = torch.minimum(torch.maximum(candidates, low[index] + 1), high[index] - 1)

            lower = prover.margins(method, x[index], y[index], budgets[candidates + 1])
            proven = lower > 0
            self.level[index[proven]] = candidates[proven]
            self.margin[index[proven]] = lower[proven]
            for k in index[proven].tolist():
                self.method[k] = name

            low[index] = torch.where(proven, candidates, low[index])
            high[index] = torch.where(proven, high[index], candidates)
            below[index] = torch.where(proven, lower, below[index])
            above[index] = torch.where(proven, above[index], lower)
            rounds[index] += 1
