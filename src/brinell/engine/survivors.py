"""Check that the shown margin reaches zero at the decision boundary near the samples that attacks left.

The check before the attacks (`engine.boundary`) asks about lines between clean inputs. If scores do not decide near a tenth of
the samples, these are a large part of those that are robust in the end, so the check is made again on these: from the clean input
through the best point of a few attack steps and on, until the class changes; where it does not, from that point to an adversarial
example of another sample. Lines from clean inputs to the adversarial examples that attacks found for them are added.
"""

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.checks import Code, Finding
from brinell.core.errors import ModelError
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.threat import Distance, Threat, extent
from brinell.engine import boundary
from brinell.engine.boundary import Lines

SURVIVORS = 32
"""Largest number of robust samples that the check asks about."""
EXAMPLES = 16
"""Largest number of adversarial examples to whose clean inputs it draws lines."""
STEPS = (0.5, 0.5, 0.25)
"""Attack steps that lead to the best point, as shares of the budget."""
BEYOND = 8.0
"""The line through the best point ends at this multiple of its distance, within the bounds of the data."""


def check_survivors(
    model: Model,
    survivors: Batch,
    examples: tuple[Tensor, Tensor],
    distance: Distance,
    eps: float,
    *,
    batch_size: int,
) -> tuple[Finding, int, int]:
    """Make the check; return the finding, and the forwards and backwards that it cost.

    Args:
        model: the model; it gives at least scores.
        survivors: samples that are robust at the largest budget, with ids 0 to n-1, n at least 1.
        examples: m clean inputs (m, *shape) and adversarial inputs for them, of the same shape; m may be 0.
        distance: norm of `eps`.
        eps: the largest budget.
        batch_size: the most inputs shown to the model at once.
    """
    clean, adversarial = examples
    x = torch.cat([survivors.x, clean])
    batch = Batch(ids=torch.arange(len(x), device=x.device), x=x, y=torch.cat([survivors.y, survivors.y.new_zeros(len(clean))]))
    radius = torch.full((len(x),), extent(distance, model.domain), device=x.device)
    threat = Threat(distance=distance, eps=radius, domain=model.domain)
    ledger = Ledger(model, batch, threat, access=model.access, batch_size=batch_size, minimal=True)
    budget = Threat(distance=distance, eps=radius.clamp_max(eps), domain=ledger.threat.domain)
    try:
        finding = _check_lines(ledger, budget, len(survivors), ledger.movable(adversarial), model.access == Access.GRADIENTS)
    except ModelError as error:
        finding = Finding.not_made(Code.SURVIVORS, str(error))
    return finding, int(ledger.costs.forwards.sum()), int(ledger.costs.backwards.sum())


def _check_lines(ledger: Ledger, budget: Threat, n: int, adversarial: Tensor, climbs: bool) -> Finding:
    """The finding on all lines; the first n samples of the ledger are survivors, of the others `adversarial` holds an example."""
    oracle, batch = ledger.oracle(), ledger.batch
    logits = oracle.scores(batch.ids, batch.x)
    survivors = batch.select(batch.ids[:n])
    drawn = [_lines(oracle, batch.ids[n:], batch.x[n:], adversarial, logits[n:])]
    best = _climb(oracle, survivors, budget.select(survivors.ids)) if climbs else survivors.x
    if climbs:
        far = budget.domain.clamp(survivors.x + BEYOND * (best - survivors.x))
        drawn.append(_lines(oracle, survivors.ids, survivors.x, far, logits[:n]))
    crossed = drawn[-1].ids if climbs else survivors.ids[:0]
    left = survivors.ids[~torch.isin(survivors.ids, crossed)]
    pool = torch.cat([adversarial, batch.x[n:], survivors.x])
    for turn in range(2):
        if len(left):
            ends = pool[(left + turn * (len(pool) // 2 + 1)) % len(pool)]
            first = oracle.scores(left, best[left])
            lines = _lines(oracle, left, best[left], ends, first)
            drawn.append(lines)
            left = left[~torch.isin(left, lines.ids)]
    lines = boundary.join_lines(drawn)
    if not len(lines.ids):
        return Finding.not_made(Code.SURVIVORS, "no line from a robust sample leads to another class")
    crossings = boundary.find_crossings(oracle, lines, boundary.lead(logits).median())
    description = "lines from robust samples and to adversarial examples"
    return boundary.judge_crossings(Code.SURVIVORS, crossings, description, fewest=1)  # of few robust samples it asks about all


def _lines(oracle: Oracle, ids: Tensor, start: Tensor, end: Tensor, first: Tensor) -> Lines:
    """The lines on which the class changes; there may be none."""
    last = oracle.scores(ids, end) if len(ids) else first
    return boundary.crossing_lines(Lines(ids, start, end, first, last))


def _climb(oracle: Oracle, batch: Batch, threat: Threat) -> Tensor:
    """(n, *shape): where a few steps along the gradient of the margin lead within the budget."""
    x = batch.x
    for share in STEPS:
        grad = oracle.gradient(batch.ids, x, losses.margin).grad.nan_to_num(0.0, 0.0, 0.0)
        x = threat.project(x + threat.distance.ascent(grad) * per_sample(share * threat.eps, x), batch.x)
    return x
