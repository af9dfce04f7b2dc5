"""Checks of a model before any attack: whether attacks would overstate its robustness.

Croce & Hein 2020, Reliable evaluation of adversarial robustness, and the checks of its code; Pintor
et al. 2022, Indicators of attack failure; Carlini et al. 2019, On evaluating adversarial
robustness. `core.checks.Code` describes each check, and docs/reference/checks.md what it compares,
its error rate and what it cannot see. `analysis.indicators` makes further checks on the results of
the attacks.
"""

import torch
from torch import Tensor

from brinell.core.checks import MIN_SAMPLES, TOO_FEW, Code, Finding, exact_test
from brinell.core.errors import ModelError
from brinell.core.model import Access, Model
from brinell.engine import answers, boundary, consistency, gradient_check, plateau, probes
from brinell.engine.context import (
    ANSWER_TOLERANCE,
    Check,
    CheckContext,
    NotMadeError,
    answer_difference,
    in_two_looks,
)

SAMPLES = 64
"""Number of samples on which the checks run."""
LIMITS = {Code.ZERO: 0.05, Code.SATURATED: 0.05, Code.MISLEADING: 0.25, Code.UNCONSTRAINED: 0.05}
"""The share of samples that a check allows."""
MIN_VISIBLE, MAX_MISLED = 8, 1
"""Fewest samples with a visible change with which a first look passes, and most that are misled."""
DOUBTFUL = "a first look takes all samples"
OFF_GRID = 0.02
"""Twice the largest change by which inputs leave the grid of stored ones, as a share of the data's
range."""
REMEDY = (
    "what gradient attacks fail to break there is not shown to be robust; rely on "
    "those that need none (--attack black-box)"
)


def check_answers(logits: Tensor, model: Model) -> None:
    """Raise ModelError for answers that cannot be judged: another shape than (n, classes), NaN or
    infinity.
    """
    if logits.ndim != 2 or logits.shape[1] != model.classes:
        raise ModelError(
            f"model {model.name} answered {tuple(logits.shape)}, not (n, {model.classes})"
        )
    if not torch.isfinite(logits).all():
        raise ModelError(
            f"model {model.name} answered NaN or infinity on clean inputs: look "
            "for overflow or a division by zero in it"
        )


def random_answers(context: CheckContext) -> Finding:
    """Repeated answers to the same inputs agree."""
    first, *repeats = context.answers
    limit = ANSWER_TOLERANCE
    spread = max(float(answer_difference(first, repeat).amax()) for repeat in repeats)
    differ = torch.stack([first.argmax(1) != repeat.argmax(1) for repeat in repeats]).any(0)

    text = f"{1 + len(repeats)} answers to each of {len(first)} inputs agree"
    if spread > limit:
        text = (
            "the model answers differently to the same input "
            f"({int(differ.sum())} of {len(first)} classes changed within "
            f"{1 + len(repeats)} answers): what one answer shows or misses may be "
            "luck; --attack rand judges it by the mean of 20"
        )
    return Finding(code=Code.RANDOM, passed=spread <= limit, text=text, figure=spread, limit=limit)


def kind_of_answers(context: CheckContext) -> Finding:
    """Answers are neither rounded nor labels, and their margins differ between inputs."""
    if context.model.access > Access.LABELS and (count := _count_of_equal_margins(context)):
        text = (
            f"all {count} answers have the same margin, as after an argmax: "
            "they say which class and not by how much, so "
            "neither gradients nor scores lead an attack; return what goes into the argmax"
        )
        return Finding(
            code=Code.ANSWERS,
            passed=False,
            text=text,
            cause="the answers name a class and carry no scores",
        )

    finding = answers.check_answer_kind(context.first[0], context.model)
    if finding.figure is None:
        return finding  # the answers lie on no grid
    # Answers to inputs on a grid may lie on one without being rounded, as those of whole weights
    # do.
    low, high = context.domain.bounds(context.batch.x)
    noise = context.rng.fold("off the grid").uniform(*context.domain.shape).sub_(0.5)
    points = context.domain.clamp(context.batch.x + OFF_GRID * (high - low) * noise)
    return answers.check_answer_kind(
        context.oracle.scores(context.batch.ids, points), context.model
    )


def _count_of_equal_margins(context: CheckContext) -> int:
    """The number of answers that all have the same margin; 0 where margins differ."""
    batch = context.batch
    if bool((batch.x == batch.x[0]).all()):
        return 0
    lead = boundary.lead(context.first[0])
    if not _are_equal(lead):
        return 0
    # Voters may agree on all of a few inputs; halfway between two of them they differ.
    halfway = context.domain.clamp((batch.x + batch.x.roll(1, 0)) / 2)
    lead = torch.cat([lead, boundary.lead(context.oracle.scores(batch.ids, halfway))])
    return len(lead) if _are_equal(lead) else 0


def _are_equal(lead: Tensor) -> bool:
    return bool(lead.amax() - lead.amin() <= 1e-6 * lead.amax())


def gradients_inside(context: CheckContext) -> Finding:
    """The forward pass takes no gradients itself.

    A model that only switches them on is not noted.
    """
    context.require(Access.GRADIENTS)
    takes_gradients = context.first[1]

    text = "no gradient is taken within the model's own forward pass"
    if takes_gradients:
        text = (
            "the model takes gradients within its own forward pass, as a defence "
            "that optimises at test time does: attacks do "
            "not see through that; attack the model without it too, and read the "
            "robust accuracy as an upper bound"
        )
    return Finding(code=Code.GRADIENTS_INSIDE, passed=not takes_gradients, text=text)


def zero_gradients(context: CheckContext) -> Finding:
    """Clean inputs have a gradient."""
    flat = ~probes.has_gradient(context.margin.grad)
    if bool(flat.any()):
        flat &= ~probes.has_gradient(context.ce.grad)
    return _share(Code.ZERO, flat, "clean inputs have no gradient at all", REMEDY)


def saturated_logits(context: CheckContext) -> Finding:
    """The cross-entropy has a gradient where the margin has one, or attacks do not rest on it
    alone.
    """
    if context.climbs_margins:
        text = "attacks of this run follow gradients of margins, which logits do not saturate"
        return Finding(code=Code.SATURATED, passed=True, text=text)
    blind = probes.has_gradient(context.margin.grad) & ~probes.has_gradient(context.ce.grad)
    observation = (
        "clean inputs have saturated logits: of cross-entropy and margin only the "
        "margin has a gradient"
    )

    remedy = (
        "attacks on the cross-entropy are blind there; use those on margins, such as "
        "apgd-dlr and apgd-t, or scale the logits"
    )
    return _share(Code.SATURATED, blind, observation, remedy)


def misleading_gradients(context: CheckContext) -> Finding:
    """Steps along the gradient raise the margin as the gradient predicts."""
    _require_gradient(context)
    failed, visible = probes.misled_samples(context)
    if not bool(visible.any()):
        raise NotMadeError("within the budget the answers do not change visibly")

    observation = (
        "samples are led astray: a small step along the gradient, from the clean "
        "input or from where an attack leads, does not "
        "raise the loss as it promises"
    )
    if context.whole is None:  # all samples, and not a first look at some
        return _share(Code.MISLEADING, failed[visible], observation, REMEDY)
    if int(failed[visible].sum()) > MAX_MISLED:
        raise NotMadeError(DOUBTFUL)
    return _share(Code.MISLEADING, failed[visible], observation, REMEDY, MIN_VISIBLE)


def gradient_mismatch(context: CheckContext) -> Finding:
    """The gradient matches finite differences of the answers, in all its parts."""
    _require_gradient(context)
    # A context with a `whole` is a first look at some of its samples; one with a `few` is the
    # second look, at all of them.
    n = len(context.batch)
    check = gradient_check.GradientCheck(context, context.oracle, context.margin.grad)
    if context.whole is None and context.few is not None and context.ends is None:
        # So far only a few samples took steps along the gradient; sharp networks, whose finite
        # differences disagree, fall within these.
        probes.misled_samples(context)
    # The oracle counts a sample as active until an input was seen that fools the model.
    if context.whole is None and not bool(context.oracle.active(context.batch.ids).any()):
        text = f"all of {n} samples fall within a few steps along the gradient, so it leads"
        return _foretold(n, text)
    if context.few is None and not check.is_doubtful():
        return _foretold(n, "the margin changes as the gradient foretells, by finite differences")
    if context.whole is not None:
        raise NotMadeError(DOUBTFUL)

    agreement = check.full_check()
    if agreement.samples < gradient_check.MIN_VISIBLE:
        raise NotMadeError("within the budget hardly an answer changes by more than it is rounded")
    observation = (
        f"on {agreement.wrong} of {agreement.samples} samples a part of the gradient is missing or "
        f"wrong: finite differences disagree by {agreement.disagreement:.2f} in the mean, where 0 "
        "is perfect and 1 is chance"
    )
    return Finding.of_share(
        Code.MISMATCH,
        agreement.wrong,
        agreement.samples,
        gradient_check.MAX_SHARE,
        observation,
        REMEDY,
    )


def _foretold(n: int, text: str) -> Finding:
    """The finding on n samples of which the quick look doubts at most one."""
    is_few = n < MIN_SAMPLES
    return Finding(
        code=Code.MISMATCH,
        passed=None if is_few else True,
        text=f"{TOO_FEW}: {text}" if is_few else text,
        limit=gradient_check.MAX_SHARE,
        error_rate=exact_test(0, n, gradient_check.MAX_SHARE)[1],
        reason=TOO_FEW if is_few else None,
    )


def unconstrained_failure(context: CheckContext) -> Finding:
    """Steps without a budget break every sample."""
    robust = probes.unbroken_samples(context)
    observation = (
        f"samples withstand {len(probes.STRIDES)} gradient steps that only the bounds "
        "of the data limit"
    )
    return _share(Code.UNCONSTRAINED, robust, observation, REMEDY)


BEFORE_ATTACKS: dict[Code, Check] = {
    Code.RANDOM: random_answers,
    Code.ANSWERS: kind_of_answers,
    Code.GRADIENTS_INSIDE: gradients_inside,
    Code.ZERO: in_two_looks(zero_gradients),
    Code.SATURATED: in_two_looks(saturated_logits),
    Code.MISLEADING: in_two_looks(misleading_gradients),
    Code.MISMATCH: in_two_looks(gradient_mismatch),
    Code.PLATEAU: plateau.first_look,
    Code.UNCONSTRAINED: in_two_looks(unconstrained_failure),
    Code.BOUNDARY: in_two_looks(boundary.boundary_margin),
    Code.DRIFT: consistency.answers_drift,
    Code.BATCH: consistency.answers_by_batch,
    Code.MODE: consistency.training_mode,
}
"""The checks of a model on clean samples, in the order in which they are made: that of drift asks
for early answers again.

Those that are made in two looks cost at most 20 forwards and 5 backwards on each of a few samples,
and where these do not pass they ask all.
"""


def _share(
    code: Code, bad: Tensor, description: str, remedy: str, fewest: int = MIN_SAMPLES
) -> Finding:
    """The finding on samples (n,) of which `bad` ones are allowed up to the limit of a check."""
    k = int(bad.sum())
    n = len(bad)
    observation = f"{k} of {n} {description}"
    return Finding.of_share(code, k, n, LIMITS[code], observation, remedy, fewest=fewest)


def _require_gradient(context: CheckContext) -> None:
    if not bool(probes.has_gradient(context.margin.grad).any()):
        raise NotMadeError("there is no gradient to follow")
