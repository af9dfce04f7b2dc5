"""What is measured on a model before any attack. Every question goes through a ledger's oracle, which counts it."""

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat

FARTHEST, NEAREST = 1 / 4, 1 / 16
"""Steps along the gradient are this share of the budget: those that attacks make once they have begun to narrow theirs."""
LOCAL = 0.2
"""No budget counts as larger than a change of every value by this share of its range."""
KEPT = 0.25
"""The share of its promise that a step must keep."""
VISIBLE = 1e-4
"""A change of the margin below this share of the largest logit may be rounding."""
WALK = (0.5, 0.5, 0.25, 0.25, 0.1, 0.1)
"""Steps of the attack that leads into the budget, as shares of it."""
STRIDES = (0.2,) * 4 + (0.1,) * 2 + (0.05,) * 2
"""Steps of the attack without a budget, in widths of the data's range."""


def answer_watched(oracle: Oracle, batch: Batch) -> tuple[Tensor, bool]:
    """The logits of the batch, and whether the model took gradients on the way to them.

    The oracle asks without gradients, so nothing that is saved for a backward pass is fetched again, unless the model switched
    gradients on and went backwards itself. A model that only switches them on is not noted.
    """
    fetched = False

    def fetch(saved: Tensor) -> Tensor:
        nonlocal fetched
        fetched = True
        return saved

    try:
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, fetch):
            return oracle.scores(batch.ids, batch.x), fetched
    except ModelError:
        # torch.func takes gradients too, and refuses to run beside these hooks. Any other failure fails again.
        return oracle.scores(batch.ids, batch.x), True


def steep(grad: Tensor) -> Tensor:
    """(n,) bool: which gradients (n, *shape) have a value that is not 0, and none that is NaN or infinite."""
    largest = grad.flatten(1).abs().amax(1)
    return torch.isfinite(largest) & (largest > 0)


def misled(
    oracle: Oracle, batch: Batch, logits: Tensor, grad: Tensor, *, distance: Distance, domain: Domain, eps: float, rng: Streams
) -> tuple[Tensor, Tensor]:
    """Where steps along the gradient of the margin do not do what the gradient says, on clean inputs and inside the budget.

    A step is tried at each clean input, and one where six steps of an attack lead, if the sample is still robust there. Costs at
    most 11 forwards and 6 backwards a sample, three forwards where the first step of the attack fools the model.

    Pintor et al. 2022 (indicator of unstable predictions) take the mean relative change of the loss at random neighbours.
    Deviation: the same neighbourhood is asked along the gradient too, because steep healthy networks change at random neighbours
    as much as shattered ones do; and not around clean inputs only, because gradients that lead at first may fail further on.

    Args:
        oracle: of a ledger whose threat is the whole domain.
        batch: clean inputs with ids 0 to n-1, all classified correctly.
        logits: (n, classes) at the inputs.
        grad: (n, *shape): gradient of the margin there.
        distance: norm of `eps`.
        domain: where the inputs live.
        eps: the largest budget, above 0; infinite where there is none.
        rng: one stream per sample.

    Returns:
        (n,) bool which samples were misled by either step, and (n,) bool which showed a change at all.
    """
    low, high = domain.bounds(batch.x)
    most = min(eps, float(distance.size(((high - low) * LOCAL).expand(1, *domain.shape))))
    failed, visible = _mislead(oracle, batch, logits, grad, most, distance, domain, rng.fold("clean"))
    budget = torch.full((len(batch),), most if eps == torch.inf else eps, device=batch.x.device)
    ids, logits, grad, x = _walk(oracle, batch, grad, Threat(distance=distance, eps=budget, domain=domain))
    if len(ids):
        there = Batch(ids=ids, x=x, y=batch.y[ids])
        again, shows = _mislead(oracle, there, logits, grad, most, distance, domain, rng.select(ids).fold("inside"))
        failed[ids] |= again
        visible[ids] |= shows
    return failed, visible


def _mislead(
    oracle: Oracle, batch: Batch, logits: Tensor, grad: Tensor, most: float, distance: Distance, domain: Domain, rng: Streams
) -> tuple[Tensor, Tensor]:
    """One step along the gradient (in Linf along its sign) at the inputs of `batch`, and one as long at random.

    It fails where the margin rises by less than a quarter of what is promised, or of what would suffice to fool the model, or by
    less than at random. Its length is random, so that no period of the model falls into step with it.
    """
    x, y = batch.x, batch.y
    lead, scale = losses.margin(logits, y), logits.abs().amax(1)
    free = _within(grad, x, domain)
    length = most * FARTHEST * (NEAREST / FARTHEST) ** rng.fold("length").uniform(1)[:, 0]
    along = domain.clamp(x + _sized(free, length, distance))
    astray = domain.clamp(x + _sized(rng.fold("way").normal(*x.shape[1:]), length, distance))
    promised = ((along - x) * free).flatten(1).sum(1)
    rise = losses.margin(oracle.scores(batch.ids, along), y) - lead
    chance = losses.margin(oracle.scores(batch.ids, astray), y) - lead
    shows = torch.stack([rise.abs(), chance.abs(), promised]).amax(0) > VISIBLE * scale
    short = (rise < KEPT * torch.minimum(promised, -lead)) | (rise < chance - VISIBLE * scale)
    return shows & short, shows


def _walk(oracle: Oracle, batch: Batch, grad: Tensor, threat: Threat) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids of the samples that are robust after a few attack steps, with logits, gradients and inputs there."""
    ids, x, logits = batch.ids, batch.x, batch.x.new_zeros(0, oracle.classes)
    for turn, share in enumerate(WALK):
        eps = threat.eps[ids]
        step = _sized(_within(grad, x, threat.domain), share * eps, threat.distance)
        x = threat.select(ids).project(x + step, batch.x[ids])
        if not turn:
            oracle.scores(ids, x)  # where this fools the model, as it does on most that are not robust, no gradient is needed
            active = oracle.active(ids)
            ids, x = ids[active], x[active]
        if len(ids):
            logits, _, grad = oracle.gradient(ids, x, losses.margin)
            active = oracle.active(ids)
            ids, x, logits, grad = ids[active], x[active], logits[active], grad[active]
        if not len(ids):
            break
    return ids, logits, grad, x


def unbroken(oracle: Oracle, batch: Batch, grad: Tensor, domain: Domain) -> Tensor:
    """(n,) bool: which samples are robust after eight long steps along the sign of their gradient, with no budget but the bounds.

    Costs at most 8 looks and 7 gradients a sample, one look where the first step fools the model. The arguments are those of
    `misled`.
    """
    low, high = domain.bounds(batch.x)
    ids, x = batch.ids, batch.x
    for turn, stride in enumerate(STRIDES):
        if turn:
            grad = oracle.gradient(ids, x, losses.margin).grad
        ways = _within(grad, x, domain).sign()
        moves = ways.flatten(1).any(1)
        ids, x, ways = ids[moves], x[moves], ways[moves]
        if not len(ids):
            break
        x = domain.clamp(x + stride * (high - low) * ways)
        oracle.scores(ids, x)
        active = oracle.active(ids)
        ids, x = ids[active], x[active]
        if not len(ids):
            break
    return oracle.active(batch.ids)


def _sized(way: Tensor, size: Tensor, distance: Distance) -> Tensor:
    """Steps of the given sizes (n,) along `way`. In L1 the steepest step is one value at its bound, too far to be a small one."""
    step = way.sign() if distance.name == "linf" else way / per_sample(way.flatten(1).abs().amax(1).clamp_min(1e-38), way)
    return step * per_sample(size / distance.size(step).clamp_min(1e-12), step)


def _within(grad: Tensor, x: Tensor, domain: Domain) -> Tensor:
    """The gradient without the values that point out of the bounds, or that are no numbers."""
    low, high = domain.bounds(x)
    outwards = ((x <= low) & (grad < 0)) | ((x >= high) & (grad > 0))
    return torch.where(outwards | ~torch.isfinite(grad), 0.0, grad)
