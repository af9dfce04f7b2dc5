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

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, select_rows
from brinell.attacks._squares import best_rows, square_problem
from brinell.attacks.apgd import APGD
from brinell.core import squares
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.losses import LOSSES
from brinell.core.settings import Count
from brinell.distances.linf import Linf

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
        search = APGD(loss=self.loss, steps=self.steps, random_start=False)
        loss = LOSSES[self.loss]
        for side, rows in squares.by_side(threat.eps):
            for part in torch.split(rows, max(1, ROWS // self.candidates)):
                inputs, limits, streams = select_rows(part, batch, threat, rng)
                grad = oracle.gradient(inputs.ids, inputs.x, loss).grad
                low, high = threat.domain.bounds(grad)
                best = torch.where(grad > 0, high, low)
                worth = squares.over_channels(grad * (best - inputs.x))
                numbers = self._draw(worth, side, streams)

                # Every candidate with the content that the gradient asks for, then the best ones.
                inputs = replace(inputs, start=best)
                inner, content, limits = square_problem(
                    oracle, inputs, limits, numbers, side, Linf()
                )
                assert content.start is not None
                # What a run sets out from, and what the candidates show.
                content = replace(content, x=content.start)
                count = numbers.shape[1]
                top = best_rows(inner, content.x, count, self.places, loss).flatten()
                starts, limits = select_rows(top, content, limits)
                # A sample has `count` rows of the problem, and one stream.
                search(inner, starts, limits, streams.select(top // count))

    def _draw(self, worth: Tensor, side: int, rng: Streams) -> Tensor:
        """(n, candidates): the best square, then others by their worth (n, *grid)."""
        total = squares.sums(worth, side).flatten(1)
        share = (total / total.amax(1, keepdim=True).clamp_min(1e-30)).clamp_min(1e-6)
        # Gumbel noise on logarithms draws in proportion and without replacement (Kool et al. 2019).
        # A number of 0 would have no logarithm.
        uniform = rng.fold("places").uniform(total.shape[1]).clamp_min(2.0**-24)
        key = share.log() - (-uniform.log()).log()
        # The best square is drawn in any case, and first.
        key.scatter_(1, total.argmax(1, keepdim=True), torch.inf)
        return key.topk(min(self.candidates, key.shape[1]), dim=1).indices
