"""Surrogates within an episode: when they are asked, about which margin, and at which scale their gradients enter the posterior.

They are asked about the clean input once its answer is there, and then again where the input has moved, every `Trust.every`
queries. The margin is that of the criterion at the answer of the model under test: its derivative to the logits says which
classes count (`class_weights`), and the gradients of the surrogates' logits say what raises them. So surrogates follow any
criterion and any aim of the episode without a rule of their own.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from brinell.core.oracle import Oracle
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.rlab.content import patch_places
from brinell.rlab.posterior import Posterior, Trust
from brinell.rlab.prior import LEAST

RIVALS = 16
"""Random shifts of the logits over which the derivative of a margin is averaged."""
SPREAD = 0.5
"""Their scale, in standard deviations of the logits of an answer."""


def class_weights(margin: Callable[[Tensor], Tensor], logits: Tensor, rng: Streams) -> Tensor:
    """(n, classes): how much each logit counts for a margin (n,) of logits (n, classes), averaged over Gumbel noise.

    A margin depends on the rival that leads alone, and on the way another one may come to lead. The average counts each rival
    with the probability that a softmax gives it.
    """
    scale = SPREAD * logits.std(1, keepdim=True)
    total = torch.zeros_like(logits)
    for number in range(RIVALS):
        uniform = rng.fold("rivals").fold(number).uniform(logits.shape[1]).clamp_min(2.0**-24)
        shifted = (logits - scale * (-uniform.log()).log()).requires_grad_()
        with torch.enable_grad():
            total += torch.autograd.grad(margin(shifted).sum(), shifted)[0]
    return total / RIVALS


class Guides:
    """The surrogates of all slots.

    Args:
        oracle: where they are asked.
        grid: the patches.
        posterior: the linear models that follow them.
        trust: how often they are asked, and how far their energies count.
    """

    def __init__(self, oracle: Oracle, grid: PatchGrid, posterior: Posterior, trust: Trust) -> None:
        self._oracle, self._grid, self._posterior, self._trust = oracle, grid, posterior, trust
        n, count = posterior.slopes.shape[:2]
        device = posterior.slopes.device
        self._asked_at = torch.full((n,), -1, dtype=torch.int64, device=device)
        """(n,): the age of the episode at the last question; -1 before the first."""
        self._x = torch.zeros(n, grid.channels * grid.places, device=device) if count else None
        """(n, values): the inputs of the last question."""
        self._scale = torch.zeros(n, count, device=device)
        """(n, surrogates): the root mean square of each gradient at the clean input."""
        self._energy = torch.zeros(n, len(grid), device=device)
        """(n, patches): energies of the prior."""

    def begin(self, rows: Tensor, energy: Tensor) -> None:
        """New samples in these slots (m,), with the energies (m, patches) of the prior."""
        self._energy[rows] = energy
        self._asked_at[rows] = -1
        self._scale[rows] = 0

    def due(self, rows: Tensor, x: Tensor, age: Tensor) -> Tensor:
        """(m,) bool: in which of the slots (m,) the surrogates are asked now.

        `x` (n, *shape) are the inputs of all slots, `age` (n,) the queries of their episodes.
        """
        if self._x is None:
            return torch.zeros_like(rows, dtype=torch.bool)
        first = self._asked_at[rows] < 0
        repeats = age[rows] - self._asked_at[rows] >= self._trust.every
        repeats &= (x[rows].flatten(1) != self._x[rows]).any(1)
        return first | repeats

    def look(self, rows: Tensor, x: Tensor, age: Tensor) -> None:
        """Remember at which inputs and ages the surrogates of these slots (m,) are asked, of those of all slots."""
        if self._x is not None:
            self._asked_at[rows], self._x[rows] = age[rows], x[rows].flatten(1)

    def ask(self, rows: Tensor, ids: Tensor, x: Tensor, weights: Tensor) -> None:
        """Ask about the inputs (m, *shape) and give what is answered to the posterior."""
        slopes = self._oracle.slopes(ids, x, weights).view(len(rows), -1, self._grid.channels, self._grid.places)
        size = slopes.square().mean((2, 3)).sqrt()
        self._scale[rows] = torch.where(self._scale[rows] > 0, self._scale[rows], size)
        self._posterior.follow(rows, slopes / self._scale[rows].clamp_min(1e-30)[:, :, None, None])

    def energies(self, rows: Tensor) -> Tensor:
        """(m, patches): the energies of the prior with a share of those of the surrogates, which is as large as their trust."""
        square = self._posterior.slopes[rows].square().mean(2)
        members, inside = patch_places(self._grid, square.device)
        patch = (square[:, :, members] * inside).sum(3) / inside.sum(1)
        patch = patch / patch.mean(2, keepdim=True).clamp_min(1e-12)
        trust = (self._posterior.coefficients[rows] / self._trust.mean).clamp(0, 1) * self._trust.energy / patch.shape[1]
        mixed = (1 - trust.sum(1, keepdim=True)) * self._energy[rows] + (trust[:, :, None] * patch).sum(1)
        return mixed.clamp_min(LEAST)
