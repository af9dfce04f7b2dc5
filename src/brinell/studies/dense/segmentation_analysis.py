"""Pixel accuracy and mean IoU over budgets from the rows of a study: the worst case of each picture, and intervals.

An input within a budget is within every larger one, so the candidates of a picture at a budget are its inputs at all budgets up
to it, of all attacks. Pixel accuracy takes the candidate of each picture that has the most wrong pixels. The mean IoU is a figure
of the whole set: candidates are exchanged picture by picture as long as that lowers it, beginning with those of the smaller
budget (the greedy choice of Croce, Singh & Hein 2023, arXiv 2306.12941). So neither figure rises with the budget, and both are
upper bounds.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from brinell.analysis.robust_accuracy import class_name, rate
from brinell.core.record import Array
from brinell.store.table import Folder
from brinell.studies.dense.records import CERTIFIED, CLEAN, Answers
from brinell.studies.dense.results import (
    AttackFigures,
    CheckFigures,
    ClassFigures,
    Confusion,
    DenseResult,
    Figure,
    PictureFigures,
)

RESAMPLES = 1000
"""Draws of the pictures by which intervals are made."""
ROUNDS = 20
"""Largest number of rounds over the pictures in the choice of their inputs."""
MARGIN = 0.01
"""Share of the pixels by which a figure must be worse to count as worse."""
MOST_CONFUSIONS = 12
"""Confusions that a result lists."""


class Candidates:
    """The inputs of each picture by budget, as counts of pixels.

    Args:
        rows: the rows of the study.
        levels: budgets above 0, ascending.
    """

    def __init__(self, rows: Answers, levels: Sequence[float]) -> None:
        self.samples = rows.sample_id[rows.attack == CLEAN]
        self.levels = (0.0, *levels)
        position = {sample: number for number, sample in enumerate(self.samples.tolist())}
        answered = np.flatnonzero(rows.answer.astype(bool))
        self.picture = np.array([position[sample] for sample in rows.sample_id[answered].tolist()])
        """(rows,): the picture of each input."""
        self.level = np.array([self.levels.index(eps) for eps in rows.eps[answered].tolist()])
        """(rows,): the place of its budget."""
        self.counts = read_counts(rows.answer[answered].tolist())
        """(rows, classes, classes): its pixels by true and predicted class."""
        self.right = self.counts.diagonal(axis1=1, axis2=2).sum(1)

    def most_wrong(self) -> Array:
        """(levels, n): the input of each picture with the fewest right pixels, the first of equal ones."""
        return np.stack([self._fewest(level) for level in range(len(self.levels))])

    def _fewest(self, level: int) -> Array:
        """(n,): the same at one budget."""
        order = np.lexsort((np.arange(len(self.right)), self.right))
        order = order[self.level[order] <= level]
        pictures, first = np.unique(self.picture[order], return_index=True)
        selection = np.zeros(len(self.samples), dtype=np.int64)
        selection[pictures] = order[first]
        return selection

    def lowest_miou(self) -> Array:
        """(levels, n): the input of each picture by which the mean IoU of the set is lowered most."""
        selection = np.flatnonzero(self.level == 0)
        selection = selection[np.argsort(self.picture[selection])]
        levels = [selection]
        for level in range(1, len(self.levels)):
            allowed = np.flatnonzero(self.level <= level)
            starts = (levels[-1], self._fewest(level))
            best = min((self._lower(start, allowed) for start in starts), key=lambda rows: miou(self.counts[rows].sum(0)) or 0.0)
            levels.append(best)
        return np.stack(levels)

    def _lower(self, start: Array, allowed: Array) -> Array:
        """(n,): inputs exchanged picture by picture among the allowed ones as long as the mean IoU falls."""
        selection = start.copy()
        total = self.counts[selection].sum(0)
        value = miou(total) or 0.0
        for _ in range(ROUNDS):
            changed = False
            for picture in range(len(selection)):
                without = total - self.counts[selection[picture]]
                for row in allowed[self.picture[allowed] == picture]:
                    candidate = miou(without + self.counts[row]) or 0.0
                    if candidate < value - 1e-12:
                        value, selection[picture], total, changed = candidate, row, without + self.counts[row], True
            if not changed:
                break
        return selection


def read_counts(texts: Sequence[str]) -> Array:
    """(rows, classes, classes) int64: pixels by true and predicted class, from the answers of rows."""
    pairs = [np.array(json.loads(text), dtype=np.int64).reshape(-1, 3) for text in texts]
    classes = 1 + max((int(entries[:, :2].max()) for entries in pairs if len(entries)), default=0)
    counts = np.zeros((len(pairs), classes, classes), dtype=np.int64)
    for number, entries in enumerate(pairs):
        counts[number, entries[:, 0], entries[:, 1]] = entries[:, 2]
    return counts


def ious(counts: Array) -> Array:
    """(..., classes): IoU of each class from counts (..., classes, classes); NaN for a class that no mask has."""
    hits = counts.diagonal(axis1=-2, axis2=-1).astype(np.float64)
    true, predicted = counts.sum(-1), counts.sum(-2)
    return np.where(true > 0, hits / np.maximum(true + predicted - hits, 1), np.nan)


def miou(counts: Array) -> float | None:
    """Mean IoU over the classes that occur; None without a valid pixel."""
    values = ious(counts)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else None


def share_right(counts: Array) -> float | None:
    """Pixel accuracy of counts (classes, classes); None without a valid pixel."""
    total = counts.sum()
    return float(counts.trace() / total) if total else None


def intervals(values: Array) -> tuple[float | None, float | None]:
    """95 % interval of a figure from its values (draws,) on redrawn pictures, NaN where a draw has none."""
    values = values[~np.isnan(values)]
    if not len(values):
        return None, None
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def draws(n: int) -> Array:
    """(draws, n): how often each picture is drawn; the same in every analysis."""
    generator = np.random.default_rng(0)
    return np.stack([np.bincount(generator.integers(0, n, n), minlength=n) for _ in range(RESAMPLES)])


def miou_draws(counts: Array, weights: Array) -> Array:
    """(draws,): mean IoU of redrawn pictures with counts (n, classes, classes); NaN for a draw without a valid pixel."""
    hits, true, predicted = counts.diagonal(axis1=1, axis2=2), counts.sum(2), counts.sum(1)
    hits, true, predicted = (weights @ counted.astype(np.float64) for counted in (hits, true, predicted))
    occurs = true > 0
    total = np.where(occurs, hits / np.maximum(true + predicted - hits, 1), 0.0).sum(1)
    return np.where(occurs.any(1), total / np.maximum(occurs.sum(1), 1), np.nan)


def miou_figure(eps: float, counts: Array, weights: Array) -> Figure:
    """Mean IoU of pictures with counts (n, classes, classes)."""
    low, high = intervals(miou_draws(counts, weights)) if len(counts) > 1 else (None, None)
    return Figure(eps=eps, value=miou(counts.sum(0)), low=low, high=high)


def accuracy_draws(right: Array, valid: Array, weights: Array) -> Array:
    """(draws,): pixel accuracy of redrawn pictures with (n,) right and valid pixels; NaN for a draw without a valid pixel."""
    total = weights @ valid.astype(np.float64)
    return np.where(total > 0, weights @ right.astype(np.float64) / np.maximum(total, 1), np.nan)


def accuracy_figure(eps: float, right: Array, valid: Array, weights: Array) -> Figure:
    """Share of pixels that are right, of pictures with (n,) right and valid pixels."""
    low, high = intervals(accuracy_draws(right, valid, weights)) if len(valid) > 1 else (None, None)
    return Figure(eps=eps, value=float(right.sum() / valid.sum()) if valid.sum() else None, low=low, high=high)


def summarise(folder: Folder[Answers]) -> DenseResult:
    """Summarise a study of segmentation."""
    facts, rows = folder.manifest, folder.rows
    levels = [float(level) for level in facts["levels"]]
    candidates = Candidates(rows, levels)
    wrong, lowest = candidates.most_wrong(), candidates.lowest_miou()
    n, weights = len(candidates.samples), draws(len(candidates.samples))
    counts, valid = candidates.counts, candidates.counts[wrong[0]].sum((1, 2))
    accuracy = [
        accuracy_figure(eps, candidates.right[wrong[level]], valid, weights) for level, eps in enumerate(candidates.levels)
    ]
    certified, contradictions = _certified(rows, candidates, wrong, levels, weights)
    names, attacks = [str(name) for name in facts["data"]["classes"]], _attacks(rows, facts, levels)
    per_class = _per_class(names, counts, wrong, lowest)
    ordered = sorted((figures for figures in per_class if figures.iou[0]), key=lambda figures: (figures.iou[-1], -figures.iou[0]))
    return DenseResult(
        folder=str(folder.path),
        task="segmentation",
        model=str(facts["models"][0]["name"]),
        data=str(facts["data"]["name"]),
        n=n,
        norm=str(facts["request"]["norm"]),
        criterion=str(facts["request"]["criterion"] or "pixels"),
        miou=[miou_figure(eps, counts[lowest[level]], weights) for level, eps in enumerate(candidates.levels)],
        pixel_accuracy=accuracy,
        unmet=_unmet(rows, candidates),
        certified=certified,
        contradictions=contradictions,
        per_class=per_class,
        worst_class=ordered[0].name if ordered else None,
        confusions=_confusions(names, counts[wrong[-1]].sum(0)),
        pictures=[
            PictureFigures(
                sample=int(sample),
                name=str(facts["names"][number]),
                accuracy=[share_right(counts[wrong[level][number]]) for level in range(len(candidates.levels))],
            )
            for number, sample in enumerate(candidates.samples.tolist())
        ],
        attacks=attacks,
        checks=[*(CheckFigures(**check) for check in facts.get("checks", [])), _rising(attacks), *_weaker(attacks)],
        notes=_notes(facts, valid, names, counts[wrong[0]].sum(0)),
    )


def _certified(
    rows: Answers, candidates: Candidates, wrong: Array, levels: Sequence[float], weights: Array
) -> tuple[list[Figure], int]:
    """Certified pixel accuracy by radius, and how often an attack left fewer pixels right than are certified."""
    of_proof = rows.attack == CERTIFIED
    if not of_proof.any():
        return [], 0
    figures, contradictions = [], 0
    for level, eps in enumerate(levels, start=1):
        index = np.flatnonzero(of_proof & (rows.eps == eps))
        index = index[[int(np.flatnonzero(rows.sample_id[index] == sample)[0]) for sample in candidates.samples]]
        right = rows.valid[index] - rows.wrong[index]
        figures.append(accuracy_figure(eps, right, rows.valid[index], weights))
        contradictions += int((candidates.right[wrong[level]] < right).sum())
    return figures, contradictions


def _unmet(rows: Answers, candidates: Candidates) -> list[Any]:
    """Share of pictures whose criterion is not met within each budget."""
    n = len(candidates.samples)
    samples_met = [set(rows.sample_id[(rows.outcome == "met") & (rows.eps <= eps)].tolist()) for eps in candidates.levels]
    return [rate(n - len(samples), n, eps=eps) for samples, eps in zip(samples_met, candidates.levels, strict=True)]


def _per_class(names: Sequence[str], counts: Array, wrong: Array, lowest: Array) -> list[ClassFigures]:
    """Figures of each class that occurs in a mask."""
    true = counts[wrong[0]].sum(2)
    iou = np.stack([ious(counts[selection].sum(0)) for selection in lowest])
    right = np.stack([counts[selection].sum(0).diagonal() for selection in wrong])
    return [
        ClassFigures(
            class_=label,
            name=class_name(names, label),
            pixels=int(true[:, label].sum()),
            pictures=int((true[:, label] > 0).sum()),
            iou=[float(value) for value in iou[:, label]],
            accuracy=[float(value / true[:, label].sum()) for value in right[:, label]],
        )
        for label in np.flatnonzero(true.sum(0)).tolist()
    ]


def _confusions(names: Sequence[str], counts: Array) -> list[Confusion]:
    """The most frequent wrong classes."""
    wrong = counts * (1 - np.eye(len(counts), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]
    pairs = [divmod(int(place), len(counts)) for place in order]
    return [
        Confusion(
            class_=true,
            name=class_name(names, true),
            predicted=class_name(names, predicted),
            pixels=int(wrong[true, predicted]),
            share=float(wrong[true, predicted] / counts[true].sum()),
        )
        for true, predicted in pairs
        if wrong[true, predicted]
    ]


def _attacks(rows: Answers, facts: Mapping[str, Any], levels: Sequence[float]) -> list[AttackFigures]:
    """Each attack at each budget by itself."""
    figures = []
    for eps in levels:
        for attack in facts["attacks"]:
            index = (rows.attack == attack) & (rows.eps == eps)
            ran = index & (rows.outcome != "below")
            valid = int(rows.valid[ran].sum())
            figures.append(
                AttackFigures(
                    attack=str(attack),
                    eps=eps,
                    pictures=int(ran.sum()),
                    pixel_accuracy=1 - int(rows.wrong[ran].sum()) / valid if valid else None,
                    forwards=int(rows.forwards[index].sum()),
                    backwards=int(rows.backwards[index].sum()),
                    seconds=float(rows.seconds[index].sum()),
                )
            )
    return figures


def _rising(attacks: Sequence[AttackFigures]) -> CheckFigures:
    """Check that no attack by itself leaves more pixels right at a larger budget than at a smaller one."""
    by_attack: dict[str, list[AttackFigures]] = {}
    for figures in attacks:
        by_attack.setdefault(figures.attack, []).append(figures)
    for name, listed in by_attack.items():
        for smaller, larger in pairwise(listed):
            left = smaller.pixel_accuracy, larger.pixel_accuracy
            same = smaller.pictures == larger.pictures
            if same and left[0] is not None and left[1] is not None and left[1] > left[0] + MARGIN:
                text = (
                    f"{name} by itself leaves {100 * left[1]:.1f} % of the pixels right at {larger.eps:.3g} and "
                    f"{100 * left[0]:.1f} % at {smaller.eps:.3g}: it is too weak there; the figures take the stronger input"
                )
                return CheckFigures(code="monotone", passed=False, text=text)
    return CheckFigures(
        code="monotone", passed=True, text="no attack leaves more pixels right at a larger budget than at a smaller one"
    )


def _weaker(attacks: Sequence[AttackFigures]) -> list[CheckFigures]:
    """Check that PGD leaves no fewer pixels right than APGD, where both ran on the same pictures."""
    checks = []
    for eps in dict.fromkeys(figures.eps for figures in attacks):
        ran = [figures for figures in attacks if figures.eps == eps and figures.pixel_accuracy is not None]
        plain = [figures for figures in ran if figures.attack.startswith("pgd")]
        adaptive = [figures for figures in ran if figures.attack.startswith("apgd-map")]
        if not plain or not adaptive or len({figures.pictures for figures in (*plain, *adaptive)}) > 1:
            continue
        least = min(plain, key=lambda figures: figures.pixel_accuracy or 0.0)
        best = min(adaptive, key=lambda figures: figures.pixel_accuracy or 0.0)
        passed = (least.pixel_accuracy or 0.0) >= (best.pixel_accuracy or 0.0) - MARGIN
        comparison = "no fewer" if passed else "fewer"
        text = f"at {eps:.3g}, PGD leaves {comparison} pixels right than APGD" + ("" if passed else ": give apgd-map more steps")
        checks.append(CheckFigures(code="apgd-against-pgd", passed=passed, text=text))
    return checks


def _notes(facts: Mapping[str, Any], valid: Array, names: Sequence[str], counts: Array) -> list[str]:
    """Notes on the model, on pictures without a valid pixel and on classes that no mask has."""
    notes = [str(note) for note in facts["models"][0].get("notes", [])]
    if empty := int((valid == 0).sum()):
        notes.append(f"{empty} of {len(valid)} pictures have no pixel of any class: no figure counts them")
    absent = [name for label, name in enumerate(names) if label >= len(counts) or not counts[label].sum()]
    if absent:
        listing = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
        notes.append(f"{len(absent)} of {len(names)} classes occur in no mask ({listing}): the mean IoU is over the others")
    return notes
