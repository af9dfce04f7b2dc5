"""EAD: elastic-net attack, which adds the absolute sum of a change to the objective of C&W and so finds sparse ones.

Chen, Sharma, Zhang, Yi & Hsieh 2018, EAD: elastic-net attacks to deep neural networks via adversarial examples, Algorithm 1: the
fast iterative shrinkage-thresholding algorithm (FISTA) on

    c max(-margin, 0) + |delta|_2^2 + beta |delta|_1        inside the bounds,

once for each of several c, which grow tenfold until one leads to an adversarial input, and are bisected from then on.

The ledger decides which adversarial input counts: the closest in the distance that was asked for, which in L1 is
the paper's L1 rule. Its other rule, the least elastic-net distance, would return inputs that lie farther away.

Deviations:
- No confidence, for the same reason: a larger margin lies farther away.
- The extrapolated point, where the gradient is taken, is moved into the bounds.
- All runs begin at the clean input, which is asked about once.
- A sample that is not fooled yet, and whose objective has not fallen for a tenth of the steps, leaves the run over this c by
  itself; in the authors' code a run ends once the objective of a whole batch falls no more, fooled or not.
- Lengths are measured in widths of the bounds, which is 1 in the paper.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.attacks._shared import FALLS, EveryKind, adversarial, search_c, select_rows, still_active
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.norms import per_sample
from brinell.core.oracle import Gradient
from brinell.core.settings import Count, NotNegative, Positive


@dataclass(frozen=True, kw_only=True)
class EAD(EveryKind):
    """Elastic-net attack: sparse perturbations that are small in L1."""

    steps: Count = 1000
    """Steps of FISTA for each c."""
    searches: Count = 9
    """How many values of c are tried."""
    step_size: Positive = 0.01
    """Length of the first step as a multiple of the gradient; it falls with the square root of the steps that are left."""
    beta: NotNegative = 0.001
    """By how much every changed value shrinks in each step, as a fraction of the width of the bounds."""
    init_c: Positive = 0.001
    """The first c: what a unit of the margin is worth against the elastic-net distance."""
    abort_early: bool = True
    """Let go of a sample that is not fooled, until the next c, once its objective falls no more."""

    access = Access.GRADIENTS
    distances = frozenset({"l1"})
    family = "minimal"

    def cost(self, classes: int) -> tuple[int, int]:
        """The most forwards and backwards on one sample.

        One of each at the clean input; for each c a forward at every iterate, and a forward and a backward at the extrapolated
        point of every step but the first.
        """
        return 1 + self.searches * (2 * self.steps - 1), 1 + self.searches * (self.steps - 1)

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """One run of FISTA for each c, all from the clean inputs."""
        clean = oracle.gradient(batch.ids, batch.x)
        search_c(lambda c: self._run(oracle, batch, threat, clean, c), torch.full_like(threat.eps, self.init_c), self.searches)

    def _run(self, oracle: Oracle, batch: Batch, threat: Threat, clean: Gradient, c: Tensor) -> Tensor:
        """(n,) bool: which samples were fooled, at any distance, while their c (n,) was tried."""
        low, high = threat.domain.bounds(batch.x)
        width = float((high - low).max())
        success, rows = torch.zeros_like(c, dtype=torch.bool), torch.arange(len(c), device=c.device)
        x, y, margin, grad = batch.x, batch.x, clean.loss, clean.grad
        best = before = torch.full_like(c, torch.inf)
        for k in range(self.steps):
            if k:
                batch, threat, c, rows, x, y, best, before = still_active(oracle, batch, threat, c, rows, x, y, best, before)
                if not len(rows):
                    break
                _, margin, grad = oracle.gradient(batch.ids, y)
            length = (y - batch.x).flatten(1) / width
            best = torch.minimum(best, length.square().sum(1) + self.beta * length.abs().sum(1) + c * (-margin).clamp_min(0))
            falls = torch.ones_like(c, dtype=torch.bool)
            if self.abort_early and k % max(1, self.steps // 10) == 0:
                falls, before = success[rows] | (best <= FALLS * before), best
            keep = falls & oracle.active(batch.ids)
            if not keep.all():
                aligned = select_rows(keep, batch, threat, c, rows, x, y, margin, grad, best, before)
                batch, threat, c, rows, x, y, margin, grad, best, before = aligned
                if not len(rows):
                    break
            delta = y - batch.x
            slope = 2 * delta - grad * per_sample(width**2 * c * (margin < 0), grad)
            candidate = delta.sub_(slope, alpha=self.step_size * math.sqrt(1 - k / self.steps))
            shrunk = torch.nn.functional.softshrink(candidate, self.beta * width)
            x, last = threat.domain.clamp(shrunk.add_(batch.x)), x
            y = threat.domain.clamp(x + k / (k + 3) * (x - last))
            success[rows] |= adversarial(batch, threat, x, oracle.scores(batch.ids, x))
        return success
