"""C&W: the L2 attack of Carlini and Wagner, which weighs length against the lead of the class.

Carlini & Wagner 2017, Towards evaluating the robustness of neural networks, sections V and VI.A:
Adam (Kingma & Ba 2015) on

    |delta|^2 + c max(-margin, 0)        with inputs written as the tanh of what is optimised, which
                                         keeps the bounds,

once for each of several c, which grow tenfold until one leads to an adversarial input, and are
bisected from then on.

Deviations:
- No confidence: the ledger keeps the closest adversarial input, and a larger margin lies farther
  away.
- A sample that is not fooled yet, and whose objective has not fallen for a tenth of the steps,
  leaves the run over this c by itself; in the authors' code a run ends once the objective of a
  whole batch falls no more, fooled or not.
- All runs begin at the clean input, which is asked about once. The last iterate of a run is scored
  only.
- Lengths are measured in widths of the bounds, which is 1 in the paper, so that c and the step size
  mean the same anywhere.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, adversarial, select_rows
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.norms import per_sample
from brinell.core.oracle import GradientAnswer
from brinell.core.settings import Count, Positive

INSIDE = 1 - 1e-6
"""Clean values are moved to this share of their way from the middle of the bounds, as in the
authors' code: at the bounds themselves tanh has no inverse."""
FALLS = 0.9999
"""An objective falls if it is at most this share of what it was a tenth of the steps earlier, as
in the authors' code."""
BETA = (0.9, 0.999)
"""Adam: how slowly the means of the gradients and of their squares forget."""


@dataclass(frozen=True, kw_only=True)
class CW(EveryKind):
    """Carlini and Wagner's attack in L2: thorough and expensive."""

    steps: Count = 1000
    """Steps of Adam for each c."""
    searches: Count = 9
    """How many values of c are tried."""
    step_size: Positive = 0.01
    """Step size of Adam, in the space where inputs are a tanh."""
    init_c: Positive = 0.001
    """The first c: what a unit of the margin is worth against the squared length."""
    abort_early: bool = True
    """Let go of a sample that is not fooled, until the next c, once its objective falls no more."""

    access = Access.GRADIENTS
    distances = frozenset({"l2"})
    family = "minimal"

    def cost(self, classes: int) -> tuple[int, int]:
        """The clean input, then a forward and backward a step; the last iterate is scored only."""
        return 1 + self.searches * self.steps, 1 + self.searches * (self.steps - 1)

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """One run of Adam for each c, all from the clean inputs."""
        clean = oracle.gradient(batch.ids, batch.x)
        c = torch.full_like(threat.eps, self.init_c)
        lower = torch.zeros_like(c)
        upper = torch.full_like(c, torch.inf)
        for _ in range(self.searches):
            success = self._run(oracle, batch, threat, clean, c)
            lower = torch.where(success, lower, c)
            upper = torch.where(success, c, upper)
            c = torch.where(upper.isinf(), 10 * c, (lower + upper) / 2)

    def _run(
        self, oracle: Oracle, batch: Batch, threat: Threat, clean: GradientAnswer, c: Tensor
    ) -> Tensor:
        """(n,) bool: which samples were fooled, at any distance, while their c (n,) was tried."""
        low, high = threat.domain.bounds(batch.x)
        middle = (high + low) / 2
        half = (high - low) / 2
        width = 2 * float(half.max())

        success = torch.zeros_like(c, dtype=torch.bool)
        rows = torch.arange(len(c), device=c.device)
        w = ((batch.x - middle) / half).mul_(INSIDE).atanh_()
        mean = torch.zeros_like(w)
        square = torch.zeros_like(w)
        best = torch.full_like(c, torch.inf)
        before = best
        x = batch.x
        margin = clean.loss
        grad = clean.grad

        for k in range(self.steps):
            delta = (x - batch.x) / width
            objective = delta.flatten(1).square().sum(1) + c * (-margin).clamp_min(0)
            best = torch.minimum(best, objective)
            active = oracle.active(batch.ids)
            if self.abort_early and k % max(1, self.steps // 10) == 0:
                active &= success[rows] | (best <= FALLS * before)
                before = best
            if not active.all():
                batch, threat, c, rows, w, mean = select_rows(
                    active, batch, threat, c, rows, w, mean
                )
                square, best, before, margin, grad, delta = select_rows(
                    active, square, best, before, margin, grad, delta
                )
                if not len(rows):
                    break

            # The objective's gradient, through the tanh to w.
            slope = (2 / width * delta).sub_(grad * per_sample(c * (margin < 0), grad))
            slope.mul_(half).mul_(1 - w.tanh().square())

            # A step of Adam.
            mean.lerp_(slope, 1 - BETA[0])
            square.lerp_(slope.square(), 1 - BETA[1])
            spread = (square / (1 - BETA[1] ** (k + 1))).sqrt_().add_(1e-8)
            w = w.addcdiv(mean, spread, value=-self.step_size / (1 - BETA[0] ** (k + 1)))
            x = threat.domain.clamp(w.tanh().mul_(half).add_(middle))

            if k == self.steps - 1:
                logits = oracle.scores(batch.ids, x)
            else:
                logits, margin, grad = oracle.gradient(batch.ids, x)
            success[rows] |= adversarial(batch, threat, x, logits)

        return success
