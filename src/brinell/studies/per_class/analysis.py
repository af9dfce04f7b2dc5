"""Models side by side on the samples that all of them saw: stages, classes, orders, and what goes with robustness.

Everything comes from the records of audit runs. Samples, budgets and classes are those that all runs have; what is left out is
named, with its number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.analysis.compare import Side
from brinell.analysis.grid import RIGHT, UNJUDGED, eps_index, grid, worst_case
from brinell.analysis.ranks import (
    chance,
    kendall_w,
    percentile_interval,
    ranked,
    resampled,
    shuffled,
    spearman,
    spearman_interval,
    spearman_p,
    weighted,
)
from brinell.analysis.results import ClassResult, ModelResult
from brinell.analysis.robust_accuracy import judging, mean, summarise_model
from brinell.core.errors import RequestError, option
from brinell.core.record import CLEAN, Array
from brinell.store import rows
from brinell.studies.per_class.results import Placed, RankResult, Spread, StageColumn, StudyClass, StudyModel, StudyResult


@dataclass(frozen=True, kw_only=True)
class _Aligned:
    """One model on the samples and budgets of the study."""

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


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """What every model made of every sample at the study's budget, and the same drawn again."""

    labels: Array
    """(samples,)."""
    clean: Array
    """(models, samples) bool."""
    held: Array
    """(models, samples) bool: robust at the study's budget."""
    kept: Array
    """(draws, models, classes): robust accuracy of samples drawn again within each class."""
    lost: Array
    """(draws, models, classes): the same less the clean accuracy of the same samples."""
    rng: np.random.Generator

    @property
    def draws(self) -> int:
        """How often they were drawn."""
        return len(self.kept)


def study(sides: Sequence[Side], folder: str, *, at: float | None = None, draws: int = 2000, seed: int = 0) -> StudyResult:
    """All figures of a study.

    Args:
        sides: the models with their runs, two or more.
        folder: the study's folder, as it is to be named.
        at: the budget at which models and classes are compared; the largest that all runs have by default.
        draws: resamplings behind an interval.
        seed: of the resamplings.

    Raises:
        RequestError: fewer than two models; runs on other data, in another norm, with another criterion or with each sample's own
            budgets; no budget, class list or sample in common; a budget that is not among them.
    """
    _check(sides)
    budgets, texts, chosen = _budgets(sides, at)
    models, notes = _align(sides, budgets, texts, chosen)
    drawn = _draw(models, chosen, draws, np.random.default_rng(seed))
    order = [at for at, held in enumerate(drawn.held) if held.any()]
    entries = [_model(one, at, drawn, chosen) for at, one in enumerate(models)]
    if out := [one.name for at, one in enumerate(models) if at not in order]:
        notes.append(
            f"{', '.join(out)}: nothing is left at {texts[chosen]}, so the drop of each class is its clean accuracy; left out of "
            "the order of the classes, which --at with a smaller budget would tell"
        )
    return StudyResult(
        folder=folder,
        runs=list(dict.fromkeys(side.run for side in sides)),
        data=str(sides[0].manifest["data"]["name"]),
        distance=str(sides[0].manifest["distance"]),
        eps=budgets.tolist(),
        eps_text=texts,
        at=chosen,
        n=len(drawn.labels),
        models=entries,
        mean_drop=mean([one.mean_drop for one in entries]),
        classes=_classes(entries, order, drawn, len(budgets)),
        ranks=[*_correlations(entries, chosen, texts[chosen], drawn.rng), _agreement([one.name for one in models], order, drawn)],
        notes=notes,
    )


def _draw(models: Sequence[_Aligned], at: int, draws: int, rng: np.random.Generator) -> _Drawn:
    clean, held = np.stack([one.clean for one in models]), np.stack([one.robust[:, at] for one in models])
    both = resampled(np.concatenate([clean, held]), models[0].labels, rng, draws)
    kept = both[:, len(models) :]
    return _Drawn(labels=models[0].labels, clean=clean, held=held, kept=kept, lost=kept - both[:, : len(models)], rng=rng)


# What is compared


def _check(sides: Sequence[Side]) -> None:
    if len(sides) < 2:
        named = f": {sides[0].run} has {sides[0].model} alone" if sides else ""
        raise RequestError(
            f"a study compares models, and there are fewer than two{named}: name another {option('model')} or run folder"
        )
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
            raise RequestError(f"{side.run} is not finished: go on with brinell audit --resume --out {side.run} first")
        if side.manifest.get("recommended"):
            raise RequestError(
                f"the budgets of {side.run} are each sample's own: a study needs runs whose {option('eps')} are numbers"
            )
        for what, of in tests:
            if of(side.manifest) != of(first.manifest):
                raise RequestError(
                    f"{first.run} and {side.run} differ in their {what}: audit all models on the same data, in the same way"
                )


def _budgets(sides: Sequence[Side], at: float | None) -> tuple[Array, list[str], int]:
    """The budgets that all have, as they are written, and the position of the one at which models are compared."""
    common = np.asarray(sides[0].manifest["eps"], dtype=np.float64)
    for side in sides[1:]:
        common = common[eps_index(np.asarray(side.manifest["eps"], dtype=np.float64), common) >= 0]
    written = dict(zip(sides[0].manifest["eps"], sides[0].manifest["eps_text"], strict=True))
    texts = [str(written[eps]) for eps in common.tolist()]
    if not (common > 0).any():
        raise RequestError(f"the runs share no eps above 0: audit all models with the same {option('eps')}")
    if at is None:
        return common, texts, len(common) - 1
    (found,) = eps_index(common, np.array([at]))
    if found < 0 or at == 0:
        above = [text for text, eps in zip(texts, common, strict=True) if eps > 0]
        raise RequestError(f"at is {at:g}, which is no budget above 0 that all runs have: choose of {', '.join(above)}")
    return common, texts, int(found)


def _align(sides: Sequence[Side], budgets: Array, texts: list[str], at: int) -> tuple[list[_Aligned], list[str]]:
    """The models on the samples that all were judged on at every budget of the study, and what was left out."""
    judged: list[set[int]] = []
    for side in sides:
        cells = grid(side.records, side.manifest, side.model)
        if not (counted := judging(cells)):
            raise RequestError(f"no attack of {side.run} was finished on {side.model}: audit it with one that can attack it")
        states = worst_case(cells, counted)[:, eps_index(cells.eps, budgets)]
        known = (cells.clean != UNJUDGED) & (states != UNJUDGED).all(1)
        judged.append(set(cells.ids[known].tolist()))
    ids = np.array(sorted(set.intersection(*judged)), dtype=np.int64)
    if not len(ids):
        raise RequestError("no sample was judged on every model: audit them on the same samples")
    seen = [len(np.unique(side.records.sample_id[side.records.model == side.model])) for side in sides]
    notes = [
        f"{count - len(ids)} of the {count} samples of {side.model} in {side.run} were not judged on every model and are left "
        f"out: {len(ids)} are the denominator"
        for side, count in zip(sides, seen, strict=True)
        if count > len(ids)
    ]
    doubled = {side.model for side in sides if sum(other.model == side.model for other in sides) > 1}
    found = []
    for side in sides:
        name = f"{side.run}: {side.model}" if side.model in doubled else side.model
        found.append(_aligned(side, name, ids, budgets, texts, at))
    stages = {tuple((stage["name"], repr(stage.get("settings"))) for stage in side.manifest["stages"]) for side in sides}
    if len(stages) > 1:
        notes.append("not all models were attacked in the same way: a difference may be one of the attacks and not of the models")
    caveats: dict[str, list[str]] = {}
    for one in found:
        if one.result.caveat:
            caveats.setdefault(one.result.caveat, []).append(one.name)
    notes += [f"{', '.join(names)}: {caveat}" for caveat, names in caveats.items()]
    return found, notes


def _aligned(side: Side, name: str, ids: Array, budgets: Array, texts: list[str], at: int) -> _Aligned:
    records = side.records
    wanted = (records.model == side.model) & np.isin(records.sample_id, ids)
    wanted &= (records.attack == CLEAN) | (eps_index(budgets, records.eps) >= 0)
    kept = rows.take(records, wanted)
    data = side.manifest["data"] | {"n": len(ids)}
    manifest = dict(side.manifest) | {"data": data, "eps": budgets.tolist(), "eps_text": texts}
    cells = grid(kept, manifest, side.model)
    facts = next(one for one in side.manifest["models"] if one["name"] == side.model)
    return _Aligned(
        name=name,
        side=Side(run=side.run, manifest=manifest, records=kept, model=side.model),
        result=summarise_model(manifest, kept, side.run, side.model),
        facts=facts,
        labels=cells.labels,
        clean=cells.clean == RIGHT,
        robust=worst_case(cells, judging(cells)) == RIGHT,
    )


# Models and classes


def _model(one: _Aligned, number: int, drawn: _Drawn, at: int) -> StudyModel:
    """One entry; `number` is the model's place among those of the study."""
    place = float(ranked(-drawn.held.mean(1))[number])
    places = percentile_interval(ranked(-weighted(drawn.kept, drawn.labels))[:, number], place)
    per_class = [_to(c, at) for c in one.result.per_class]
    drops = [c.total_drop for c in per_class]
    stages = [
        StageColumn(
            attack=stage.attack,
            title=stage.title,
            label=stage.label,
            accuracy=(after := stage.curve[at].value if stage.curve else None),
            drop=None if after is None or (then := before.get(stage.attack)) is None else after - then,
            seconds=stage.seconds,
            forwards=stage.forwards,
            backwards=stage.backwards,
        )
        for before in [_before(one.result, at)]
        for stage in one.result.stages
        if stage.skipped is None
    ]
    return StudyModel(
        model=one.name,
        run=one.side.run,
        architecture=one.facts.get("architecture"),
        parameters=one.facts.get("parameters"),
        clean=one.result.clean_accuracy,
        robust=one.result.robust_accuracy,
        rank=Placed(rank=place, low=places.low, high=places.high),
        stages=stages,
        seconds=sum(stage.seconds for stage in stages),
        per_class=per_class,
        mean_drop=mean(drops),
        loses_most=_extreme(per_class, min),
        loses_least=_extreme(per_class, max),
        spread=_spread(number, drawn),
    )


def _before(result: ModelResult, at: int) -> dict[str, float | None]:
    """Of each stage the accuracy before it: after the last one that has a curve, or that of the untouched inputs."""
    found, now = {}, result.clean_accuracy.value
    for stage in result.stages:
        found[stage.attack] = now
        now = stage.curve[at].value if stage.curve else now
    return found


def _to(c: ClassResult, at: int) -> ClassResult:
    """The class with the total drop that ends at the study's budget."""
    clean, last = c.clean.value, c.robust[at].value
    return c.model_copy(update={"total_drop": None if clean is None or last is None else last - clean})


def _extreme(per_class: Sequence[ClassResult], which: Callable[[list[float]], float]) -> list[str]:
    """The names of the classes whose total drop is the smallest or largest."""
    known = [(c.name, c.total_drop) for c in per_class if c.total_drop is not None]
    end = which([drop for _, drop in known]) if known else 0.0
    return [name for name, drop in known if abs(drop - end) < 1e-12]


def _spread(number: int, drawn: _Drawn) -> Spread | None:
    held, kept, labels = drawn.held[number], drawn.kept[:, number], drawn.labels
    classes = np.unique(labels)
    if len(classes) < 2:
        return None
    rates = np.array([held[labels == index].mean() for index in classes])
    best, worst = int(rates.argmax()), int(rates.argmin())
    value = float(rates[best] - rates[worst])
    ends = percentile_interval(kept[:, best] - kept[:, worst], value)
    null = shuffled(held[None], labels, drawn.rng, drawn.draws)[:, 0]
    by_chance = null.max(1) - null.min(1)
    return Spread(
        value=value, low=ends.low, high=ends.high, by_chance=float(np.quantile(by_chance, 0.95)), p=chance(value, by_chance)
    )


def _classes(entries: Sequence[StudyModel], order: Sequence[int], drawn: _Drawn, budgets: int) -> list[StudyClass]:
    """The classes; `order` are the models that have something left and so an order of their own."""
    found, lost = [], drawn.lost
    means = np.array([mean([entries[at].per_class[i].total_drop for at in order]) or 0.0 for i in range(lost.shape[-1])])
    places = ranked(means) if order else None
    draws = ranked(lost[:, list(order)].mean(1)) if order else None
    for i, c in enumerate(entries[0].per_class):
        each = [entry.per_class[i] for entry in entries]
        rank = None
        if places is not None and draws is not None:
            ends = percentile_interval(draws[:, i], float(places[i]))
            rank = Placed(rank=float(places[i]), low=ends.low, high=ends.high)
        found.append(
            StudyClass(
                class_=c.class_,
                name=c.name,
                n=c.n,
                mean_clean=mean([one.clean.value for one in each]),
                mean_robust=[mean([one.robust[j].value for one in each]) for j in range(budgets)],
                mean_drop=mean([one.total_drop for one in each]),
                rank=rank,
                most=sum(c.name in entry.loses_most for entry in entries),
                least=sum(c.name in entry.loses_least for entry in entries),
            )
        )
    return found


# Orders


def _correlations(entries: Sequence[StudyModel], at: int, text: str, rng: np.random.Generator) -> list[RankResult]:
    """Robust accuracy at the study's budget against what else is known of each model."""
    others: dict[str, Callable[[StudyModel], float | None]] = {
        "parameters": lambda entry: entry.parameters,
        "seconds of attack": lambda entry: entry.seconds or None,
        "clean accuracy": lambda entry: entry.clean.value,
    }
    found = []
    for name, of in others.items():
        pairs = [(entry.robust[at].value, of(entry)) for entry in entries]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        a, b = [one for one, _ in known], [one for _, one in known]
        value = spearman(a, b)
        ends = None if value is None else spearman_interval(value, len(known))
        found.append(
            RankResult(
                statistic="spearman",
                of="models",
                by=[f"robust accuracy at {text}", name],
                value=value,
                low=ends and ends.low,
                high=ends and ends.high,
                p=spearman_p(a, b, rng),
                n=len(known),
            )
        )
    return found


def _agreement(names: Sequence[str], order: Sequence[int], drawn: _Drawn) -> RankResult:
    """Kendall's W over the classes, ordered by their drop, each model that has something left being a judge."""
    chosen, labels, classes = list(order), drawn.labels, drawn.lost.shape[-1]
    empty = RankResult(
        statistic="kendall-w", of="classes", by=[names[at] for at in order], value=None, low=None, high=None, p=None, n=classes
    )
    if len(order) < 2 or classes < 2:
        return empty
    drop = drawn.held[chosen].astype(np.float64) - drawn.clean[chosen]
    seen = float(kendall_w(np.stack([drop[:, labels == index].mean(1) for index in np.unique(labels)], 1)))
    if np.isnan(seen):
        return empty
    ends = percentile_interval(kendall_w(drawn.lost[:, chosen]), seen)
    p = chance(seen, kendall_w(shuffled(drop, labels, drawn.rng, drawn.draws)))
    return empty.model_copy(update={"value": seen, "low": ends.low, "high": ends.high, "p": p})
