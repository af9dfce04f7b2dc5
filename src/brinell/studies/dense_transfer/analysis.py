"""The result of a transfer between models with dense outputs, from its rows alone.

The inputs of a cell are those that were strongest on its source, whatever other models answer to them. So a figure on another
model than the source does not bound the robustness of that model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.analysis.average_precision import average_precision, draw_pictures, match_set
from brinell.core.boxes import ERRORS, FALSE, MISLABELLED, MISPLACED, MISSED, Objects, judge
from brinell.core.record import Array
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.answer_text import read_boxes, read_objects
from brinell.studies.dense.segmentation_analysis import accuracy_draws, draws, miou, miou_draws, read_counts, share_right
from brinell.studies.dense_transfer.records import Answers
from brinell.studies.dense_transfer.results import Cell, DenseTransferResult, Effect, SourceCosts

EFFECTS = ("pixel_accuracy", "miou", "ap50", "ap", "recall", *ERRORS)
"""Figures of a cell; those of the other task are null."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A figure and its values on redrawn pictures."""

    value: float
    """NaN where nothing is to be counted."""
    draws: Array
    """(draws,)."""


def summarise(folder: Folder[Answers]) -> DenseTransferResult:
    """Summarise a folder."""
    facts, answers = folder.manifest, folder.rows
    models = [str(entry["name"]) for entry in facts["models"]]
    measure = _measure_boxes(folder) if facts["task"] == "detection" else _measure_maps(folder)
    clean = {model: measure(_part(answers, "", "", model)) for model in models}
    cells = [_cell(None, None, model, clean[model], clean[model]) for model in models]
    for source in facts["sources"]:
        name = str(source["name"])
        for aim in dict.fromkeys(answers.aim[answers.source == name].tolist()):
            cells += [_cell(name, aim, model, measure(_part(answers, name, aim, model)), clean[model]) for model in models]
    return DenseTransferResult(
        folder=str(folder.path),
        task=facts["task"],
        data=str(facts["data"]["name"]),
        n=len(np.unique(answers.sample_id)),
        norm=str(facts["request"]["norm"]),
        eps=float(facts["eps"]),
        eps_text=str(facts["eps_text"]),
        least_score=float(facts["request"]["least_score"]),
        models=models,
        sources=[_costs(answers, source) for source in facts["sources"]],
        cells=cells,
        notes=[str(note) for entry in facts["models"] for note in entry.get("notes", [])],
    )


def _part(answers: Answers, source: str, aim: str, model: str) -> Answers:
    """The rows of a model on one set of inputs, by picture."""
    part = rows.take(answers, (answers.source == source) & (answers.aim == aim) & (answers.model == model))
    return rows.take(part, np.argsort(part.sample_id, kind="stable"))


def _costs(answers: Answers, source: Mapping[str, Any]) -> SourceCosts:
    index = answers.source == source["name"]
    costs = {name: getattr(answers, name)[index].sum() for name in ("forwards", "backwards", "seconds")}
    return SourceCosts(source=str(source["name"]), attacks=[str(attack) for attack in source["attacks"]], **costs)


def _cell(source: str | None, aim: str | None, model: str, samples: Mapping[str, Sample], clean: Mapping[str, Sample]) -> Cell:
    """A cell; changes are from the same model without an attack."""
    effects = {name: _effect(samples[name], clean[name]) if name in samples else None for name in EFFECTS}
    return Cell(source=source, aim=aim, model=model, white_box=source == model, **effects)


def _effect(sample: Sample, clean: Sample) -> Effect:
    """A figure and its change, with their intervals."""
    low, high = _interval(sample.draws)
    change_low, change_high = _interval(sample.draws - clean.draws)
    change = sample.value - clean.value
    return Effect(
        value=_number(sample.value),
        low=low,
        high=high,
        change=_number(change),
        change_low=change_low,
        change_high=change_high,
    )


def _number(value: float | None) -> float | None:
    """A figure; None where it is undefined."""
    return float(value) if value is not None and np.isfinite(value) else None


def _interval(values: Array) -> tuple[float | None, float | None]:
    """The middle 95 % of a figure on redrawn pictures; draws in which it is undefined are left out."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None, None
    low, high = np.quantile(finite, (0.025, 0.975)).tolist()
    return low, high


def _measure_maps(folder: Folder[Answers]) -> Callable[[Answers], dict[str, Sample]]:
    """A function that measures the pixels of rows, which are one for each picture."""
    n = len(np.unique(folder.rows.sample_id))
    weights = draws(n) if n > 1 else np.zeros((0, n))

    def measure(part: Answers) -> dict[str, Sample]:
        """Pixel accuracy and mean IoU."""
        counts = read_counts(part.answer.tolist())
        right = counts.diagonal(axis1=1, axis2=2).sum(1)
        accuracy, mean = share_right(counts.sum(0)), miou(counts.sum(0))
        return {
            "pixel_accuracy": Sample(value=_defined(accuracy), draws=accuracy_draws(right, counts.sum((1, 2)), weights)),
            "miou": Sample(value=_defined(mean), draws=miou_draws(counts, weights)),
        }

    return measure


def _measure_boxes(folder: Folder[Answers]) -> Callable[[Answers], dict[str, Sample]]:
    """A function that measures the boxes of rows, which are one for each picture."""
    first = str(folder.manifest["models"][0]["name"])
    objects = [read_objects(text) for text in _part(folder.rows, "", "", first).answer]
    weights = draw_pictures(len(objects)) if len(objects) > 1 else np.zeros((0, len(objects)), dtype=np.int64)
    least = float(folder.manifest["request"]["least_score"])
    return lambda part: _measure_detections(part, objects, weights, least)


def _measure_detections(part: Answers, objects: list[Objects], weights: Array, least: float) -> dict[str, Sample]:
    """AP, recall and errors."""
    detections = [read_boxes(text) for text in part.answer]
    matches = match_set(detections, objects)
    outcomes = [judge(boxes.select_above(least), picture) for boxes, picture in zip(detections, objects, strict=True)]
    count = np.array([picture.count for picture in objects], dtype=np.float64)
    errors = {error: np.array([outcome.count(error) for outcome in outcomes], dtype=np.float64) for error in ERRORS}
    hits = count - errors[MISSED] - errors[MISLABELLED] - errors[MISPLACED]
    values, redrawn = average_precision(matches), average_precision(matches, weights)
    samples = {name: Sample(value=float(values[level][0]), draws=redrawn[level]) for level, name in enumerate(("ap50", "ap"))}
    samples["recall"] = _share(hits, count, weights)
    return samples | {error: _share(errors[error], np.ones(len(count)) if error == FALSE else count, weights) for error in ERRORS}


def _share(part: Array, total: Array, weights: Array) -> Sample:
    """A sum over pictures per sum over pictures."""
    sums = weights @ np.stack([part, total], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Sample(value=float(np.divide(part.sum(), total.sum())), draws=sums[:, 0] / sums[:, 1])


def _defined(value: float | None) -> float:
    """A figure; NaN where it is undefined."""
    return float("nan") if value is None else value
