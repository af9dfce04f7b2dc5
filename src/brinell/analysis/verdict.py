"""What to say of a robust accuracy: one sentence with the figure, and what qualifies it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from brinell.analysis.curve import stage_title
from brinell.analysis.indicators import join_codes, not_made
from brinell.analysis.results import CheckResult, Rate, StageResult
from brinell.core.checks import DECIDING_SCORES, DETACHED, GOOD, TOO_FEW, Code

UNSTEADY = {
    Code.CLEAN: "clean accuracy is at chance level, or higher when inputs are prepared differently",
    Code.WEIGHTS: "weights or buffers changed during the audit",
    Code.DRIFT: "answers changed with the number of calls",
    Code.FRESH: "the model gives other answers in a process that had answered nothing",
    Code.BATCH: "answers depend on the other inputs of a batch, or on the position within it",
    Code.MODE: "the model is in training mode, or answers differently when gradients are requested",
}
"""Failed checks after which a figure may be wrong in either direction, the gravest first."""
BROKEN = {
    Code.MISMATCH: "the gradient does not match finite differences of the answers",
    Code.ZERO: "clean inputs have zero gradient",
    Code.ANSWERS: "the answers are rounded, which hides small changes",
    Code.BOUNDARY: "attacks failed, but the scores do not tell how near the decision boundary is",
    Code.PLATEAU: "attacks ended where the margin is flat, so they went no further",
    Code.GRADIENTS_INSIDE: "the forward pass takes gradients of its own, which attacks cannot follow",
    Code.SATURATED: "rounding removed the gradient of the cross-entropy",
    Code.MISLEADING: "steps along the gradient do not raise the loss",
    Code.UNCONSTRAINED: "attacks fail even with an unlimited budget",
    Code.BLACK_BOX: "attacks without gradients broke samples that gradient attacks missed",
    Code.PROBE_AHEAD: "an attack that does not climb the loss came closer to the boundary",
    Code.INCOMPLETE: "the last attack was still making progress when it ended",
}
"""Failed checks after which a figure is an upper bound, the most informative first."""
DETACHED_REMEDY = (
    "Attacks that follow scores or gradients may pass by near boundaries: attack by "
    "labels alone (--attack ray-s)."
)
"""What to do if the scores do not tell how near the decision boundary is."""
MORE_QUERIES = (
    "The scores lead no attack there, and more queries by labels alone may find "
    "more: run --attack ray-s?steps=100000."
)
"""What to do if attacks by labels alone ran already."""
LONGEST = 25
"""Words of a verdict."""
LITTLE = 0.1
"""Share of the clean accuracy; with less at the largest budget, the verdict says where half of
it is lost."""
STRONG = frozenset({"fast", "standard", "autoattack", "plus", "sparse", "patch"})
"""Cascades that are as strong as `fast`, or stronger, or that stand in its place in a norm."""


class Detours(NamedTuple):
    """The gradients that attacks followed in place of a model's own, at the largest eps."""

    way: str = ""
    """The gradient that replaced the model's; empty for none."""
    disagreement: float | None = None
    """Of finite differences with that gradient: 0 is perfect, 1 is chance; None if unchecked."""
    by_labels: bool = False
    """True if attacks by labels alone ran because the scores mislead."""
    answers: int = 1
    """Answers whose mean decides whether an input is adversarial."""


def detours(manifest: Mapping[str, Any], model: str, stages: Sequence[StageResult]) -> Detours:
    """The gradients that the stages of a model followed in place of the model's.

    The stages are in the order of the manifest.
    """
    repair = manifest.get("repairs", {}).get(model, {})
    ran = [facts for facts, stage in zip(manifest["stages"], stages, strict=True) if stage.forwards]
    # Stages that ran only because a check failed say nothing about the request.
    by_request = [facts for facts in ran if not facts.get("turn", {}).get("when")]

    # A stage may follow the repaired gradient by its setting, or from the start of the run.
    gradients = [facts.get("gradient", "own") for facts in ran]
    mended = "repaired" in gradients or bool("own" in gradients and repair.get("from_start"))
    return Detours(
        way=str(repair.get("way", "a gradient that is mended")) if mended else "",
        disagreement=repair.get("disagreement") if mended else None,
        by_labels=any(facts.get("turn", {}).get("when") == "detached" for facts in ran),
        answers=max((int(facts.get("eot", 1)) for facts in by_request), default=1),
    )


def weaker_than_fast(manifest: Mapping[str, Any], model: str) -> str | None:
    """The titles of the attacks on one model if they are weaker than `fast`; None otherwise.

    For a model without gradients `black-box` is the strongest choice, and for a random one attacks
    on the mean of its answers.
    """
    # A cascade is named by its request, a single attack by its stage.
    specs = manifest.get("request", {}).get("attack", [])
    requested = {str(spec).partition("?")[0] for spec in specs}
    skipped = {entry["stage"] for entry in manifest.get("skipped", []) if entry["model"] == model}
    stages = [
        stage
        for stage in manifest["stages"]
        if stage["name"] not in skipped and not stage.get("turn", {}).get("when")
    ]

    entries = [entry for entry in manifest["models"] if entry["name"] == model]
    blind = any(entry.get("access") != "gradients" for entry in entries)
    averages = any(stage.get("eot", 1) > 1 for stage in stages)
    if requested & STRONG or (blind and "black-box" in requested) or averages:
        return None

    titles = [stage_title(stage) for stage in stages]
    ellipsis = f" and {len(titles) - 3} more" if len(titles) > 3 else ""
    return "; ".join(titles[:3]) + ellipsis or None


class Measured(NamedTuple):
    """The rates of a run and what is known of how they came about."""

    clean: Rate
    """Accuracy on the clean inputs."""
    robust: Sequence[Rate]
    """Robust accuracy at each eps."""
    texts: Sequence[str]
    """Each eps as it was asked."""
    checks: Sequence[CheckResult]
    """Every check on the model."""
    detours: Detours = Detours()
    weak: str | None = None
    """From `weaker_than_fast`."""

    @property
    def by_code(self) -> dict[Code, CheckResult]:
        """The checks by their codes, in order."""
        return {Code(check.code): check for check in self.checks}

    @property
    def failed(self) -> set[Code]:
        """Codes of the checks that failed."""
        return {code for code, check in self.by_code.items() if check.passed is False}

    @property
    def subject(self) -> str:
        """The quantity that a verdict is about, at the largest eps."""
        return f"Robust accuracy at {self.texts[-1]}"


def verdict(measured: Measured) -> str:
    """One sentence of at most 25 words: the robust accuracy, and whether to believe it.

    It is the first that applies: nothing was measured, the figure is in doubt, most is lost at a
    smaller budget already, or how far to believe it.
    """
    return (
        _not_measured(measured)
        or _doubt(measured)
        or where_it_breaks(measured.clean, measured.robust, measured.texts)
        or _belief(measured)
    )


def _not_measured(measured: Measured) -> str:
    """Why a figure is missing; empty where it is there."""
    last = measured.robust[-1]
    if not measured.clean.k:
        return "No sample was attacked: the model misclassifies every clean input."
    if last.eps == 0:
        figure = f"Clean accuracy is {_percent(last)}"
        return _unsteady(measured) or f"{figure}: no budget is above 0, so no attack ran."
    if last.value is None:
        return "Robust accuracy was not measured: no sample could be judged."
    return ""


def _unsteady(measured: Measured) -> str:
    """The gravest failed check after which any figure may be wrong; empty where none failed."""
    failed = measured.failed
    for code, reason in UNSTEADY.items():
        if code in failed:
            opening = f"Do not rely on the {_percent(measured.robust[-1])}"
            return _sentence(opening, measured.by_code[code].cause, reason)
    return ""


def _doubt(measured: Measured) -> str:
    """What failed checks make of the figure; empty where none counts."""
    if unsteady := _unsteady(measured):
        return unsteady
    last = measured.robust[-1]
    figure = _percent(last)
    checks = measured.by_code
    failed = measured.failed
    if Code.RANDOM in failed:
        return (
            f"{measured.subject} is about {figure}, an estimate: the model answers the same "
            "input differently each time."
        )

    # Where nothing is left, weak attacks are no excuse.
    broken = failed & BROKEN.keys() if last.k else set()
    if not broken:
        return ""
    # Where attacks already went around what is broken, the figure stands as an upper end.
    bypass = _bypass(broken, measured.detours)
    if bypass:
        return f"{measured.subject} is at most {figure}: {bypass}."
    first = _gravest(broken, checks)
    opening = f"{measured.subject} may be well below {figure}"
    return _sentence(opening, checks[first].cause, BROKEN[first])


def _belief(measured: Measured) -> str:
    """How far a figure is to be believed on which no check failed."""
    clean = measured.clean
    last = measured.robust[-1]
    # At 0 % no check can make the figure lower.
    if not last.k:
        extent = "every sample" if clean.k == clean.n else "every correctly classified sample"
        return f"{measured.subject} is 0 %: {extent} has an adversarial example."

    at_most = f"{measured.subject} is at most {_percent(last)}"
    missing = not_made(measured.checks)
    # In order of what a reader should do first.
    if any(check.reason == TOO_FEW for check in missing):
        return f"{at_most}: no check failed, but {last.n} samples are too few to tell."
    if missing:
        return f"{at_most}: no check failed, but not all were made."
    # A check that does not count may be missing, but then not all passed.
    is_complete = all(check.passed for check in measured.checks)
    checked = f"{at_most}: {'all checks passed' if is_complete else 'no check failed'}"
    if measured.weak:
        return f"{checked}, but stronger attacks (--attack fast) may lower it."
    gain = "broke a sample" if last.k == clean.k else "found more"
    return f"{checked}, and no attack {gain}."


def where_it_breaks(clean: Rate, robust: Sequence[Rate], texts: Sequence[str]) -> str:
    """Between which budgets half of the clean accuracy is lost, and what is left.

    It is empty unless little is left at the largest. The ends are the largest budget up to which
    the whole interval is above half, and the smallest from which it is below.
    """
    pairs = [
        (rate, text)
        for rate, text in zip(robust, texts, strict=True)
        if rate.eps > 0 and rate.value is not None
    ]
    # A budget counts as above or below only where its whole interval is.
    half = (clean.value or 0.0) / 2
    above = [text for rate, text in pairs if (rate.low or 0.0) > half]
    below = [text for rate, text in pairs if rate.high is not None and rate.high < half]
    # One budget alone has no place between two.
    if len(pairs) < 2 or not below or robust[-1].value is None:
        return ""
    last, budget = pairs[-1]
    if (last.value or 0.0) >= 2 * LITTLE * half:
        return ""

    place = f"between {above[-1]} and {below[0]}" if above else f"before {below[0]}"
    ending = f"and nothing is left at {budget}"
    if last.k:
        ending = f"and at most {_percent(last)} is left at {budget}"
    return f"Half of the clean accuracy of {_percent(clean)} is lost {place}, {ending}."


def statement(criterion: str, measured: Measured) -> str:
    """One sentence on the share of inputs that do not meet a criterion at the largest eps."""
    clean = measured.clean
    last = measured.robust[-1]
    budget = measured.texts[-1]
    if last.value is None:
        return f"No sample could be judged, so nothing is known about {criterion}."
    if clean.quantity.startswith("top-") and clean.k and last.eps > 0:
        return (
            f"Robust {clean.quantity} is at most {_percent(last)} at {budget}; "
            f"without an attack it is {_percent(clean)}."
        )

    share = f"{_percent(last)} of the inputs do not meet {criterion}"
    # Without an input that could be attacked no attack says anything.
    if not clean.k:
        return f"Every clean input meets {criterion}, so nothing was attacked."
    if last.eps == 0:
        return f"{share}; nothing was attacked, since no budget is above 0."
    if not last.k:
        return f"Every input meets {criterion} at {budget}."

    untouched = f"{clean.n - clean.k} of {clean.n} meet it untouched"
    return (
        f"At most {share} at {budget}: {untouched}, and attacks made "
        f"{clean.k - last.k} more meet it."
    )


def verdict_notes(measured: Measured) -> Iterator[str]:
    """Sentences on the checks of a run: what else failed, and what to do."""
    checks = measured.by_code
    failed = measured.failed

    # The verdict names one failed check; the note names the others.
    first = _first_failed(measured)
    others = [code for code in checks if code in failed and code not in (first, Code.RANDOM)]
    if others:
        yield f"{join_codes(others)} failed{' too' if first else ''}."

    route = measured.detours
    if Code.RANDOM in failed:
        yield _note_on_randomness(route)
    if failed & BROKEN.keys() and route.disagreement is not None:
        # Finite differences need no gradient of the model, so they are evidence of their own.
        is_good = route.disagreement <= GOOD
        outcome = "agree" if is_good else "disagree"
        yield (
            f"Finite differences {outcome} with the replaced gradient{'' if is_good else ' too'} "
            f"({route.disagreement:.2f}; 0 is perfect, 1 is chance)."
        )
    if failed & DETACHED and measured.robust[-1].k:
        yield MORE_QUERIES if route.by_labels else DETACHED_REMEDY


def _first_failed(measured: Measured) -> Code | None:
    """The failed check that a verdict names; None where it names none."""
    failed = measured.failed
    for code in UNSTEADY:
        if code in failed:
            return code
    broken = failed & BROKEN.keys()
    return _gravest(broken, measured.by_code) if broken else None


def _note_on_randomness(route: Detours) -> str:
    """What the attacks did about a random model, or what to do."""
    if route.answers > 1:
        return (
            f"Attacks follow the mean of {route.answers} answers, and it decides "
            "whether an input is adversarial."
        )
    return (
        "One lucky answer counts against the model, while one gradient of many "
        "may lead nowhere: run --attack rand."
    )


def _percent(rate: Rate) -> str:
    """A rate for a sentence."""
    return "unknown" if rate.value is None else f"{100 * rate.value:.1f} %"


def _sentence(opening: str, cause: str | None, reason: str) -> str:
    """The opening with the cause that a check found, or with the reason if that is too long."""
    with_cause = f"{opening}: {cause}."
    return with_cause if cause and len(with_cause.split()) <= LONGEST else f"{opening}: {reason}."


def _gravest(failed: set[Code], checks: Mapping[Code, CheckResult]) -> Code:
    """The most important failed check: one with a known cause, then by the order of `BROKEN`."""
    return min(failed, key=lambda code: (not checks[code].cause, list(BROKEN).index(code)))


def _bypass(broken: set[Code], route: Detours) -> str:
    """How attacks bypassed failed checks; empty unless finite differences agree with them."""
    if route.disagreement is None or route.disagreement > GOOD:
        return ""
    if route.way == DECIDING_SCORES:
        return "attacks followed the scores that decide, which the model does not show"
    if DETACHED & broken:
        return ""
    return "attacks bypassed a misleading gradient, and finite differences agree"
