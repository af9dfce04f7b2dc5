"""Reject classes that a rule without a slope decides.

A model that answers 1000 or -1000 for its reject class, by a threshold on its own confidence, shows an attack that an input was
rejected but gives no direction out of the rejection (Carlini & Wagner 2017, Adversarial examples are not easily detected, on
detectors). The check follows the gradient past the boundary of the rejections and looks at how sharp it is.
"""

from functools import partial

import torch
from torch import Tensor

from brinell.core.checks import Code, Finding
from brinell.core.model import Access
from brinell.core.norms import per_sample
from brinell.core.threat import Threat, extent
from brinell.engine.context import CheckContext, NotMadeError

STEPS = 6
"""Steps along the gradient of the other classes' lead, in which rejections are looked for."""
HALVINGS = 8
"""Of the step between an accepted and a rejected input."""
SHARP_SHARE = 0.5
"""A rule jumps where the last 2^-8 of that step makes this share of its change: a straight one makes 0.004 of it."""
LIMIT = 0.25
"""The share of crossings that may jump."""


def rejection_jumps(context: CheckContext) -> Finding:
    """The rule of a declared reject class has a slope.

    Six steps along the gradient of the other classes' lead, within the budget, cross the boundary of the rejections; eight
    halvings of a step that crosses it tell how sharp it is.
    """
    reject = context.reject
    if reject is None:
        raise NotMadeError("no class is declared to reject inputs (--reject-class)")
    context.require(Access.GRADIENTS)
    batch, domain, device = context.batch, context.domain, context.batch.x.device
    budget = torch.full((len(batch),), min(context.eps, extent(context.distance, domain)), device=device)
    threat, oracle = Threat(distance=context.distance, eps=budget, domain=domain), context.oracle
    inputs, answers = [batch.x], list[Tensor]()
    for _ in range(STEPS):
        answer = oracle.gradient(batch.ids, inputs[-1], partial(_accepted_lead, reject))
        answers.append(answer.logits)
        step = threat.distance.ascent(answer.grad) * per_sample(1.5 / STEPS * budget, batch.x)
        inputs.append(threat.project(inputs[-1] + step, batch.x))
    answers.append(oracle.scores(batch.ids, inputs[-1]))
    x, lead = torch.stack(inputs), _lead(torch.stack(answers), reject)
    crossed = (lead[:-1] > 0) != (lead[1:] > 0)
    rows = crossed.any(0).nonzero()[:, 0]
    if not len(rows):
        raise NotMadeError(f"none of {len(batch)} inputs is rejected on the way along the gradient")
    first = crossed[:, rows].int().argmax(0)
    (start, end), (start_lead, end_lead) = ([values[first + offset, rows] for offset in (0, 1)] for values in (x, lead))
    change = (end_lead - start_lead).abs()
    for _ in range(HALVINGS):
        middle = (start + end) / 2
        middle_lead = _lead(oracle.scores(batch.ids[rows], middle), reject)
        is_start_side = (middle_lead > 0) == (start_lead > 0)
        mask = per_sample(is_start_side.to(middle.dtype), middle).bool()
        start, end = torch.where(mask, middle, start), torch.where(mask, end, middle)
        start_lead = torch.where(is_start_side, middle_lead, start_lead)
        end_lead = torch.where(is_start_side, end_lead, middle_lead)
    k, n = int(((end_lead - start_lead).abs() > SHARP_SHARE * change).sum()), len(rows)
    observation = f"{k} of {n} inputs are rejected all at once, by a rule without a slope on the way along the gradient"
    remedy = "attacks learn that they are rejected and not which way leads out; return what the rule compares with its threshold"
    return Finding.of_share(Code.REJECTION, k, n, LIMIT, observation, remedy, fewest=1)


def _accepted_lead(reject: int, logits: Tensor, y: Tensor) -> Tensor:
    """(n,): lead of the best accepted wrong class over the true one."""
    columns = torch.cat([y[:, None], torch.full_like(y[:, None], reject)], 1)
    return logits.scatter(1, columns, -torch.inf).amax(1) - logits.gather(1, y[:, None])[:, 0]


def _lead(logits: Tensor, reject: int) -> Tensor:
    """Logit difference of the reject class and the best other class."""
    others = torch.cat([logits[..., :reject], logits[..., reject + 1 :]], -1)
    return logits[..., reject] - others.amax(-1)
