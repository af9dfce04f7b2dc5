"""DDN: gradient steps of a direction and a length that are decided apart.

They move on spheres that shrink and grow around the boundary.

Rony, Hafemann, Oliveira, Ben Ayed, Sabourin & Granger 2019, Decoupling direction and norm for
efficient gradient-based L2 adversarial attacks and defenses, Algorithm 1.

Deviations:
- Inputs are not rounded to 256 levels in each step. The ledger judges each success again as it
  comes back from storage.
- The last iterate is scored; the paper ends with it unseen. One forward more.
- The radius never exceeds the distance to the farthest corner of the bounds, beyond which it would
  grow for nothing.
- If the gradient is zero, the direction is random; the paper leaves it open.
- `init_norm` and the step size are fractions of the width of the bounds, which is 1 in the paper.
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from brinell.attacks._shared import EveryKind, adversarial, cosine, still_active
from brinell.core import norms
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.losses import cross_entropy
from brinell.core.settings import Count, Positive, Range

STEP_SIZE = (1.0, 0.01)
"""Section 4: length of the first and of the last step, as a fraction of the width of the bounds."""


@dataclass(frozen=True, kw_only=True)
class DDN(EveryKind):
    """Decoupled direction and norm: a small perturbation in L2 for one gradient a step."""

    steps: Count = 100
    """Gradient steps."""
    gamma: Annotated[float, Range("(0, 1)")] = 0.05
    """By which share the sphere shrinks after an adversarial input, and grows after any other."""
    init_norm: Positive = 1.0
    """Radius of the first sphere, as a fraction of the width of the bounds."""

    access = Access.GRADIENTS
    distances = frozenset({"l2"})
    family = "minimal"

    def cost(self, classes: int) -> tuple[int, int]:
        """One forward and backward a step, and a forward for the last iterate."""
        return self.steps + 1, self.steps

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """All steps on all samples; only a budget of queries ends a sample earlier."""
        low, high = threat.domain.bounds(batch.x)
        width = float((high - low).max())
        farthest = norms.l2(torch.maximum(batch.x - low, high - batch.x))
        x = batch.x
        # The radius of the sphere, as in the paper; the budget of the threat plays no part.
        eps = torch.full_like(threat.eps, self.init_norm * width)

        for k in range(self.steps):
            answer = oracle.gradient(batch.ids, x, cross_entropy)
            # The sphere shrinks after an adversarial input, and grows after any other.
            is_adversarial = adversarial(batch, threat, x, answer.logits)
            factor = torch.where(is_adversarial, 1 - self.gamma, 1 + self.gamma)
            eps = torch.minimum(eps * factor, farthest)

            step = norms.steepest_l2(answer.grad)
            # Samples whose gradient is 0 go in a random direction.
            flat = norms.linf(answer.grad) == 0
            if flat.any():
                step[flat] = norms.sphere_l2(rng.select(flat).fold(k), tuple(x.shape[1:]))
            # To the nearest point of the sphere.
            delta = step.mul_(width * cosine(*STEP_SIZE, k / self.steps)).add_(x - batch.x)
            delta.mul_(norms.per_sample(eps / norms.l2(delta).clamp_min(1e-30), delta))
            x = threat.domain.clamp(delta.add_(batch.x))

            batch, threat, rng, x, eps, farthest = still_active(
                oracle, batch, threat, rng, x, eps, farthest
            )
            if not len(batch):
                return
        # Only to be judged: the oracle itself notes what fools the model.
        oracle.scores(batch.ids, x)
