"""Patch-APGD: APGD on the content of a square, at several places that gradient and loss choose.

The content takes the steps of Croce & Hein 2020, Reliable evaluation of adversarial robustness with
an ensemble of diverse parameter-free attacks, Algorithm 1, in Linf and within the bounds alone. As
in Rao, Stutz & Schiele 2020, Adversarial training against location-optimized adversarial patches,
the place is a part of the search:

1. The gradient at the clean input says what each value gains at the better end of its range, if the
   model were linear. A square is worth what its values gain together.
2. The best square and others, drawn in proportion to their worth, are each shown once, with the
   content that the gradient asks for.
3. From those of the highest loss runs go on side by side.

Deviations:
- On a signal the square is a segment, on a video a cube.
- A place does not move during a run. At equal passes, more places fooled more samples than more
  steps at each.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brinell.attacks._apgd_steps import MOMENTUM, ApgdState, checkpoints
from brinell.attacks._shared import EveryKind, select_rows, still_active
from brinell.core import squares
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.losses import LOSSES
from brinell.core.norms import per_sample
from brinell.core.settings import Count

ROWS = 1024
"""Squares that are looked at side by side at most; it bounds memory and changes no result."""


@dataclass(frozen=True, kw_only=True)
class PatchAPGD(EveryKind):
    """Gradients for the content of one patch, at the best of many places."""

    loss: Literal["ce", "dlr", "margin"] = "ce"
    """Loss to raise: ce (cross-entropy), dlr (difference of logits ratio) or margin."""
    candidates: Count = 100
    """Places that are compared by one query each."""
    places: Count = 10
    """Of these, the places at which the content is optimised."""
    steps: Count = 20
    """Gradient steps at each place."""

    access = Access.GRADIENTS
    distances = frozenset({"patch"})
    family = "budgeted"

    def cost(self, classes: int) -> tuple[int, int]:
        """The gradient at the clean input, the candidates, and the steps at each place."""
        return 1 + self.candidates + self.places * (self.steps + 1), 1 + self.places * self.steps

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Attack all samples whose eps allows one place, those of one side together."""
        rows = (threat.eps >= 1).nonzero()[:, 0]
        batch, threat, rng = select_rows(rows, batch, threat, rng)
        if not len(batch):
            return
        grad = oracle.gradient(batch.ids, batch.x, LOSSES[self.loss]).grad
        batch, threat, rng, grad = still_active(oracle, batch, threat, rng, grad)
        low, high = threat.domain.bounds(batch.x)
        best = torch.where(grad > 0, high, low)

        sides = threat.eps.floor()
        portion = max(1, ROWS // self.candidates)
        for side in sides.unique().tolist():
            for rows in torch.split((sides == side).nonzero()[:, 0], portion):
                part = batch.select(rows)
                worth = squares.over_channels(grad[rows] * (best[rows] - part.x))
                masks = self._draw(worth, int(side), rng.select(rows))
                self._search(oracle, part, threat, masks, best[rows])

    def _draw(self, worth: Tensor, side: int, rng: Streams) -> Tensor:
        """(n, candidates, *grid) bool: the best square, then others by their worth (n, *grid)."""
        total = squares.sums(worth, side).flatten(1)
        share = (total / total.amax(1, keepdim=True).clamp_min(1e-30)).clamp_min(1e-6)
        # Gumbel noise on logarithms draws in proportion and without replacement (Kool et al. 2019).
        uniform = rng.fold("places").uniform(total.shape[1]).clamp_min(2.0**-24)
        key = share.log() - (-uniform.log()).log()
        key.scatter_(1, total.argmax(1, keepdim=True), torch.inf)

        numbers = key.topk(min(self.candidates, key.shape[1]), dim=1).indices
        masks = squares.covered(numbers.flatten(), side, worth.shape[1:])
        return masks.unflatten(0, numbers.shape)

    def _search(
        self, oracle: Oracle, batch: Batch, threat: Threat, masks: Tensor, best: Tensor
    ) -> None:
        """Show the candidates with the content `best` (n, *shape), and optimise the best of them."""
        n, count = masks.shape[:2]
        index = torch.arange(n, device=masks.device).repeat_interleave(count)
        mask = masks.flatten(0, 1) if batch.x.ndim == 2 else masks.flatten(0, 1)[:, None]
        batch = batch.select(index)
        x = torch.where(mask, best[index], batch.x)

        # What a budget of queries does not reach comes last.
        loss = torch.full(index.shape, -torch.inf, device=masks.device)
        rows = oracle.active(batch.ids).nonzero()[:, 0]
        loss[rows] = oracle.loss(batch.ids[rows], x[rows], LOSSES[self.loss])
        top = loss.view(n, count).topk(min(self.places, count), dim=1).indices
        top = (top + count * torch.arange(n, device=masks.device)[:, None]).flatten()
        self._optimise(oracle, *select_rows(top, batch, mask, x), threat)

    def _optimise(
        self, oracle: Oracle, batch: Batch, mask: Tensor, x: Tensor, threat: Threat
    ) -> None:
        """APGD from inputs x (n, *shape) on the values of a mask."""
        batch, mask, x = still_active(oracle, batch, mask, x)
        if not len(batch):
            return
        loss = LOSSES[self.loss]
        low, high = threat.domain.bounds(x)
        answer = oracle.gradient(batch.ids, x, loss)
        state = ApgdState(x, answer.loss, answer.grad * mask, torch.ones_like(answer.loss))
        marks = set(checkpoints(self.steps))
        last = 0

        for k in range(self.steps):
            rows = oracle.remaining(batch.ids)
            if rows is not None:
                batch, mask = select_rows(rows, batch, mask)
                state.select(rows)
            if not len(batch):
                return

            # A step of the signs, then momentum, both within the bounds.
            step = per_sample(state.step_size, mask) * (high - low) * state.grad.sign()
            z = threat.domain.clamp(state.x + step)
            share = MOMENTUM if k else 1.0
            drift = share * (z - state.x) + (1 - share) * (state.x - state.x_previous)
            x = threat.domain.clamp(state.x + drift)
            if k == self.steps - 1:
                oracle.scores(batch.ids, x)
                return

            answer = oracle.gradient(batch.ids, x, loss)
            state.arrive(x, answer.loss, answer.grad * mask)
            if k + 1 in marks:
                state.review(k + 1 - last)
                last = k + 1
