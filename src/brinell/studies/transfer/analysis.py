"""The transfer matrix: accuracy and success of every source on every model, and how the sources rank."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from brinell.analysis.ranks import percentile_interval, ranked
from brinell.analysis.results import Rate, Share
from brinell.analysis.robust_accuracy import class_name, mean, rate, share
from brinell.analysis.stats import holm, mcnemar, paired_difference
from brinell.core.record import Array
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.transfer.records import Answers
from brinell.studies.transfer.results import (
    Cell,
    ClassCell,
    DistortionCell,
    Place,
    ShownModel,
    SourceResult,
    TransferResult,
)


def summarise(transfer: Folder[Answers]) -> TransferResult:
    """The folder in figures."""
    facts = transfer.manifest
    models = [str(one["name"]) for one in facts["models"]]
    names = [str(name) for name in facts["data"]["classes"]]
    of = {source["name"]: _of_source(transfer.rows, source, models) for source in facts["sources"]}
    cells = [_cell(source, model, of[source["name"]], names) for source in facts["sources"] for model in models]
    return TransferResult(
        folder=str(transfer.path),
        data=str(facts["data"]["name"]),
        distance=str(facts["distance"]),
        eps=float(facts["eps"]),
        eps_text=str(facts["eps_text"]),
        attack=facts["attack"],
        sources=_sources(facts, of, cells, models),
        models=[
            ShownModel(model=str(one["name"]), architecture=one.get("architecture"), parameters=one.get("parameters"))
            for one in facts["models"]
        ],
        cells=_corrected(cells),
        passes=int(facts["passes"]),
        seconds=float(facts["seconds"]),
        notes=_notes(facts),
    )


def _of_source(answers: Answers, source: Mapping[str, Any], models: Sequence[str]) -> dict[str, Answers]:
    """The rows of one source by model, all in the order of the samples."""
    mine = rows.take(answers, answers.source == source["name"])
    found = {model: rows.take(mine, mine.model == model) for model in models}
    return {model: rows.take(one, np.argsort(one.sample_id, kind="stable")) for model, one in found.items()}


def _both(source: Mapping[str, Any], model: str, of: Mapping[str, Answers]) -> Array:
    """(n,) bool: the examples whose clean inputs the model and every member of the source that is shown here got right."""
    right = of[model].clean_pred == of[model].label
    for member in source["white_box"]:
        right = right & (of[member].clean_pred == of[member].label)
    return np.asarray(right)


def _cell(source: Mapping[str, Any], model: str, of: Mapping[str, Answers], names: Sequence[str]) -> Cell:
    mine, both = of[model], _both(source, model, of)
    before, after = mine.clean_pred == mine.label, mine.pred == mine.label
    counts = [int(((before == b) & (after == a)).sum()) for b, a in ((True, True), (False, True), (True, False), (False, False))]
    kept, gained, lost, never = counts
    ends = paired_difference(kept, gained, lost, never)

    def part(at: Array) -> tuple[Rate, Share]:
        return rate(int(after[at].sum()), int(at.sum())), share((~after[at & both]).tolist())

    placed = sorted(set(mine.distortion.tolist()) - {""})
    accuracy, success = part(np.ones(len(mine), dtype=bool))
    return Cell(
        source=str(source["name"]),
        model=model,
        white_box=model in source["white_box"],
        clean=rate(int(before.sum()), len(mine)),
        accuracy=accuracy,
        success=success,
        difference=None if not len(mine) else (gained - lost) / len(mine),
        low=ends and ends.low,
        high=ends and ends.high,
        p=mcnemar(gained, lost) if len(mine) else None,
        per_class=[
            ClassCell(class_=int(index), name=class_name(names, int(index)), accuracy=a, success=s)
            for index in np.unique(mine.label)
            for a, s in [part(mine.label == index)]
        ],
        per_distortion=[
            DistortionCell(distortion=one, accuracy=a, success=s) for one in placed for a, s in [part(mine.distortion == one)]
        ],
    )


def _corrected(cells: Sequence[Cell]) -> list[Cell]:
    """P-values corrected for being several."""
    known = iter(holm([cell.p for cell in cells if cell.p is not None]))
    return [cell if cell.p is None else cell.model_copy(update={"p": next(known)}) for cell in cells]


def _sources(
    facts: Mapping[str, Any], of: Mapping[str, Mapping[str, Answers]], cells: Sequence[Cell], models: Sequence[str]
) -> list[SourceResult]:
    others = {
        source["name"]: [cell for cell in cells if cell.source == source["name"] and not cell.white_box]
        for source in facts["sources"]
    }
    places = _places(facts, of, models)
    found = []
    for source in facts["sources"]:
        any_model = of[source["name"]][models[0]]
        found.append(
            SourceResult(
                name=source["name"],
                kind=source["kind"],
                members=source["members"],
                white_box=source["white_box"],
                level=source["level"],
                n=source["n"],
                missing=source["missing"],
                median_l2=float(np.median(any_model.l2)) if len(any_model) else None,
                max_linf=float(any_model.linf.max()) if len(any_model) else None,
                success=mean([cell.success.value for cell in others[source["name"]]]),
                least=min((one for cell in others[source["name"]] if (one := cell.success.value) is not None), default=None),
                rank=places.get(source["name"]),
                forwards=int(source["forwards"]),
                backwards=int(source["backwards"]),
                seconds=float(source["seconds"]),
            )
        )
    return found


def _places(facts: Mapping[str, Any], of: Mapping[str, Mapping[str, Answers]], models: Sequence[str]) -> dict[str, Place]:
    """Places of the made sources by their mean success on models that are not their members, samples drawn again together."""
    made = [source for source in facts["sources"] if source["kind"] == "made" and set(models) - set(source["white_box"])]
    if len(made) < 2:
        return {}
    n, draws = int(made[0]["n"]), int(facts["request"]["draws"])
    rng = np.random.default_rng(int(facts["request"]["seed"]))
    weights = np.concatenate([np.ones((1, n)), rng.multinomial(n, np.full(n, 1 / n), size=draws)])
    means = []
    for source in made:
        mine = of[source["name"]]
        each = []
        for model in (model for model in models if model not in source["white_box"]):
            both = _both(source, model, mine)
            hits = both & (mine[model].pred != mine[model].label)
            with np.errstate(invalid="ignore", divide="ignore"):
                each.append((weights @ hits) / (weights @ both))
        means.append(np.nanmean(np.where(np.isfinite(each), each, 0.0), axis=0))
    places = ranked(-np.stack(means, 1))
    ends = [percentile_interval(places[1:, at], float(places[0, at])) for at in range(len(made))]
    return {
        source["name"]: Place(rank=float(places[0, at]), low=end.low, high=end.high)
        for at, (source, end) in enumerate(zip(made, ends, strict=True))
    }


def _notes(facts: Mapping[str, Any]) -> list[str]:
    notes = [
        f"{source['name']}: {source['missing']} of its {source['missing'] + source['n']} samples have no example; its figures "
        f"are over the other {source['n']}"
        for source in facts["sources"]
        if source["missing"]
    ]
    if len({source["n"] for source in facts["sources"]}) > 1 or len({source["kind"] for source in facts["sources"]}) > 1:
        notes.append("the sources are not over the same samples, so that figures of one row do not compare with those of another")
    return notes
