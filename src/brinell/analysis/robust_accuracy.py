"""Robust accuracy: the worst case per sample over all stages, overall and per class, by budget."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from brinell.analysis.curve import (
    RIGHT,
    UNJUDGED,
    WRONG,
    Array,
    Grid,
    grid,
    ran,
    stage_label,
    worst_case,
)
from brinell.analysis.indicators import caveat, checks_of, warnings_in
from brinell.analysis.judgements import extreme_classes
from brinell.analysis.results import (
    ACCURACY,
    AuditResult,
    ClassResult,
    ModelResult,
    Rate,
    RemarkResult,
    Share,
    StageResult,
    WarningResult,
)
from brinell.analysis.separate_attacks import SeparateAttack, separate_attack
from brinell.analysis.sequences import share_sequence
from brinell.analysis.standing import Standing, leading, standing
from brinell.analysis.total_drops import TotalDrops, total_drops
from brinell.analysis.verdict import (
    Measured,
    detours,
    statement,
    verdict,
    verdict_notes,
    weaker_than_fast,
)
from brinell.core.intervals import wilson
from brinell.core.record import Outcome, Records, has_broken
from brinell.store.run import threshold_of


def summarise(manifest: Mapping[str, Any], records: Records, run: str) -> AuditResult:
    """All figures of a run: one result per model of the manifest, in its order.

    The `records` hold the rows of all models; `run` is the folder, as it is to be named.
    """
    order = standing_of(manifest, records)
    at = compared_budget(manifest, order)
    models = [
        with_classes(summarise_model(manifest, records, run, str(model["name"])), at)
        for model in manifest["models"]
    ]
    warnings = warnings_of(manifest)
    of_models = [warning for model in models for warning in model.warnings]

    # What is true of one model stands in its result and here, once.
    return AuditResult(
        folder=run,
        n=int(manifest["data"]["n"]),
        complete=all(model.complete for model in models),
        models=models,
        warnings=[*warnings, *(warning for warning in of_models if warning not in warnings)],
        statements=leading(order) if order and len(models) > 1 else [],
        drops=drops_of(manifest, records),
    )


def with_classes(result: ModelResult, position: int) -> ModelResult:
    """The figures of a model with what is said of its classes at one of its budgets."""
    statements = []
    if result.eps:
        text = result.eps_text[position] if result.eps[position] > 0 else ""
        statements = extreme_classes(result.per_class, position, text)
    return result.model_copy(update={"statements": statements})


def compared_budget(manifest: Mapping[str, Any], order: Standing | None) -> int:
    """Position of the budget at which models and classes are compared: that of the standing, or the
    largest without one.
    """
    eps = manifest["eps"]
    return len(eps) - 1 if order is None else [i for i, e in enumerate(eps) if e > 0][order.at]


def standing_of(manifest: Mapping[str, Any], records: Records) -> Standing | None:
    """The standing of the models of a run at its budgets above 0.

    None where a model was judged on no sample at some budget, or on other samples than another.
    """
    cells = [grid(records, manifest, str(model["name"])) for model in manifest["models"]]
    above = np.flatnonzero(np.asarray(manifest["eps"]) > 0)
    # Models that were judged on other samples cannot be ordered.
    if not len(above) or not all(np.array_equal(cells[0].ids, of_model.ids) for of_model in cells):
        return None

    robust = np.stack([worst_case(of_model)[:, above] for of_model in cells])
    # A model without a judged sample has no place in an order.
    if not (robust <= RIGHT).any(1).all():
        return None
    clean = np.stack([of_model.clean for of_model in cells])
    texts = [str(manifest["eps_text"][index]) for index in above]
    return standing([of_model.model for of_model in cells], clean, robust, texts)


def drops_of(manifest: Mapping[str, Any], records: Records) -> TotalDrops | None:
    """Total drops up to the largest eps over classes and models; None for one model, or models that
    were not judged on the same samples.
    """
    names = [str(model["name"]) for model in manifest["models"]]
    if len(names) < 2 or not manifest["eps"] or not manifest["eps"][-1] > 0:
        return None
    cells = [grid(records, manifest, name) for name in names]
    first = cells[0]
    if not all(np.array_equal(of_model.ids, first.ids) for of_model in cells):
        return None

    # Of each sample the outcome at the largest budget, at which everything that breaks is broken.
    clean = np.stack([of_model.clean for of_model in cells])
    robust = np.stack([worst_case(of_model)[:, -1] for of_model in cells])
    text = str(manifest["eps_text"][-1])
    return total_drops(names, class_names(manifest), first.labels, clean, robust, text)


def summarise_model(
    manifest: Mapping[str, Any], records: Records, run: str, model: str
) -> ModelResult:
    """All figures of one model of a run; arguments as for `summarise`."""
    threshold = threshold_of(manifest)
    quantity = ACCURACY if threshold is None else quantity_of(manifest["criterion"])
    cells = grid(records, manifest, model)
    n = int(manifest["data"]["n"])
    unseen = max(n - len(cells.ids), 0)

    # The rates: on clean inputs, over all stages, by class, stage by stage, and as stored.
    worst = worst_case(cells)
    eps = list(map(float, cells.eps))
    clean = rates(cells.clean[:, None], [0.0], unseen, quantity)[0]
    robust = rates(worst, eps, unseen, quantity)
    classes = per_class(cells, worst, class_names(manifest), quantity)
    if manifest.get("waves"):
        # Somebody looked after each wave, and may have stopped at what pleased.
        clean = at_every_look(clean)
        robust = [at_every_look(rate) for rate in robust]
    stages = stage_results(records, manifest, cells, unseen, quantity)
    stored = None
    if manifest["data"]["domain"].get("levels") and threshold is None:
        stored = quantised(records, manifest, cells, worst, unseen)
    gaps = clean.missing + sum(rate.missing for rate in robust)

    # What is said of them.
    checks = checks_of(records, manifest, model)
    warnings = [warning for warning in warnings_of(manifest) if warning.model in (None, model)]
    eps_text = list(map(str, manifest["eps_text"]))
    weak = weaker_than_fast(manifest, model)
    measured = Measured(clean, robust, eps_text, checks, detours(manifest, model, stages), weak)
    return ModelResult(
        folder=run,
        name=model,
        distance=str(manifest["distance"]),
        criterion=criterion(manifest),
        meaning=None if threshold is None else meaning(manifest),
        eps=eps,
        eps_text=eps_text,
        n=n,
        complete=gaps == 0 and model not in manifest.get("left", {}),
        clean_accuracy=clean,
        robust_accuracy=robust,
        quantised_robust_accuracy=stored,
        per_class=classes,
        classes_without_samples=_classes_without_samples(manifest, len(classes)),
        stages=stages,
        remarks=_remarks_of(manifest, model),
        seconds=manifest.get("seconds", {}).get(model),
        warnings=warnings + warnings_in(checks, model, [warning.code for warning in warnings]),
        checks=checks,
        caveat=caveat(checks),
        weak=weak,
        attacks=_attacks_of(manifest),
        verdict=verdict(measured) if threshold is None else statement(threshold, measured),
        verdict_notes=_notes_of(manifest, measured),
    )


def _classes_without_samples(manifest: Mapping[str, Any], count: int) -> int:
    """Number of classes that no sample has; one that counts as wrong by definition can
    have none.
    """
    has_threshold = threshold_of(manifest) is not None
    is_left_out = has_threshold and manifest["criterion"].get("wrong_class") is not None
    return max(len(manifest["data"]["classes"]) - count - is_left_out, 0)


def _notes_of(manifest: Mapping[str, Any], measured: Measured) -> list[str]:
    """The notes below the verdict of a model."""
    notes = [EVERY_LOOK] if manifest.get("waves") else []
    # Without a right answer nothing was attacked, and there is no verdict to add to.
    if measured.clean.k:
        notes += verdict_notes(measured)
    return notes


def _remarks_of(manifest: Mapping[str, Any], model: str) -> list[RemarkResult]:
    """The remarks of the stages on a model."""
    by_stage = manifest.get("remarks", {}).get(model, {})
    return [
        RemarkResult(attack=stage, code=code, text=text)
        for stage, texts in by_stage.items()
        for code, text in texts.items()
    ]


def _attacks_of(manifest: Mapping[str, Any]) -> str:
    """The attacks of a run as they were requested: labels of stages, names of cascades."""
    labels = {str(stage["name"]): stage_label(stage) for stage in manifest["stages"]}
    requested = manifest["request"]["attack"]
    return " + ".join(labels.get(spec, f"{spec} cascade") for spec in requested)


def rates(
    states: Array, eps: Sequence[float], unseen: int = 0, quantity: str = ACCURACY
) -> list[Rate]:
    """One rate per budget, over samples; `missing` counts those that were not judged.

    The `states` (samples, budgets) are WRONG, RIGHT or anything else for "not judged"; `unseen`
    samples have no row at all.
    """
    right = (states == RIGHT).sum(axis=0)
    wrong = (states == WRONG).sum(axis=0)

    budgets = []
    for budget, k, w in zip(eps, right, wrong, strict=True):
        judged = int(k + w)
        missing = len(states) - judged + unseen
        budgets.append(rate(int(k), judged, eps=budget, missing=missing, quantity=quantity))
    return budgets


def rate(k: int, n: int, *, eps: float = 0.0, missing: int = 0, quantity: str = ACCURACY) -> Rate:
    """`k` of `n` with its interval; without value and interval where `n` is 0."""
    interval = wilson(k, n)
    low, high = interval if interval is not None else (None, None)
    return Rate(
        eps=eps,
        value=k / n if n else None,
        low=low,
        high=high,
        n=n,
        k=k,
        missing=missing,
        quantity=quantity,
    )


EVERY_LOOK = (
    "The samples were attacked in waves, and the audit ended once its question was answered: "
    "intervals of rates are confidence sequences, which hold at every look."
)
"""The note on a run whose end its figures decided."""


def at_every_look(rate: Rate) -> Rate:
    """A rate with the interval that holds whenever somebody looks and stops."""
    interval = share_sequence(rate.k, rate.n)
    if interval is None:
        return rate
    return rate.model_copy(update={"low": interval.low, "high": interval.high})


def share(hits: Iterable[bool]) -> Share:
    """The proportion of true values."""
    values = list(hits)
    k = int(sum(values))
    n = len(values)
    low, high = wilson(k, n) or (None, None)
    return Share(k=k, n=n, value=k / n if n else None, low=low, high=high)


def per_class(
    cells: Grid, worst: Array, names: Sequence[str], quantity: str = ACCURACY
) -> list[ClassResult]:
    """Rates and drops of every class that has a sample.

    `worst` is (samples, budgets) states from `worst_case`; a class beyond `names` is named by its
    number.
    """
    eps = [float(e) for e in cells.eps]
    results = []

    for index in np.unique(cells.labels):
        # A rate of a class is over its own samples, however many the others have.
        members = cells.labels == index
        clean = rates(cells.clean[members, None], [0.0], quantity=quantity)[0]
        robust = rates(worst[members], eps, quantity=quantity)
        drop, total = drops(clean.value, [r.value for r in robust])
        name = class_name(names, int(index))
        results.append(
            ClassResult(
                class_=int(index),
                name=name,
                n=int(members.sum()),
                clean=clean,
                robust=robust,
                drop=drop,
                total_drop=total,
            )
        )
    return results


def drops(
    clean: float | None, robust: Sequence[float | None]
) -> tuple[list[float | None], float | None]:
    """Change of accuracy from each budget to the next, from clean inputs on, and over all.

    None stands where either of two rates has no data.
    """
    steps = [minus(after, before) for before, after in zip([clean, *robust], robust, strict=False)]
    return steps, minus(robust[-1], clean) if robust else None


def minus(a: float | None, b: float | None) -> float | None:
    """`a` - `b`, or None where either is."""
    return None if a is None or b is None else a - b


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of the values that are there; None where there are none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def quantised(
    records: Records, manifest: Mapping[str, Any], cells: Grid, worst: Array, unseen: int = 0
) -> list[Rate]:
    """Robust accuracy when only quantised adversarial examples count.

    A sample counts as broken at an eps when it was wrong from the start, or when the closest input
    of a stage, found at this or a smaller eps, is still misclassified after rounding to the storage
    levels inside this eps. No attack was aimed at rounded inputs, so this is what the stored set
    shows and not a worst case.

    Returns:
        One rate per budget, over the same samples as `worst`.
    """
    predicted = np.ma.getdata(records.quantised_pred)
    reject = next(
        (entry.get("reject_class") for entry in manifest["models"] if entry["name"] == cells.model),
        None,
    )

    # An input of a target class must still be of that class, any other one only wrong.
    wrong = predicted != records.label
    if reject is not None:
        wrong &= predicted != reject
    aimed = ~np.ma.getmaskarray(records.target)
    meets = np.where(aimed, predicted == np.ma.getdata(records.target), wrong)
    fooled = (records.model == cells.model) & has_broken(records)
    rows = np.flatnonzero(fooled & ~np.ma.getmaskarray(records.quantised_pred) & meets)

    within_eps = np.ma.filled(records.quantised_within[rows], False)
    # An adversarial example that rounding pushed out of its own eps is for certain within one that
    # is larger by the rounding.
    size = sizes(records, str(manifest["distance"]))[rows] + rounding(manifest)
    reach = np.where(within_eps, np.ma.getdata(records.broken)[rows], size / records.unit[rows])

    # The smallest budget at which a sample is broken by a stored input.
    smallest = np.full(len(cells.ids), np.inf)
    np.minimum.at(smallest, np.searchsorted(cells.ids, records.sample_id[rows]), reach)
    broken_after_rounding = smallest[:, None] <= cells.eps[None, :] * (1 + 1e-9)
    broken = broken_after_rounding | (cells.clean == WRONG)[:, None]
    stored = np.where(worst == UNJUDGED, UNJUDGED, np.where(broken, WRONG, RIGHT))
    return rates(stored, [float(e) for e in cells.eps], unseen)


def criterion(manifest: Mapping[str, Any]) -> str:
    """Criterion of success of a run, in a few words."""
    recorded = manifest.get("criterion", {"name": "misclassified"})
    threshold = threshold_of(manifest)
    if threshold is not None:
        return threshold
    if recorded.get("towards"):
        return f"targeted at {recorded['towards']}"
    return str(recorded["name"])


def quantity_of(criterion: Mapping[str, Any]) -> str:
    """The quantity of the rates of a run with a written criterion."""
    if criterion["name"] == "top":
        return f"top-{criterion['k']} accuracy"
    return f"share that does not meet {criterion['text']}"


def meaning(manifest: Mapping[str, Any]) -> str:
    """The written criterion of a run in words."""
    recorded = manifest["criterion"]
    if recorded["name"] == "top":
        return f"the true class is not among the {recorded['k']} classes with the largest scores"

    if recorded.get("wrong_class") is None:
        condition = (
            "the predicted class is wrong, and the true class has a probability "
            f"below {recorded['true_below']:g}"
        )
    else:
        name = class_name(class_names(manifest), int(recorded["wrong_class"]))
        condition = (
            "an input of another class has a probability above "
            f"{recorded['wrong_above']:g} for {name}"
        )
    return f"{condition}; the share that does not meet it is not robust accuracy"


def rounding(manifest: Mapping[str, Any]) -> float:
    """The most by which rounding to storage can enlarge a perturbation, in the run's norm.

    It is infinite where that is not known. A millionth of the range is taken off for float32:
    0.5/255 and half a level of 8 bits are within 1/255.
    """
    domain = manifest["data"]["domain"]
    width = float(np.max(np.subtract(domain["high"], domain["low"])))
    largest = width / (int(domain["levels"]) - 1) / 2 - 1e-6 * width

    values = math.prod(domain["shape"])
    # All values may be rounded in one direction.
    most: dict[str, float] = {
        "linf": largest,
        "l2": largest * math.sqrt(values),
        "l1": largest * values,
    }
    return most.get(str(manifest["distance"]), math.inf)


def sizes(records: Records, distance: str) -> Array:
    """(rows,) float64: the distance of each row's input from the clean one, infinite for none."""
    column = np.ma.asarray(getattr(records, distance, records.broken * records.unit))
    return np.asarray(np.ma.filled(column.astype(np.float64), np.inf))


def stage_results(
    records: Records,
    manifest: Mapping[str, Any],
    cells: Grid,
    unseen: int = 0,
    quantity: str = ACCURACY,
) -> list[StageResult]:
    """Accuracy after each stage, with all finished stages before it, and the stage's cost."""
    counted = ran(cells)
    reasons = {
        entry["stage"]: str(entry["reason"])
        for entry in manifest.get("skipped", [])
        if entry["model"] == cells.model
    }
    facts_by_stage = {str(stage["name"]): stage for stage in manifest["stages"]}
    eps = [float(budget) for budget in cells.eps]
    before = np.repeat(cells.clean[:, None], len(eps), axis=1)

    results = []
    for i, stage in enumerate(cells.stages):
        facts = facts_by_stage[stage]
        rows = np.flatnonzero((records.model == cells.model) & (records.attack == stage))
        last = rates(before[:, -1:], [0.0])[0].value

        # What a stage that did not run would have broken is unknown.
        curve: list[Rate] = []
        broken = [0] * len(eps)
        accuracy = None
        skipped = None
        if i in counted:
            after = worst_case(cells, [j for j in counted if j <= i])
            curve = rates(after, eps, unseen, quantity)
            broken = [int(count) for count in ((after == WRONG) & (before != WRONG)).sum(0)]
            accuracy = curve[-1].value
            before = after
        else:
            skipped = reasons.get(stage, "the attack cannot run on this model")

        queries = np.ma.compressed(records.queries_to_success[rows])
        results.append(
            StageResult(
                attack=stage,
                label=stage_label(facts),
                kept_to=str(facts.get("kept_to", "")),
                eps=float(cells.eps[-1]),
                accuracy=accuracy,
                drop=minus(accuracy, last),
                forwards=int(records.forwards[rows].sum()),
                backwards=int(records.backwards[rows].sum()),
                judge_forwards=int(records.judge_forwards[rows].sum()),
                surrogate_passes=int(records.surrogate_passes[rows].sum()),
                # To the last bit, whatever the order of the rows.
                seconds=math.fsum(records.seconds[rows]),
                curve=curve,
                broken=broken,
                median_queries=float(np.median(queries)) if len(queries) else None,
                attacked=int((~np.ma.getmaskarray(records.attacked[rows])).sum()),
                separate=_separate(records, manifest, facts, rows),
                skipped=skipped,
            )
        )
    return results


def _separate(
    records: Records, manifest: Mapping[str, Any], stage: Mapping[str, Any], rows: Array
) -> SeparateAttack | None:
    """Figures of a stage by itself, from its rows; None for one that runs after others."""
    if not stage.get("turn", {}).get("alone"):
        return None

    tried = np.isin(records.outcome[rows].astype(str), [str(Outcome.BROKEN), str(Outcome.SURVIVED)])
    rows = rows[tried]
    queries = np.ma.filled(records.queries_to_success[rows], 0)
    distance = sizes(records, str(manifest["distance"]))[rows]
    return separate_attack(queries, records.forwards[rows], distance, has_broken(records)[rows])


def class_names(manifest: Mapping[str, Any]) -> list[str]:
    """Names of the classes, by index."""
    return [str(name) for name in manifest["data"]["classes"]]


def class_name(names: Sequence[str], index: int) -> str:
    """The name of a class; of one without a name its number."""
    return (names[index] if 0 <= index < len(names) else "") or str(index)


def warnings_of(manifest: Mapping[str, Any]) -> list[WarningResult]:
    """The warnings that the run left in its manifest."""
    return [
        WarningResult(code=str(w["code"]), text=str(w["text"]), model=w.get("model"))
        for w in manifest.get("warnings", [])
    ]
