"""Whether to believe a robust accuracy, in one sentence; and which ways around a gradient were tried, with what they gained."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from brinell.analysis.grid import stage_title
from brinell.analysis.indicators import unmade
from brinell.analysis.results import CheckResult, Rate, StageResult, WayKind, WayResult
from brinell.core.checks import GOOD, Code
from brinell.core.record import Outcome, Records

ATTACKED = [str(one) for one in (Outcome.FOOLED, Outcome.FOOLED_BELOW, Outcome.SURVIVED, Outcome.FAILED)]
"""What became, at the largest eps, of a sample that a stage attacked there."""
UNSTEADY = {
    Code.CLEAN: "on clean inputs the model is no better than chance, or far better when it is asked otherwise",
    Code.WEIGHTS: "weights or buffers changed while the model was asked, so the attacks met several models",
    Code.DRIFT: "answers changed with the number of calls, so the attacks met several models",
    Code.COMPANY: "an input is answered otherwise beside other inputs, so the figure depends on the batch size",
    Code.PLACE: "an input is answered otherwise in another row of its batch, so the figure depends on the order of the samples",
    Code.MODE: "the model is in training mode after a call, or answers otherwise where gradients are asked for",
    Code.DEVICE: "the model answers otherwise on the processor than on the device of the audit",
}
"""Failed checks after which a figure may be wrong in either direction, the gravest first."""
BROKEN = {
    Code.MISMATCH: "the gradient is not that of the answers, as finite differences say",
    Code.ZERO: "clean inputs have no gradient",
    Code.REJECTION: "the reject class is decided by a rule without a slope",
    Code.ONE_HOT: "answers say which class and not by how much",
    Code.ANSWERS: "answers are rounded, and small changes do not show in them",
    Code.INSIDE: "the model takes gradients within its own forward pass, through which attacks do not see",
    Code.SATURATED: "the cross-entropy has lost its gradient to rounding",
    Code.MISLEADING: "steps along the gradient do not raise the loss as it promises",
    Code.UNCONSTRAINED: "attacks fail even where nothing but the bounds of the data limits them",
    Code.BLACK_BOX: "attacks without gradients broke samples that those with them had not",
    Code.AHEAD: "an attack that does not climb the loss came nearer to the boundary than those that do",
    Code.INCOMPLETE: "the last attack still came notably nearer to the boundary, and a longer one would come nearer still",
}
"""Failed checks after which a figure is an upper bound, those that tell most first."""
STRONG = frozenset({"fast", "standard", "autoattack", "plus"})
"""Cascades that are as strong as `fast`, or stronger."""
BLIND = frozenset({Code.MISMATCH, Code.ZERO})
"""Of these, the ones that say that attacks are blind where there is no gradient to follow."""


def ways_around(
    records: Records, manifest: Mapping[str, Any], model: str, stages: Sequence[StageResult], eps: float
) -> list[WayResult]:
    """How attacks went around the gradient that the model shows, and what each way gained at the largest eps.

    A stage goes around it that follows another gradient, estimates one from scores, averages over answers, uses none after
    others did, or waits for an alarm. Stages that attacked no sample at the largest eps are left out.

    Args:
        records: rows of any number of models.
        manifest: the run's manifest.
        model: name of a model in the run.
        stages: its stages with what each was the first to break, in order.
        eps: the largest one.
    """
    repair = manifest.get("repairs", {}).get(model, {})
    here = (records.model == model) & np.isclose(records.eps, eps) & np.isin(records.outcome, ATTACKED)
    groups: dict[tuple[WayKind, str], list[StageResult]] = {}
    climbed = False
    for kept, stage in zip(manifest["stages"], stages, strict=True):
        way = _way(kept, repair, climbed)
        climbed |= kept["access"] == "gradients"
        if way and stage.finished and (here & (records.attack == stage.attack)).any():
            groups.setdefault(way, []).append(stage)
    return [
        WayResult(
            kind=kind,
            way=way,
            attacks=[stage.title for stage in group],
            attacked=len(np.unique(records.sample_id[here & np.isin(records.attack, [stage.attack for stage in group])])),
            broken=sum(stage.broken[-1] for stage in group),
            disagreement=repair.get("disagreement") if kind == "mended" else None,
        )
        for (kind, way), group in groups.items()
    ]


def weaker_than_fast(manifest: Mapping[str, Any], model: str) -> str | None:
    """The attacks of one model of a run in words, where they are weaker than `fast`; None where they are not.

    Of a model that gives no gradients `black-box` is all that there is, and of one that draws random numbers attacks on the mean
    of its answers.
    """
    asked = {str(spec).partition("?")[0] for spec in manifest.get("request", {}).get("attack", [])}
    skipped = {one["stage"] for one in manifest.get("skipped", []) if one["model"] == model}
    stages = [one for one in manifest["stages"] if one["name"] not in skipped and not one.get("turn", {}).get("when")]
    blind = any(one["name"] == model and one.get("access") != "gradients" for one in manifest["models"])
    if asked & STRONG or (blind and "black-box" in asked) or any(one.get("eot", 1) > 1 for one in stages):
        return None
    named = [stage_title(stage) for stage in stages]
    return "; ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "") or None


def _way(stage: Mapping[str, Any], repair: Mapping[str, Any], climbed: bool) -> tuple[WayKind, str] | None:
    """What a stage of the manifest follows in the place of the model's gradient; None where it follows that like others."""
    when, gradient = stage.get("turn", {}).get("when"), stage.get("gradient", "own")
    if gradient == "repaired":
        return "mended", str(repair.get("way", "a gradient that is mended"))
    if gradient == "surrogate":
        return "surrogate", "the gradient of the surrogate"
    if when == "blind":
        return "estimated", "a gradient estimated from scores"
    if when == "random":
        return "averaged", f"the mean of {stage.get('eot', 1)} answers"
    if climbed and stage["access"] != "gradients":
        return "answers", "answers alone"
    return ("longer", "the model's own gradient, for longer") if when else None


def verdict(
    *,
    clean: Rate,
    robust: Rate,
    total: int,
    going: bool,
    checks: Sequence[CheckResult],
    ways: Sequence[WayResult],
    eot: int = 1,
    extra: bool = False,
    weak: str | None = None,
) -> str:
    """One sentence that says whether to believe a robust accuracy, and why.

    Args:
        clean: accuracy on the untouched inputs.
        robust: the robust accuracy at the largest eps.
        total: samples of the run.
        going: whether the run, or a stage of it, is not finished.
        checks: every check on the model.
        ways: from `ways_around`.
        eot: the answers by whose mean an adversarial input is judged.
        extra: whether many adversarial inputs end in a class that the data has not.
        weak: from `weaker_than_fast`.
    """
    figure = "–" if robust.value is None else f"{100 * robust.value:.1f} %"
    if going:
        may = "no attack is finished" if robust.value is None else f"the run is not finished, and {figure} may still fall"
        return f"Believe nothing yet: {may}."
    if not clean.k:
        why = next((check.cause for check in checks if check.code == Code.CLEAN and check.cause), None)
        but = f"nothing was attacked: {why}" if why else "nothing was attacked or checked"
        return f"There is nothing to believe or to doubt: the model is right on no sample, so {but}."
    if robust.value is None or robust.eps == 0:
        return "There is no robust accuracy to believe: no sample was attacked within a budget above 0."
    text = _judged(figure, robust, {Code(check.code): check for check in checks}, ways, eot)
    if extra:
        text += "; it is too low if the model rejects inputs by the class that the data has not and attacks end in"
    if weak and robust.k:
        text += f"; the attacks ({weak}) are weaker than fast, which may find more"
    if robust.missing:
        text += f"; it is of the {robust.n} of {total} samples that could be judged"
    return f"{text}."


def _judged(figure: str, robust: Rate, checks: Mapping[Code, CheckResult], ways: Sequence[WayResult], eot: int) -> str:
    """The sentence on a finished figure, without its full stop."""
    failed = {code for code, check in checks.items() if check.passed is False}
    for code, why in UNSTEADY.items():
        if code in failed:
            return f"Do not rely on {figure}: {checks[code].cause or why}"
    if Code.RANDOM in failed:
        return _random(figure, ways, eot)
    if not robust.k:
        return f"Believe {figure}: no sample is left that an attack could break, and a failed check can only mean fewer"
    if failed:
        return _bound(figure, failed, checks, ways)
    missing = unmade(list(checks.values()))
    if not missing:
        return (
            f"Believe {figure}: every check that counts was made and passed, so nothing suggests that attacks fail because "
            "gradients mislead them; an attack that was not tried may still lower it"
        )
    return _as_far(figure, robust, missing)


def _random(figure: str, ways: Sequence[WayResult], eot: int) -> str:
    text = f"Read {figure} as an estimate: the model answers the same input differently each time, and "
    if eot > 1:
        return f"{text}attacks followed and were judged by the mean of {eot} answers"
    text += "one lucky answer counts against it, while one gradient of many may lead nowhere"
    mean = next((way for way in ways if way.kind == "averaged"), None)
    if mean is None:
        return f"{text} (--attack rand judges by the mean of 20)"
    return f"{text}; attacks along {mean.way} broke {_more(mean.broken)}"


def _bound(figure: str, failed: set[Code], checks: Mapping[Code, CheckResult], ways: Sequence[WayResult]) -> str:
    """The sentence where a check failed that says that attacks may have missed something."""
    told = sorted(failed, key=lambda code: (not checks[code].cause, list(BROKEN).index(code)))
    first = told[0]
    why = checks[first].cause or BROKEN[first]
    if first in BLIND and not ways:
        why += ", and attacks that follow it are blind there"
    if len(told) > 1:
        why += f" (and {len(told) - 1} more check{'s' * (len(told) > 2)} failed)"
    if not ways:
        return f"Read {figure} as an upper bound: {why}"
    gained = " and ".join(f"by {way.way} ({_more(way.broken)})" for way in ways if way.broken) or "and broke no sample more"
    text = f"Read {figure} as an upper bound: {why}; attacks went around the gradient {gained}"
    mended = next((way for way in ways if way.disagreement is not None), None)
    if mended is None or mended.disagreement is None:
        return text
    good = mended.disagreement <= GOOD
    says = "agree with the mended gradient" if good else "disagree with that gradient too"
    end = "so the figure is likely close" if good else "so a better way around may break more"
    return f"{text}, and finite differences {says} ({mended.disagreement:.2f}), {end}"


def _as_far(figure: str, robust: Rate, missing: Sequence[CheckResult]) -> str:
    """The sentence where no check failed and some could not be made."""
    few = [check.code for check in missing if check.reason is None]
    parts = []
    if few:
        parts.append(f"{_listed(few)} cannot tell with so few")
    for why in dict.fromkeys(check.reason for check in missing if check.reason is not None):
        codes = [check.code for check in missing if check.reason == why]
        parts.append(f"{_listed(codes)} could not be made because {why}")
    told = f"{robust.n} samples tell" if few else "it was checked"
    return f"Believe {figure} as far as {told}: no check failed, but {'; '.join(parts)}"


def _listed(codes: Sequence[str]) -> str:
    named = ", ".join(codes[:3])
    return named if len(codes) <= 3 else f"{named} and {len(codes) - 3} more"


def _more(count: int) -> str:
    return f"{count or 'no'} sample{'s' * (count > 1)} more"
