"""The adaptive attack on a detector: it knows the detector, and looks for a wrong class that raises no alarm.

Selective projected gradient descent (Bryniarski, Hingun, Pachuca, Wang & Carlini 2022, Evading adversarial example detection
defenses with orthogonal projected gradient descent, section 3.1): each step follows the gradient of the one constraint that is
violated, which is the margin of `core.criterion.Undetected`. The ledger judges what is proposed.

Deviations: steps shrink on a cosine from a quarter of eps; the margin in place of the cross-entropy, since it ends where the
class turns; `free` keeps a part of the values untouched (the background masked out of the perturbation).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Threat

FIRST_STEP = 0.25
LAST_STEP = 1e-3
"""Both in units of eps."""


def evade(oracle: Oracle, batch: Batch, threat: Threat, rng: Streams, *, steps: int, free: Tensor | None = None) -> Tensor:
    """Look for inputs within eps that are misclassified and raise no alarm.

    Args:
        oracle: of a ledger whose threat has the criterion `Undetected`.
        batch: clean inputs that the model classifies correctly, with ids 0 to n-1.
        threat: the budgets, n of them.
        rng: n streams for the random start.
        steps: gradient steps at most.
        free: (n, *shape) bool, values that may change; None for all.

    Returns:
        (n, *shape): the input with the smallest score among those that the model gets wrong, or the last one that was tried.
        The ledger says what was a success.
    """
    nothing = torch.full_like(threat.eps, -torch.inf)
    best = _Best(batch.x.clone(), torch.zeros_like(batch.ids, dtype=torch.bool), nothing)
    size = norms.per_sample(threat.eps, batch.x)
    start = threat.distance.sample(rng, tuple(batch.x.shape[1:])) * size
    now = _within(batch.x + start, batch.x, free, threat)
    for step in range(steps):
        answer = oracle.gradient(batch.ids, now)
        _keep(best, batch, now, answer.logits, answer.loss)
        active = oracle.active(batch.ids)
        batch, threat, now, gradient = batch.select(active), threat.select(active), now[active], answer.grad[active]
        free = None if free is None else free[active]
        if not len(batch):
            return best.x
        share = FIRST_STEP * (1 + math.cos(math.pi * step / steps)) / 2 + LAST_STEP
        gradient = gradient if free is None else gradient * free
        ahead = now + norms.per_sample(share * threat.eps, now) * threat.distance.ascent(gradient)
        now = _within(ahead, batch.x, free, threat)
    _keep(best, batch, now, oracle.scores(batch.ids, now), oracle.loss(batch.ids, now))
    return best.x


class _Best(NamedTuple):
    """What was best of each sample so far."""

    x: Tensor
    wrong: Tensor
    """(n,) bool: whether the model errs there."""
    margin: Tensor
    """(n,): the threshold minus the score there; minus infinity where the model does not err."""


def _keep(best: _Best, batch: Batch, x: Tensor, logits: Tensor, margin: Tensor) -> None:
    """Keep what the model gets wrong with the smallest score; as long as it errs nowhere, the last input."""
    ids, wrong = batch.ids, losses.margin(logits, batch.y) > 0
    better = torch.where(wrong, ~best.wrong[ids] | (margin > best.margin[ids]), ~best.wrong[ids])
    rows = ids[better]
    best.x[rows], best.wrong[rows] = x[better], wrong[better]
    best.margin[rows] = torch.where(wrong, margin, -torch.inf)[better]


def _within(x: Tensor, x0: Tensor, free: Tensor | None, threat: Threat) -> Tensor:
    """`x` moved into the threat's set around `x0`, with the values that must stay as they were put back."""
    return threat.project(x if free is None else torch.where(free, x, x0), x0)
