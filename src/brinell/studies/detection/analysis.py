"""What detectors are worth: ROC on every attack, and what is left of the gain when the attack knows the detector."""

import math
from typing import Any

import numpy as np

from brinell.analysis.results import FolderResult, Rate, Result
from brinell.analysis.robust_accuracy import rate
from brinell.core.record import Array
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.detection.records import CLEAN, EVADING, Scores


class Roc(Result):
    """How well a detector tells one attack's adversarial inputs from clean ones."""

    attack: str
    n: int
    """Adversarial inputs; those of an attack that found none are not judged."""
    auc: float | None
    """Probability that an adversarial input is scored as more suspicious than a clean one, ties counted half; null where n is
    0."""
    low: float | None
    """Lower end of its 95 % interval (Hanley & McNeil 1982)."""
    high: float | None
    caught: Rate
    """Share of the adversarial inputs that raise the alarm at the threshold."""


class DetectorResult(Result, allow_inf_nan=True):  # a detector may answer infinity, and so its threshold may be infinite
    """One detector in front of one model."""

    model: str
    detector: str
    threshold: float
    false_alarms: Rate
    """Alarms on the clean samples of the run; the threshold was set on other clean inputs."""
    n: int
    """Samples examined: the denominator of the three rates below."""
    robust: Rate
    """Samples that are robust to the run's attacks at eps, no detector."""
    static: Rate
    """Samples that are robust, or whose adversarial inputs all raise the alarm: what the detector seems to give."""
    adaptive: Rate | None
    """The same once the adaptive attacks, which know the detector, are counted too; null where they were left out."""
    evaded: Rate | None
    """Among the samples that the model gets right, those for which an adaptive attack finds an adversarial example without an
    alarm."""
    rocs: list[Roc]


class DetectionResult(FolderResult):
    """What `brinell detect --json` prints."""

    folder: str
    run: str
    data: str
    train: str
    distance: str
    eps: float
    fpr: float
    """False-alarm rate at which thresholds were set."""
    detectors: list[DetectorResult]


def summarise(detection: Folder[Scores]) -> DetectionResult:
    """The folder in figures."""
    facts = detection.manifest
    return DetectionResult(
        folder=str(detection.path),
        run=facts["run"],
        data=facts["data"],
        train=facts["train"],
        distance=facts["distance"],
        eps=facts["eps"],
        fpr=facts["request"]["fpr"],
        detectors=[_detector(detection, model, guard) for model in facts["models"] for guard in model["detectors"]],
    )


def of(detection: Folder[Scores], model: str, detector: str) -> Scores:
    """The rows of one detector in front of one model."""
    scores = detection.rows
    return rows.take(scores, (scores.model == model) & (scores.detector == detector))


def _detector(detection: Folder[Scores], model: dict[str, Any], guard: dict[str, Any]) -> DetectorResult:
    scores, threshold, n = of(detection, model["name"], guard["name"]), float(guard["threshold"]), int(model["samples"])
    alarm = scores.score > threshold
    clean, knowing = scores.attack == CLEAN, np.isin(scores.attack, EVADING)
    right = set(scores.sample_id[clean & ~scores.fooled].tolist())
    unnoticed = set(scores.sample_id[~clean & ~knowing & scores.fooled & ~alarm].tolist())
    evaded = set(scores.sample_id[knowing & scores.fooled & ~alarm].tolist())
    return DetectorResult(
        model=model["name"],
        detector=guard["name"],
        threshold=threshold,
        false_alarms=rate(int(alarm[clean].sum()), int(clean.sum())),
        n=n,
        robust=rate(int(model["robust"]), n),
        static=rate(len(right - unnoticed), n),
        adaptive=rate(len(right - unnoticed - evaded), n) if knowing.any() else None,
        evaded=rate(len(evaded), len(right)) if knowing.any() else None,
        rocs=[
            _roc(attack, scores.score[clean], scores.score[(scores.attack == attack) & scores.fooled], threshold)
            for attack in [*detection.manifest["attacks"], *(name for name in EVADING if (scores.attack == name).any())]
        ],
    )


def _roc(attack: str, clean: Array, adversarial: Array, threshold: float) -> Roc:
    found = auc(clean, adversarial)
    low, high = (None, None) if found is None else interval(found, len(adversarial), len(clean))
    caught = rate(int((adversarial > threshold).sum()), len(adversarial))
    return Roc(attack=attack, n=len(adversarial), auc=found, low=low, high=high, caught=caught)


def auc(clean: Array, adversarial: Array) -> float | None:
    """Probability that an adversarial score exceeds a clean one, ties counted half; None where either is empty."""
    if not len(clean) or not len(adversarial):
        return None
    ordered = np.sort(clean)
    below, level = np.searchsorted(ordered, adversarial, "left"), np.searchsorted(ordered, adversarial, "right")
    return float((below + level).mean() / 2 / len(clean))


def interval(area: float, positives: int, negatives: int) -> tuple[float, float]:
    """95 % interval of an area under a ROC curve (Hanley & McNeil 1982, The meaning and use of the area under a ROC curve)."""
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (positives - 1) * (q1 - area**2) + (negatives - 1) * (q2 - area**2)
    half = 1.96 * math.sqrt(max(variance, 0.0) / (positives * negatives))
    return max(0.0, area - half), min(1.0, area + half)


def curve(clean: Array, adversarial: Array) -> tuple[Array, Array]:
    """False-alarm rates and shares of adversarial inputs caught, from threshold infinity down."""
    levels = np.unique(np.concatenate([clean, adversarial]))[::-1]
    false = 1 - np.searchsorted(np.sort(clean), levels, "left") / max(len(clean), 1)
    true = 1 - np.searchsorted(np.sort(adversarial), levels, "left") / max(len(adversarial), 1)
    return np.concatenate([[0.0], false]), np.concatenate([[0.0], true])
