"""DeepFool: repeated steps onto the nearest of the linearised boundaries, until one is crossed.

Moosavi-Dezfooli, Fawzi & Frossard 2016, DeepFool: a simple and accurate method to fool deep neural
networks, Algorithm 2 and section 3.3, which generalises the step from L2 to any Lp.

Evaluations: each new point is scored; the model is linearised there only if it is not adversarial
yet.

Deviations:
- Every step is lengthened by the overshoot; the paper lengthens their sum. A step onto a flat
  boundary ends on it, where rounding decides whether the loop continues. Since the last steps are
  short, the sum is hardly longer than necessary.
- Every point is moved into the bounds of the data, which the paper omits. The next steps make up
  for the part that is cut off. FAB moves other values instead, which ends farther away if the
  bounds are near: by a sixth on lenet5_clean of MNIST.
- Every step is lengthened by at least a ten-thousandth of the width of the bounds: a step that the
  bounds cut by more than the overshoot would otherwise never cross. The authors' code adds this to
  the overshoot, which costs twice on small distances.
- If there are more than `candidates` other classes, only the most likely ones of the clean input
  are considered, as in the authors' code.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, adversarial, select_rows, still_active
from brinell.core import norms
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.settings import Count, NotNegative

LEAST = 1e-4
"""The least by which a step goes beyond the boundary, as a fraction of the width of the bounds."""


@dataclass(frozen=True, kw_only=True)
class DeepFool(EveryKind):
    """DeepFool: a handful of steps to the nearest boundary, as a first estimate of the distance."""

    steps: Count = 50
    """Steps at most; a sample leaves once it is fooled."""
    candidates: Count = 9
    """Most likely other classes whose boundaries are looked at, fewer where there are fewer; a
    backward each."""
    overshoot: NotNegative = 0.02
    """By which share a step goes beyond the linearised boundary."""

    access = Access.GRADIENTS
    distances = frozenset({"linf", "l2"})
    family = "minimal"
    targeted = False

    def cost(self, classes: int) -> tuple[int, int]:
        """A step linearises, with a backward for each candidate, and scores where it ends."""
        backwards = self.steps * min(self.candidates, classes - 1)
        return 2 * self.steps + (self.candidates < classes - 1), backwards

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Step with every sample until it is fooled, however far away, or the steps are spent."""
        x = batch.x
        rivals = self._rivals(oracle, batch)
        for _ in range(self.steps):
            batch, threat, x, rivals = still_active(oracle, batch, threat, x, rivals)
            if not len(batch):
                return
            answer = oracle.differences(batch.ids, x, rivals)
            step = self._step(threat, answer.lead, answer.grad)
            x = threat.domain.clamp(step.add_(x))

            # Samples whose queries are spent leave, then those that are fooled.
            batch, threat, x, rivals = still_active(oracle, batch, threat, x, rivals)
            if not len(batch):
                return
            missed = ~adversarial(batch, threat, x, oracle.scores(batch.ids, x))
            batch, threat, x, rivals = select_rows(missed, batch, threat, x, rivals)

    def _rivals(self, oracle: Oracle, batch: Batch) -> Tensor:
        """(n, k): the other classes whose boundaries a step linearises."""
        if self.candidates < oracle.classes - 1:
            scores = oracle.scores(batch.ids, batch.x).scatter(1, batch.y[:, None], -torch.inf)
            return scores.topk(self.candidates, dim=1).indices
        ranks = torch.arange(oracle.classes - 1, device=batch.y.device)
        return ranks + (ranks >= batch.y[:, None])

    def _step(self, threat: Threat, lead: Tensor, grad: Tensor) -> Tensor:
        """(n, *shape): the shortest perturbation over the nearest linearised boundary."""
        slopes = norms.DUAL[threat.distance.name](grad.flatten(0, 1)).reshape(lead.shape)
        lengths = lead.abs() / slopes.clamp_min(1e-30)
        rows = torch.arange(len(lead), device=lead.device)
        nearest = lengths.argmin(1)

        # The overshoot is a share of the length, and a share of the bounds at least.
        low, high = threat.domain.bounds(grad)
        length = lengths[rows, nearest]
        length = length + (self.overshoot * length).clamp_min(LEAST * float((high - low).max()))
        direction = threat.distance.ascent(grad[rows, nearest])
        return direction.mul_(norms.per_sample(length, direction))
