"""A declared reject class that is decided by a rule without a slope, and a smooth rule that attacks follow in its place.

A model that answers 1000 or -1000 for its reject class, by a threshold on its own confidence, tells an attack that it was
rejected and never which way leads out. Attackers know the rule or fit one (Athalye, Carlini & Wagner 2018, Obfuscated gradients
give a false sense of security, section 4.1, on differentiable approximations; Carlini & Wagner 2017, Adversarial examples are not
easily detected, on detectors). The check follows the gradient past the boundary of the rejections and looks at how sharp it is;
the fitted rule is a logistic regression on what such rules are made of: the largest probabilities, entropy and energy of the
other logits. Rejections that the other logits do not determine, as those of a second network, cannot be fitted so.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.checks import Code, Finding
from brinell.core.errors import ModelError
from brinell.core.intervals import wilson
from brinell.core.ledger import Ledger
from brinell.core.model import Model, ModelInfo
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch
from brinell.core.threat import Distance, Threat, extent

STEPS = 6
"""Steps along the gradient of the other classes' lead, in which rejections are looked for."""
HALVINGS = 8
"""Of the step between an accepted and a rejected input."""
SHARP = 0.5
"""A rule jumps where the last 2^-8 of that step makes this share of its change: a straight one makes 0.004 of it."""
LIMIT = 0.25
"""The share of crossings that may jump."""
RULE_STEPS, RULE_RATE, RULE_DECAY = 400, 0.1, 1e-3
"""Of the fit of the smooth rule."""
LEAST = 8
"""Accepted and rejected inputs that a fit needs, of each."""
FITS = 0.1
"""Share of the accepted or of the rejected inputs that a fitted rule may judge otherwise."""


@dataclass(frozen=True)
class Rule:
    """What a reject class answers, as a smooth function of the other logits."""

    reject: int
    centre: Tensor
    """(k,) means of the features of the other logits."""
    weights: Tensor
    """(k,) of the features, in units of logits."""
    offset: float
    wrong: float
    """The larger share of accepted or rejected inputs that it judges otherwise."""

    def score(self, others: Tensor) -> Tensor:
        """(n, classes - 1) logits to (n,): positive where the rule rejects, in units of logits."""
        return (features(others) - self.centre) @ self.weights + self.offset


class Smoothed:
    """The classes that a model answers, with a reject logit that rises and falls with a smooth rule fitted to its rejections.

    The reject logit lies above the others exactly where the model's own does, and as far as the rule says.
    """

    def __init__(self, model: Model, rule: Rule) -> None:
        self._model, self._rule = model, rule
        self.name, self.domain, self.classes, self.access = model.name, model.domain, model.classes, model.access

    @property
    def info(self) -> ModelInfo:
        """That of the model itself."""
        return self._model.info

    def digest(self) -> str:
        """That of the model itself: its classes are the same."""
        return self._model.digest()

    def predict(self, x: Tensor) -> Tensor:
        """The model's answers with another reject logit."""
        logits = self._model.predict(x)
        reject, others = _apart(logits, self._rule.reject)
        lead, least = others.amax(1), 1e-3 * others.detach().abs().mean(1) + 1e-6
        score = self._rule.score(others)
        kept = torch.where(reject > lead, torch.maximum(score, least), torch.minimum(score, -least))
        # The value says what the model decides, and the gradient is that of the rule also where the two disagree.
        answer = lead + score + (kept - score).detach()
        return logits.index_copy(1, torch.tensor([self._rule.reject], device=logits.device), answer[:, None].to(logits.dtype))


@dataclass(frozen=True)
class Looked:
    """What the model answers on the way from clean inputs along the gradient of the other classes' lead."""

    x: Tensor
    """(1 + steps, n, *shape): where it was asked."""
    logits: Tensor
    """(1 + steps, n, classes)."""


def look(model: Model, batch: Batch, distance: Distance, eps: float, reject: int, *, batch_size: int) -> tuple[Looked, Ledger]:
    """Follow the gradient within the budget, past the rejections. Costs 7 forwards and 6 backwards a sample.

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
        at = torch.cat([y[:, None], torch.full_like(y[:, None], reject)], 1)
        return logits.scatter(1, at, -torch.inf).amax(1) - logits.gather(1, y[:, None])[:, 0]

    seen, answers = [batch.x], []
    for _ in range(STEPS):
        answer = oracle.gradient(batch.ids, seen[-1], lead)
        answers.append(answer.logits)
        step = threat.distance.ascent(answer.grad) * per_sample(1.5 / STEPS * threat.eps, batch.x)
        seen.append(threat.project(seen[-1] + step, batch.x))
    answers.append(oracle.scores(batch.ids, seen[-1]))
    return Looked(torch.stack(seen), torch.stack(answers)), ledger


def finding(looked: Looked, ledger: Ledger, reject: int) -> Finding:
    """Whether the rule of the reject class jumps. Costs 8 forwards for each sample that is rejected on the way."""
    lead = _lead(looked.logits, reject)
    crossed = (lead[:-1] > 0) != (lead[1:] > 0)
    rows = crossed.any(0).nonzero()[:, 0]
    if not len(rows):
        text = f"none of {lead.shape[1]} inputs is rejected on the way along the gradient, so there is no boundary to look at"
        return Finding(code=Code.REJECTION, passed=None, text=text, limit=LIMIT)
    first = crossed[:, rows].int().argmax(0)
    near, far = (looked.x[first + one, rows] for one in (0, 1))
    before, after = (lead[first + one, rows] for one in (0, 1))
    whole, oracle = (after - before).abs(), ledger.oracle()
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        found = _lead(oracle.scores(ledger.batch.ids[rows], middle), reject)
        ahead = (found > 0) == (before > 0)
        mask = per_sample(ahead.to(middle.dtype), middle).bool()
        near, far = torch.where(mask, middle, near), torch.where(mask, far, middle)
        before, after = torch.where(ahead, found, before), torch.where(ahead, after, found)
    jumps = (after - before).abs() > SHARP * whole
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


def fitted(looked: Looked, reject: int) -> Rule | None:
    """A smooth rule that decides as the reject class does; None where the other logits do not say what it decides."""
    own, others = _apart(looked.logits.flatten(0, 1), reject)
    rejected = own > others.amax(1)
    if min(int(rejected.sum()), int((~rejected).sum())) < LEAST:
        return None
    raw = features(others)
    centre, spread = raw.mean(0), raw.std(0).clamp_min(1e-6)
    values, truth = (raw - centre) / spread, rejected.to(raw.dtype)
    balance = torch.where(rejected, 0.5 / truth.mean(), 0.5 / (1 - truth.mean()))
    weights, offset = (torch.zeros(size, device=raw.device, requires_grad=True) for size in (values.shape[1], 1))
    optimiser = torch.optim.Adam([weights, offset], RULE_RATE)
    with torch.enable_grad():
        for _ in range(RULE_STEPS):
            logits = values @ weights + offset
            misfit = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth, balance)
            optimiser.zero_grad()
            torch.autograd.backward(misfit + RULE_DECAY * weights.square().sum())
            optimiser.step()
    weights, offset = weights.detach(), offset.detach()
    judged = values @ weights + offset > 0
    wrong = max(float((judged[rejected] != 1).float().mean()), float(judged[~rejected].float().mean()))
    if wrong > FITS:
        return None
    scale = _slope(others, weights / spread)
    return Rule(reject, centre, weights / spread / scale, float(offset) / scale, wrong)


def features(others: Tensor) -> Tensor:
    """(n, k) logits to (n, 6): what thresholds for rejection are usually put on."""
    logs = others.log_softmax(1)
    top = others.topk(2, dim=1).values
    entropy = -(logs.exp() * logs).sum(1)
    best = logs.amax(1)
    return torch.stack([best, best.exp(), entropy, others.logsumexp(1), top[:, 0], top[:, 0] - top[:, 1]], 1)


def _slope(others: Tensor, weights: Tensor) -> float:
    """How much the weighed features change with the logits, where a difference of two logits is 1."""
    with torch.enable_grad():
        leaf = others.clone().requires_grad_()
        (grad,) = torch.autograd.grad((features(leaf) @ weights).sum(), leaf)
    return float((grad.abs().sum(1) / 2).median().clamp_min(1e-6))


def _apart(logits: Tensor, reject: int) -> tuple[Tensor, Tensor]:
    """(n, classes) logits to the reject class's (n,), and the others (n, classes - 1)."""
    return logits[..., reject], torch.cat([logits[..., :reject], logits[..., reject + 1 :]], -1)


def _lead(logits: Tensor, reject: int) -> Tensor:
    """How far the reject class's logit lies above the best other one."""
    own, others = _apart(logits, reject)
    return own - others.amax(-1)


def checked(
    model: Model, batch: Batch, distance: Distance, eps: float, reject: int, *, batch_size: int
) -> tuple[Finding, int, int]:
    """The check, and the forwards and backwards that it cost; arguments as of `look`."""
    try:
        looked, ledger = look(model, batch, distance, eps, reject, batch_size=batch_size)
        found = finding(looked, ledger, reject)
    except ModelError as error:
        return Finding.unmade(Code.REJECTION, str(error), limit=LIMIT), 0, 0
    return found, int(ledger.costs.forwards.sum()), int(ledger.costs.backwards.sum())
