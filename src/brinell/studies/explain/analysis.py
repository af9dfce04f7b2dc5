"""Quality of the maps of each method: means over the samples with intervals, and paired comparisons of methods."""

from typing import Any, Literal

import numpy as np

from brinell.analysis.attainable import Attainable, attainable, sentences, smallest_mean
from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.inference import holm, significant
from brinell.analysis.means import MIN_GROUPS, Mean, mean, mean_difference
from brinell.analysis.saliency import rank_correlation
from brinell.core.record import Array
from brinell.store.table import Folder
from brinell.studies.explain.records import BLURRED, INVERSE, MEASURES, Rows, load_cascade, load_maps

REFERENCE = "rlab"
"""Method that every other method is compared with, if the request names it."""
SAME_CORRELATION = 0.5
"""Smallest rank correlation at which maps count as unchanged by shuffled weights."""
FAITHFUL = "method can be told from its blurred copy and its inverse"
"""The claim that a method is faithful."""
FORGETS = "method can be shown to change with the weights or to stay"
"""The claim that a method forgets, or does not."""
DIFFERS = f"method can be shown to differ from {REFERENCE}"
"""The claim that a method is above or below the reference."""
COMPARED = ("dice", "iou", "insertion", "deletion")
LOWER_IS_BETTER = frozenset({"deletion", "infidelity", "sensitivity", "carries", "breaks", "similarity"})
"""Measures for which lower values are better."""


class Measure(Result):
    """A mean over samples with its 95 % interval, over groups of related samples where there are any."""

    value: float
    """The mean."""
    low: float | None
    """Lower end of the interval; null if unknown: fewer than six groups, a group that dominates, or nearly equal
    values."""
    high: float | None
    """Upper end."""
    n: int
    """Number of samples."""


class MethodResult(Result):
    """Measures of one method. A measure is null if the request left it out or ground truth is missing."""

    name: str
    """The method as the request names it; `NAME, blurred` and `NAME, inverse` are controls computed from its maps."""
    title: str
    """Short description of the method."""
    queries: float
    """Mean number of forward and backward passes for a map."""
    seconds: float
    """Mean wall time of a map; samples of a batch share its time evenly."""
    dice: Measure | None
    """Dice coefficient of the object and the largest places of the map, as many as the object has."""
    iou: Measure | None
    """Intersection over union of the same places."""
    best_iou: Measure | None
    """Intersection over union at the best threshold of each sample."""
    pointing: Measure | None
    """Share of the samples whose largest map value lies on the object."""
    energy: Measure | None
    """Share of the map's mass on the object."""
    deletion: Measure | None
    """Area under the probability of the class while places are hidden, the most important first: lower is better."""
    insertion: Measure | None
    """Area under the same probability while places are shown in that order: higher is better."""
    carries: Measure | None
    """Smallest share of the places that, shown alone, leads to the class: lower is better."""
    breaks: Measure | None
    """Smallest share of the places without which another class leads: lower is better."""
    infidelity: Measure | None
    """Error with which the map predicts the effect of hiding random patches: 0 is perfect, 1 predicts nothing."""
    sensitivity: Measure | None
    """Largest change of the map under a little input noise, divided by the norm of the map."""
    stability: Measure | None
    """Rank correlation with the map of a slightly noisy input."""
    similarity: Measure | None
    """Rank correlation with the map on the model with shuffled weights (sMPRT). Both maps are averaged over slightly noisy
    inputs. Near 1, the map shows the input and not the model."""
    complexity: Measure | None
    """Relative rise of the entropy of the map on the model with shuffled weights (eMPRT)."""
    blank: int
    """Samples with a constant map. Only the measures of noise and of weights include them."""
    forgets: Literal["yes", "no", "cannot be told"] | None
    """Whether the map changes with the weights: `similarity` is below 0.5, or above it, by p-values corrected for the number of
    methods (Holm 1979). Null if it was not measured."""
    cascade: list[Measure] | None
    """`similarity` at each stage of the cascade, the last layers first; null without a cascade."""
    faithful: bool | None
    """True if the method is shown to beat its blurred copy and its inverse in insertion minus deletion (`faithful_p` is at most
    0.05), else false: not shown. Null for controls, and if it was not measured."""
    faithful_p: float | None
    """The larger p-value of these two paired comparisons, corrected for the number of methods (Holm 1979)."""


class Pair(Result):
    """Comparison of two methods on the same samples."""

    method: str
    """The reference method."""
    baseline: str
    """The method or control that it is compared with."""
    measure: str
    """The compared measure."""
    difference: Measure
    """Mean of `method` minus `baseline`."""
    p: float
    """p-value of the difference over samples, or over groups of related samples, corrected for all pairs of this measure
    (Holm 1979)."""


class Agreement(Result):
    """Similarity of the maps of two methods."""

    first: str
    """The first method."""
    second: str
    """The second method."""
    correlation: Measure
    """Rank correlation of their maps."""


class Exclusion(Result):
    """Requested samples that the study excludes for one reason."""

    count: int
    """Number of samples."""
    reason: str
    """The reason, as it follows the number."""


class ExplainResult(FolderResult):
    """Result of a study of saliency maps, which `brinell explain --json` prints."""

    data: str
    """Name of the data."""
    model: str
    """Name of the model."""
    region: str | None
    """The region of each answer that is explained; null for classes of whole inputs."""
    n: int
    """Number of explained samples."""
    cascade: list[list[str]]
    """Layers that each stage of the cascade shuffles in addition to the earlier stages; empty without a cascade."""
    groups: int
    """Number of groups of related samples; a sample without a group counts as one. Intervals need six of equal size."""
    left_out: list[Exclusion]
    """Requested samples that are not in `n`, by reason."""
    unfit: dict[str, str]
    """Default methods that do not fit the model or the data, with the reason."""
    methods: list[MethodResult]
    """Methods in the order of the request, each followed by its controls."""
    pairs: list[Pair]
    """Comparisons of the RLAB mask with each other method."""
    attainable: list[Attainable]
    """Families of comparisons, with the smallest number of samples that can decide."""
    agreement: list[Agreement]
    """Every pair of methods, without controls."""


def summarise(folder: Folder[Rows]) -> ExplainResult:
    """Compute the result of a folder of explanations."""
    rows, facts = folder.rows, folder.manifest
    titles = {method["name"]: method["title"] for method in facts["methods"]}
    names = list(dict.fromkeys(rows.method.tolist()))
    names.sort(key=lambda name: list(titles).index(base_method(name)))
    samples = np.unique(rows.sample_id)
    faithful, forgets = _faithful_p_values(rows, names), _forgetting(rows, names)
    pairs = [pair for measure in COMPARED for pair in _compare_methods(rows, names, measure)]
    groups = len(set(_sample_groups(rows, names[0])))
    compared = max((sum(pair.measure == measure for pair in pairs) for measure in COMPARED), default=0)
    return ExplainResult(
        folder=str(folder.path),
        data=facts["data"]["name"],
        model=facts["model"]["name"],
        region=facts["request"].get("region"),
        n=len(samples),
        groups=groups,
        left_out=[Exclusion(count=count, reason=reason) for reason, count in facts["left_out"].items()],
        cascade=facts.get("cascade", []),
        unfit=facts["unfit"],
        methods=[_summarise_method(folder, name, titles, faithful.get(name), forgets.get(name)) for name in names],
        pairs=pairs,
        attainable=families(len(faithful), len(forgets), compared, groups, len(samples)),
        agreement=_agreements(folder, list(titles)),
    )


def families(faithful: int, forgets: int, compared: int, groups: int, n: int) -> list[Attainable]:
    """The comparisons of a study over `groups` groups of related samples, or over `n` samples.

    Args:
        faithful: number of methods with controls.
        forgets: number of methods that run with shuffled weights.
        compared: number of methods and controls that the reference is compared with in a measure.
        groups: number of groups of related samples; a sample without a group counts as one.
        n: number of samples.
    """
    unit = "samples" if groups == n else "groups of related samples"
    claims = {
        FAITHFUL: faithful,
        FORGETS: forgets,
        DIFFERS: compared,
    }
    return [attainable(claim, count, unit, groups, smallest_mean) for claim, count in claims.items() if count]


def base_method(name: str) -> str:
    """The method from which a control is computed, or the method itself."""
    return name.removesuffix(BLURRED).removesuffix(INVERSE)


def _method_rows(rows: Rows, name: str) -> Array:
    """Indices (m,) of the rows of a method, ordered by sample."""
    index = np.flatnonzero(rows.method == name)
    return index[np.argsort(rows.sample_id[index], kind="stable")]


def _sample_groups(rows: Rows, name: str) -> Array:
    """Group (m,) of each sample of a method. A sample without a group gets a unique name."""
    index = _method_rows(rows, name)
    return np.array([group or f"#{sample}" for group, sample in zip(rows.group[index], rows.sample_id[index], strict=True)])


def values(rows: Rows, name: str, measure: str) -> Array:
    """(m,) float64: values of a measure of a method, ordered by sample; NaN if missing."""
    column = getattr(rows, measure)[_method_rows(rows, name)]
    return np.asarray(np.ma.filled(column.astype(np.float64), np.nan))


def _measure(estimate: Mean | None) -> Measure | None:
    if estimate is None:
        return None
    low, high = estimate.interval or (None, None)
    return Measure(value=estimate.value, low=low, high=high, n=estimate.n)


def _summarise_method(
    folder: Folder[Rows], name: str, titles: dict[str, str], faithful_p: float | None, forgets: Any
) -> MethodResult:
    """Compute the result of one method or control; `titles` are the titles of methods by name."""
    rows = folder.rows
    index, groups = _method_rows(rows, name), _sample_groups(rows, name)
    return MethodResult(
        name=name,
        title=titles[base_method(name)] + name[len(base_method(name)) :],
        queries=float((rows.forwards[index] + rows.backwards[index]).mean()),
        seconds=float(rows.seconds[index].mean()),
        blank=int(rows.blank[index].sum()),
        faithful=None if faithful_p is None else significant(faithful_p),
        faithful_p=faithful_p,
        forgets=forgets,
        cascade=_cascade_means(folder, name, groups),
        **{measure: _measure(mean(values(rows, name, measure), groups)) for measure in MEASURES},
    )


def _cascade_means(folder: Folder[Rows], name: str, groups: Array) -> list[Measure] | None:
    """Mean similarity of a method at each stage of the cascade. None for controls and for maps of an attack, which have none."""
    rows = folder.rows
    if not folder.manifest.get("cascade") or np.ma.getmaskarray(rows.similarity[_method_rows(rows, name)]).all():
        return None
    correlations = load_cascade(folder.path, name, rows.sample_id[np.sort(_method_rows(rows, name))].tolist())
    return [measure for measure in (_measure(mean(stage, groups)) for stage in correlations.T) if measure is not None]


def _faithful_p_values(rows: Rows, names: list[str]) -> dict[str, float]:
    """By method with controls: p-value of beating both in insertion minus deletion, corrected for the number of methods."""
    p_values = {}
    for name in names:
        controls = [name + BLURRED, name + INVERSE]
        if not set(controls) <= set(names):
            continue
        gains = [values(rows, version, "insertion") - values(rows, version, "deletion") for version in (name, *controls)]
        gaps = [mean_difference(gains[0] - gain, _sample_groups(rows, name)) for gain in gains[1:]]
        if None not in gaps:
            p_values[name] = max(gap.p if gap is not None and gap.value > 0 else 1.0 for gap in gaps)
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def _forgetting(rows: Rows, names: list[str]) -> dict[str, str]:
    """By method with shuffled weights: whether its maps change, corrected for the number of methods."""
    gaps = {
        name: mean_difference(values(rows, name, "similarity") - SAME_CORRELATION, _sample_groups(rows, name)) for name in names
    }
    measured = {name: gap for name, gap in gaps.items() if gap is not None}
    p_values = holm([gap.p for gap in measured.values()])
    return {
        name: ("yes" if gap.value < 0 else "no") if significant(p) else "cannot be told"
        for (name, gap), p in zip(measured.items(), p_values, strict=True)
    }


def _compare_methods(rows: Rows, names: list[str], measure: str) -> list[Pair]:
    reference = next((name for name in names if base_method(name) == name and name.partition("?")[0] == REFERENCE), None)
    if reference is None:
        return []
    comparisons = []
    for baseline in [name for name in names if name != reference]:
        differences, groups = values(rows, reference, measure) - values(rows, baseline, measure), _sample_groups(rows, reference)
        estimate = mean_difference(differences, groups)
        if estimate is not None and (difference := _measure(estimate)) is not None:
            comparisons.append((baseline, difference, estimate.p))
    corrected = holm([p for _, _, p in comparisons])
    return [
        Pair(method=reference, baseline=baseline, measure=measure, difference=difference, p=p)
        for (baseline, difference, _), p in zip(comparisons, corrected, strict=True)
    ]


def _agreements(folder: Folder[Rows], names: list[str]) -> list[Agreement]:
    """Rank correlations of the maps of every pair of methods, without controls."""
    samples = sorted(set(folder.rows.sample_id.tolist()))
    arrays = load_maps(folder.path, samples)
    maps = {name: [arrays[name, sample] for sample in samples] for name in names}
    groups, agreements = _sample_groups(folder.rows, names[0]), []
    for position, name in enumerate(names):
        for second in names[position + 1 :]:
            correlations = np.array([rank_correlation(a, b) for a, b in zip(maps[name], maps[second], strict=True)])
            measure = _measure(mean(correlations, groups))
            if measure is not None:
                agreements.append(Agreement(first=name, second=second, correlation=measure))
    return agreements


def describe(result: ExplainResult) -> list[str]:
    """Conclusions from the result, one sentence each."""
    impossible = {family.claim for family in result.attainable if not family.possible}
    conclusions = [] if FAITHFUL in impossible else _faithful_sentences(result)
    conclusions += [] if FORGETS in impossible else _forgetting_sentences(result)
    conclusions += sentences(result.attainable)
    conclusions += [
        f"The map of {method.name} is constant on {method.blank} of {result.n} samples; its measures exclude them."
        for method in result.methods
        if method.blank and base_method(method.name) == method.name
    ]
    conclusions += [
        text
        for measure, label in (("dice", "Dice"), ("insertion", "insertion"))
        if DIFFERS not in impossible and (text := _above(result, measure, label))
    ]
    if result.groups < MIN_GROUPS:
        units = "groups of related samples" if result.groups < result.n else "samples"
        conclusions.append(
            f"These are {result.groups} {units}: how far the means hold for others cannot be told with fewer than {MIN_GROUPS}."
        )
    return conclusions


def _faithful_sentences(result: ExplainResult) -> list[str]:
    """Sentence on the methods that beat their controls."""
    checked = [method for method in result.methods if method.faithful is not None]
    if not checked:
        return []
    faithful = [method.name for method in checked if method.faithful]
    remainder = len(checked) - len(faithful)
    names = f": {', '.join(faithful)}. " if faithful else ". "
    addition = f"For the other {remainder} this is not shown. " if faithful and remainder else ""
    return [
        f"{len(faithful)} of {len(checked)} methods are shown to be faithful{names}{addition}"
        "A faithful method beats both its blurred copy and its inverse in insertion minus deletion (p-values corrected for the "
        "number of methods)."
    ]


def _forgetting_sentences(result: ExplainResult) -> list[str]:
    """Sentence on the methods whose maps do not change with the weights."""
    randomised = [method for method in result.methods if method.forgets is not None and method.queries]
    if not randomised:
        return []
    unchanged = [method.name for method in randomised if method.forgets == "no"]
    unknown = [method.name for method in randomised if method.forgets == "cannot be told"]
    conclusion = f": {'they show' if len(unchanged) > 1 else 'it shows'} the input and not the model" if unchanged else ""
    addition = f" For {', '.join(unknown)} these samples show neither." if unknown else ""
    return [f"With shuffled weights, {', '.join(unchanged) or 'no method'} produced a similar map{conclusion}.{addition}"]


def _above(result: ExplainResult, measure: str, label: str) -> str:
    """Sentence on the methods that the reference differs from in a measure; empty without comparisons."""
    pairs = [pair for pair in result.pairs if pair.measure == measure and base_method(pair.baseline) == pair.baseline]
    if not pairs:
        return ""
    lower = [pair.baseline for pair in pairs if significant(pair.p) and pair.difference.value > 0]
    higher = [pair.baseline for pair in pairs if significant(pair.p) and pair.difference.value < 0]
    alike = len(pairs) - len(lower) - len(higher)
    addition = f" Against {alike} of the {len(pairs)} methods no difference is shown." if alike else ""
    sizes = sorted({pair.difference.n for pair in pairs})
    size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return (
        f"In {label}, {pairs[0].method} is above {', '.join(lower) or 'none'} and below {', '.join(higher) or 'none'} "
        f"(paired on {size} samples, p-values corrected for the number of comparisons).{addition}"
    )
