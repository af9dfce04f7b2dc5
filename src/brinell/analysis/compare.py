"""Two models on the same samples, paired: which of them is robust where the other breaks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.attainable import Attainable, attainable, sentences, smallest_mcnemar
from brinell.analysis.curve import RIGHT, WRONG, Array, eps_index, grid, worst_case
from brinell.analysis.inference import holm
from brinell.analysis.proofs import proofs_of, states_of
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.results import ClassComparison, CompareResult, PairedRate
from brinell.analysis.robust_accuracy import class_name, class_names, criterion, judging
from brinell.core.errors import RequestError, option
from brinell.core.record import Records
from brinell.store.run import Run


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two: a model of a run."""

    run: str
    """The run folder, as it is to be named."""
    manifest: Mapping[str, Any]
    records: Records
    model: str
    """Name of the model in the run."""


def model_names(folder: Path) -> list[str]:
    """The names of the models of a run."""
    return [model["name"] for model in Run.open(folder, thresholds=True).manifest["models"]]


def side(folder: Path, model: str | None, *, thresholds: bool = False) -> Side:
    """One model of a run, ready to be compared; of several one must be named. `thresholds` is that of `Run.open`."""
    run, names = Run.open(folder, thresholds=thresholds), model_names(folder)
    if model is None and len(names) > 1:
        raise RequestError(f"{folder} holds several models: name one of {', '.join(names)}")
    if model is not None and model not in names:
        raise RequestError(f"{folder} holds no model {model!r}, only {', '.join(names)}")
    return Side(run=str(folder), manifest=run.manifest, records=run.records(), model=model or names[0])


def compare(a: Side, b: Side) -> CompareResult:
    """A and B on the samples and budgets that both have.

    Returns:
        Paired counts at each eps, with the difference A - B, its interval and McNemar's exact p-value; and per class.

    Raises:
        RequestError: an unknown model, or runs whose data, distance or budgets do not fit.
    """
    _check_fit(a, b)
    eps = _common_eps(a, b)
    ids = np.intersect1d(_ids(a), _ids(b))
    if not len(ids):
        raise RequestError(f"{a.run} and {b.run} have no sample in common: audit both models on the same samples")
    (labels, clean_a, robust_a), (_, clean_b, robust_b) = _states_of(a, ids, eps), _states_of(b, ids, eps)
    names = class_names(a.manifest)
    by_class = [
        _class(int(c), names, (clean_a[labels == c], clean_b[labels == c]), (robust_a[labels == c], robust_b[labels == c]), eps)
        for c in np.unique(labels)
    ]
    families = _families(len(ids), by_class)
    return CompareResult(
        a=a.model,
        b=b.model,
        run_a=a.run,
        run_b=b.run,
        distance=str(a.manifest["distance"]),
        n=len(ids),
        clean=paired(clean_a, clean_b, 0.0),
        robust=[paired(robust_a[:, j], robust_b[:, j], float(e)) for j, e in enumerate(eps)],
        certified=_compare_proofs(a.run, b.run, ids, eps),
        per_class=_corrected(by_class),
        attainable=families,
        notes=[*_notes(a, b, len(ids), len(eps)), *sentences(families)],
    )


def _check_fit(a: Side, b: Side) -> None:
    """Refuse two runs that do not fit each other."""
    for side in (a, b):
        names = [str(model["name"]) for model in side.manifest["models"]]
        if side.model not in names:
            raise RequestError(f"{side.run} has no model {side.model!r}: it has {', '.join(names)}")
    data_a, data_b = a.manifest["data"], b.manifest["data"]
    if data_a["digest"] != data_b["digest"]:
        raise RequestError(
            f"{a.run} and {b.run} were made on different data ({data_a['spec']} and {data_b['spec']}, digests "
            f"{data_a['digest'][:8]} and {data_b['digest'][:8]}): audit both models on the same samples"
        )
    units = [(side.manifest.get("recommended") or {}).get("digest") for side in (a, b)]
    if units[0] != units[1]:
        raise RequestError(
            f"{a.run} and {b.run} do not give each sample the same budget (a recommended eps is each sample's own): "
            f"audit both models with the same {option('eps')}"
        )
    criteria = [criterion(side.manifest) for side in (a, b)]
    if criteria[0] != criteria[1]:
        raise RequestError(
            f"{a.run} counts inputs that are {criteria[0]} and {b.run} those that are {criteria[1]}: audit both models with the "
            "same criterion"
        )
    if a.manifest["distance"] != b.manifest["distance"]:
        raise RequestError(
            f"{a.run} measures eps in {a.manifest['distance']} and {b.run} in {b.manifest['distance']}: "
            f"audit both models with the same {option('norm')}"
        )


def _common_eps(a: Side, b: Side) -> Array:
    """Budgets that both runs have; at least one must be above 0."""
    eps_a, eps_b = (np.asarray(side.manifest["eps"], dtype=np.float64) for side in (a, b))
    common = eps_a[eps_index(eps_b, eps_a) >= 0]
    if not (common > 0).any():
        texts = [", ".join(map(str, side.manifest["eps_text"])) for side in (a, b)]
        raise RequestError(
            f"{a.run} and {b.run} share no eps above 0 ({texts[0]} and {texts[1]}): audit both models with the "
            f"same {option('eps')}"
        )
    return common


def _ids(side: Side) -> Array:
    """Sample ids of a model, ascending."""
    return np.unique(side.records.sample_id[side.records.model == side.model])


def _states_of(side: Side, ids: Array, eps: Array) -> tuple[Array, Array, Array]:
    """Labels (samples,) and the states, clean (samples,) and attacked (samples, budgets)."""
    cells = grid(side.records, side.manifest, side.model)
    rows = np.searchsorted(cells.ids, ids)
    worst = worst_case(cells, judging(cells))[rows][:, eps_index(cells.eps, eps)]
    return cells.labels[rows], cells.clean[rows], worst


def paired(a: Array, b: Array, eps: float) -> PairedRate:
    """Paired rates of two models on the same samples."""
    states = ((RIGHT, RIGHT), (RIGHT, WRONG), (WRONG, RIGHT), (WRONG, WRONG))
    both_robust, only_a, only_b, neither = (int(((a == of_a) & (b == of_b)).sum()) for of_a, of_b in states)
    n = both_robust + only_a + only_b + neither
    low, high = paired_difference(both_robust, only_a, only_b, neither) or (None, None)
    return PairedRate(
        eps=eps,
        both_robust=both_robust,
        only_a=only_a,
        only_b=only_b,
        neither=neither,
        n=n,
        missing=len(a) - n,
        value_a=(both_robust + only_a) / n if n else None,
        value_b=(both_robust + only_b) / n if n else None,
        difference=(only_a - only_b) / n if n else None,
        low=low,
        high=high,
        p=mcnemar(only_a, only_b) if n else None,
    )


def _compare_proofs(run_a: Path | str, run_b: Path | str, ids: Array, eps: Array) -> list[PairedRate]:
    """What is proven of two models on the same samples, at budgets above 0 of both; empty where one of them has no proofs."""
    if run_a == run_b:
        return []
    tables = proofs_of(run_a), proofs_of(run_b)
    if tables[0] is None or tables[1] is None:
        return []
    return [
        paired(states_of(tables[0], ids, level), states_of(tables[1], ids, level), level) for level in eps.tolist() if level > 0
    ]


def _class(index: int, names: list[str], clean: tuple[Array, Array], robust: tuple[Array, Array], eps: Array) -> ClassComparison:
    """Comparison of two models on the samples of one class."""
    untouched, attacked = paired(*clean, 0.0), [paired(robust[0][:, j], robust[1][:, j], float(e)) for j, e in enumerate(eps)]
    return ClassComparison(
        class_=index,
        name=class_name(names, index),
        n=len(clean[0]),
        clean=untouched,
        p_clean=untouched.p,
        difference=[p.difference for p in attacked],
        low=[p.low for p in attacked],
        high=[p.high for p in attacked],
    )


def _families(n: int, classes: list[ClassComparison]) -> list[Attainable]:
    """The comparisons of both models at one eps, and class by class on clean inputs."""
    largest = max(comparison.n for comparison in classes)
    return [
        attainable("difference of the two models can be shown", 1, "common samples", n, smallest_mcnemar),
        attainable(
            "difference on clean inputs of one class can be shown",
            len(classes),
            "samples of the largest class",
            largest,
            smallest_mcnemar,
        ),
    ]


def _corrected(classes: list[ClassComparison]) -> list[ClassComparison]:
    """P-values corrected for the number of classes."""
    corrected = iter(holm([comparison.p_clean for comparison in classes if comparison.p_clean is not None]))
    return [
        comparison if comparison.p_clean is None else comparison.model_copy(update={"p_clean": next(corrected)})
        for comparison in classes
    ]


def _notes(a: Side, b: Side, common: int, budgets: int) -> list[str]:
    """Notes on unfinished runs, on samples and budgets that are left out, and on different attacks."""
    notes = []
    for side in (a, b):
        if side.manifest["state"] != "finished":
            notes.append(f"{side.run} is not finished: its figures may still fall, and nothing has checked its files")
        n = int(side.manifest["data"]["n"])
        if n != common:
            notes.append(f"{n - common} of the {n} samples of {side.run} are not in the other run and are left out")
        if len(side.manifest["eps"]) != budgets:
            notes.append(f"{len(side.manifest['eps']) - budgets} of the budgets of {side.run} are left out")
    stages_a, stages_b = _evaluation(a), _evaluation(b)
    if stages_a != stages_b:
        notes.append(
            f"the two were attacked differently ({_join_names(stages_a)}; {_join_names(stages_b)}): "
            "a difference may be one of the attacks and not of the models"
        )
    return notes


def _evaluation(side: Side) -> list[tuple[str, str]]:
    """The stages that were counted, with their settings."""
    counted = judging(grid(side.records, side.manifest, side.model))
    stages = side.manifest["stages"]
    return [(str(stages[i]["name"]), repr(sorted(stages[i].get("settings", {}).items()))) for i in counted]


def _join_names(stages: list[tuple[str, str]]) -> str:
    return ", ".join(name for name, _ in stages) or "no attack"
