"""Gradient-masking checks of a model before any attack: whether attacks would overstate its robustness.

Croce & Hein 2020, Reliable evaluation of adversarial robustness, and the checks of its code; Pintor et al. 2022, Indicators of
attack failure; Carlini et al. 2019, On evaluating adversarial robustness. What each looks for: `core.checks.Code`; how the limits
were found: design/0006-checks.md. More are made on what the attacks found, in `analysis.indicators`.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
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
from brinell.engine import consistency, gradient_check, probes
from brinell.engine.answers import kind_of_answers
from brinell.engine.gradient_check import GradientCheck
from brinell.engine.repair import culprits

SAMPLES = 64
"""On how many samples the checks are made."""
MASKING: frozenset[str] = frozenset(
    {
        Code.RANDOM,
        Code.ANSWERS,
        Code.ONE_HOT,
        Code.INSIDE,
        Code.ZERO,
        Code.SATURATED,
        Code.MISLEADING,
        Code.MISMATCH,
        Code.UNCONSTRAINED,
        Code.REJECTION,
    }
)
"""Failed checks that mean: gradients are masked or answers are random, so an attack that stops early may stop too early."""

SAME = 1e-4
"""Two answers to one input may differ by this share of the largest logit: kernels differ by some 1e-6."""
LIMITS = {Code.ZERO: 0.05, Code.SATURATED: 0.05, Code.MISLEADING: 0.25, Code.UNCONSTRAINED: 0.05}
"""The share of samples that a check allows: it fails where the lower end of the interval of the share is above."""
FEWEST = 12
"""With fewer samples no check passes: half of them could be bad and it would not fail."""
REMEDY = (
    "what gradient attacks fail to break there is not shown to be robust; add one that asks for scores only: --attack black-box"
)


@dataclass(frozen=True)
class Checked:
    """All checks on a model and what they cost."""

    findings: list[Finding]
    forwards: int
    backwards: int

    def manifest(self) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """As the manifest keeps them: `checks` and `probes`."""
        return [asdict(one) for one in self.findings], {"forwards": self.forwards, "backwards": self.backwards}


def check_answers(logits: Tensor, model: Model) -> None:
    """Refuse answers that cannot be judged: not (n, classes), NaN or infinity."""
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
) -> Checked:
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

    Raises:
        ModelError: the model fails on inputs that it has answered before.
    """
    whole = torch.full((len(batch),), extent(distance, model.domain), device=batch.x.device)
    threat = Threat(distance=distance, eps=whole, domain=model.domain)
    # Two ledgers, so that an input that fools the model by chance in one question is not taken for a success in the other.
    ledgers = [
        Ledger(model, batch, threat, access=model.access, batch_size=batch_size, on_pass=on_pass) for _ in ("answers", "attack")
    ]
    oracle, attack = (ledger.oracle() for ledger in ledgers)
    batch, domain = ledgers[0].batch, ledgers[0].threat.domain
    if model.access == Access.LABELS:
        labels = [oracle.labels(batch.ids, batch.x) for _ in range(2)]
        answers, gradients = [torch.nn.functional.one_hot(one, model.classes).float() for one in labels], None
        found = [_random(answers)]
    elif model.access == Access.SCORES:
        answers, gradients = [oracle.scores(batch.ids, batch.x) for _ in range(2)], None
        first = answers[0]
        found = [_random(answers), kind_of_answers(first, model), _one_hot(first, batch)]
    else:
        first, inside = probes.answer_watched(oracle, batch)
        ce, margin = (oracle.gradient(batch.ids, batch.x, loss) for loss in (losses.cross_entropy, losses.margin))
        answers, gradients = [first, ce.logits, margin.logits], ce.logits
        found = [_random(answers), kind_of_answers(first, model), _one_hot(first, batch), _inside(inside)]
        found += _slopes(ce.grad, margin.grad)
        found.append(_attempt(Code.MISLEADING, lambda: _misleading(oracle, batch, margin, distance, eps, rng, domain)))
        check = GradientCheck(oracle, batch, margin.grad, distance=distance, eps=eps, domain=domain, rng=rng.fold("differences"))
        found.append(_attempt(Code.MISMATCH, lambda: _mismatch(oracle, batch, check, model, ledgers[0], margin)))
        found.append(_attempt(Code.UNCONSTRAINED, lambda: _unconstrained(attack, batch, margin, domain)))
    found += consistency.probe(oracle, batch, model, answers, batch_size=batch_size, gradients=gradients)
    made = {finding.code for finding in found}
    why = f"the model gives {model.access.name.lower()} only"
    found += [Finding.unmade(code, why) for code in looked_for() if code not in made]
    spent = [int(sum(getattr(ledger.costs, name).sum() for ledger in ledgers)) for name in ("forwards", "backwards")]
    return Checked(sorted(found, key=lambda one: looked_for().index(Code(one.code))), *spent)


def looked_for() -> list[Code]:
    """The codes of the checks that `make_checks` makes, in order."""
    return list(Code)[list(Code).index(Code.RANDOM) : list(Code).index(Code.BLACK_BOX)]


def _attempt(code: str, check: Callable[[], Finding]) -> Finding:
    """A check that asks about other inputs than clean ones, on which the model may fail."""
    try:
        return check()
    except ModelError as error:
        return Finding.unmade(code, str(error))


def _random(answers: list[Tensor]) -> Finding:
    first, *others = answers
    scale = float(first.abs().amax().clamp_min(1e-12))
    spread = max(float((first - other).abs().amax()) for other in others) / scale
    differ = torch.stack([first.argmax(1) != other.argmax(1) for other in others]).any(0)
    changed = f"{int(differ.sum())} of {len(first)} classes changed"
    if spread > SAME:
        text = (
            f"the model answers differently to the same input ({changed} within {len(answers)} answers): what one answer shows "
            "or misses may be luck; --attack rand judges it by the mean of 20"
        )
    else:
        text = f"{len(answers)} answers to each of {len(first)} inputs agree"
    return Finding(code=Code.RANDOM, passed=spread <= SAME, text=text, figure=spread, limit=SAME)


def _one_hot(logits: Tensor, batch: Batch) -> Finding:
    if bool((batch.x == batch.x[0]).all()):
        return Finding.unmade(Code.ONE_HOT, "it takes two different inputs")
    lead = losses.margin(logits, batch.y)
    alike = bool(lead.amax() - lead.amin() <= 1e-6 * lead.abs().amax())
    text = f"the margins of {len(lead)} answers differ"
    if alike:
        text = (
            f"all {len(lead)} answers have the same margin, as after an argmax: they say which class and not by how much, so "
            "neither gradients nor scores lead an attack; return what goes into the argmax"
        )
    return Finding(code=Code.ONE_HOT, passed=not alike, text=text)


def _inside(inside: bool) -> Finding:
    text = "no gradient is taken within the model's own forward pass"
    if inside:
        text = (
            "the model takes gradients within its own forward pass, as a defence that optimises at test time does: attacks do "
            "not see through that; attack the model without it too, and read the robust accuracy as an upper bound"
        )
    return Finding(code=Code.INSIDE, passed=not inside, text=text)


def _slopes(ce: Tensor, margin: Tensor) -> list[Finding]:
    has_ce, has_margin = probes.steep(ce), probes.steep(margin)
    flat = ~has_ce & ~has_margin
    return [
        _share(Code.ZERO, flat, "clean inputs have no gradient at all", REMEDY),
        _share(
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
    if not bool(probes.steep(margin.grad).any()):
        return Finding.unmade(Code.MISLEADING, "there is no gradient to follow")
    failed, visible = probes.misled(oracle, batch, margin.logits, margin.grad, distance=distance, domain=domain, eps=eps, rng=rng)
    if not bool(visible.any()):
        return Finding.unmade(Code.MISLEADING, "within the budget the answers do not change visibly")
    return _share(
        Code.MISLEADING,
        failed[visible],
        "samples are led astray: a small step along the gradient, from the clean input or from where an attack leads, does not "
        "raise the loss as it promises",
        REMEDY,
    )


def _mismatch(oracle: Oracle, batch: Batch, check: GradientCheck, model: Model, ledger: Ledger, margin: Gradient) -> Finding:
    code, limit, x = Code.MISMATCH, gradient_check.WRONG, ledger.whole(batch.ids, batch.x)
    if not bool(probes.steep(margin.grad).any()):
        return Finding.unmade(code, f"there is no gradient to check{''.join(f'; {one}' for one in _blame(model, x))}")
    if not bool(oracle.active(batch.ids).any()) and len(x) >= FEWEST:
        text = f"all of {len(x)} samples fall within a few steps along the gradient, so it leads"
        return Finding(code=code, passed=True, limit=limit, text=text)
    if not check.doubtful():
        if len(x) < FEWEST:
            return Finding(code=code, passed=None, text=f"cannot tell with {len(x)} sample{'s' * (len(x) != 1)}", limit=limit)
        text = "the margin changes as the gradient foretells, by finite differences"
        return Finding(code=code, passed=True, limit=limit, text=text)
    seen = check.look()
    if math.isnan(seen.disagreement):
        text = "cannot tell: within the budget hardly an answer changes by more than it is rounded"
        return Finding(code=code, passed=None, text=text, limit=limit)
    blame = _blame(model, x) if seen.wrong else []
    text = f"finite differences disagree with the gradient by {seen.disagreement:.2f}, where 0 is perfect and 1 is chance"
    if seen.wrong:
        text = f"{'; '.join((text, *seen.causes, *blame))}: {REMEDY}"
    elif seen.coarse_only:
        text += "; it foretells long steps and not short ones, as one that is passed straight through a rounding does"
    cause = next(iter(seen.causes), "; ".join(blame) or None) if seen.wrong else None
    return Finding(code=code, passed=not seen.wrong, text=text, figure=seen.disagreement, limit=limit, cause=cause)


def _blame(model: Model, x: Tensor) -> list[str]:
    """Which modules break the gradient, each a clause."""
    modules = [str(culprit) for culprit in culprits(model, x)]
    return [*modules[:3], *([f"and {len(modules) - 3} more"] if len(modules) > 3 else [])]


def _unconstrained(oracle: Oracle, batch: Batch, margin: Gradient, domain: Domain) -> Finding:
    robust = probes.unbroken(oracle, batch, margin.grad, domain)
    return _share(
        Code.UNCONSTRAINED,
        robust,
        f"samples withstand {len(probes.STRIDES)} gradient steps that only the bounds of the data limit",
        REMEDY,
    )


def _share(code: Code, bad: Tensor, what: str, remedy: str) -> Finding:
    """A check that fails where more than the allowed share of the samples are bad, beyond chance."""
    k, n, limit = int(bad.sum()), len(bad), LIMITS[code]
    interval = wilson(k, n)
    failed = interval is not None and interval.low > limit
    passed = None if not failed and n < FEWEST else not failed
    text = f"{k} of {n} {what}"
    if failed:
        text += f": {remedy}"
    elif passed is None:
        text = f"cannot tell with {n} sample{'s' * (n != 1)}: {text}"
    return Finding(code=code, passed=passed, text=text, figure=k / n, limit=limit)
