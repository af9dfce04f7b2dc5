"""What the maps of each method are worth: means over the samples with intervals, and pairs of methods on the same samples."""

import numpy as np

from brinell.analysis.results import FolderResult, Result
from brinell.analysis.saliency import rank_correlation
from brinell.analysis.stats import holm, mean, sign_flips
from brinell.core.record import Array
from brinell.store.table import Folder
from brinell.studies.explain.records import BLURRED, INVERSE, MEASURES, Rows, load_cascade, load_maps

OWN = "rlab"
"""The method that all others are compared with, where it was asked for."""
SAME = 0.5
"""Rank correlation from which on a map counts as the same on the model with shuffled weights."""
COMPARED = ("dice", "iou", "insertion", "deletion")
LOWER = frozenset({"deletion", "infidelity", "sensitivity", "carries", "breaks", "similarity"})
"""Measures of which less is better."""


class Measure(Result):
    """A mean over samples with its 95 % interval, by bootstrap over samples, or over groups of samples that belong together."""

    value: float
    """The mean."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end."""
    n: int
    """Samples that it is a mean of."""


class MethodResult(Result):
    """One method. A measure is null where it was not asked for or there is no ground truth."""

    name: str
    """The method as it was asked for; `NAME, blurred` and `NAME, inverse` are controls made of its maps."""
    title: str
    """What it is."""
    queries: float
    """Mean number of forwards and backwards that a map cost."""
    seconds: float
    """Mean wall time of a map, of samples asked about together."""
    dice: Measure | None
    """Dice of the places that the map holds largest, as many as the object has, with the object."""
    iou: Measure | None
    """Intersection over union of the same."""
    best_iou: Measure | None
    """Intersection over union at the threshold that suits each sample best."""
    pointing: Measure | None
    """Share of samples whose largest value lies on the object."""
    energy: Measure | None
    """Share of the map's mass on the object."""
    deletion: Measure | None
    """Area under the class's probability while places are hidden, the most important first: less is better."""
    insertion: Measure | None
    """Area under it while they are shown: more is better."""
    carries: Measure | None
    """Smallest share of the places that leads to the class when it alone shows: less is better."""
    breaks: Measure | None
    """Smallest share of the places without which another class leads: less is better."""
    infidelity: Measure | None
    """How badly the map predicts what hiding random patches does: 0 perfectly, 1 not at all."""
    sensitivity: Measure | None
    """Largest change of the map under a little noise, over its length."""
    stability: Measure | None
    """Rank correlation with the map of the input with a little noise."""
    similarity: Measure | None
    """Rank correlation with the map on the model with shuffled weights, both averaged over copies of the input with a little
    noise (sMPRT): near 1, the map shows the input and not the model."""
    complexity: Measure | None
    """Rise of the map's entropy on that model, in shares of its own (eMPRT)."""
    blank: int
    """Samples on which its map is the same everywhere. Its measures leave them out, but for those of noise and weights."""
    forgets: bool | None
    """Whether the map changes with the weights: the upper end of the interval of `similarity` is below 0.5; null where that was
    not measured."""
    cascade: list[Measure] | None
    """`similarity` at each stage of the cascade, the last layers first; null where it was not asked for."""
    faithful: bool | None
    """Whether it beats both its own blurred copy and its inverse in insertion minus deletion, by paired 95 % intervals; null for
    controls, and where that was not measured."""


class Pair(Result):
    """Two methods on the same samples."""

    method: str
    """The first."""
    other: str
    """The second."""
    measure: str
    """What is compared."""
    difference: Measure
    """Mean of the first minus the second."""
    p: float
    """By turning the signs of differences at random (of groups where samples belong together), corrected for all pairs of this
    measure (Holm 1979)."""


class Agreement(Result):
    """How alike the maps of two methods are."""

    method: str
    """The first."""
    other: str
    """The second."""
    correlation: Measure
    """Rank correlation of their maps."""


class LeftOut(Result):
    """Samples that are not in `n`."""

    count: int
    """How many."""
    reason: str
    """Why."""


class ExplainResult(FolderResult):
    """What `brinell explain --json` prints."""

    data: str
    """Name of the data."""
    model: str
    """Name of the model."""
    n: int
    """Samples that were explained."""
    cascade: list[list[str]]
    """The layers that each stage of the cascade shuffles besides those before it; none where it was not asked for."""
    groups: int
    """Groups of them that belong together; each sample counts as one where nothing is known."""
    left_out: list[LeftOut]
    """Samples that were asked for and are not in `n`."""
    unfit: dict[str, str]
    """Usual methods that do not fit the model or the data, with the reason."""
    methods: list[MethodResult]
    """Methods in the order asked for, each followed by its controls."""
    pairs: list[Pair]
    """The mask of RLAB against each other method."""
    agreement: list[Agreement]
    """Every pair of methods, controls left out."""


def summarise(held: Folder[Rows]) -> ExplainResult:
    """The folder in figures."""
    rows, facts = held.rows, held.manifest
    titles = {one["name"]: one["title"] for one in facts["methods"]}
    names = list(dict.fromkeys(rows.method.tolist()))
    names.sort(key=lambda name: list(titles).index(root(name)))
    samples = np.unique(rows.sample_id)
    return ExplainResult(
        folder=str(held.path),
        data=facts["data"]["name"],
        model=facts["model"]["name"],
        n=len(samples),
        groups=len(set(_groups(rows, names[0]))),
        left_out=[LeftOut(count=count, reason=reason) for reason, count in facts["left_out"].items()],
        cascade=facts.get("cascade", []),
        unfit=facts["unfit"],
        methods=[_method(held, name, names, titles) for name in names],
        pairs=[pair for measure in COMPARED for pair in _pairs(rows, names, measure)],
        agreement=_agreement(held, list(titles)),
    )


def root(name: str) -> str:
    """The method that a control is made of, or the method itself."""
    return name.removesuffix(BLURRED).removesuffix(INVERSE)


def _of(rows: Rows, name: str) -> Array:
    """The rows (m,) of a method, by sample."""
    at = np.flatnonzero(rows.method == name)
    return at[np.argsort(rows.sample_id[at], kind="stable")]


def _groups(rows: Rows, name: str) -> Array:
    """(m,): the group of each sample of a method; one by itself has a name of its own."""
    at = _of(rows, name)
    return np.array([group or f"#{sample}" for group, sample in zip(rows.group[at], rows.sample_id[at], strict=True)])


def values(rows: Rows, name: str, measure: str) -> Array:
    """(m,) float64: a measure of a method, by sample; NaN where there is none."""
    column = getattr(rows, measure)[_of(rows, name)]
    return np.asarray(np.ma.filled(column.astype(np.float64), np.nan))


def _measure(found: Array, groups: Array) -> Measure | None:
    known = mean(found, groups)
    return None if known is None else Measure(value=known.value, low=known.interval.low, high=known.interval.high, n=known.n)


def _method(held: Folder[Rows], name: str, names: list[str], titles: dict[str, str]) -> MethodResult:
    rows = held.rows
    at, groups = _of(rows, name), _groups(rows, name)
    measures = {measure: _measure(values(rows, name, measure), groups) for measure in MEASURES}
    return MethodResult(
        name=name,
        title=titles[root(name)] + name[len(root(name)) :],
        queries=float((rows.forwards[at] + rows.backwards[at]).mean()),
        seconds=float(rows.seconds[at].mean()),
        blank=int(rows.blank[at].sum()),
        faithful=_faithful(rows, name, names),
        forgets=None if (alike := measures["similarity"]) is None else alike.high < SAME,
        cascade=_cascade(held, name, groups),
        **measures,
    )


def _cascade(held: Folder[Rows], name: str, groups: Array) -> list[Measure] | None:
    """Of the methods that were tried on the stages; what is made of their maps, or was left by an attack, was not."""
    rows = held.rows
    if not held.manifest.get("cascade") or np.ma.getmaskarray(rows.similarity[_of(rows, name)]).all():
        return None
    found = load_cascade(held.path, name, rows.sample_id[np.sort(_of(rows, name))].tolist())
    return [one for one in (_measure(stage, groups) for stage in found.T) if one is not None]


def _faithful(rows: Rows, name: str, names: list[str]) -> bool | None:
    controls = [name + BLURRED, name + INVERSE]
    if not set(controls) <= set(names):
        return None
    gains = [values(rows, one, "insertion") - values(rows, one, "deletion") for one in (name, *controls)]
    beaten = [_measure(gains[0] - gain, _groups(rows, name)) for gain in gains[1:]]
    return None if None in beaten else all(one is not None and one.low > 0 for one in beaten)


def _pairs(rows: Rows, names: list[str], measure: str) -> list[Pair]:
    own = next((name for name in names if root(name) == name and name.partition("?")[0] == OWN), None)
    if own is None:
        return []
    found = []
    for other in [name for name in names if name != own]:
        differences, groups = values(rows, own, measure) - values(rows, other, measure), _groups(rows, own)
        difference, p = _measure(differences, groups), sign_flips(differences, groups)
        if difference is not None and p is not None:
            found.append((other, difference, p))
    corrected = holm([p for _, _, p in found])
    return [
        Pair(method=own, other=other, measure=measure, difference=difference, p=p)
        for (other, difference, _), p in zip(found, corrected, strict=True)
    ]


def _agreement(held: Folder[Rows], names: list[str]) -> list[Agreement]:
    samples = sorted(set(held.rows.sample_id.tolist()))
    stored = load_maps(held.path, samples)
    maps = {name: [stored[name, sample] for sample in samples] for name in names}
    groups, found = _groups(held.rows, names[0]), []
    for at, name in enumerate(names):
        for other in names[at + 1 :]:
            alike = np.array([rank_correlation(a, b) for a, b in zip(maps[name], maps[other], strict=True)])
            measure = _measure(alike, groups)
            if measure is not None:
                found.append(Agreement(method=name, other=other, correlation=measure))
    return found


def in_words(result: ExplainResult) -> list[str]:
    """What the figures allow to be said, in a sentence each."""
    judged = [one for one in result.methods if one.faithful is not None]
    said = []
    if judged:
        good = [one.name for one in judged if one.faithful]
        listed = f"{', '.join(good)}. Of the others" if good else "no method. So"
        said.append(
            f"Beating both its own blurred copy and its inverse in insertion minus deletion: {listed} nothing is claimed about "
            "faithfulness."
        )
    if known := [one for one in result.methods if one.forgets is not None]:
        stays = [one.name for one in known if not one.forgets and one.queries]
        told = ": they show the input and not the model" if len(stays) > 1 else ": it shows the input and not the model"
        said.append(f"With shuffled weights {', '.join(stays) or 'no method'} drew much the same map{told if stays else ''}.")
    said += [
        f"The map of {one.name} is the same everywhere on {one.blank} of {result.n} samples, which its measures leave out."
        for one in result.methods
        if one.blank and root(one.name) == one.name
    ]
    for measure, word in (("dice", "Dice"), ("insertion", "insertion")):
        mine = [pair for pair in result.pairs if pair.measure == measure and root(pair.other) == pair.other]
        better = [pair.other for pair in mine if pair.difference.low > 0]
        worse = [pair.other for pair in mine if pair.difference.high < 0]
        if mine:
            said.append(
                f"In {word}, {mine[0].method} is above {', '.join(better) or 'none'} and below {', '.join(worse) or 'none'} "
                "by paired 95 % intervals."
            )
    return said
