"""Measurements on a model before any attack.

Every query goes through a ledger's oracle, which counts it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.domain import Domain
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat
from brinell.engine.context import CheckContext

LONGEST_STEP = 1 / 4
SHORTEST_STEP = 1 / 16
"""Steps along the gradient are this share of the budget: those that attacks make once they have
begun to narrow theirs."""
LOCAL = 0.2
"""Upper bound on the budget, as a change of every value by this share of its range."""
MIN_RISE = 0.25
"""Smallest permitted rise of the margin, as a share of the rise that the gradient predicts."""
VISIBLE = 1e-4
"""A change of the margin below this share of the largest logit may be rounding."""
FIRST_WALK = (0.5, 0.5, 0.25, 0.1)
WALK = (0.5, 0.5, 0.25, 0.25, 0.1, 0.1)
"""Steps of the attack that leads into the budget, as shares of it: in a first look, and in all."""
STRIDES = (0.2,) * 4 + (0.1,) * 2 + (0.05,) * 2
"""Steps of the attack without a budget, in widths of the data's range."""


def has_gradient(grad: Tensor) -> Tensor:
    """(n,) bool: which gradients (n, *shape) have a value that is not 0, and none that is NaN or
    infinite.
    """
    largest = grad.flatten(1).abs().amax(1)
    return torch.isfinite(largest) & (largest > 0)


def misled_samples(context: CheckContext) -> tuple[Tensor, Tensor]:
    """(n,) bool: samples whose margin does not rise along its gradient as predicted; (n,) bool:
    those with a visible change.

    A step is tried at each clean input, and one where a few steps of an attack lead, if the sample
    is still robust there; where that is, is kept in `context.ends`. Costs at most 11 forwards and 6
    backwards a sample, three forwards where the first step of the attack fools the model.

    Pintor et al. 2022 (indicator of unstable predictions) take the mean relative change of the loss
    at random neighbours. Deviation: the same neighbourhood is asked along the gradient too, because
    steep healthy networks change at random neighbours as much as shattered ones do; and not around
    clean inputs only, because gradients that lead at first may fail further on.
    """
    batch, domain = context.batch, context.domain
    logits, _, grad = context.margin
    low, high = domain.bounds(batch.x)
    # A small part of the range: the gradient is a promise for its neighbourhood alone.
    width = ((high - low) * LOCAL).expand(1, *domain.shape)
    limit = min(context.eps, float(context.distance.size(width)))
    rng = context.rng.fold("clean")
    failed, visible = _probe_steps(context, batch, logits, grad, limit, rng)

    eps = limit if context.eps == torch.inf else context.eps
    budget = torch.full((len(batch),), eps, device=batch.x.device)
    threat = Threat(distance=context.distance, eps=budget, domain=domain)
    shares = WALK if context.whole is None else FIRST_WALK
    # Networks may be smooth at the data and not beside them, where attacks go.
    ids, logits, grad, x = _walk(context.oracle, batch, grad, threat, shares)
    context.ends = ids, grad, losses.margin(logits, batch.y[ids])
    if len(ids):
        inside = Batch(ids=ids, x=x, y=batch.y[ids])
        rng = context.rng.select(ids).fold("inside")
        inside_failed, inside_visible = _probe_steps(context, inside, logits, grad, limit, rng)
        failed[ids] |= inside_failed
        visible[ids] |= inside_visible
    return failed, visible


def _probe_steps(
    context: CheckContext, batch: Batch, logits: Tensor, grad: Tensor, limit: float, rng: Streams
) -> tuple[Tensor, Tensor]:
    """Compare a step along the gradient (in Linf along its sign) with a random step of the same
    length.

    The length is random, at most a share of `limit`, so it does not coincide with a period of the
    model. Returned is whether the margin rose by less than a quarter of what the gradient predicts
    or of what fools the model, or by less than at random, and whether the step changed the answer
    visibly: (n,) bool each.
    """
    x, y = batch.x, batch.y
    domain, distance = context.domain, context.distance
    feasible = _feasible_gradient(grad, x, domain)
    shrinking = (SHORTEST_STEP / LONGEST_STEP) ** rng.fold("length").uniform(1)[:, 0]
    length = limit * LONGEST_STEP * shrinking
    way = rng.fold("way").normal(*x.shape[1:])
    ascended = domain.clamp(x + _scale_step(feasible, length, distance))
    displaced = domain.clamp(x + _scale_step(way, length, distance))

    # How far the margin, which is negative until the model is fooled, rises: by the gradient, by
    # the model, and by the model at random.
    margin = losses.margin(logits, y)
    promised = ((ascended - x) * feasible).flatten(1).sum(1)
    rise = losses.margin(context.oracle.scores(batch.ids, ascended), y) - margin
    chance = losses.margin(context.oracle.scores(batch.ids, displaced), y) - margin

    rounding = VISIBLE * losses.scale(logits, y)
    visible = torch.stack([rise.abs(), chance.abs(), promised]).amax(0) > rounding
    # No more than what fools the model can be asked of a step.
    is_short = (rise < MIN_RISE * torch.minimum(promised, -margin)) | (rise < chance - rounding)
    return visible & is_short, visible


def _walk(
    oracle: Oracle, batch: Batch, grad: Tensor, threat: Threat, shares: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids of the samples that are robust after a few attack steps, with logits, gradients and
    inputs there.
    """
    ids, x = batch.ids, batch.x
    logits = x.new_zeros(0, oracle.classes)
    for turn, share in enumerate(shares):
        ascent = _feasible_gradient(grad, x, threat.domain)
        step = _scale_step(ascent, share * threat.eps[ids], threat.distance)
        x = threat.select(ids).project(x + step, batch.x[ids])

        # Where the first step fools the model, as it does on most samples that are not robust, no
        # gradient is needed.
        if not turn:
            oracle.scores(ids, x)
            robust = oracle.active(ids)
            ids = ids[robust]
            x = x[robust]
        if len(ids):
            logits, _, grad = oracle.gradient(ids, x, losses.margin)
            robust = oracle.active(ids)
            ids = ids[robust]
            x = x[robust]
            logits = logits[robust]
            grad = grad[robust]
        if not len(ids):
            break
    return ids, logits, grad, x


def unbroken_samples(context: CheckContext) -> Tensor:
    """(n,) bool: which samples are robust after eight long steps along the sign of their gradient,
    with no budget but the bounds.

    Costs at most 8 forwards and 7 gradients a sample, one forward where the first step fools the
    model.
    """
    oracle, batch, domain = context.attacked, context.batch, context.domain
    grad = context.margin.grad
    low, high = domain.bounds(batch.x)
    ids, x = batch.ids, batch.x

    for turn, stride in enumerate(STRIDES):
        if turn:
            grad = oracle.gradient(ids, x, losses.margin).grad
        # A sample without a way to go stays where it is: it is robust.
        directions = _feasible_gradient(grad, x, domain).sign()
        moves = directions.flatten(1).any(1)
        ids = ids[moves]
        if not len(ids):
            break

        x = domain.clamp(x[moves] + stride * (high - low) * directions[moves])
        oracle.scores(ids, x)
        robust = oracle.active(ids)
        ids = ids[robust]
        x = x[robust]
        if not len(ids):
            break
    return oracle.active(batch.ids)


def _scale_step(direction: Tensor, size: Tensor, distance: Distance) -> Tensor:
    """Steps of the given sizes (n,) along `direction`.

    In L1 the step of the steepest value alone would not be small.
    """
    step = direction.sign()
    if distance.name != "linf":
        largest = direction.flatten(1).abs().amax(1).clamp_min(1e-38)
        step = direction / per_sample(largest, direction)
    return step * per_sample(size / distance.size(step).clamp_min(1e-12), step)


def _feasible_gradient(grad: Tensor, x: Tensor, domain: Domain) -> Tensor:
    """The gradient with values set to 0 that point out of the bounds or are not finite."""
    low, high = domain.bounds(x)
    outwards = ((x <= low) & (grad < 0)) | ((x >= high) & (grad > 0))
    return torch.where(outwards | ~torch.isfinite(grad), 0.0, grad)
