"""Reject classes that a rule without a slope decides, and classes that only attacks reach.

A model that answers 1000 or -1000 for its reject class, by a threshold on its own confidence, shows an attack that an input was
rejected but gives no direction out of the rejection (Carlini & Wagner 2017, Adversarial examples are not easily detected, on
detectors). The check follows the gradient past the boundary of the rejections and looks at how sharp it is.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import EXTRA, Code, Finding
from brinell.core.errors import ModelError
from brinell.core.intervals import wilson
from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch
from brinell.core.record import CLEAN, Outcome, Records
from brinell.core.threat import Distance, Threat, extent

STEPS = 6
"""Steps along the gradient of the other classes' lead, in which rejections are looked for."""
HALVINGS = 8
"""Of the step between an accepted and a rejected input."""
SHARP_SHARE = 0.5
"""A rule jumps where the last 2^-8 of that step makes this share of its change: a straight one makes 0.004 of it."""
LIMIT = 0.25
"""The share of crossings that may jump."""
MIN_EXTRA_SHARE = 0.1
"""Share of the fooled samples above which an extra class of the model is reported. If a network has many extra classes, none
attracts as many."""


@dataclass(frozen=True)
class GradientPath:
    """Inputs and logits on the path from clean inputs along the gradient of the other classes' lead."""

    x: Tensor
    """(1 + steps, n, *shape): inputs on the path."""
    logits: Tensor
    """(1 + steps, n, classes)."""


def follow_gradient(
    model: Model, batch: Batch, distance: Distance, eps: float, reject: int, *, batch_size: int
) -> tuple[GradientPath, Ledger]:
    """Follow the gradient within the budget, across rejected regions. Costs 7 forwards and 6 backwards per sample.

    Args:
        model: the model, which gives gradients.
        batch: inputs that it classifies correctly, with ids 0 to n-1.
        distance: norm of `eps`.
        eps: the largest budget, above 0; infinite where there is none.
        reject: the class by which it rejects.
        batch_size: the most inputs shown to the model at once.

    Raises:
        ModelError: the model fails on inputs other than clean ones.
    """
    budget = torch.full((len(batch),), min(eps, extent(distance, model.domain)), device=batch.x.device)
    threat = Threat(distance=distance, eps=budget, domain=model.domain)
    ledger = Ledger(model, batch, threat, batch_size=batch_size, minimal=True)
    oracle, batch, threat = ledger.oracle(), ledger.batch, ledger.threat

    def lead(logits: Tensor, y: Tensor) -> Tensor:
        """(n,): lead of the best accepted wrong class over the true one."""
        columns = torch.cat([y[:, None], torch.full_like(y[:, None], reject)], 1)
        return logits.scatter(1, columns, -torch.inf).amax(1) - logits.gather(1, y[:, None])[:, 0]

    inputs, answers = [batch.x], []
    for _ in range(STEPS):
        answer = oracle.gradient(batch.ids, inputs[-1], lead)
        answers.append(answer.logits)
        step = threat.distance.ascent(answer.grad) * per_sample(1.5 / STEPS * threat.eps, batch.x)
        inputs.append(threat.project(inputs[-1] + step, batch.x))
    answers.append(oracle.scores(batch.ids, inputs[-1]))
    return GradientPath(torch.stack(inputs), torch.stack(answers)), ledger


def check_sharpness(path: GradientPath, ledger: Ledger, reject: int) -> Finding:
    """Check if the rule of the reject class is discontinuous. Costs 8 forwards per sample that is rejected on the path."""
    lead = _lead(path.logits, reject)
    crossed = (lead[:-1] > 0) != (lead[1:] > 0)
    rows = crossed.any(0).nonzero()[:, 0]
    if not len(rows):
        text = f"none of {lead.shape[1]} inputs is rejected on the way along the gradient, so there is no boundary to look at"
        return Finding(code=Code.REJECTION, passed=None, text=text, limit=LIMIT)
    first = crossed[:, rows].int().argmax(0)
    start, end = (path.x[first + offset, rows] for offset in (0, 1))
    start_lead, end_lead = (lead[first + offset, rows] for offset in (0, 1))
    change, oracle = (end_lead - start_lead).abs(), ledger.oracle()
    for _ in range(HALVINGS):
        middle = (start + end) / 2
        middle_lead = _lead(oracle.scores(ledger.batch.ids[rows], middle), reject)
        is_start_side = (middle_lead > 0) == (start_lead > 0)
        mask = per_sample(is_start_side.to(middle.dtype), middle).bool()
        start, end = torch.where(mask, middle, start), torch.where(mask, end, middle)
        start_lead, end_lead = (
            torch.where(is_start_side, middle_lead, start_lead),
            torch.where(is_start_side, end_lead, middle_lead),
        )
    jumps = (end_lead - start_lead).abs() > SHARP_SHARE * change
    k, n = int(jumps.sum()), len(rows)
    interval = wilson(k, n)
    failed = interval is not None and interval.low > LIMIT
    text = f"{k} of {n} inputs are rejected all at once, by a rule without a slope on the way along the gradient"
    if failed:
        text += (
            ": attacks learn that they are rejected and not which way leads out; return what the rule compares with its "
            "threshold in place of its decision"
        )
    return Finding(code=Code.REJECTION, passed=not failed, text=text, figure=k / n, limit=LIMIT)


def _lead(logits: Tensor, reject: int) -> Tensor:
    """Logit difference of the reject class and the best other class."""
    others = torch.cat([logits[..., :reject], logits[..., reject + 1 :]], -1)
    return logits[..., reject] - others.amax(-1)


def check_rejection(
    model: Model, batch: Batch, distance: Distance, eps: float, reject: int, *, batch_size: int
) -> tuple[Finding, int, int]:
    """Make the check; return the finding and its forwards and backwards. Arguments as in `follow_gradient`."""
    try:
        path, ledger = follow_gradient(model, batch, distance, eps, reject, batch_size=batch_size)
        finding = check_sharpness(path, ledger, reject)
    except ModelError as error:
        return Finding.not_made(Code.REJECTION, str(error), limit=LIMIT), 0, 0
    return finding, int(ledger.costs.forwards.sum()), int(ledger.costs.backwards.sum())


def extra_class_warning(records: Records, model: str, classes: int) -> dict[str, str]:
    """Warning about the class numbered `classes` or higher that attracts most fooled samples, if their share is significant."""
    is_model = records.model == model
    fooled = is_model & (records.outcome == Outcome.FOOLED) & ~np.ma.getmaskarray(records.adv_pred)
    first = np.unique(records.sample_id[fooled], return_index=True)[1]
    predictions = np.ma.getdata(records.adv_pred)[fooled][first]
    extra, counts = np.unique(predictions[predictions >= classes], return_counts=True)
    if not len(extra):
        return {}
    top, k = int(extra[counts.argmax()]), int(counts.max())
    interval = wilson(k, len(predictions))
    if interval is None or interval.low <= MIN_EXTRA_SHARE:
        return {}
    clean = int((np.ma.getdata(records.clean_pred)[is_model & (records.attack == CLEAN)] == top).sum())
    text = (
        f"{k} of {len(predictions)} adversarial inputs and {clean} clean ones are taken for class {top}, which the data has not: "
        f"if the model rejects inputs by it, give --reject-class {top}, and such an input is no success; otherwise it is a "
        "class as any"
    )
    return {EXTRA: text}
