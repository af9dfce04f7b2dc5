"""How often each kind of statement is false where nothing is there, how often it is made where
something is, and how often its interval holds the truth, by simulation; `benchmarks.inference`
prints the table.

A margin of a sample on a model is half the sample's and half its own, so that models are as
correlated as they are in practice; a budget breaks a sample whose margin is smaller. Where nothing
is there, all classes or models are alike, or two of them share each end of the order while the
others lie between: the hardest cases, since most pairs can be confused.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import ndtr
from torch import nn

from benchmarks.simulation import MEASURES, draw_uniform
from brinell.analysis.compare import paired
from brinell.analysis.curve import RIGHT, WRONG
from brinell.analysis.families import joint_p_values
from brinell.analysis.gate import against_baseline, against_thresholds
from brinell.analysis.inference import compare_groups, holm, order, significant
from brinell.analysis.judgements import change, evasions, extreme_classes, extreme_means
from brinell.analysis.means import mean_difference
from brinell.analysis.results import ClassResult
from brinell.analysis.robust_accuracy import rate, share
from brinell.analysis.standing import leading, standing, telling_budget
from brinell.analysis.statements import KindName, Statement
from brinell.analysis.total_drops import decompose
from brinell.core.domain import Domain
from brinell.core.record import Array
from brinell.engine.fit import Fit, FormSearch
from brinell.models._torch_model import TorchModel
from brinell.studies.doctor.run import compare_forms

SIZES = 10, 100, 1000, 10_000
"""Samples of each class, or of each model."""
BUDGETS = 1, 9, 20
COST = 1e7
"""Margins times budgets that a cell draws at most."""


class Cell(NamedTuple):
    """The simulated figures of a kind at one size, in percent; None for what it does not have."""

    kind: KindName
    size: str
    false: float | None
    """Made where nothing is there."""
    power: float | None
    """Made where something is: what, the page says."""
    coverage: float | None = None
    """Intervals beside it that hold the truth."""


def _percent(hits: list[bool]) -> float | None:
    """The share of true values in percent; None without values."""
    return 100 * float(np.mean(hits)) if hits else None


def _thresholds(budgets: int) -> Array:
    """(budgets,) margins that a budget breaks; a single one breaks two in five samples."""
    return np.linspace(-1.0, 1.0, budgets) if budgets > 1 else np.array([-0.25])


# Classes


def class_results(successes: Sequence[int], counts: Sequence[int]) -> list[ClassResult]:
    """The results of classes of so many samples, of which so many are robust at the one budget."""
    return [
        ClassResult(
            class_=index,
            name=f"{index}",
            n=n,
            clean=rate(n, n),
            robust=[rate(k, n, eps=0.1)],
            drop=[0.0],
            total_drop=0.0,
        )
        for index, (k, n) in enumerate(zip(successes, counts, strict=True))
    ]


def _classes(levels: Array, n: int, budgets: int, rng: np.random.Generator) -> list[ClassResult]:
    """Classes of n samples each at these mean margins, at the budget that the samples choose."""
    edges = ndtr(_thresholds(budgets)[None, :] - levels[:, None])
    parts = np.diff(edges, prepend=0.0, append=1.0).clip(0.0)
    broken_by = rng.multinomial(n, parts / parts.sum(1, keepdims=True))
    robust = n - broken_by[:, :-1].cumsum(1)

    enough = np.flatnonzero(robust.sum(0) >= 0.1 * n * len(levels))
    successes = robust[:, enough[-1] if len(enough) else 0].tolist()
    return class_results(successes, [n] * len(successes))


def _ends(count: int) -> Array:
    """(count,) margins of which two share the lowest and two the highest."""
    return np.array([-1.0, -1.0, *np.zeros(count - 4), 1.0, 1.0]) if count > 3 else np.zeros(count)


def simulate_classes(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The weakest and the strongest class, and the intervals printed beside them."""
    for classes in (2, 10, 100):
        for n in SIZES:
            for budgets in BUDGETS:
                yield from _cells_of_classes(classes, n, budgets, repetitions, rng)


def _cells_of_classes(
    classes: int, n: int, budgets: int, repetitions: int, rng: np.random.Generator
) -> Iterator[Cell]:
    false: dict[str, list[bool]] = {"weakest": [], "strongest": []}
    power: dict[str, list[bool]] = {"weakest": [], "strongest": []}
    covered: dict[str, list[bool]] = {"weakest": [], "strongest": []}
    alike, ends = np.zeros(classes), _ends(classes)
    outlier = np.append(-0.6, np.zeros(classes - 1))
    threshold = _thresholds(1)

    for number in range(max(40, repetitions // (1 + classes // 25))):
        levels = alike if number % 2 or classes < 4 else ends
        for entry in extreme_classes(_classes(levels, n, budgets, rng), 0, "0.1"):
            if entry.kind in false:
                sign = 1 if entry.kind == "weakest" else -1
                first = {
                    str(index) for index in np.flatnonzero(sign * levels == sign * levels.min())
                }
                if sign < 0:
                    first = {str(i) for i in np.flatnonzero(levels == levels.max())}
                named = {subject.name.split()[-1] for subject in entry.subjects}
                named |= {name.split()[-1] for name in entry.rivals}
                false[entry.kind].append(entry.supported and not first <= named)

        truths = ndtr(alike - threshold)
        for entry in extreme_classes(_classes(alike, n, 1, rng), 0, "0.1"):
            if entry.kind in covered:
                subject = entry.subjects[0]
                truth = truths[int(subject.name.split()[-1])]
                covered[entry.kind].append((subject.low or 0) <= truth <= (subject.high or 0))

        for kind, shifts in (("weakest", outlier), ("strongest", -outlier)):
            for entry in extreme_classes(_classes(shifts, n, budgets, rng), 0, "0.1"):
                if entry.kind == kind:
                    names = [subject.name for subject in entry.subjects]
                    power[kind].append(names == ["class 0"] and not entry.rivals)
    size = f"{classes} classes of {n:,}, {budgets} budgets"
    kinds: tuple[KindName, ...] = ("weakest", "strongest")
    for kind in kinds:
        yield Cell(kind, size, *(_percent(hits[kind]) for hits in (false, power, covered)))


def simulate_alike(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """All classes have the same rate: a fact of the samples, which is false if a class differs."""
    for n in SIZES[:2]:
        false = []
        for _ in range(repetitions):
            entries = extreme_classes(_classes(np.array([-0.5, 0.5]), n, 1, rng), 0, "0.1")
            false.append(entries[0].kind == "alike" and entries[0].supported)
        yield Cell("alike", f"2 classes of {n:,}", _percent(false), None)


# Models


def _states(shifts: Array, scales: Array, n: int, budgets: int, rng: np.random.Generator) -> Array:
    """(models, n, budgets) states of models whose margins are shifted and scaled."""
    noise = rng.normal(size=(len(shifts), n))
    margins = scales[:, None] * np.sqrt(0.5) * (rng.normal(size=n) + noise) + shifts[:, None]
    return np.where(margins[:, :, None] > _thresholds(budgets), RIGHT, WRONG).astype(np.int8)


def _leads(states: Array) -> Statement:
    """Who leads at the budget that the samples choose, without a look at the others, which costs
    most.
    """
    clean = np.ones(states.shape[:2], dtype=bool)
    at = telling_budget(clean, states == RIGHT)
    return _leading(states[:, :, [at]])[0]


def _leading(states: Array) -> list[Statement]:
    names = [f"m{index}" for index in range(len(states))]
    texts = [f"{budget}" for budget in range(states.shape[2])]
    clean = np.full(states.shape[:2], RIGHT)
    return leading(standing(names, clean, states, texts))


def _sizes_of_models() -> Iterator[tuple[int, int, int]]:
    """Numbers of models, samples and budgets."""
    for models in (2, 4, 8):
        for n in SIZES:
            for budgets in BUDGETS:
                if models * n * budgets <= 400_000:
                    yield models, n, budgets


def simulate_leads(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Who leads at the budget that the samples choose."""
    for models, n, budgets in _sizes_of_models():
        false: list[bool] = []
        power: list[bool] = []
        ones = np.ones(models)
        tied = 0.5 * _ends(models)
        first = np.append(0.3, np.zeros(models - 1))
        # A draw costs little, and one of 5 % is to be told from one of 6 %.
        for number in range(4 * repetitions):
            shifts = np.zeros(models) if number % 2 or models < 4 else tied
            leads = _leads(_states(shifts, ones, n, budgets, rng))
            false.append(leads.supported and len(leads.subjects) < models)
            leads = _leads(_states(first, ones, n, budgets, rng))
            power.append(leads.supported and leads.subjects[0].name == "m0")
        size = f"{models} models, {n:,} samples, {budgets} budgets"
        yield Cell("leads", size, _percent(false), _percent(power))


def simulate_crossings(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Who leads at a budget other than that which the samples choose."""
    for models, n, budgets in _sizes_of_models():
        if budgets > 1:
            false: list[bool] = []
            power: list[bool] = []
            alike = np.zeros(models)
            wide = np.append(1.8, np.ones(models - 1))
            draws = int(min(repetitions, max(60, COST / (models * n * budgets))))
            for number in range(draws):
                crossings = _leading(_states(alike, np.ones(models), n, budgets, rng))[1:]
                false.append(any(entry.supported for entry in crossings))
                if number % 4 == 0:
                    crossings = _leading(_states(alike, wide, n, budgets, rng))[1:]
                    power.append(any(entry.supported for entry in crossings))
            size = f"{models} models, {n:,} samples, {budgets} budgets"
            yield Cell("crosses", size, _percent(false), _percent(power))


# Means


def simulate_means(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The corruption, the source or another object with the highest and the lowest mean."""
    for objects in (4, 19):
        shifts = np.array([-0.3, -0.3, *np.zeros(objects - 4), 0.3, 0.3])
        apart = np.append(0.5, np.zeros(objects - 1))
        for n in SIZES[:3]:
            false: dict[str, list[bool]] = {"most": [], "least": []}
            power: dict[str, list[bool]] = {"most": [], "least": []}
            for _ in range(max(40, repetitions // (1 + objects // 5 + n // 500))):
                for entry in _ends_of_means(shifts, n, rng):
                    false[entry.kind].append(entry.supported)
                for kind, sign in (("most", 1), ("least", -1)):
                    for entry in _ends_of_means(sign * apart, n, rng):
                        if entry.kind == kind:
                            power[kind].append(entry.supported and entry.subjects[0].name == "0")
            size = f"{objects} objects, {n:,} samples"
            yield Cell("most", size, _percent(false["most"]), _percent(power["most"]))
            yield Cell("least", size, _percent(false["least"]), _percent(power["least"]))


def _ends_of_means(shifts: Array, n: int, rng: np.random.Generator) -> list[Statement]:
    """Means over five severities, with margins as those of models."""
    margins = rng.normal(size=(1, n, 1)) + rng.normal(size=(len(shifts), n, 5))
    values = (margins * np.sqrt(0.5) + shifts[:, None, None] > 0).mean(2)

    def compare(i: int, j: int) -> float:
        estimate = mean_difference(values[i] - values[j])
        return 1.0 if estimate is None else estimate.p

    ordered = order(values.mean(1), compare)
    return extreme_means(ordered, list(map(str, range(len(shifts)))), "accuracy", n)


# Changes


def simulate_changes(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """A rate before and after on the same samples, with the interval of the difference."""
    for n in SIZES:
        hits: dict[str, list[bool]] = {"rose": [], "fell": [], "unchanged": []}
        covered: list[bool] = []
        power: list[bool] = []
        for _ in range(repetitions):
            level = rng.uniform(-1.2, 1.2)
            for shift in (0.0, 0.4):
                states = _states(np.array([level + shift, level]), np.ones(2), n, 1, rng)
                truth = float(np.diff(ndtr(np.array([level, level + shift]) + 0.25))[0])
                entry = change(paired(states[0, :, 0], states[1, :, 0], 0.1), "robust accuracy")
                covered.append((entry.low or 0.0) <= truth <= (entry.high or 0.0))
                if shift:
                    power.append(entry.supported and entry.kind == "rose")
                else:
                    for kind, made in hits.items():
                        made.append(entry.supported and entry.kind == kind)
        both = 100 * float(np.mean(np.add(hits["rose"], hits["fell"])))
        for kind in ("rose", "fell"):
            yield Cell(kind, f"{n:,} samples", both, _percent(power), _percent(covered))
        yield Cell("unchanged", f"{n:,} samples", _percent(hits["unchanged"]), None)


# Gates


def simulate_gates(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """A rate that is just below its threshold passes; and a baseline that is as good fails."""
    for n in SIZES:
        for truth in (0.1, 0.5, 0.9):
            judge = functools.cache(functools.partial(_passes, n=n, least=truth))
            false = [judge(int(k)) for k in rng.binomial(n, truth, 20 * repetitions)]
            above = min(0.99, truth + 0.1)
            power = [judge(int(k)) for k in rng.binomial(n, above, 20 * repetitions)]
            yield Cell("passes", f"{n:,} samples at {truth}", _percent(false), _percent(power))
    for n in SIZES:
        for budgets in BUDGETS:
            if n * budgets <= 100_000:
                draws = int(min(repetitions, max(100, COST / (n * budgets) / 2)))
                fails = [_fails(0.0, n, budgets, rng) for _ in range(draws)]
                power = [_fails(0.4, n, budgets, rng) for _ in range(draws // 4)]
                yield Cell(
                    "fails", f"{n:,} samples, {budgets} budgets", _percent(fails), _percent(power)
                )


def _passes(k: int, n: int, least: float) -> bool:
    """Whether k of n passes a threshold."""
    (check,) = against_thresholds({"robust": [rate(k, n, eps=0.1)]}, {"robust": least})
    return bool(check.passed)


def _fails(fall: float, n: int, budgets: int, rng: np.random.Generator) -> bool:
    """Whether a run fails against a baseline whose margins are larger by `fall`."""
    states = _states(np.array([-fall, 0.0]), np.ones(2), n, budgets + 1, rng)
    right = (states == RIGHT).astype(np.int8)
    joint = joint_p_values(right[0] - right[1]).tolist()
    eps = [index / 10 for index in range(budgets + 1)]
    pairs = [
        paired(states[0, :, index], states[1, :, index], budget).model_copy(
            update={"p_joint": joint[index]}
        )
        for index, budget in enumerate(eps)
    ]
    model: Any = SimpleNamespace(eps=eps, eps_text=[f"{budget:g}" for budget in eps])
    both: Any = SimpleNamespace(clean=pairs[0], robust=pairs[1:])
    return not all(check.passed for check in against_baseline(model, model, both))


# Explanations


def simulate_faithful(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Nine methods that are no better than a control, or of which one is."""
    shapes = list(MEASURES.values())[:6]
    for n in (10, 32, 100, 1000):
        false, power = [], []
        for _ in range(max(40, repetitions // (1 + n // 200))):
            quantile, truth = shapes[rng.integers(len(shapes))]
            single = np.ones(n, dtype=int)
            shared = quantile(draw_uniform(rng, single, 0.0)) - truth
            gaps = [
                0.5 * shared + quantile(draw_uniform(rng, single, 0.0)) - truth for _ in range(9)
            ]
            false.append(any(_shown(gaps)))
            spread = float(np.std(gaps[0]))
            power.append(_shown([gaps[0] + 0.8 * spread, *gaps[1:]])[0])
        yield Cell("faithful", f"9 methods, {n:,} samples", _percent(false), _percent(power))


def _shown(gaps: list[Array]) -> list[bool]:
    """Whether each method is shown to be above a control, corrected for all."""
    estimates = [mean_difference(gap) for gap in gaps]
    p_values = [e.p if e is not None and e.value > 0 else 1.0 for e in estimates]
    return [significant(p) for p in holm(p_values)]


# Losses of classes, families of changes, detectors, and what matters


def simulate_losses(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The class that loses most and least over four models."""
    kinds: tuple[KindName, KindName] = ("loses_most", "loses_least")
    for classes in (2, 10, 100):
        for n in SIZES[:3]:
            false: dict[str, list[bool]] = {kind: [] for kind in kinds}
            power: dict[str, list[bool]] = {kind: [] for kind in kinds}
            outlier = np.append(0.6, np.zeros(classes - 1))
            for _ in range(int(min(repetitions, max(60, COST / (classes * n))))):
                for entry in _losses(_ends(classes), n, kinds, rng):
                    false[entry.kind].append(entry.supported and len(entry.subjects) == 1)
                for kind, sign in zip(kinds, (1, -1), strict=True):
                    of_kind = [e for e in _losses(sign * outlier, n, kinds, rng) if e.kind == kind]
                    names = [subject.name for entry in of_kind for subject in entry.subjects]
                    power[kind].append(names == ["0"] and of_kind[0].supported)
            size = f"{classes} classes of {n:,}"
            for kind in kinds:
                yield Cell(kind, size, _percent(false[kind]), _percent(power[kind]))


def _losses(
    levels: Array, n: int, kinds: tuple[KindName, KindName], rng: np.random.Generator
) -> list[Statement]:
    """Classes of n samples each, whose samples are lost on four models above these margins."""
    labels = np.repeat(np.arange(len(levels)), n)
    noise = rng.normal(size=(4, len(labels)))
    margins = np.sqrt(0.5) * (rng.normal(size=len(labels)) + noise) - levels[labels]
    ordered = compare_groups((margins < -0.25).sum(0), labels, 0.0, 4.0)
    names = list(map(str, range(len(levels))))
    return extreme_means(ordered, names, "mean loss", len(labels), kinds=kinds)


def simulate_families(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Rates of ten classes before and after, and the intervals of all differences together."""
    for n in SIZES[:3]:
        hits: list[bool] = []
        covered: list[bool] = []
        power: list[bool] = []
        for _ in range(repetitions):
            levels = rng.uniform(-1.2, 1.2, 10)
            for shift in (0.0, 0.4):
                after, before = _pairs_of_classes(levels, shift, n, rng)
                raw = [paired(a, b, 0.1) for a, b in zip(after, before, strict=True)]
                corrected = holm([pair.p for pair in raw])
                entries = [
                    change(pair, "accuracy", family=10, p=p)
                    for pair, p in zip(raw, corrected, strict=True)
                ]
                truths = ndtr(levels + shift + 0.25) - ndtr(levels + 0.25)
                ends = [
                    ((entry.low or 0.0) <= truth + 1e-12) & (truth - 1e-12 <= (entry.high or 0.0))
                    for entry, truth in zip(entries, truths, strict=True)
                ]
                covered.append(all(ends))
                supported = [entry.supported for entry in entries]
                if shift:
                    power.append(any(supported))
                else:
                    hits.append(any(supported))
        for kind in ("rose", "fell"):
            size = f"10 classes of {n:,}, together"
            yield Cell(kind, size, _percent(hits), _percent(power), _percent(covered))


def _pairs_of_classes(
    levels: Array, shift: float, n: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """(classes, n) states after and before of the samples of classes with these mean margins."""
    states = [
        _states(np.array([level + shift, level]), np.ones(2), n, 1, rng)[:, :, 0]
        for level in levels
    ]
    after, before = np.stack(states, axis=1)
    return after, before


def simulate_evasions(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """A detector that no attack evades, and three that are evaded on a share of the samples."""
    for n in SIZES:
        covered: list[bool] = []
        power: list[bool] = []
        false: list[bool] = []
        for _ in range(repetitions):
            truths = np.append(0.0, rng.uniform(0.01, 0.99, 3))
            evaded = [share(rng.random(n) < truth) for truth in truths]
            rates = [(rate_of_detector,) * 4 for rate_of_detector in evaded]
            entries = evasions(list(map(str, range(4))), rates, "0.1")
            false.append(entries[0].supported)
            power.append(entries[1].supported)
            ends = [
                (entry.subjects[0].low or 0.0) <= truth <= (entry.subjects[0].high or 0.0)
                for entry, truth in zip(entries, truths, strict=True)
            ]
            covered.append(all(ends))
        figures = (_percent(false), _percent(power), _percent(covered))
        yield Cell("evades", f"4 detectors, {n:,} samples", *figures)


def simulate_drops(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Classes and models between which the drops vary alike, or classes alone."""
    for models in (2, 8):
        for n in SIZES[:3]:
            false: list[bool] = []
            power: list[bool] = []
            for _ in range(int(min(repetitions // 2, max(60, COST / (20 * models * n))))):
                effect = 0.5 * np.resize([1.0, -1.0], models)
                size_of_effect = rng.choice([0.0, 0.4, 1.0])
                for weight, hits in ((1.0, false), (0.0, power)):
                    scale = size_of_effect if weight else 1.0
                    parts = [
                        _changes(scale * (level + weight * effect), n, rng)
                        for level in np.resize([0.5, -0.5], 10)
                    ]
                    shares = decompose(parts)
                    hits.append(shares is not None and shares.statement.supported)
            size = f"{models} models, 10 classes of {n:,}"
            yield Cell("matters", size, _percent(false), _percent(power))


def _changes(levels: Array, n: int, rng: np.random.Generator) -> Array:
    """(models, n) changes of samples that are lost where a margin is below these levels."""
    noise = rng.normal(size=(len(levels), n))
    margins = np.sqrt(0.5) * (rng.normal(size=n) + noise)
    return -(margins < levels[:, None]).astype(float)


# Forms of inputs and labels


def simulate_forms(repetitions: int, rng: np.random.Generator) -> Iterator[Cell]:
    """A network in the right form, whose labels are right or drawn at random; and one that wants
    other inputs.
    """
    for n in (10, 50, 200):
        false: list[bool] = []
        power: list[bool] = []
        for _ in range(repetitions // 3):
            share_right = rng.choice([0.0, 0.3, 0.6, 0.9])
            statement = compare_forms(_search(n, share_right, 0.0, 1.0, rng))
            false.append(statement is not None and statement.supported)
            statement = compare_forms(_search(n, 0.9, 0.5, 0.25, rng))
            power.append(statement is not None and statement.supported)
        yield Cell("fits", f"{n} samples", _percent(false), _percent(power))


def _search(
    n: int, share_right: float, centre: float, width: float, rng: np.random.Generator
) -> Fit:
    """What the forms show of a random network of five classes that wants inputs less a centre,
    divided by a width; the other labels are drawn at random.
    """
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 5, bias=False))
    weights: Any = network[1].weight
    weights.data = torch.from_numpy(rng.normal(size=(5, 48))).float()
    domain = Domain(kind="image", shape=(3, 4, 4))
    model = TorchModel(network.eval(), domain, 5, name="network")
    x = torch.from_numpy(rng.random((n, 3, 4, 4), dtype=np.float32))

    with torch.no_grad():
        answers = model.predict((x - centre) / width).argmax(1).numpy()
    labels = np.where(rng.random(n) < share_right, answers, rng.integers(5, size=n))
    return FormSearch(model, x, labels).run()


SIMULATIONS: Mapping[Callable[[int, np.random.Generator], Iterator[Cell]], tuple[KindName, ...]] = {
    simulate_classes: ("weakest", "strongest"),
    simulate_alike: ("alike",),
    simulate_leads: ("leads",),
    simulate_means: ("most", "least"),
    simulate_changes: ("rose", "fell", "unchanged"),
    simulate_gates: ("passes", "fails"),
    simulate_faithful: ("faithful",),
    simulate_losses: ("loses_most", "loses_least"),
    simulate_families: ("rose", "fell"),
    simulate_evasions: ("evades",),
    simulate_drops: ("matters",),
    simulate_forms: ("fits",),
    simulate_crossings: ("crosses",),
}
"""Each simulation with the kinds that it has rows for."""


def cells(repetitions: int, seed: int = 2) -> Iterator[Cell]:
    """The figures of all kinds."""
    for number, simulation in enumerate(SIMULATIONS):
        yield from simulation(repetitions, np.random.default_rng([seed, number]))
