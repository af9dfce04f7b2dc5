"""The models of a study on what all runs share: samples, budgets, and the budget at which they are compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.analysis.compare import Side
from brinell.analysis.curve import RIGHT, UNJUDGED, eps_index, grid, worst_case
from brinell.analysis.results import ModelResult
from brinell.analysis.robust_accuracy import judging, summarise_model
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.store import rows

TELLING = 0.1
"""Share of the clean accuracy that models must keep on average at the budget at which a study compares them by default."""


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """One model on the common samples and budgets."""

    name: str
    side: Side
    result: ModelResult
    facts: Mapping[str, Any]
    labels: Array
    """(samples,)."""
    clean: Array
    """(samples,) bool."""
    robust: Array
    """(samples, budgets) bool."""


def check_sides(sides: Sequence[Side]) -> None:
    """Refuse runs that cannot be compared."""
    if len(sides) < 2:
        detail = f": {sides[0].run} has {sides[0].model} alone" if sides else ""
        raise RequestError(f"a study compares at least two models{detail}: add another {option('model')} or run folder")
    first = sides[0]
    tests: list[tuple[str, Callable[[Mapping[str, Any]], Any]]] = [
        ("data (by their digest)", lambda manifest: manifest["data"]["digest"]),
        ("classes", lambda manifest: manifest["data"]["classes"]),
        ("bounds", lambda manifest: [manifest["data"]["domain"].get(key) for key in ("shape", "low", "high")]),
        ("norm", lambda manifest: manifest["distance"]),
        ("criterion", lambda manifest: manifest.get("criterion", {"name": "misclassified"})),
    ]
    for side in sides:
        if side.manifest["state"] != "finished":
            raise RequestError(f"{side.run} is not finished: resume it with brinell audit --resume --out {side.run} first")
        if side.manifest.get("recommended"):
            raise RequestError(
                f"the budgets of {side.run} differ by sample: a study needs runs whose {option('eps')} are numbers"
            )
        for subject, read in tests:
            if read(side.manifest) != read(first.manifest):
                raise RequestError(
                    f"{first.run} and {side.run} differ in their {subject}: audit all models on the same data, in the same way"
                )


def shared_budgets(sides: Sequence[Side], requested_eps: float | None) -> tuple[Array, list[str], int]:
    """The budgets that all runs share, their texts, and the position of the budget at which models are compared."""
    common = np.asarray(sides[0].manifest["eps"], dtype=np.float64)
    for side in sides[1:]:
        common = common[eps_index(np.asarray(side.manifest["eps"], dtype=np.float64), common) >= 0]
    eps_texts = dict(zip(sides[0].manifest["eps"], sides[0].manifest["eps_text"], strict=True))
    texts = [str(eps_texts[eps]) for eps in common.tolist()]
    if not (common > 0).any():
        raise RequestError(f"the runs share no eps above 0: audit all models with the same {option('eps')}")
    if requested_eps is None:
        return common, texts, len(common) - 1
    (index,) = eps_index(common, np.array([requested_eps]))
    if index < 0 or requested_eps == 0:
        choices = [text for text, eps in zip(texts, common, strict=True) if eps > 0]
        raise RequestError(
            f"at is {requested_eps:g}, which is not a budget above 0 that all runs share: choose one of {', '.join(choices)}"
        )
    return common, texts, int(index)


def telling_budget(clean: Array, robust: Array, budgets: Array) -> int:
    """The largest budget at which the models keep the share `TELLING` of their clean accuracy on average, else the smallest one.

    The average over all models decides and not their difference, so that the choice favours no model.

    Args:
        clean: (models, samples) bool.
        robust: (models, samples, budgets) bool.
        budgets: (budgets,) ascending.
    """
    positive = np.flatnonzero(budgets > 0)
    telling = positive[robust.mean((0, 1))[positive] >= TELLING * clean.mean()]
    return int(telling[-1] if clean.any() and len(telling) else positive[0 if clean.any() else -1])


def align(sides: Sequence[Side], budgets: Array, texts: list[str]) -> tuple[list[Aligned], list[str]]:
    """The models on the samples that were judged on every model at every budget, and notes on what is left out."""
    evaluated: list[set[int]] = []
    for side in sides:
        cells = grid(side.records, side.manifest, side.model)
        if not (attacks := judging(cells)):
            raise RequestError(f"no attack of {side.run} is finished on {side.model}: audit it with an attack that applies")
        states = worst_case(cells, attacks)[:, eps_index(cells.eps, budgets)]
        complete = (cells.clean != UNJUDGED) & (states != UNJUDGED).all(1)
        evaluated.append(set(cells.ids[complete].tolist()))
    ids = np.array(sorted(set.intersection(*evaluated)), dtype=np.int64)
    if not len(ids):
        raise RequestError("the runs share no judged sample: audit them on the same samples")
    counts = [len(np.unique(side.records.sample_id[side.records.model == side.model])) for side in sides]
    notes = [
        f"{count - len(ids)} of the {count} samples of {side.model} in {side.run} were not judged on every model and are left "
        f"out: {len(ids)} samples remain"
        for side, count in zip(sides, counts, strict=True)
        if count > len(ids)
    ]
    doubled = {side.model for side in sides if sum(peer.model == side.model for peer in sides) > 1}
    models = []
    for side in sides:
        name = f"{side.run}: {side.model}" if side.model in doubled else side.model
        models.append(_aligned(side, name, ids, budgets, texts))
    stages = {tuple((stage["name"], repr(stage.get("settings"))) for stage in side.manifest["stages"]) for side in sides}
    if len(stages) > 1:
        notes.append("the models were attacked in different ways: a difference may come from the attacks instead of the models")
    caveats: dict[str, list[str]] = {}
    for model in models:
        if model.result.caveat:
            caveats.setdefault(model.result.caveat, []).append(model.name)
    notes += [f"{', '.join(names)}: {caveat}" for caveat, names in caveats.items()]
    return models, notes


def _aligned(side: Side, name: str, ids: Array, budgets: Array, texts: list[str]) -> Aligned:
    """One model on the common samples and budgets."""
    records = side.records
    mask = (records.model == side.model) & np.isin(records.sample_id, ids)
    selected = rows.take(records, mask)
    data = side.manifest["data"] | {"n": len(ids)}
    manifest = dict(side.manifest) | {"data": data, "eps": budgets.tolist(), "eps_text": texts}
    cells = grid(selected, manifest, side.model)
    facts = next(entry for entry in side.manifest["models"] if entry["name"] == side.model)
    return Aligned(
        name=name,
        side=Side(run=side.run, manifest=manifest, records=selected, model=side.model),
        result=summarise_model(manifest, selected, side.run, side.model),
        facts=facts,
        labels=cells.labels,
        clean=cells.clean == RIGHT,
        robust=worst_case(cells, judging(cells)) == RIGHT,
    )
