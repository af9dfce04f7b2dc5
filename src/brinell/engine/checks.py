"""Gradient-masking checks of a model before any attack: whether attacks would overstate its robustness.

Croce & Hein 2020, Reliable evaluation of adversarial robustness, and the checks of its code; Pintor et al. 2022, Indicators of
attack failure; Carlini et al. 2019, On evaluating adversarial robustness. `core.checks.Code` describes each check;
design/0006-checks.md explains the limits. `analysis.indicators` makes further checks on the results of the attacks.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.checks import Code, Finding
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.intervals import wilson
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch, Gradient, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, extent
from brinell.engine import boundary, consistency, gradient_check, probes
from brinell.engine.answers import LABELS_ALONE, check_answer_kind
from brinell.engine.gradient_check import GradientCheck

SAMPLES = 64
"""Number of samples on which the checks run."""
ANSWER_TOLERANCE = 1e-4
"""Two answers to one input may differ by this share of the largest logit: kernels differ by some 1e-6."""
LIMITS = {Code.ZERO: 0.05, Code.SATURATED: 0.05, Code.MISLEADING: 0.25, Code.UNCONSTRAINED: 0.05}
"""The share of samples that a check allows: it fails where the lower end of the interval of the share is above."""
MIN_SAMPLES = 12
"""Fewest samples with which a check can pass: with fewer, half of them could be bad without a failure."""
REMEDY = "what gradient attacks fail to break there is not shown to be robust"
BLACK_BOX = "; add one that asks for scores only: --attack black-box"
"""What to add where no attack of the audit asks for scores only."""


@dataclass(frozen=True)
class CheckResults:
    """All findings on a model and their cost."""

    findings: list[Finding]
    forwards: int
    backwards: int

    def manifest(self) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """The entries of the manifest: findings of the checks, and the passes that they took."""
        return [asdict(finding) for finding in self.findings], {"forwards": self.forwards, "backwards": self.backwards}


def check_answers(logits: Tensor, model: Model) -> None:
    """Raise ModelError for answers that cannot be judged: another shape than (n, classes), NaN or infinity."""
    if logits.ndim != 2 or logits.shape[1] != model.classes:
        raise ModelError(f"model {model.name} answered {tuple(logits.shape)}, not (n, {model.classes})")
    if not torch.isfinite(logits).all():
        raise ModelError(
            f"model {model.name} answered NaN or infinity on clean inputs: look for overflow or a division by zero in it"
        )


def make_checks(
    model: Model,
    batch: Batch,
    distance: Distance,
    eps: float,
    rng: Streams,
    *,
    batch_size: int = 128,
    on_pass: Callable[[int, int], None] | None = None,
    black_box: bool = False,
) -> CheckResults:
    """Make every check that the model's access allows.

    Costs at most 33 forwards and 15 backwards a sample, and some 10 and 2 where one step fools the model; a
    handful cost one more.

    Args:
        model: the model.
        batch: inputs that it classifies correctly, at least one.
        distance: norm of `eps`.
        eps: the largest budget of the run, above 0; infinite where there is none.
        rng: one stream per sample.
        batch_size: the most inputs shown to the model at once.
        on_pass: called with (forwards, backwards) after each batch.
        black_box: True if an attack of the audit asks for scores or labels only, so that none needs to be added.

    Raises:
        ModelError: the model fails on inputs that it has answered before.
    """
    radius = torch.full((len(batch),), extent(distance, model.domain), device=batch.x.device)
    threat = Threat(distance=distance, eps=radius, domain=model.domain)
    # Two ledgers, so that an input that fools the model by chance in one is not counted as a success in the other.
    ledgers = [
        Ledger(model, batch, threat, access=model.access, batch_size=batch_size, on_pass=on_pass) for _ in ("answers", "attack")
    ]
    oracle, attack = (ledger.oracle() for ledger in ledgers)
    batch, domain = ledgers[0].batch, ledgers[0].threat.domain
    if model.access == Access.LABELS:
        labels = [oracle.labels(batch.ids, batch.x) for _ in range(2)]
        answers, gradients = [torch.nn.functional.one_hot(classes, model.classes).float() for classes in labels], None
        findings = [_random_answers(answers), LABELS_ALONE]
    elif model.access == Access.SCORES:
        answers, gradients = [oracle.scores(batch.ids, batch.x) for _ in range(2)], None
        first = answers[0]
        findings = [_random_answers(answers), check_answer_kind(first, model), _one_hot(first, batch)]
    else:
        first, takes_gradients = probes.detect_inner_gradients(oracle, batch)
        ce, margin = (oracle.gradient(batch.ids, batch.x, loss) for loss in (losses.cross_entropy, losses.margin))
        answers, gradients = [first, ce.logits, margin.logits], ce.logits
        findings = [
            _random_answers(answers),
            check_answer_kind(first, model),
            _one_hot(first, batch),
            _inner_gradients(takes_gradients),
        ]
        findings += _slopes(ce.grad, margin.grad)
        findings.append(_attempt_check(Code.MISLEADING, lambda: _misleading(oracle, batch, margin, distance, eps, rng, domain)))
        check = GradientCheck(oracle, batch, margin.grad, distance=distance, eps=eps, domain=domain, rng=rng.fold("differences"))
        findings.append(_attempt_check(Code.MISMATCH, lambda: _mismatch(oracle, batch, check, model, ledgers[0], margin)))
        findings.append(_attempt_check(Code.UNCONSTRAINED, lambda: _unconstrained(attack, batch, margin, domain)))
    if model.access > Access.LABELS:
        findings.append(_boundary_margin(oracle, batch, first, model, rng, random=findings[0].passed is False))
    findings += consistency.check_consistency(oracle, batch, model, answers, batch_size=batch_size, gradients=gradients)
    codes = {finding.code for finding in findings}
    reason = f"the model gives {model.access.name.lower()} only"
    findings += [Finding.not_made(code, reason) for code in check_codes() if code not in codes]
    if not black_box:
        findings = [
            replace(finding, text=finding.text + BLACK_BOX) if finding.text.endswith(REMEDY) else finding for finding in findings
        ]
    costs = [int(sum(getattr(ledger.costs, name).sum() for ledger in ledgers)) for name in ("forwards", "backwards")]
    return CheckResults(sorted(findings, key=lambda finding: check_codes().index(Code(finding.code))), *costs)


def check_codes() -> list[Code]:
    """Codes of the checks that `make_checks` makes, in order."""
    return list(Code)[list(Code).index(Code.RANDOM) : list(Code).index(Code.BLACK_BOX)]


def _attempt_check(code: str, check: Callable[[], Finding]) -> Finding:
    """Run a check on inputs other than clean ones; if the model fails on them, the finding says that the check was not made."""
    try:
        return check()
    except ModelError as error:
        return Finding.not_made(code, str(error))


def _random_answers(answers: list[Tensor]) -> Finding:
    """Check that repeated answers to the same inputs agree."""
    first, *repeats = answers
    scale = float(first.abs().amax().clamp_min(1e-12))
    spread = max(float((first - repeat).abs().amax()) for repeat in repeats) / scale
    differ = torch.stack([first.argmax(1) != repeat.argmax(1) for repeat in repeats]).any(0)
    changed = f"{int(differ.sum())} of {len(first)} classes changed"
    if spread > ANSWER_TOLERANCE:
        text = (
            f"the model answers differently to the same input ({changed} within {len(answers)} answers): what one answer shows "
            "or misses may be luck; --attack rand judges it by the mean of 20"
        )
    else:
        text = f"{len(answers)} answers to each of {len(first)} inputs agree"
    return Finding(code=Code.RANDOM, passed=spread <= ANSWER_TOLERANCE, text=text, figure=spread, limit=ANSWER_TOLERANCE)


def _one_hot(logits: Tensor, batch: Batch) -> Finding:
    """Check that margins differ between inputs, that is, that answers are more than a class."""
    if bool((batch.x == batch.x[0]).all()):
        return Finding.not_made(Code.ONE_HOT, "it takes two different inputs")
    lead = losses.margin(logits, batch.y)
    alike = bool(lead.amax() - lead.amin() <= 1e-6 * lead.abs().amax())
    text = f"the margins of {len(lead)} answers differ"
    if alike:
        text = (
            f"all {len(lead)} answers have the same margin, as after an argmax: they say which class and not by how much, so "
            "neither gradients nor scores lead an attack; return what goes into the argmax"
        )
    return Finding(code=Code.ONE_HOT, passed=not alike, text=text)


def _boundary_margin(oracle: Oracle, batch: Batch, logits: Tensor, model: Model, rng: Streams, *, random: bool) -> Finding:
    """Check that the shown margin reaches zero where the decision changes."""
    if random:
        return Finding.not_made(Code.BOUNDARY, "the same input is answered differently each time (random-answers)")
    domain, free = model.domain.free, model.domain.movable is None
    return _attempt_check(Code.BOUNDARY, lambda: boundary.check_margin(oracle, batch, logits, domain, rng, free=free))


def _inner_gradients(takes_gradients: bool) -> Finding:
    """Check that the forward pass takes no gradients itself."""
    text = "no gradient is taken within the model's own forward pass"
    if takes_gradients:
        text = (
            "the model takes gradients within its own forward pass, as a defence that optimises at test time does: attacks do "
            "not see through that; attack the model without it too, and read the robust accuracy as an upper bound"
        )
    return Finding(code=Code.GRADIENTS_INSIDE, passed=not takes_gradients, text=text)


def _slopes(ce: Tensor, margin: Tensor) -> list[Finding]:
    """Check the gradients of the cross-entropy and of the margin for zeros."""
    has_ce, has_margin = probes.has_gradient(ce), probes.has_gradient(margin)
    flat = ~has_ce & ~has_margin
    return [
        _share_finding(Code.ZERO, flat, "clean inputs have no gradient at all", REMEDY),
        _share_finding(
            Code.SATURATED,
            has_margin & ~has_ce,
            "clean inputs have saturated logits: the cross-entropy has no gradient, while the margin has one",
            "attacks on the cross-entropy are blind there; use those on margins, such as apgd-dlr and apgd-t, or scale the "
            "logits down",
        ),
    ]


def _misleading(
    oracle: Oracle, batch: Batch, margin: Gradient, distance: Distance, eps: float, rng: Streams, domain: Domain
) -> Finding:
    """Check that steps along the gradient raise the loss as the gradient predicts."""
    if not bool(probes.has_gradient(margin.grad).any()):
        return Finding.not_made(Code.MISLEADING, "there is no gradient to follow")
    failed, visible = probes.misled_samples(
        oracle, batch, margin.logits, margin.grad, distance=distance, domain=domain, eps=eps, rng=rng
    )
    if not bool(visible.any()):
        return Finding.not_made(Code.MISLEADING, "within the budget the answers do not change visibly")
    return _share_finding(
        Code.MISLEADING,
        failed[visible],
        "samples are led astray: a small step along the gradient, from the clean input or from where an attack leads, does not "
        "raise the loss as it promises",
        REMEDY,
    )


def _mismatch(oracle: Oracle, batch: Batch, check: GradientCheck, model: Model, ledger: Ledger, margin: Gradient) -> Finding:
    """Check that the gradient matches finite differences of the answers."""
    code, limit, x = Code.MISMATCH, gradient_check.MAX_DISAGREEMENT, ledger.full_inputs(batch.ids, batch.x)
    if not bool(probes.has_gradient(margin.grad).any()):
        return Finding.not_made(code, "there is no gradient to check")
    if not bool(oracle.active(batch.ids).any()) and len(x) >= MIN_SAMPLES:
        text = f"all of {len(x)} samples fall within a few steps along the gradient, so it leads"
        return Finding(code=code, passed=True, limit=limit, text=text)
    if not check.is_doubtful():
        if len(x) < MIN_SAMPLES:
            return Finding(code=code, passed=None, text=f"cannot tell with {len(x)} sample{'s' * (len(x) != 1)}", limit=limit)
        text = "the margin changes as the gradient foretells, by finite differences"
        return Finding(code=code, passed=True, limit=limit, text=text)
    verdict = check.full_check()
    if math.isnan(verdict.disagreement):
        text = "cannot tell: within the budget hardly an answer changes by more than it is rounded"
        return Finding(code=code, passed=None, text=text, limit=limit)
    text = f"finite differences disagree with the gradient by {verdict.disagreement:.2f}, where 0 is perfect and 1 is chance"
    if verdict.wrong:
        text = f"{'; '.join((text, *verdict.causes))}: {REMEDY}"
    cause = next(iter(verdict.causes), None)
    return Finding(code=code, passed=not verdict.wrong, text=text, figure=verdict.disagreement, limit=limit, cause=cause)


def _unconstrained(oracle: Oracle, batch: Batch, margin: Gradient, domain: Domain) -> Finding:
    """Check that steps without a budget break every sample."""
    robust = probes.unbroken_samples(oracle, batch, margin.grad, domain)
    return _share_finding(
        Code.UNCONSTRAINED,
        robust,
        f"samples withstand {len(probes.STRIDES)} gradient steps that only the bounds of the data limit",
        REMEDY,
    )


def _share_finding(code: Code, bad: Tensor, description: str, remedy: str) -> Finding:
    """A finding that fails if significantly more samples than the allowed share are bad."""
    k, n, limit = int(bad.sum()), len(bad), LIMITS[code]
    interval = wilson(k, n)
    failed = interval is not None and interval.low > limit
    passed = None if not failed and n < MIN_SAMPLES else not failed
    text = f"{k} of {n} {description}"
    if failed:
        text += f": {remedy}"
    elif passed is None:
        text = f"cannot tell with {n} sample{'s' * (n != 1)}: {text}"
    return Finding(code=code, passed=passed, text=text, figure=k / n, limit=limit)
