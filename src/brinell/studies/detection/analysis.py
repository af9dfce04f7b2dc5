"""Figures of detectors: ROC curves for every attack, and robust accuracy against static and adaptive attacks."""

from typing import Any

import numpy as np

from brinell.analysis.auc import auc, auc_interval
from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import rate
from brinell.core.record import Array
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.detection.records import CLEAN, EVADING, Scores


class Roc(Result):
    """How well a detector separates one attack's adversarial inputs from clean ones."""

    attack: str
    n: int
    """Adversarial inputs; 0 for an attack that found none."""
    auc: float | None
    """Probability that an adversarial input has a higher score than a clean one, with ties counted half; null if n is 0."""
    low: float | None
    """Lower end of its 95 % interval; null with fewer than two adversarial inputs."""
    high: float | None
    detected: Rate
    """Share of the adversarial inputs with an alarm at the threshold."""


class DetectorResult(Result, allow_inf_nan=True):  # scores and thresholds may be infinite
    """One detector in front of one model."""

    model: str
    detector: str
    threshold: float
    false_alarms: Rate
    """Alarms on the clean samples of the run. The threshold comes from other clean inputs."""
    n: int
    """Number of samples: the denominator of the next three rates."""
    robust: Rate
    """Samples that are robust to the run's attacks at eps without a detector."""
    static: Rate
    """Samples that are robust, or whose adversarial inputs all raise an alarm: the apparent gain of the detector."""
    adaptive: Rate | None
    """The static rate after the adaptive attacks, which know the detector; null if they did not run."""
    evaded: Rate | None
    """Among the correctly classified samples, those for which an adaptive attack finds an adversarial example without an
    alarm."""
    rocs: list[Roc]


class DetectionResult(FolderResult):
    """Result of `brinell detect`, as `--json` prints it."""

    folder: str
    run: str
    data: str
    train: str
    distance: str
    eps: float
    fpr: float
    """False-alarm rate that determines the thresholds."""
    detectors: list[DetectorResult]


def summarise(detection: Folder[Scores]) -> DetectionResult:
    """Summarise a detection folder."""
    facts = detection.manifest
    return DetectionResult(
        folder=str(detection.path),
        run=facts["run"],
        data=facts["data"],
        train=facts["train"],
        distance=facts["distance"],
        eps=facts["eps"],
        fpr=facts["request"]["fpr"],
        detectors=[_detector(detection, model, detector) for model in facts["models"] for detector in model["detectors"]],
    )


def detector_rows(detection: Folder[Scores], model: str, detector: str) -> Scores:
    """The rows of one detector on one model."""
    scores = detection.rows
    return rows.take(scores, (scores.model == model) & (scores.detector == detector))


def _detector(detection: Folder[Scores], model: dict[str, Any], detector: dict[str, Any]) -> DetectorResult:
    scores, threshold, n = (
        detector_rows(detection, model["name"], detector["name"]),
        float(detector["threshold"]),
        int(model["samples"]),
    )
    alarm = scores.score > threshold
    clean, adaptive = scores.attack == CLEAN, np.isin(scores.attack, EVADING)
    right = set(scores.sample_id[clean & ~scores.fooled].tolist())
    unnoticed = set(scores.sample_id[~clean & ~adaptive & scores.fooled & ~alarm].tolist())
    evaded = set(scores.sample_id[adaptive & scores.fooled & ~alarm].tolist())
    return DetectorResult(
        model=model["name"],
        detector=detector["name"],
        threshold=threshold,
        false_alarms=rate(int(alarm[clean].sum()), int(clean.sum())),
        n=n,
        robust=rate(int(model["robust"]), n),
        static=rate(len(right - unnoticed), n),
        adaptive=rate(len(right - unnoticed - evaded), n) if adaptive.any() else None,
        evaded=rate(len(evaded), len(right)) if adaptive.any() else None,
        rocs=[
            _roc(attack, scores.score[clean], scores.score[(scores.attack == attack) & scores.fooled], threshold)
            for attack in [*detection.manifest["attacks"], *(name for name in EVADING if (scores.attack == name).any())]
        ],
    )


def _roc(attack: str, clean: Array, adversarial: Array, threshold: float) -> Roc:
    area = auc(clean, adversarial)
    low, high = auc_interval(clean, adversarial) or (None, None)
    detected = rate(int((adversarial > threshold).sum()), len(adversarial))
    return Roc(attack=attack, n=len(adversarial), auc=area, low=low, high=high, detected=detected)


def curve(clean: Array, adversarial: Array) -> tuple[Array, Array]:
    """ROC curve: false-alarm rates and shares of detected adversarial inputs, from an infinite threshold down."""
    levels = np.unique(np.concatenate([clean, adversarial]))[::-1]
    false = 1 - np.searchsorted(np.sort(clean), levels, "left") / max(len(clean), 1)
    true = 1 - np.searchsorted(np.sort(adversarial), levels, "left") / max(len(adversarial), 1)
    return np.concatenate([[0.0], false]), np.concatenate([[0.0], true])
