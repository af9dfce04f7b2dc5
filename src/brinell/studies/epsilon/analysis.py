"""Which eps, and why: the distances and limits of a folder of `brinell epsilon` as recommendations."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import AliasChoices, Field

from brinell.analysis.results import FolderResult, Result
from brinell.core.record import Array
from brinell.studies.epsilon import conditions
from brinell.studies.epsilon.conditions import INTERPOLATION, LABEL, PERCEPTION, Budget
from brinell.studies.epsilon.records import limits_of, load_folder

UNITS = {"linf": "Linf", "l2": "L2", "l1": "L1", "l0": "L0"}


class Surprise(Result):
    """A class whose samples are, on average, nearer to those of another class than to each other."""

    norm: str
    """Norm of the distances."""
    class_: int = Field(serialization_alias="class", validation_alias=AliasChoices("class", "class_"))
    """The class."""
    nearer_to: int
    """The other one."""
    within: float
    """Mean distance between two samples of the class."""
    between: float
    """Mean distance to a sample of the other."""


class Heat(Result):
    """Mean distances between classes in one norm."""

    norm: str
    """Norm of the distances."""
    means: list[list[float | None]]
    """Row and column are classes, by index; null where there is no pair."""


class Separation(Result):
    """How far the samples of a class are from others; null where there is no such sample."""

    class_: int | None = Field(serialization_alias="class", validation_alias=AliasChoices("class", "class_"))
    """The class; null for all samples."""
    n: int
    """Samples."""
    other_least: float | None
    """Smallest distance to a sample of another class."""
    other_median: float | None
    """Median over the samples of the distance to the nearest sample of another class."""
    same_median: float | None
    """Median of the distance to the nearest different sample of the class."""
    nearer_other: float
    """Share of the samples whose nearest neighbour has another label."""
    train_least: float | None = None
    """Smallest distance to a training sample of another class."""
    train_same_median: float | None = None
    """Median of the distance to the nearest training sample of the class."""


class Recommendation(Result):
    """An eps and why it is no larger."""

    class_: int | None = Field(serialization_alias="class", validation_alias=AliasChoices("class", "class_"))
    """The class; null for all samples."""
    eps: float | None
    """The largest budget that keeps every condition on all but the allowed share of the samples; null where nothing limits it."""
    reason: str
    """The condition that would break first: label, interpolation or perception."""
    seen: float | None
    """The same where changes may be seen: without the condition of perception."""
    seen_reason: str
    """The condition that would break first then."""


class Fares(Result):
    """What one budget does."""

    eps: float
    """The budget."""
    text: str
    """The same as it is written."""
    label: float | None
    """Share of the samples on which it breaks label constancy; null where that was not looked at."""
    interpolation: float | None
    """Share on which it leads to another sample of the class."""
    perception: float | None
    """Share on which the change is noticed."""
    any: float
    """Share on which it breaks any condition."""
    ssim: float | None = None
    """Median structural similarity of a typical change; null for data without visual meaning."""
    psnr: float | None = None
    """Median peak signal-to-noise ratio in dB."""
    background_changed: float | None = None
    """Median share of the background that changes; null without background."""


class NormRecommendation(Result):
    """Everything about one norm."""

    norm: str
    """The norm."""
    overall: Recommendation
    """One eps for all samples."""
    unnoticed: float | None
    """Up to here changes go unnoticed on all but the allowed share of the samples; null where that was not looked at."""
    sound: float | None
    """Up to here the other conditions are kept, so that an error counts against the model; null where nothing limits it."""
    judged_on: str | None
    """What perceptibility was judged on: people (answers), attacks (stored adversarial examples) or noise (random changes)."""
    within: list[str]
    """The budgets that studies use and that are sound here, ascending."""
    advice: str
    """The range that is recommended, with its reasons."""
    strict: float | None
    """The largest eps that keeps every condition on every sample."""
    why: str
    """The reason in one sentence."""
    why_seen: str | None
    """The same where changes may be seen; null where perception was not looked at."""
    per_class: list[Recommendation]
    """One eps for each class."""
    per_sample: list[float | None]
    """The smallest, the first quartile, the median, the third quartile and the largest of the samples' own budgets."""
    reasons: dict[str, int]
    """For how many samples each condition decides."""
    separation: list[Separation]
    """All samples first, then class by class."""
    usual: list[Fares]
    """The recommended budgets and those that studies use."""


class NoteResult(Result):
    """Something about the data that a reader must know."""

    code: str
    """Short name."""
    text: str
    """One line."""


class EpsilonResult(FolderResult):
    """`brinell epsilon --json`."""

    data: str
    """Name of the data."""
    n: int
    """Samples."""
    classes: list[str]
    """Names of the classes."""
    conditions: list[str]
    """Conditions that the recommendations keep."""
    fraction: float
    """Label constancy: the fraction of the distance to the nearest sample of another class."""
    allow: float
    """Share of the samples on which one eps for all may break a condition."""
    heat: list[Heat]
    """Mean distances between classes."""
    surprises: list[Surprise]
    """Classes nearer to another than to themselves."""
    norms: list[NormRecommendation]
    """The recommendations."""
    notes: list[NoteResult]
    """What a reader must know."""
    seconds: float
    """How long it took."""


def summarise(folder: Path) -> EpsilonResult:
    """All recommendations of a folder.

    Raises:
        RequestError: no such folder, or a damaged one.
    """
    facts, arrays = load_folder(folder)
    samples = arrays["samples"]
    return EpsilonResult(
        folder=str(folder),
        data=facts["data"]["name"],
        n=facts["data"]["n"],
        classes=facts["data"]["classes"],
        conditions=facts["conditions"],
        fraction=facts["fraction"],
        allow=facts["allow"],
        heat=[
            Heat(norm=norm, means=[[_known(v) for v in row] for row in means.tolist()])
            for norm, means in _ordered(arrays["means"])
        ],
        surprises=[one for norm, means in _ordered(arrays["means"]) for one in surprises(norm, means)],
        norms=[recommend(facts, samples, norm) for norm in facts["norms"]],
        notes=[NoteResult(**note) for note in facts["notes"]],
        seconds=facts["seconds"],
    )


def surprises(norm: str, means: Array) -> list[Surprise]:
    """The cells of a heat map in which another class is nearer than the class itself, the widest first."""
    own = np.diag(means)
    with np.errstate(invalid="ignore"):
        rows, columns = np.nonzero(means < own[:, None])
    order = np.argsort(means[rows, columns] / own[rows], kind="stable")  # own is above another mean, so not 0
    return [
        Surprise(norm=norm, class_=int(a), nearer_to=int(b), within=float(own[a]), between=float(means[a, b]))
        for a, b in zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    ]


def recommend(facts: Mapping[str, Any], samples: Mapping[str, Array], norm: str) -> NormRecommendation:
    """Eps for the set, each class and each sample in one norm."""
    found, labels = limits_of(facts, samples, norm), samples["labels"]
    whole, allow = norm == "l0", float(facts["allow"])
    own, reasons = conditions.own(found)
    overall = _recommendation(None, found, allow, whole)
    classes = np.unique(labels).tolist()
    strict = conditions.common(found, 0.0, whole)
    below = conditions.common({PERCEPTION: found[PERCEPTION]}, allow, whole).eps if PERCEPTION in found else math.inf
    unnoticed = _known(below)
    judged_on = facts.get("perception", {}).get(norm, {}).get("by", "noise") if PERCEPTION in found else None
    usual = facts["usual"].get(norm, [])
    within = [one["text"] for one in usual if overall.seen is None or one["eps"] <= overall.seen]
    return NormRecommendation(
        norm=norm,
        overall=overall,
        unnoticed=unnoticed,
        sound=overall.seen,
        judged_on=judged_on,
        within=within,
        advice=_advice(norm, unnoticed, overall, judged_on, within, facts),
        strict=_known(strict.eps),
        why=_why(norm, overall.eps, overall.reason, facts),
        why_seen=_why(norm, overall.seen, overall.seen_reason, facts) if PERCEPTION in found and len(found) > 1 else None,
        per_class=[
            _recommendation(c, {name: limit[labels == c] for name, limit in found.items()}, allow, whole) for c in classes
        ],
        per_sample=[_known(float(q)) for q in np.quantile(own, [0, 0.25, 0.5, 0.75, 1], method="nearest")],
        reasons=dict(Counter(str(reason) for reason in reasons)),
        separation=[_separation(None, samples, norm, np.ones(len(labels), bool))]
        + [_separation(c, samples, norm, labels == c) for c in classes],
        usual=_fares(facts, found, norm, overall),
    )


def _recommendation(label: int | None, found: Mapping[str, Array], allow: float, whole: bool) -> Recommendation:
    best = conditions.common(found, allow, whole)
    visible = {name: limit for name, limit in found.items() if name != PERCEPTION}
    seen = conditions.common(visible, allow, whole) if visible else Budget(math.inf, "")
    return Recommendation(class_=label, eps=_known(best.eps), reason=best.reason, seen=_known(seen.eps), seen_reason=seen.reason)


def _why(norm: str, eps: float | None, reason: str, facts: Mapping[str, Any]) -> str:
    name, share = UNITS[norm], f"{100 * facts['allow']:g} % of the samples"
    texts = {
        LABEL: f"more than {share} could be changed by {100 * facts['fraction']:g} % of the way to one "
        "of another class, so that the label may no longer be right",
        INTERPOLATION: f"more than {share} could be turned into another of their class, so that "
        "an error may be one of generalisation",
        PERCEPTION: f"the change shows on more than {share} (SSIM below {facts['ssim']:g} or PSNR below {facts['psnr']:g} dB)",
    }
    if eps is None:
        return f"Nothing that was looked at limits eps in {name}."
    if eps == 0 and reason == PERCEPTION:
        return f"In {name} even the smallest change may be noticed: {texts[reason]}."
    if eps == 0:
        return f"No eps above 0 is sound in {name}: above it, {texts[reason]}."
    return f"{name} eps {eps:g}: above it, {texts[reason]}."


JUDGED = {
    "people": "people noticed half of the changes of this size",
    "attacks": "above it, stored adversarial examples made larger show by SSIM or PSNR",
    "noise": "above it, random changes show by SSIM or PSNR",
}


def _advice(
    norm: str,
    unnoticed: float | None,
    overall: Recommendation,
    judged_on: str | None,
    within: list[str],
    facts: Mapping[str, Any],
) -> str:
    """The range of budgets that is recommended in one norm, and why it ends where it does."""
    name, sound = UNITS[norm], overall.seen
    if sound is None and overall.eps is None:
        return f"Nothing that was looked at limits eps in {name}."
    if sound == 0:
        return _why(norm, 0.0, overall.seen_reason, facts)
    text = (
        f"{name} up to {_written(sound)}: {_reason(overall.seen_reason, facts)}." if sound is not None else f"{name}: no limit."
    )
    if judged_on is not None and unnoticed is not None:
        if unnoticed == 0:
            text += f" Every change in it may be noticed ({JUDGED[judged_on]})."
        elif sound is None or unnoticed < sound:
            text += (
                f" Up to {_written(unnoticed)} changes go unnoticed ({JUDGED[judged_on]}); between the two they may be seen, and "
                "an error still counts against the model."
            )
        else:
            text += f" Changes of such sizes go unnoticed, up to {_written(unnoticed)} ({JUDGED[judged_on]})."
    if within:
        text += f" Sound among the usual budgets: {', '.join(within)}."
    return text


def _reason(reason: str, facts: Mapping[str, Any]) -> str:
    share, way = f"{100 * facts['allow']:g} % of the samples", f"{100 * facts['fraction']:g} % of the way"
    return {
        LABEL: f"above it, more than {share} could be changed by {way} to one of another class",
        INTERPOLATION: f"above it, more than {share} could be turned into another of their class",
    }.get(reason, "nothing else limits it")


def _written(eps: float) -> str:
    return f"{eps:.3g}"


def _fares(facts: Mapping[str, Any], found: Mapping[str, Array], norm: str, best: Recommendation) -> list[Fares]:
    looked = {one["text"]: one for one in facts["usual"].get(norm, [])}
    budgets = {text: one["eps"] for text, one in looked.items()}
    for eps, text in ((best.eps, "recommended"), (best.seen, "may be seen")):
        if eps and all(not math.isclose(eps, other) for other in budgets.values()):
            budgets[f"{eps:g} ({text})"] = eps
    rows = []
    for text, eps in sorted(budgets.items(), key=lambda pair: pair[1]):
        broken = conditions.shares(found, eps)
        seen = looked.get(text, {})
        shares = {name: broken.get(name) for name in conditions.CONDITIONS}
        pictures = {name: seen.get(name) for name in ("ssim", "psnr", "background_changed")}
        rows.append(Fares(eps=eps, text=text, any=broken["any"], **shares, **pictures))
    return rows


def _separation(label: int | None, samples: Mapping[str, Array], norm: str, mine: Array) -> Separation:
    other, same = samples[f"{norm}.other"][mine], samples[f"{norm}.same"][mine]
    train = {side: samples[f"{norm}.train_{side}"][mine] for side in ("other", "same") if f"{norm}.train_{side}" in samples}
    return Separation(
        class_=label,
        n=int(mine.sum()),
        other_least=_known(float(other.min())),
        other_median=_known(float(np.median(other))),
        same_median=_known(float(np.median(same))),
        nearer_other=float((other < same).mean()),
        train_least=_known(float(train["other"].min())) if train else None,
        train_same_median=_known(float(np.median(train["same"]))) if train else None,
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _ordered(means: Mapping[str, Array]) -> list[tuple[str, Array]]:
    return [(norm, means[norm]) for norm in UNITS if norm in means]
