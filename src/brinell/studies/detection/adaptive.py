"""An attack that knows the detector: a wrong class and no alarm, both at once.

Selective projected gradient descent (Bryniarski, Hingun, Pachuca, Wang & Carlini 2022, Evading adversarial example detection
defenses with orthogonal projected gradient descent, section 3.1): each step follows the gradient of the one constraint that is
violated, the margin of the classifier while it is right, the detector's score once it errs.

Deviations: steps shrink on a cosine from a quarter of eps; the margin in place of the cross-entropy, since it ends where the
class turns; `free` keeps a part of the values untouched (the background masked out of the perturbation).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.contracts import Suspicion
from brinell.core.model import Model, ask
from brinell.core.streams import Streams
from brinell.core.threat import Threat

FIRST_STEP = 0.25
LAST_STEP = 1e-3
"""Both in units of eps."""


@dataclass(frozen=True, kw_only=True)
class Evasion:
    """What came of it, sample by sample."""

    x: Tensor
    """(n, *shape): an input that errs unnoticed, or the least suspicious that errs, or the last one tried."""
    fooled: Tensor
    """(n,) bool: whether the classifier errs there."""
    score: Tensor
    """(n,): the detector's score there."""
    steps: Tensor
    """(n,) int64: gradient steps taken."""


def evade(
    model: Model,
    suspicion: Suspicion,
    threshold: float,
    x: Tensor,
    y: Tensor,
    *,
    threat: Threat,
    rng: Streams,
    steps: int,
    free: Tensor | None = None,
) -> Evasion:
    """Look for inputs within eps that are misclassified and whose score is at most the threshold.

    Args:
        model: the classifier; must give gradients.
        suspicion: the detector's score, differentiable.
        threshold: scores above it are alarms.
        x: (n, *shape) clean inputs.
        y: (n,) their classes.
        threat: what counts as within the budget, n of them.
        rng: n streams for the random start.
        steps: gradient steps at most.
        free: (n, *shape) bool, values that may change; None for all.
    """
    n = len(x)
    best = Evasion(
        x=x.clone(),
        fooled=torch.zeros(n, dtype=torch.bool, device=x.device),
        score=torch.full((n,), torch.inf, device=x.device),
        steps=torch.zeros(n, dtype=torch.int64, device=x.device),
    )
    active = torch.arange(n, device=x.device)
    size = norms.per_sample(threat.eps, x)
    now = _within(x, x + threat.distance.sample(rng, tuple(x.shape[1:])) * size, free, threat)
    for step in range(steps + 1):
        leaf = now.clone().requires_grad_()
        margin, score = losses.margin(ask(model, leaf), y[active]), suspicion(leaf)
        fooled = margin > 0
        _note(best, active, leaf.detach(), fooled, score.detach())
        if step == steps:
            break
        best.steps[active] += 1
        gradient = torch.autograd.grad(torch.where(fooled, -score, margin).sum(), leaf)[0]
        going = ~(fooled & (score.detach() <= threshold))
        active, now, gradient = active[going], now[going], gradient[going]
        if not len(active):
            break
        share = FIRST_STEP * (1 + math.cos(math.pi * step / steps)) / 2 + LAST_STEP
        allowed = None if free is None else free[active]
        gradient = gradient if allowed is None else gradient * allowed
        ahead = now + share * size[active] * threat.distance.ascent(gradient)
        now = _within(x[active], ahead, allowed, threat.select(active))
    return best


def _within(x0: Tensor, x: Tensor, free: Tensor | None, threat: Threat) -> Tensor:
    """`x` moved into the threat's set around `x0`, with the values that must stay as they were put back."""
    return threat.project(x if free is None else torch.where(free, x, x0), x0)


def _note(best: Evasion, active: Tensor, x: Tensor, fooled: Tensor, score: Tensor) -> None:
    """Keep what errs with the lowest score; as long as nothing errs, the last input."""
    better = (fooled & ~best.fooled[active]) | ((fooled == best.fooled[active]) & (score < best.score[active]))
    better |= ~fooled & ~best.fooled[active]
    rows = active[better]
    best.x[rows], best.fooled[rows], best.score[rows] = x[better], fooled[better], score[better]
