"""Scores of detectors, the figures that are counted from them, and the report."""

from dataclasses import dataclass

import numpy as np

from brinell.analysis.auc import auc, auc_interval
from brinell.analysis.judgements import evasions
from brinell.analysis.results import DetectedAttack, DetectorResult
from brinell.analysis.robust_accuracy import rate
from brinell.core.record import CLEAN, Array, Columns, column
from brinell.manifest import Amount, Facts
from brinell.reports.numbers import distance
from brinell.reports.statements import detector_sentence
from brinell.reports.values import Detail, Measure, Report, Step, Table
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.audit_detectors import DetectorsRequest
from brinell.studies.result import FolderResult

EVADING = ("evading", "evading, background kept")
"""Names of the adaptive attacks, in the column `attack`."""
READING = (
    "An adversarial input that raises an alarm is no success. Static attacks are "
    "those of the audit, which do not know the "
    "detector; adaptive ones search for a wrong class without an alarm, and "
    "further ones can lower the rate. What adaptive "
    "attacks take of the gain was never robustness."
)


@dataclass(frozen=True, kw_only=True)
class Scores(Columns):
    """Rows as columns, each a (rows,) array."""

    model: Array = column("string", "name of the model in the run")
    detector: Array = column("string", "spec of the detector")
    attack: Array = column("string", "a stage of the run, `clean`, or one of `EVADING`")
    sample_id: Array = column("int64", "position of the sample in the data")
    score: Array = column("float64", "score of the detector; higher is more suspicious")
    threshold: Array = column("float64", "score above which an input raises an alarm")
    fooled: Array = column("bool", "true if the classifier errs on this input")
    backwards: Array = column(
        "int64", "gradient steps for this input; 0 for an input of the run", zero=True
    )


class DetectorsFacts(Facts):
    """The figures of the audit's run."""

    eps: Amount
    """Its largest budget."""
    eps_text: str
    """The same as it was written."""
    distance: str
    """The distance in which it is measured."""


class DetectorsResult(FolderResult, allow_inf_nan=True):  # scores and thresholds may be infinite
    """Detectors in front of the models of an audit."""

    request: DetectorsRequest
    facts: DetectorsFacts
    detectors: list[DetectorResult]
    """One entry for each model and detector."""

    def report(self) -> Report:
        """The report of the page and the CSV files."""
        return Report(
            verb="audit detectors",
            title="How much of the robustness is only detectability?",
            subject=f"{self.data}, {distance(self.facts.distance)} up to "
            f"{self.facts.eps_text}; thresholds at "
            f"{100 * self.request.fpr:g} % false alarms on {self.request.train}",
            sentences=_sentences(self),
            blocks=[
                Table(
                    title="Detectors",
                    columns=(
                        "model",
                        "detector",
                        "robust without it",
                        "static attacks",
                        "adaptive attacks",
                        "false alarms",
                    ),
                    rows=[
                        (
                            *(d.model, d.detector, d.robust, d.static, d.adaptive),
                            Detail(d.false_alarms, f"scores above {d.threshold:.3g}"),
                        )
                        for d in self.detectors
                    ],
                    text=READING,
                    name="detectors",
                    terminal=True,
                ),
                Table(
                    title="Attack by attack",
                    columns=("model", "detector", "attack", "AUC", "detected at the threshold"),
                    rows=[
                        (
                            d.model,
                            d.detector,
                            entry.attack,
                            Measure(entry.auc, entry.low, entry.high),
                            entry.detected,
                        )
                        for d in self.detectors
                        for entry in d.attacks
                    ],
                    name="attacks",
                    folded=True,
                ),
            ],
            steps=[
                Step(
                    "Have the figures made again before you pass them on.", "brinell verify FOLDER"
                )
            ],
        )


def _sentences(result: "DetectorsResult") -> list[str]:
    """What each detector seems to add, and what adaptive attacks leave; the largest apparent gain
    first.
    """
    ordered = sorted(result.detectors, key=lambda d: (d.robust.value or 0) - (d.static.value or 0))
    return [detector_sentence(entry, result.facts.eps_text) for entry in ordered]


def summarise(folder: Folder[Scores]) -> DetectorsResult:
    """Figures of a folder from its rows."""
    detectors = [
        _detector(
            model,
            detector,
            rows.take(
                folder.rows, (folder.rows.model == model) & (folder.rows.detector == detector)
            ),
        )
        for model in dict.fromkeys(folder.rows.model.tolist())
        for detector in dict.fromkeys(folder.rows.detector.tolist())
    ]

    rates = {
        index: (entry.evaded, entry.robust, entry.static, entry.adaptive)
        for index, entry in enumerate(detectors)
        if entry.adaptive is not None and entry.evaded is not None and entry.evaded.n
    }

    names = [f"{detectors[index].detector} in front of {detectors[index].model}" for index in rates]
    statements = evasions(names, [*rates.values()], folder.facts.eps_text)
    for index, statement in zip(rates, statements, strict=True):
        detectors[index] = detectors[index].model_copy(update={"statement": statement})
    return DetectorsResult(**folder.head(), detectors=detectors)


def _detector(model: str, detector: str, scores: Scores) -> DetectorResult:
    threshold = float(scores.threshold[0])
    clean = scores.attack == CLEAN
    adaptive = np.isin(scores.attack, EVADING)
    alarm = scores.score > threshold
    # Adversarial examples of attacks that do not know the detector.
    static = ~clean & ~adaptive & scores.fooled

    def samples(chosen: Array) -> set[int]:
        """The samples of some rows."""
        return set(scores.sample_id[chosen].tolist())

    def separation(attack: str, of_attack: Array) -> DetectedAttack:
        low, high = auc_interval(scores.score[clean], scores.score[of_attack]) or (None, None)
        detected = rate(int(alarm[of_attack].sum()), int(of_attack.sum()), quantity="detected")
        return DetectedAttack(
            attack=attack,
            auc=auc(scores.score[clean], scores.score[of_attack]),
            low=low,
            high=high,
            detected=detected,
        )

    # Each set holds samples: one attack is enough to lose a sample.
    n = int(clean.sum())
    right = samples(clean & ~scores.fooled)
    unnoticed = samples(static & ~alarm)
    evaded = samples(adaptive & scores.fooled & ~alarm)
    is_adaptive = bool(adaptive.any())
    return DetectorResult(
        model=model,
        detector=detector,
        threshold=threshold,
        false_alarms=rate(int(alarm[clean].sum()), n, quantity="false alarms"),
        robust=rate(len(right - samples(static)), n),
        static=rate(len(right - unnoticed), n),
        adaptive=rate(len(right - unnoticed - evaded), n) if is_adaptive else None,
        evaded=rate(len(evaded), len(right), quantity="evaded") if is_adaptive else None,
        attacks=[
            separation(attack, of_attack)
            for attack in dict.fromkeys(scores.attack[~clean].tolist())
            if (of_attack := (scores.attack == attack) & scores.fooled).any()
        ],
    )
