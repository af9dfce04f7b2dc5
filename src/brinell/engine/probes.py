"""Measurements on a model before any attack.

Every query goes through a ledger's oracle, which counts it.
"""

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.domain import Domain
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat
from brinell.engine.context import CheckContext

LONGEST_STEP, SHORTEST_STEP = 1 / 4, 1 / 16
"""Steps along the gradient are this share of the budget: those that attacks make once they have
begun to narrow theirs."""
LOCAL = 0.2
"""Upper bound on the budget, as a change of every value by this share of its range."""
MIN_RISE = 0.25
"""Smallest permitted rise of the margin, as a share of the rise that the gradient predicts."""
VISIBLE = 1e-4
"""A change of the margin below this share of the largest logit may be rounding."""
WALK = (0.5, 0.5, 0.25, 0.25, 0.1, 0.1)
"""Steps of the attack that leads into the budget, as shares of it."""
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

    A step is tried at each clean input, and one where six steps of an attack lead, if the sample is
    still robust there. Costs at most 11 forwards and 6 backwards a sample, three forwards where the
    first step of the attack fools the model.

    Pintor et al. 2022 (indicator of unstable predictions) take the mean relative change of the loss
    at random neighbours. Deviation: the same neighbourhood is asked along the gradient too, because
    steep healthy networks change at random neighbours as much as shattered ones do; and not around
    clean inputs only, because gradients that lead at first may fail further on.
    """
    oracle, batch, domain, distance, eps = (
        context.oracle,
        context.batch,
        context.domain,
        context.distance,
        context.eps,
    )
    (logits, _, grad), rng = context.margin, context.rng
    low, high = domain.bounds(batch.x)
    limit = min(eps, float(distance.size(((high - low) * LOCAL).expand(1, *domain.shape))))
    failed, visible = _probe_steps(
        oracle, batch, logits, grad, limit, distance, domain, rng.fold("clean")
    )
    budget = torch.full((len(batch),), limit if eps == torch.inf else eps, device=batch.x.device)
    ids, logits, grad, x = _walk(
        oracle, batch, grad, Threat(distance=distance, eps=budget, domain=domain)
    )
    if len(ids):
        walked = Batch(ids=ids, x=x, y=batch.y[ids])
        walked_failed, walked_visible = _probe_steps(
            oracle, walked, logits, grad, limit, distance, domain, rng.select(ids).fold("inside")
        )
        failed[ids] |= walked_failed
        visible[ids] |= walked_visible
    return failed, visible


def _probe_steps(
    oracle: Oracle,
    batch: Batch,
    logits: Tensor,
    grad: Tensor,
    limit: float,
    distance: Distance,
    domain: Domain,
    rng: Streams,
) -> tuple[Tensor, Tensor]:
    """Compare a step along the gradient (in Linf along its sign) with a random step of the same
    length.

    The length is random, at most a share of `limit`, so it does not coincide with a period of the
    model. Returned is whether the margin rose by less than a quarter of what the gradient predicts
    or of what fools the model, or by less than at random, and whether the step changed the answer
    visibly: (n,) bool each.
    """
    x, y = batch.x, batch.y
    lead, scale = losses.margin(logits, y), losses.scale(logits, y)
    free = _feasible_gradient(grad, x, domain)
    length = (
        limit * LONGEST_STEP * (SHORTEST_STEP / LONGEST_STEP) ** rng.fold("length").uniform(1)[:, 0]
    )
    ascended = domain.clamp(x + _scale_step(free, length, distance))
    displaced = domain.clamp(
        x + _scale_step(rng.fold("way").normal(*x.shape[1:]), length, distance)
    )
    promised = ((ascended - x) * free).flatten(1).sum(1)
    rise = losses.margin(oracle.scores(batch.ids, ascended), y) - lead
    chance = losses.margin(oracle.scores(batch.ids, displaced), y) - lead
    visible = torch.stack([rise.abs(), chance.abs(), promised]).amax(0) > VISIBLE * scale
    short = (rise < MIN_RISE * torch.minimum(promised, -lead)) | (rise < chance - VISIBLE * scale)
    return visible & short, visible


def _walk(
    oracle: Oracle, batch: Batch, grad: Tensor, threat: Threat
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids of the samples that are robust after a few attack steps, with logits, gradients and
    inputs there.
    """
    ids, x, logits = batch.ids, batch.x, batch.x.new_zeros(0, oracle.classes)
    for turn, share in enumerate(WALK):
        eps = threat.eps[ids]
        step = _scale_step(_feasible_gradient(grad, x, threat.domain), share * eps, threat.distance)
        x = threat.select(ids).project(x + step, batch.x[ids])
        if not turn:
            oracle.scores(
                ids,
                x,
                # Where this fools the model, as it does on most that are not robust, no gradient is
                # needed.
            )
            active = oracle.active(ids)
            ids, x = ids[active], x[active]
        if len(ids):
            logits, _, grad = oracle.gradient(ids, x, losses.margin)
            active = oracle.active(ids)
            ids, x, logits, grad = ids[active], x[active], logits[active], grad[active]
        if not len(ids):
            break
    return ids, logits, grad, x


def unbroken_samples(context: CheckContext) -> Tensor:
    """(n,) bool: which samples are robust after eight long steps along the sign of their gradient,
    with no budget but the bounds.

    Costs at most 8 looks and 7 gradients a sample, one look where the first step fools the model.
    """
    oracle, batch, domain, grad = (
        context.attacked,
        context.batch,
        context.domain,
        context.margin.grad,
    )
    low, high = domain.bounds(batch.x)
    ids, x = batch.ids, batch.x
    for turn, stride in enumerate(STRIDES):
        if turn:
            grad = oracle.gradient(ids, x, losses.margin).grad
        directions = _feasible_gradient(grad, x, domain).sign()
        moves = directions.flatten(1).any(1)
        ids, x, directions = ids[moves], x[moves], directions[moves]
        if not len(ids):
            break
        x = domain.clamp(x + stride * (high - low) * directions)
        oracle.scores(ids, x)
        active = oracle.active(ids)
        ids, x = ids[active], x[active]
        if not len(ids):
            break
    return oracle.active(batch.ids)


def _scale_step(direction: Tensor, size: Tensor, distance: Distance) -> Tensor:
    """Steps of the given sizes (n,) along `direction`.

    In L1 the step of the steepest value alone would not be small.
    """
    step = (
        direction.sign()
        if distance.name == "linf"
        else direction / per_sample(direction.flatten(1).abs().amax(1).clamp_min(1e-38), direction)
    )
    return step * per_sample(size / distance.size(step).clamp_min(1e-12), step)


def _feasible_gradient(grad: Tensor, x: Tensor, domain: Domain) -> Tensor:
    """The gradient with values set to 0 that point out of the bounds or are not finite."""
    low, high = domain.bounds(x)
    outwards = ((x <= low) & (grad < 0)) | ((x >= high) & (grad > 0))
    return torch.where(outwards | ~torch.isfinite(grad), 0.0, grad)
