"""The verdict on a robust accuracy in one sentence, and the ways by which attacks bypassed the model's gradient."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from brinell.analysis.curve import stage_title
from brinell.analysis.indicators import not_made
from brinell.analysis.results import CheckResult, Rate, StageResult, WayKind, WayResult
from brinell.core.checks import DECIDING_SCORES, DETACHED, GOOD, TOO_FEW, Code
from brinell.core.record import Outcome, Records

ATTACKED = [str(outcome) for outcome in (Outcome.BROKEN, Outcome.SURVIVED, Outcome.FAILED)]
"""Outcomes of a sample that a stage attacked."""
UNSTEADY = {
    Code.CLEAN: "clean accuracy is at chance level, or higher when inputs are prepared differently",
    Code.WEIGHTS: "weights or buffers changed during the audit",
    Code.DRIFT: "answers changed with the number of calls",
    Code.FRESH: "a copy of the model that had answered nothing gives other answers",
    Code.BATCH: "answers depend on the other inputs of a batch, or on the position within it",
    Code.MODE: "the model is in training mode, or answers differently when gradients are requested",
}
"""Failed checks after which a figure may be wrong in either direction, the gravest first."""
BROKEN = {
    Code.MISMATCH: "the gradient does not match finite differences of the answers",
    Code.ZERO: "clean inputs have zero gradient",
    Code.ANSWERS: "the answers are rounded, which hides small changes",
    Code.BOUNDARY: "attacks failed, but the scores do not tell how near the decision boundary is",
    Code.SURVIVORS: "attacks failed, but robust samples' scores do not tell how near the boundary is",
    Code.GRADIENTS_INSIDE: "the forward pass takes gradients of its own, which attacks cannot follow",
    Code.SATURATED: "rounding removed the gradient of the cross-entropy",
    Code.MISLEADING: "steps along the gradient do not raise the loss",
    Code.UNCONSTRAINED: "attacks fail even with an unlimited budget",
    Code.BLACK_BOX: "attacks without gradients broke samples that gradient attacks missed",
    Code.PROBE_AHEAD: "an attack that does not climb the loss came closer to the boundary",
    Code.INCOMPLETE: "the last attack was still making progress when it ended",
}
"""Failed checks after which a figure is an upper bound, the most informative first."""
LABELS_ALONE = "labels alone"
"""The way of the stages that wait for `DETACHED` checks."""
DETACHED_REMEDY = "Attacks that follow scores or gradients may pass by near boundaries: attack by labels alone (--attack ray-s)."
"""What to do if the scores do not tell how near the decision boundary is."""
MORE_QUERIES = "The scores lead no attack there, and more queries by labels alone may find more: run --attack ray-s?steps=100000."
"""What to do if attacks by labels alone ran already."""
LONGEST = 25
"""Words of a verdict."""
STRONG = frozenset({"fast", "standard", "autoattack", "plus"})
"""Cascades that are as strong as `fast`, or stronger."""


def ways_around(
    records: Records, manifest: Mapping[str, Any], model: str, stages: Sequence[StageResult], eps: float
) -> list[WayResult]:
    """Ways by which attacks bypassed the gradient of the model, and what each broke at the largest eps.

    A stage bypasses the gradient if it follows another one, estimates it from scores, averages over answers, uses none after
    gradient attacks, or waits for an alarm. Stages that attacked no sample at the largest eps are left out.

    Args:
        records: rows of any number of models.
        manifest: the run's manifest.
        model: name of a model in the run.
        stages: its stages in order, with the samples that each was the first to break.
        eps: the largest one.
    """
    repair = manifest.get("repairs", {}).get(model, {})
    rows_at_eps = (
        (records.model == model) & np.isclose(np.ma.filled(records.attacked, 0), eps) & np.isin(records.outcome, ATTACKED)
    )
    groups: dict[tuple[WayKind, str], list[StageResult]] = {}
    climbed = False
    for stage_facts, stage in zip(manifest["stages"], stages, strict=True):
        way = _way(stage_facts, repair, climbed)
        climbed |= stage_facts["access"] == "gradients"
        if way and stage.finished and (rows_at_eps & (records.attack == stage.attack)).any():
            groups.setdefault(way, []).append(stage)
    return [
        WayResult(
            kind=kind,
            way=way,
            attacks=[stage.title for stage in group],
            attacked=len(np.unique(records.sample_id[rows_at_eps & np.isin(records.attack, [stage.attack for stage in group])])),
            broken=sum(stage.broken[-1] for stage in group),
            disagreement=repair.get("disagreement") if kind == "mended" else None,
        )
        for (kind, way), group in groups.items()
    ]


def weaker_than_fast(manifest: Mapping[str, Any], model: str) -> str | None:
    """The titles of the attacks on one model if they are weaker than `fast`; None otherwise.

    For a model without gradients `black-box` is the strongest choice, and for a random one attacks on the mean of its answers.
    """
    requested = {str(spec).partition("?")[0] for spec in manifest.get("request", {}).get("attack", [])}
    skipped = {entry["stage"] for entry in manifest.get("skipped", []) if entry["model"] == model}
    stages = [stage for stage in manifest["stages"] if stage["name"] not in skipped and not stage.get("turn", {}).get("when")]
    blind = any(entry["name"] == model and entry.get("access") != "gradients" for entry in manifest["models"])
    if requested & STRONG or (blind and "black-box" in requested) or any(stage.get("eot", 1) > 1 for stage in stages):
        return None
    titles = [stage_title(stage) for stage in stages]
    return "; ".join(titles[:3]) + (f" and {len(titles) - 3} more" if len(titles) > 3 else "") or None


def _way(stage: Mapping[str, Any], repair: Mapping[str, Any], climbed: bool) -> tuple[WayKind, str] | None:
    """Kind and description of what a stage follows instead of the model's gradient; None if it follows that gradient."""
    when, gradient = stage.get("turn", {}).get("when"), stage.get("gradient", "own")
    if gradient == "repaired" or (gradient == "own" and repair.get("from_start")):
        return "mended", str(repair.get("way", "a gradient that is mended"))
    if gradient == "surrogate":
        return "surrogate", "the gradient of the surrogate"
    if when == "detached":
        return "answers", LABELS_ALONE
    if when == "blind":
        return "estimated", "a gradient estimated from scores"
    if when == "random":
        return "averaged", f"the mean of {stage.get('eot', 1)} answers"
    if climbed and stage["access"] != "gradients":
        return "answers", "answers alone"
    return ("longer", "the model's own gradient, for longer") if when else None


def verdict(
    *, clean: Rate, robust: Rate, budget: str, going: bool, checks: Sequence[CheckResult], ways: Sequence[WayResult], weak: bool
) -> str:
    """One sentence of at most 25 words: the robust accuracy, and whether to believe it.

    Args:
        clean: accuracy on the clean inputs.
        robust: the robust accuracy at the largest eps.
        budget: the largest eps as it is printed, such as 8/255.
        going: True while the run or a stage of it is not finished.
        checks: every check on the model.
        ways: from `ways_around`.
        weak: True if the attacks are weaker than `fast` (`weaker_than_fast`).
    """
    if going:
        return (
            "Robust accuracy is not known yet: no attack is finished."
            if robust.value is None
            else f"Robust accuracy at {budget} is at most {_percent(robust)} so far: the run is not finished."
        )
    if not clean.k:
        return "No sample was attacked: the model misclassifies every clean input."
    if robust.value is None or robust.eps == 0:
        return "Robust accuracy was not measured: no budget is above 0."
    return _verdict_on_finished(
        clean, robust, f"Robust accuracy at {budget}", {Code(check.code): check for check in checks}, ways, weak
    )


def _verdict_on_finished(
    clean: Rate, robust: Rate, subject: str, checks: Mapping[Code, CheckResult], ways: Sequence[WayResult], weak: bool
) -> str:
    failed = {code for code, check in checks.items() if check.passed is False}
    figure = _percent(robust)
    for code, reason in UNSTEADY.items():
        if code in failed:
            return _sentence(f"Do not rely on the {figure}", checks[code].cause, reason)
    if Code.RANDOM in failed:
        return f"{subject} is about {figure}, an estimate: the model answers the same input differently each time."
    if not robust.k:
        which = "every sample" if clean.k == clean.n else "every correctly classified sample"
        return f"{subject} is 0 %: {which} has an adversarial example."
    if broken := failed & BROKEN.keys():
        if reason := _bypass(broken, ways):
            return f"{subject} is at most {figure}: {reason}."
        first = _gravest(broken, checks)
        return _sentence(f"{subject} may be well below {figure}", checks[first].cause, BROKEN[first])
    missing = not_made(list(checks.values()))
    if any(check.reason == TOO_FEW for check in missing):
        return f"{subject} is at most {figure}: no check failed, but {robust.n} samples are too few to tell."
    if missing:
        return f"{subject} is at most {figure}: no check failed, but {len(missing)} could not run."
    if weak:
        return f"{subject} is at most {figure}: all checks passed, but stronger attacks (--attack fast) may lower it."
    gain = "broke a sample" if robust.k == clean.k else "found more"
    return f"{subject} is at most {figure}: all checks passed, and no attack {gain}."


def verdict_notes(
    *,
    robust: Rate,
    total: int,
    checks: Sequence[CheckResult],
    ways: Sequence[WayResult],
    eot: int = 1,
    weak: str | None = None,
) -> list[str]:
    """Sentences that qualify the verdict of a finished run: what else failed, what could not run, and what to do.

    Args:
        robust: the robust accuracy at the largest eps.
        total: samples of the run.
        checks: every check on the model.
        ways: from `ways_around`.
        eot: answers whose mean decides whether an input is adversarial.
        weak: from `weaker_than_fast`.
    """
    by_code = {Code(check.code): check for check in checks}
    failed = {code for code, check in by_code.items() if check.passed is False}
    return [
        *_notes_on_failures(failed, by_code),
        *(_notes_on_randomness(ways, eot) if Code.RANDOM in failed else ()),
        *(_notes_on_ways(ways) if failed & BROKEN.keys() else ()),
        *(_remedy_by_labels(ways) if failed & DETACHED and robust.k else ()),
        *_notes_on_missing(not_made(checks)),
        *((f"The attacks ({weak}) are weaker than fast, which may find more: run --attack fast.",) if weak and robust.k else ()),
        *((f"{robust.n} of {total} samples could be judged; the figure is of these.",) if robust.missing else ()),
    ]


def _percent(rate: Rate) -> str:
    return "unknown" if rate.value is None else f"{100 * rate.value:.1f} %"


def _sentence(opening: str, cause: str | None, reason: str) -> str:
    """The opening and the cause that a check found, or the general reason if the cause is missing or too long."""
    with_cause = f"{opening}: {cause}."
    return with_cause if cause and len(with_cause.split()) <= LONGEST else f"{opening}: {reason}."


def _gravest(failed: set[Code], checks: Mapping[Code, CheckResult]) -> Code:
    """The most important failed check: checks with a known cause come first, then the order of `BROKEN` decides."""
    return min(failed, key=lambda code: (not checks[code].cause, list(BROKEN).index(code)))


def _replaced_gradient(ways: Sequence[WayResult]) -> float | None:
    """Disagreement of finite differences with the gradient that attacks used in place of the model's own; None without one."""
    return next((way.disagreement for way in ways if way.disagreement is not None), None)


def _bypass(broken: Collection[Code], ways: Sequence[WayResult]) -> str:
    """Clause on how attacks bypassed failed checks; empty unless finite differences agree with the gradient they followed."""
    disagreement = _replaced_gradient(ways)
    if disagreement is None or disagreement > GOOD:
        return ""
    if any(way.way == DECIDING_SCORES for way in ways):
        return "attacks followed the scores that decide, which the model does not show"
    return "" if DETACHED & set(broken) else "attacks bypassed a misleading gradient, and finite differences agree"


def _notes_on_failures(failed: set[Code], checks: Mapping[Code, CheckResult]) -> Iterator[str]:
    """Sentence on the failed checks that the verdict does not name."""
    first = next((code for code in UNSTEADY if code in failed), None)
    if first is None and (candidates := failed & BROKEN.keys()):
        first = _gravest(candidates, checks)
    if others := [code for code in checks if code in failed and code not in (first, Code.RANDOM)]:
        yield f"{_join_codes(others)} failed too." if first else f"{_join_codes(others)} failed."


def _notes_on_randomness(ways: Sequence[WayResult], eot: int) -> Iterator[str]:
    """Sentences on a model whose answers are random."""
    if eot > 1:
        yield f"Attacks follow the mean of {eot} answers, and it decides whether an input is adversarial."
        return
    yield "One lucky answer counts against the model, while one gradient of many may lead nowhere: run --attack rand."
    for way in ways:
        if way.kind == "averaged":
            yield f"Attacks along {way.way} broke {_count_more(way.broken)}."


def _notes_on_ways(ways: Sequence[WayResult]) -> Iterator[str]:
    """Sentences on ways around the gradient and what they broke."""
    for way in ways:
        if way.broken:
            yield f"Attacks by {way.way} broke {_count_more(way.broken)}."
    if ways and not any(way.broken for way in ways):
        yield "Attacks that bypass the gradient broke no sample more."
    if (disagreement := _replaced_gradient(ways)) is not None:
        good = "agree with the replaced gradient" if disagreement <= GOOD else "disagree with the replaced gradient too"
        yield f"Finite differences {good} ({disagreement:.2f}; 0 is perfect, 1 is chance)."


def _remedy_by_labels(ways: Sequence[WayResult]) -> Iterator[str]:
    """Sentence on what to do if the scores do not tell how near the decision boundary is."""
    yield MORE_QUERIES if any(way.way == LABELS_ALONE for way in ways) else DETACHED_REMEDY


def _notes_on_missing(missing: Sequence[CheckResult]) -> Iterator[str]:
    """Sentences on checks that did not run or could not tell."""
    for reason in dict.fromkeys(check.reason for check in missing):
        codes = _join_codes([check.code for check in missing if check.reason == reason])
        if reason == TOO_FEW:
            yield f"{codes} cannot tell with so few samples: take more (--samples)."
        else:
            yield f"{codes} could not run: {reason}."


def _join_codes(codes: Sequence[str]) -> str:
    """The first three codes, and the number of others."""
    first = ", ".join(codes[:3])
    return first if len(codes) <= 3 else f"{first} and {len(codes) - 3} more"


def _count_more(count: int) -> str:
    """Number of further samples as text."""
    return f"{count or 'no'} sample{'s' * (count > 1)} more"
