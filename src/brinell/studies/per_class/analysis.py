"""Compares models on their common samples: stages, classes, rank orders, and correlates of robustness.

Everything comes from the records of audit runs. Samples, budgets and classes are those that all runs share. Notes name what
is left out and how much.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from brinell.analysis.attainable import (
    Attainable,
    attainable,
    pairs,
    sentences,
    smallest_mcnemar,
    smallest_of_groups,
    smallest_rank,
    smallest_shuffle,
)
from brinell.analysis.compare import Side
from brinell.analysis.inference import EQUIVALENCE, Order, compare_groups, equivalent, holm, order
from brinell.analysis.proportions import mcnemar
from brinell.analysis.ranks import chance, kendall_w, shuffled, spearman, spearman_interval, spearman_test
from brinell.analysis.results import ClassResult, ModelResult
from brinell.analysis.robust_accuracy import mean
from brinell.core.record import Array
from brinell.studies.per_class.alignment import TELLING, Aligned, align, check_sides, shared_budgets, telling_budget
from brinell.studies.per_class.results import FIGURES, Rank, RankResult, Spread, StageColumn, StudyClass, StudyModel, StudyResult

ENOUGH = 5
"""Samples of a class that a model must classify correctly on clean inputs for its losses to count in an order of classes."""
ALIKE = 0.3
"""Size of a rank correlation below which a figure does not go with robustness."""


@dataclass(frozen=True, kw_only=True)
class _Answers:
    """Answers of every model on every sample at the compared budget."""

    labels: Array
    """(samples,)."""
    clean: Array
    """(models, samples) bool."""
    robust: Array
    """(models, samples) bool: robust at the compared budget."""
    models: Order
    """The models by robust accuracy."""
    draws: int
    """Number of shuffles behind a p-value."""
    rng: np.random.Generator


def study(sides: Sequence[Side], folder: str, *, eps: float | None = None, draws: int = 2000, seed: int = 0) -> StudyResult:
    """Compute all figures of a study.

    Args:
        sides: the models with their runs, at least two.
        folder: the study's folder, as the result reports it.
        eps: the budget at which models and classes are compared; by default the largest shared one that is
            telling (`telling_budget`).
        draws: number of shuffles behind a p-value.
        seed: seed of the shuffles.

    Raises:
        RequestError: there are fewer than two models, the runs differ in data, norm or criterion, they use budgets per
            sample, they share no budget, class list or sample, or `eps` is not a shared budget.
    """
    check_sides(sides)
    budgets, texts, index = shared_budgets(sides, eps)
    models, notes = align(sides, budgets, texts)
    if eps is None:
        clean, robust = np.stack([model.clean for model in models]), np.stack([model.robust for model in models])
        largest, index = index, telling_budget(clean, robust, budgets)
        if index != largest:
            notes.append(
                f"compared at {texts[index]}: at {texts[largest]} the models keep less than {100 * TELLING:.0f} % of their clean "
                "accuracy on average; --at compares them at another budget"
            )
    answers = _answers(models, index, draws, np.random.default_rng(seed))
    raters = [number for number, robust in enumerate(answers.robust) if robust.any()]
    entries = _correct_spreads([_model(entry, number, models, answers, index) for number, entry in enumerate(models)])
    if broken := [entry.name for number, entry in enumerate(models) if number not in raters]:
        notes.append(
            f"{', '.join(broken)}: no sample is robust at {texts[index]}, so the drop of each class is its clean accuracy; "
            "it is not in the order of the classes; use --at with a smaller budget"
        )
    classes = _classes(entries, raters, answers, len(budgets))
    if left_out := [c.name for c in classes if c.rank is None]:
        notes.append(
            f"{len(left_out)} of {len(classes)} classes have no place in the order of the classes ({', '.join(left_out[:4])}"
            f"{' and others' if len(left_out) > 4 else ''}): the models classify fewer than {ENOUGH} of their samples correctly "
            "on clean inputs"
        )
    correlations = _correlations(entries, index, texts[index], answers.rng)
    sizes = [c.n for c in classes if c.rank is not None]
    numbers_of_pairs = [entry.n for entry in correlations if entry.p is not None]
    possible = families(len(entries), len(answers.labels), sizes, numbers_of_pairs, answers.draws)
    return StudyResult(
        folder=folder,
        runs=list(dict.fromkeys(side.run for side in sides)),
        data=str(sides[0].manifest["data"]["name"]),
        distance=str(sides[0].manifest["distance"]),
        eps=budgets.tolist(),
        eps_text=texts,
        at=index,
        n=len(answers.labels),
        models=entries,
        mean_drop=mean([entry.mean_drop for entry in entries]),
        classes=classes,
        ranks=[
            *correlations,
            _agreement([entry.name for entry in models], raters, answers),
        ],
        attainable=possible,
        notes=[*notes, *sentences(possible)],
    )


def families(models: int, n: int, sizes: Sequence[int], correlated: Sequence[int], draws: int) -> list[Attainable]:
    """The comparisons of a study.

    Args:
        models: number of models.
        n: number of samples that they share.
        sizes: number of samples of each class that has a rank.
        correlated: for each figure of models, the number of models that have it.
        draws: number of shuffles behind a p-value.
    """
    claims = [
        ("model can be shown to be more robust than another", pairs(models), "samples", n, smallest_mcnemar),
        (
            "class can be shown to lose more than another",
            pairs(len(sizes)),
            "samples of the largest class",
            max(sizes, default=0),
            smallest_of_groups,
        ),
        (
            FIGURES,
            len(correlated),
            "models",
            max(correlated, default=0),
            smallest_rank,
        ),
        ("spread between classes can be shown to exceed chance", models, "shuffles", draws, smallest_shuffle),
    ]
    return [attainable(*claim) for claim in claims if claim[1]]


def _answers(models: Sequence[Aligned], index: int, draws: int, rng: np.random.Generator) -> _Answers:
    clean, robust = np.stack([model.clean for model in models]), np.stack([model.robust[:, index] for model in models])

    def compare(i: int, j: int) -> float:
        """McNemar's p-value of two models."""
        return mcnemar(int((robust[i] & ~robust[j]).sum()), int((robust[j] & ~robust[i]).sum()))

    return _Answers(
        labels=models[0].labels, clean=clean, robust=robust, models=order(robust.mean(1), compare), draws=draws, rng=rng
    )


# What is compared


# Models and classes


def _model(model: Aligned, number: int, models: Sequence[Aligned], answers: _Answers, index: int) -> StudyModel:
    """The entry of model `number` in the study."""
    place = answers.models.place(number)
    per_class = [_with_total_drop(c, index) for c in model.result.per_class]
    drops = [c.total_drop for c in per_class]
    stages = [
        StageColumn(
            attack=stage.attack,
            title=stage.title,
            label=stage.label,
            accuracy=(accuracy := stage.curve[index].value if stage.curve else None),
            drop=None if accuracy is None or (previous := earlier.get(stage.attack)) is None else accuracy - previous,
            seconds=stage.seconds,
            forwards=stage.forwards,
            backwards=stage.backwards,
        )
        for earlier in [_accuracies_before(model.result, index)]
        for stage in model.result.stages
        if stage.skipped is None
    ]
    return StudyModel(
        model=model.name,
        run=model.side.run,
        architecture=model.facts.get("architecture"),
        parameters=model.facts.get("parameters"),
        clean=model.result.clean_accuracy,
        robust=model.result.robust_accuracy,
        rank=Rank(rank=place.rank, low=place.low, high=place.high),
        rivals=[models[rival].name for rival in answers.models.rivals(number)],
        stages=stages,
        seconds=sum(stage.seconds for stage in stages),
        per_class=per_class,
        mean_drop=mean(drops),
        loses_most=_extreme(per_class, min),
        loses_least=_extreme(per_class, max),
        spread=_spread(number, answers),
    )


def _accuracies_before(result: ModelResult, index: int) -> dict[str, float | None]:
    """For each stage the accuracy before it: after the last stage that has a curve, else the clean accuracy."""
    accuracies, current = {}, result.clean_accuracy.value
    for stage in result.stages:
        accuracies[stage.attack] = current
        current = stage.curve[index].value if stage.curve else current
    return accuracies


def _with_total_drop(c: ClassResult, index: int) -> ClassResult:
    """The class result whose total drop ends at the compared budget."""
    clean, last = c.clean.value, c.robust[index].value
    return c.model_copy(update={"total_drop": None if clean is None or last is None else last - clean})


def _extreme(per_class: Sequence[ClassResult], select: Callable[[list[float]], float]) -> list[str]:
    """The classes with the smallest or largest total drop, of those with enough samples that can be lost."""
    drops = [(c.name, c.total_drop) for c in per_class if c.total_drop is not None and c.clean.k >= ENOUGH]
    end = select([drop for _, drop in drops]) if drops else 0.0
    return [name for name, drop in drops if abs(drop - end) < 1e-12]


def _spread(number: int, answers: _Answers) -> Spread | None:
    """Spread between best and worst class, with its p-value by chance; None for a single class."""
    robust, labels = answers.robust[number], answers.labels
    classes = np.unique(labels)
    if len(classes) < 2:
        return None
    rates = np.array([robust[labels == index].mean() for index in classes])
    value = float(rates.max() - rates.min())
    null = shuffled(robust[None], labels, answers.rng, answers.draws)[:, 0]
    by_chance = null.max(1) - null.min(1)
    return Spread(value=value, by_chance=float(np.quantile(by_chance, 0.95)), p=chance(value, by_chance))


def _correct_spreads(entries: Sequence[StudyModel]) -> list[StudyModel]:
    """The models with the p-values of their spreads corrected for the number of models."""
    corrected = iter(holm([entry.spread.p for entry in entries if entry.spread is not None]))
    return [
        entry
        if entry.spread is None
        else entry.model_copy(update={"spread": entry.spread.model_copy(update={"p": next(corrected)})})
        for entry in entries
    ]


def _classes(entries: Sequence[StudyModel], raters: Sequence[int], answers: _Answers, budgets: int) -> list[StudyClass]:
    """Means of each class over the models. `raters` lists the models with at least one robust sample."""
    ranks = _class_ranks(raters, answers)
    names = {c.class_: c.name for c in entries[0].per_class}
    classes = []
    for i, c in enumerate(entries[0].per_class):
        results = [entry.per_class[i] for entry in entries]
        rank, drop, clean, rivals = ranks.get(c.class_, (None, None, None, []))
        classes.append(
            StudyClass(
                class_=c.class_,
                name=c.name,
                n=c.n,
                mean_clean=mean([result.clean.value for result in results]),
                mean_robust=[mean([result.robust[j].value for result in results]) for j in range(budgets)],
                mean_drop=mean([result.total_drop for result in results]),
                rank=rank,
                ranked_drop=drop,
                ranked_clean=clean,
                rivals=[names[rival] for rival in rivals],
            )
        )
    return classes


def _class_ranks(raters: Sequence[int], answers: _Answers) -> dict[int, tuple[Rank, float, float, list[int]]]:
    """By class: its rank by the mean loss, the loss, the clean accuracy, and its rivals, which do not differ significantly.

    Classes of which the raters classify fewer than `ENOUGH` samples correctly have none: they have little to lose.
    """
    if not raters:
        return {}
    losses_of_samples = (answers.clean[list(raters)] & ~answers.robust[list(raters)]).mean(0)
    right = answers.clean[list(raters)].mean(0)
    classes = [int(index) for index in np.unique(answers.labels) if right[answers.labels == index].sum() >= ENOUGH]
    members = np.isin(answers.labels, classes)
    losses = compare_groups(losses_of_samples[members], answers.labels[members], 0.0, 1.0)
    ranks = {}
    for position, index in enumerate(classes):
        place = losses.place(position)
        rank = Rank(rank=place.rank, low=place.low, high=place.high)
        rivals = [classes[rival] for rival in losses.rivals(position)]
        ranks[index] = rank, -float(losses.values[position]), float(right[answers.labels == index].mean()), rivals
    return ranks


# Orders


def _correlations(entries: Sequence[StudyModel], index: int, text: str, rng: np.random.Generator) -> list[RankResult]:
    """Rank correlations of robust accuracy with other figures of each model."""
    figures: dict[str, Callable[[StudyModel], float | None]] = {
        "parameters": lambda entry: entry.parameters,
        "seconds of attack": lambda entry: entry.seconds or None,
        "clean accuracy": lambda entry: entry.clean.value,
    }
    correlations, tests = [], []
    for name, figure in figures.items():
        pairs = [(entry.robust[index].value, figure(entry)) for entry in entries]
        complete = [(a, b) for a, b in pairs if a is not None and b is not None]
        a, b = [first for first, _ in complete], [second for _, second in complete]
        value, test = spearman(a, b), spearman_test(a, b, rng)
        tests += [] if test is None else [test]
        ends = None if value is None else spearman_interval(value, len(complete))
        narrow = None if value is None else spearman_interval(value, len(complete), EQUIVALENCE)
        correlations.append(
            RankResult(
                statistic="spearman",
                of="models",
                by=[f"robust accuracy at {text}", name],
                value=value,
                low=ends and ends.low,
                high=ends and ends.high,
                p=test and test.p,
                smallest_p=test and test.smallest,
                negligible=equivalent(narrow, ALIKE),
                n=len(complete),
            )
        )
    corrected = iter(holm([test.p for test in tests]))
    return [
        entry
        if entry.p is None or entry.smallest_p is None
        else entry.model_copy(update={"p": next(corrected), "smallest_p": min(1.0, len(tests) * entry.smallest_p)})
        for entry in correlations
    ]


def _agreement(names: Sequence[str], raters: Sequence[int], answers: _Answers) -> RankResult:
    """Kendall's W of the order of the classes by their drop. Each model with at least one robust sample is a rater."""
    labels = answers.labels
    classes = len(np.unique(labels))
    empty = RankResult(
        statistic="kendall-w",
        of="classes",
        by=[names[number] for number in raters],
        value=None,
        low=None,
        high=None,
        p=None,
        smallest_p=None,
        negligible=False,
        n=classes,
    )
    if len(raters) < 2 or classes < 2:
        return empty
    drop = answers.robust[list(raters)].astype(np.float64) - answers.clean[list(raters)]
    observed = float(kendall_w(np.stack([drop[:, labels == index].mean(1) for index in np.unique(labels)], 1)))
    if np.isnan(observed):
        return empty
    p = chance(observed, kendall_w(shuffled(drop, labels, answers.rng, answers.draws)))
    return empty.model_copy(update={"value": observed, "p": p})
