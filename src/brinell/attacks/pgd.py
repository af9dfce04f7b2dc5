"""PGD: projected gradient ascent on the loss, from random points of the ball.

Madry et al. 2018, Towards deep learning models resistant to adversarial attacks, sections 2.1 and
5. Without the random start it is the basic iterative method (Kurakin, Goodfellow & Bengio 2017,
Adversarial examples in the physical world).

Deviations:
- A sample leaves in the iteration in which it is fooled, so every iterate is judged, the last one
  included; the paper judges the last alone. This can only fool more samples.
- The step size is a fraction of eps, so that one setting fits every budget. The default, 2.5 /
  steps, is the paper's recommendation for MNIST and CIFAR-10 (section 5, footnote on the choice of
  step sizes).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from brinell.attacks._shared import EveryKind, still_active
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.losses import LOSSES
from brinell.core.norms import per_sample
from brinell.core.settings import Count, Range


@dataclass(frozen=True, kw_only=True)
class PGD(EveryKind):
    """Projected gradient descent with restarts.

    `random_start=false` makes it the basic iterative method.
    """

    steps: Count = 40
    """Gradient steps of each restart."""
    step_size: Annotated[float, Range("(0, 2]")] | None = None
    """Length of a step as a fraction of eps; none means 2.5 / steps."""
    restarts: Count = 1
    """Random starting points, tried one after another on the samples that are still active."""
    random_start: bool = True
    """Start at a uniform point of the ball; otherwise at the clean input."""
    loss: Literal["ce", "dlr", "margin"] = "ce"
    """Loss to raise: ce (cross-entropy), dlr (difference of logits ratio) or margin."""

    access = Access.GRADIENTS
    distances = frozenset({"linf", "l2", "embedding"})
    family = "budgeted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restarts > 1 and not self.random_start:
            raise ValueError(
                "restarts without random_start repeat the same run; set "
                "restarts=1 or random_start=true"
            )

    def cost(self, classes: int) -> tuple[int, int]:
        """One forward and backward a step, and a forward for the last iterate of each restart."""
        return self.restarts * (self.steps + 1), self.restarts * self.steps

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """One restart after another, on the samples that are still active."""
        for restart in range(self.restarts):
            batch, threat, rng = still_active(oracle, batch, threat, rng)
            if not len(batch):
                return
            self._run(oracle, batch, threat, rng.fold(restart))

    def _run(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """One restart; its last iterate is scored."""
        x = batch.x
        if self.random_start:
            start = threat.distance.sample(rng, tuple(x.shape[1:]))
            x = threat.project(start.mul_(per_sample(threat.eps, x)).add_(x), x)
        # The paper's recommendation.
        fraction = self.step_size or 2.5 / self.steps

        for _ in range(self.steps):
            grad = oracle.gradient(batch.ids, x, LOSSES[self.loss]).grad
            batch, threat, x, grad = still_active(oracle, batch, threat, x, grad)
            if not len(batch):
                return
            step = threat.distance.ascent(grad).mul_(per_sample(fraction * threat.eps, x))
            x = threat.project(step.add_(x), batch.x)
        # Only to be judged: the oracle itself notes what fools the model.
        oracle.scores(batch.ids, x)
