"""Recommendations of eps and their reasons, from the distances and limits in a folder of `brinell epsilon`."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.record import Array
from brinell.reports.numbers import distance
from brinell.studies.epsilon import EpsilonRequest, conditions
from brinell.studies.epsilon.conditions import INTERPOLATION, LABEL, PERCEPTION, Budget
from brinell.studies.epsilon.records import NORMS, load_folder, sample_limits
from brinell.studies.epsilon.result import (
    BudgetEffect,
    EpsilonResult,
    Heat,
    NormRecommendation,
    NoteResult,
    Outline,
    Recommendation,
    Separation,
    Surprise,
    eps_text,
)

OUTLINED = "linf"
"""Norm whose budget is checked by outlines of other classes."""


def summarise(folder: Path) -> EpsilonResult:
    """Compute all recommendations of a folder.

    Raises:
        RequestError: the folder does not exist or is damaged.
    """
    facts, arrays = load_folder(folder)
    samples = arrays["samples"]
    outline = find_outline(facts, samples, arrays["crafted"])
    return EpsilonResult(
        folder=str(folder),
        data=facts["data"]["name"],
        n=facts["data"]["n"],
        classes=facts["data"]["classes"],
        conditions=facts["conditions"],
        request=EpsilonRequest.model_validate(facts["request"]),
        heat=[
            Heat(norm=norm, means=[[_finite(v) for v in row] for row in means.tolist()])
            for norm, means in _in_norm_order(arrays["means"])
        ],
        surprises=[surprise for norm, means in _in_norm_order(arrays["means"]) for surprise in find_surprises(norm, means)],
        norms=[recommend(facts, samples, norm, outline if norm == OUTLINED else None) for norm in facts["norms"]],
        notes=[NoteResult(**note) for note in facts["notes"]],
        seconds=facts["seconds"],
    )


def write_page(folder: Path) -> Path:
    """Write the page and the tables of a folder again."""
    return summarise(folder).write()


def find_surprises(norm: str, means: Array) -> list[Surprise]:
    """Find the cells of a heat map in which another class is nearer than the class itself, the most extreme first."""
    diagonal = np.diag(means)
    with np.errstate(invalid="ignore"):
        rows, columns = np.nonzero(means < diagonal[:, None])
    order = np.argsort(means[rows, columns] / diagonal[rows], kind="stable")  # above another mean, so not 0
    return [
        Surprise(norm=norm, class_=int(a), nearer_to=int(b), mean_within=float(diagonal[a]), mean_between=float(means[a, b]))
        for a, b in zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    ]


def find_outline(facts: Mapping[str, Any], samples: Mapping[str, Array], crafted: Mapping[str, Array]) -> Outline | None:
    """The largest budget in Linf at which pictures with the outline of another class keep within the sound budget of L2.

    Returns None if L2 does not limit the sound budget of Linf, if Linf is not the first norm, or if there are no such pictures.
    """
    if facts["norms"][0] != OUTLINED or "l2" not in facts["norms"]:
        return None
    limit, within = (
        _recommendation(None, sample_limits(facts, samples, norm), float(facts["request"]["allow"]), False).sound
        for norm in (OUTLINED, "l2")
    )
    if not limit or not within:
        return None
    clean = dict(zip(crafted["ids"].tolist(), crafted["clean"], strict=True))
    slopes = [
        float(np.linalg.norm(np.asarray(picture, np.float64) - clean[record["sample"]])) / record["eps"]
        for record, picture in zip(facts["crafted"]["pictures"], crafted["pictures"], strict=True)
        if record["kind"] == "between"
    ]
    eps = within / float(np.median(slopes)) if slopes and max(slopes) > 0 else limit
    return Outline(eps=eps, l2=within) if eps < limit else None


def recommend(
    facts: Mapping[str, Any], samples: Mapping[str, Array], norm: str, outline: Outline | None = None
) -> NormRecommendation:
    """Recommend eps for the data set, each class and each sample in one norm; `outline` may end it below the sound budget."""
    limits, labels = sample_limits(facts, samples, norm), samples["labels"]
    integer, allow = norm == "l0", float(facts["request"]["allow"])
    budgets, reasons = conditions.sample_budgets(limits)
    overall = _recommendation(None, limits, allow, integer)
    classes = np.unique(labels).tolist()
    strict = conditions.common_budget(limits, 0.0, integer)
    unnoticed, judged_on = None, None
    if PERCEPTION in limits:
        unnoticed = _finite(conditions.common_budget({PERCEPTION: limits[PERCEPTION]}, allow, integer).eps)
        judged_on = facts.get("perception", {}).get(norm, {}).get("by", "noise")
    usual = facts["usual"].get(norm, [])
    audit = overall.sound if outline is None else outline.eps
    sound_budgets = [budget["text"] for budget in usual if audit is None or budget["eps"] <= audit]
    return NormRecommendation(
        norm=norm,
        overall=overall,
        unnoticed=unnoticed,
        sound=overall.sound,
        outline=outline,
        audit=audit,
        judged_on=judged_on,
        sound_budgets=sound_budgets,
        advice=_advice(norm, unnoticed, overall, outline, judged_on, sound_budgets, facts),
        strict=_finite(strict.eps),
        explanation=_explain_limit(norm, overall.eps, overall.reason, facts),
        sound_explanation=_explain_limit(norm, overall.sound, overall.sound_reason, facts)
        if PERCEPTION in limits and len(limits) > 1
        else None,
        per_class=[
            _recommendation(c, {name: limit[labels == c] for name, limit in limits.items()}, allow, integer) for c in classes
        ],
        per_sample=[_finite(float(q)) for q in np.quantile(budgets, [0, 0.25, 0.5, 0.75, 1], method="nearest")],
        reasons=dict(Counter(str(reason) for reason in reasons)),
        separation=[_separation(None, samples, norm, np.ones(len(labels), bool))]
        + [_separation(c, samples, norm, labels == c) for c in classes],
        usual=_budget_effects(facts, limits, norm, overall),
    )


def _recommendation(label: int | None, limits: Mapping[str, Array], allow: float, integer: bool) -> Recommendation:
    """Recommend one eps for the samples of a class, or for all samples if `label` is None."""
    best = conditions.common_budget(limits, allow, integer)
    visible = {name: limit for name, limit in limits.items() if name != PERCEPTION}
    sound = conditions.common_budget(visible, allow, integer) if visible else Budget(math.inf, "")
    return Recommendation(
        class_=label, eps=_finite(best.eps), reason=best.reason, sound=_finite(sound.eps), sound_reason=sound.reason
    )


def _explain_limit(norm: str, eps: float | None, reason: str, facts: Mapping[str, Any]) -> str:
    name, request = distance(norm), facts["request"]
    share = f"{100 * request['allow']:g} % of the samples"
    texts = {
        LABEL: f"a change on more than {share} could cover {100 * request['fraction']:g} % of the distance to a sample "
        "of another class, so the label may become wrong",
        INTERPOLATION: f"more than {share} could turn into another sample of their class, so "
        "an error may be a generalisation error",
        PERCEPTION: f"the change is noticeable on more than {share} "
        f"(SSIM below {request['ssim']:g} or PSNR below {request['psnr']:g} dB)",
    }
    if eps is None:
        return f"No measured condition limits eps in {name}."
    if eps == 0 and reason == PERCEPTION:
        return f"In {name} even the smallest change may be noticed: {texts[reason]}."
    if eps == 0:
        return f"No eps above 0 is sound in {name}: above it, {texts[reason]}."
    return f"{name} eps {eps:g}: above it, {texts[reason]}."


EVIDENCE_TEXTS = {
    "people": "people noticed half of the changes of this size",
    "attacks": "above it, scaled stored adversarial examples are noticeable by SSIM or PSNR",
    "noise": "above it, random changes are noticeable by SSIM or PSNR",
}


def _advice(
    norm: str,
    unnoticed: float | None,
    overall: Recommendation,
    outline: Outline | None,
    judged_on: str | None,
    sound_budgets: list[str],
    facts: Mapping[str, Any],
) -> str:
    name, sound = distance(norm), overall.sound
    if sound is None and overall.eps is None:
        return f"No measured condition limits eps in {name}."
    if sound == 0:
        return _explain_limit(norm, 0.0, overall.sound_reason, facts)
    limit = sound if outline is None else outline.eps
    text = f"{name}: no limit."
    if sound is not None:
        text = f"{name} up to {eps_text(limit)}: "
        if outline is not None:
            text += (
                f"above it, the outline of another class, added to a sample, is farther than {eps_text(outline.l2)}, the sound "
                f"budget of L2. By distance alone up to {eps_text(sound)}: "
            )
        text += f"{_short_reason(overall.sound_reason, facts)}."
    if judged_on is not None and unnoticed is not None:
        evidence = EVIDENCE_TEXTS[judged_on]
        if unnoticed == 0:
            text += f" Every change in this norm may be noticed ({evidence})."
        elif limit is None or unnoticed < limit:
            text += (
                f" Up to {eps_text(unnoticed)}, changes go unnoticed ({evidence}); above it, they may be noticed, and "
                "an error still counts against the model."
            )
        else:
            text += f" Changes go unnoticed up to {eps_text(unnoticed)} ({evidence})."
    if sound_budgets:
        text += f" Usual budgets that are sound: {', '.join(sound_budgets)}."
    return text


def _short_reason(reason: str, facts: Mapping[str, Any]) -> str:
    """Clause that says which condition breaks above a sound budget."""
    request = facts["request"]
    share, part = f"{100 * request['allow']:g} % of the samples", f"{100 * request['fraction']:g} % of the distance"
    return {
        LABEL: f"above it, a change on more than {share} could cover {part} to a sample of another class",
        INTERPOLATION: f"above it, more than {share} could turn into another sample of their class",
    }.get(reason, "no other condition limits it")


def _budget_effects(facts: Mapping[str, Any], limits: Mapping[str, Array], norm: str, best: Recommendation) -> list[BudgetEffect]:
    measured = {budget["text"]: budget for budget in facts["usual"].get(norm, [])}
    budgets = {text: budget["eps"] for text, budget in measured.items()}
    for eps, text in ((best.eps, "recommended"), (best.sound, "sound")):
        if eps and all(not math.isclose(eps, value) for value in budgets.values()):
            budgets[f"{eps:g} ({text})"] = eps
    rows = []
    for text, eps in sorted(budgets.items(), key=lambda pair: pair[1]):
        broken = conditions.broken_shares(limits, eps)
        effect = measured.get(text, {})
        shares = {name: broken.get(name) for name in conditions.CONDITIONS}
        pictures = {name: effect.get(name) for name in ("ssim", "psnr", "background_changed")}
        rows.append(BudgetEffect(eps=eps, text=text, any=broken["any"], **shares, **pictures))
    return rows


def _separation(label: int | None, samples: Mapping[str, Array], norm: str, members: Array) -> Separation:
    """Separation of the samples in `members` (n,) bool; `label` is their class, or None for all samples."""
    other_distance, same_distance = samples[f"{norm}.other"][members], samples[f"{norm}.same"][members]
    train = {side: samples[f"{norm}.train_{side}"][members] for side in ("other", "same") if f"{norm}.train_{side}" in samples}
    return Separation(
        class_=label,
        n=int(members.sum()),
        other_least=_finite(float(other_distance.min())),
        other_median=_finite(float(np.median(other_distance))),
        same_median=_finite(float(np.median(same_distance))),
        nearer_other=float((other_distance < same_distance).mean()),
        train_least=_finite(float(train["other"].min())) if train else None,
        train_same_median=_finite(float(np.median(train["same"]))) if train else None,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _in_norm_order(means: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """Items by norm, in the order of `NORMS`."""
    return [(norm, means[norm]) for norm in NORMS if norm in means]
