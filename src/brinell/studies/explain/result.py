"""Rows of a study of saliency maps, the means by method, paired comparisons of methods, and the report.

samples/GROUP.safetensors       SAMPLE: the input (*shape), float32; SAMPLE/truth: the ground truth (*places), uint8; group/NAME:
                                arrays that all methods share
maps/GROUP-METHOD.safetensors   map/METHOD/SAMPLE: the map (*places), float32; with a cascade, cascade/METHOD/SAMPLE: (stages,)
                                float64, rank correlation with the map at each stage
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from brinell.analysis.attainable import Attainable, attainable, sentences, smallest_mean
from brinell.analysis.folder_result import Result
from brinell.analysis.inference import holm, significant
from brinell.analysis.means import MIN_GROUPS, Mean, mean, mean_difference
from brinell.analysis.robust_accuracy import class_name
from brinell.core.record import Array, column
from brinell.manifest import Content, Count, Facts, Listing, TableOf
from brinell.reports import values as shown
from brinell.reports.numbers import counted, listed
from brinell.reports.saliency import draw_input, draw_overlay
from brinell.reports.values import Example, Gallery, Note, Picture, PValue, Report, Table
from brinell.store import parquet
from brinell.store.files import read_arrays
from brinell.store.table import ROWS
from brinell.studies.explain import ExplainRequest
from brinell.studies.result import Folder, FolderResult

BLURRED, INVERSE = ", blurred", ", inverse"
"""Suffixes of the name of a method in the rows of its blurred map and its negated map."""
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
LOCAL = {"dice": "Dice", "iou": "IoU", "best_iou": "best IoU", "pointing": "pointing", "energy": "mass on the object"}
"""Columns that measure the position of a map on the object, with their titles."""
CURVES = {"deletion": "deletion", "insertion": "insertion"}
FURTHER = {
    "sufficient": "share that suffices",
    "decisive": "share that decides",
    "infidelity": "infidelity",
    "sensitivity": "max-sensitivity",
    "stability": "stability",
}
SHUFFLED = {"similarity": "all layers", "complexity": "rise of entropy"}
MEASURES = {**LOCAL, **CURVES, **FURTHER, **SHUFFLED}
"""Columns that measure a map: its position on the object, and its faithfulness to the model."""
RANGES = {
    "gain": (-1.0, 1.0),
    "difference": (-1.0, 1.0),
    "infidelity": (0.0, math.inf),
    "sensitivity": (0.0, math.inf),
    "stability": (-1.0, 1.0),
    "similarity": (-1.0, 1.0),
    "complexity": (-1.0, math.inf),
}
"""Possible values of figures that are no shares; of all others 0 to 1."""
MOST_SAMPLES = 12
"""Largest number of samples on the page."""
AREA = 0.2
"""Share of the places to outline if neither ground truth nor `sufficient` gives a number."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Rows as columns, each a (rows,) array."""

    method: Array = column("string", "the method as the request names it, or its control")
    sample_id: Array = column("int64", "position of the sample in the data")
    group: Array = column("string", "group of related samples, such as a video; empty without a group")
    label: Array = column("int32", "true class")
    prediction: Array = column("int32", "class that the model predicts")
    explained: Array = column("int32", "class that the map explains")
    forwards: Array = column("int64", "inputs shown to the model for the map", zero=True)
    backwards: Array = column("int64", "gradients computed for the map", zero=True)
    seconds: Array = column("float64", "wall time, shared evenly by the samples of a batch", zero=True)
    blank: Array = column("bool", "true if the map is constant, which leaves nothing to measure", zero=True)
    dice: Array = column("float64", "Dice with the ground truth, at its area", null=True)
    iou: Array = column("float64", "intersection over union with the ground truth, at its area", null=True)
    best_iou: Array = column("float64", "intersection over union at the best threshold", null=True)
    pointing: Array = column("float64", "1 if the largest value lies on the object, else 0", null=True)
    energy: Array = column("float64", "share of the map's mass on the object", null=True)
    deletion: Array = column(
        "float64", "area under the probability of the class while places are hidden, the most important first", null=True
    )
    insertion: Array = column("float64", "area under that probability while places are shown in that order", null=True)
    sufficient: Array = column("float64", "smallest share of the places that, shown alone, leads to the class", null=True)
    decisive: Array = column("float64", "smallest share of the places without which another class leads", null=True)
    infidelity: Array = column(
        "float64", "error with which the map predicts the effect of hiding patches: 0 is perfect, 1 predicts nothing", null=True
    )
    sensitivity: Array = column("float64", "largest change of the map under a little noise, divided by its norm", null=True)
    stability: Array = column("float64", "rank correlation with the map of a slightly noisy input", null=True)
    similarity: Array = column("float64", "rank correlation with the map on the model with shuffled weights (sMPRT)", null=True)
    complexity: Array = column("float64", "relative rise of the entropy of the map on that model (eMPRT)", null=True)

    def __len__(self) -> int:
        return len(self.sample_id)


class MethodFacts(Content):
    """A method of explanation."""

    name: str
    """The method as the request names it."""
    title: str
    """Short description."""
    settings: dict[str, Any] = {}


class ExplainFacts(Facts):
    """What the request leaves open."""

    methods: Listing[MethodFacts]
    cascade: Listing[Listing[str]]
    """Layers that each stage of the cascade shuffles in addition to the earlier stages; empty without a cascade."""
    unfit: TableOf[str]
    """Default methods that do not fit the model or the data, with the reason."""
    left_out: TableOf[Count]
    """Number of requested samples that are excluded, by reason."""


class Measure(Result):
    """A mean over samples with its 95 % interval, over groups of related samples where there are any."""

    value: float
    """The mean."""
    low: float | None
    """Lower end of the interval, within the possible values; null if unknown: fewer than six groups, a group that dominates, or
    nearly equal values."""
    high: float | None
    """Upper end."""
    n: int
    """Number of samples."""


class MethodResult(Result):
    """Measures of one method. A measure is null if the request left it out or ground truth is missing."""

    name: str
    """The method as the request names it; `NAME, blurred` and `NAME, inverse` are controls computed from its maps."""
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
    gain: Measure | None
    """Insertion minus deletion: higher is better."""
    sufficient: Measure | None
    """Smallest share of the places that, shown alone, leads to the class: lower is better."""
    decisive: Measure | None
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

    @property
    def is_control(self) -> bool:
        """True for a blurred or inverse map."""
        return base_method(self.name) != self.name


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


class ExplainResult(FolderResult):
    """What `brinell explain --json` prints."""

    request: ExplainRequest
    facts: ExplainFacts
    n: int
    """Number of explained samples."""
    groups: int
    """Number of groups of related samples; a sample without a group counts as one. Intervals need six of equal size."""
    methods: list[MethodResult]
    """Methods in the order of the request, each followed by its controls."""
    pairs: list[Pair]
    """Comparisons of the RLAB mask with each other method."""
    attainable: list[Attainable]
    """Families of comparisons, with the smallest number of samples that can decide."""

    @property
    def has_truth(self) -> bool:
        """True if objects are known."""
        return any(method.dice is not None for method in self.methods)

    def report(self) -> Report:
        """What the page, the terminal and the CSV files say."""
        (model,) = self.models
        region = f"region {self.request.region}" if self.request.region else ""
        related = f"{self.groups} groups of related samples" if self.groups != self.n else ""
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.facts.left_out.items())
        parts = [", ".join(filter(None, (self.data, region, counted(self.n, "sample")))), related]
        return Report(
            verb="explain",
            title=f"Saliency maps of {model}",
            subject="; ".join(filter(None, (*parts, f"left out: {left_out}" if left_out else ""))),
            sentences=self._sentences(),
            blocks=[self._main_table(), *self._position(), *self._shuffled(), self._gallery(), *self._folded(), self._methods()],
            notes=self._notes(),
        )

    def _sentences(self) -> list[str]:
        """Conclusions from the result."""
        impossible = {family.claim for family in self.attainable if not family.possible}
        conclusions = [] if FAITHFUL in impossible else self._faithful_sentences()
        conclusions += [] if FORGETS in impossible else self._forgetting_sentences()
        if DIFFERS not in impossible:
            conclusions += [self._above("dice", "Dice"), self._above("insertion", "insertion")]
        maps = counted(sum(not method.is_control for method in self.methods), "method")
        return list(filter(None, conclusions)) or [f"{maps} explained {counted(self.n, 'sample')}: the figures are below."]

    def _faithful_sentences(self) -> list[str]:
        """Sentence on the methods that beat their controls."""
        checked = [method for method in self.methods if method.faithful is not None]
        if not checked:
            return []
        names = [method.name for method in checked if method.faithful]
        if len(checked) == 1:
            return [f"{checked[0].name} is {'' if names else 'not '}shown to be faithful."]
        if not names:
            return [f"None of {len(checked)} methods is shown to be faithful."]
        verb = "is" if len(names) == 1 else "are"
        return [f"{len(names)} of {len(checked)} methods {verb} shown to be faithful: {listed(names, len(names))}."]

    def _forgetting_sentences(self) -> list[str]:
        """Sentence on the methods whose maps do not change with the weights."""
        randomised = [method for method in self.methods if method.forgets is not None and method.queries]
        if not randomised:
            return []
        unchanged = [method.name for method in randomised if method.forgets == "no"]
        unknown = [method.name for method in randomised if method.forgets == "cannot be told"]
        who = f"{'they show' if len(unchanged) > 1 else 'it shows'} the input and not the model"
        names = listed(unchanged, len(unchanged))
        first = f"{names} made a similar map: {who}" if unchanged else "no method is shown to make a similar map"
        rest = f" For {listed(unknown, len(unknown))} these samples do not tell." if unknown else ""
        return [f"With shuffled weights, {first}.{rest}"]

    def _above(self, measure: str, label: str) -> str:
        """Sentence on the methods that the reference differs from in a measure; empty without comparisons."""
        pairs = [pair for pair in self.pairs if pair.measure == measure and base_method(pair.baseline) == pair.baseline]
        if not pairs:
            return ""
        lower = [pair.baseline for pair in pairs if significant(pair.p) and pair.difference.value > 0]
        higher = [pair.baseline for pair in pairs if significant(pair.p) and pair.difference.value < 0]
        alike = len(pairs) - len(lower) - len(higher)
        found = " and ".join(
            f"{word} {listed(names, len(names))}" for word, names in (("above", lower), ("below", higher)) if names
        )
        if not found:
            return f"In {label}, {pairs[0].method} is not shown to differ from {counted(alike, 'other method')}."
        rest = f"; from {alike} of {counted(len(pairs), 'method')} it is not shown to differ" if alike else ""
        return f"In {label}, {pairs[0].method} is {found}{rest}."

    def _notes(self) -> list[Note]:
        """What these samples cannot show, and maps that measure nothing."""
        notes = [Note("samples", "warn", text) for text in sentences(self.attainable)]
        if self.groups < MIN_GROUPS:
            related = ("group of related samples", "groups of related samples") if self.groups < self.n else ("sample",)
            text = f"Only {counted(self.groups, *related)}: how far the means hold for others cannot be told with fewer than"
            notes.append(Note("samples", "warn", f"{text} {MIN_GROUPS}."))
        for method in self.methods:
            if method.blank and not method.is_control:
                text = f"The map of {method.name} is constant on {method.blank} of {counted(self.n, 'sample')}"
                notes.append(Note("blank-map", "note", f"{text}; its measures exclude them."))
        return notes

    def _main_table(self) -> Table:
        """Deletion and insertion of each method beside its controls, what follows from them, and the cost."""
        by_name = {method.name: method for method in self.methods}
        methods = [method for method in self.methods if not method.is_control]
        columns: list[tuple[str, list[Any]]] = [("method", [method.name for method in methods])]
        if any(method.deletion for method in methods):
            columns += [(title, [_cell(getattr(method, name)) for method in methods]) for name, title in CURVES.items()]
            columns.append(("gap", [_cell(method.gain) for method in methods]))
            controls = [
                [by_name[method.name + suffix] for suffix in (BLURRED, INVERSE) if method.name + suffix in by_name]
                for method in methods
            ]
            gains = [[control.gain for control in pair if control.gain is not None] for pair in controls]
            columns.append(("control", [_cell(max(pair, key=lambda gain: gain.value)) if pair else None for pair in gains]))
            verdicts = {True: "shown", False: "not shown", None: None}
            columns.append(("faithful", [verdicts[method.faithful] for method in methods]))
        columns.append(("queries", [round(method.queries) or None for method in methods]))
        share = self.request.region and (
            " The probability is the share of the region that keeps its class, or for an object its best score, where 0.5 is the "
            "score above which boxes are shown. A region has its class as long as more than half of it keeps it."
        )
        return Table(
            title="Methods",
            columns=[title for title, _ in columns],
            rows=list(zip(*(cells for _, cells in columns), strict=True)),
            text="Areas under the probability of the class while places are hidden (deletion, less is better) or shown "
            "(insertion, more is better), the most important first, from 0 to 1. The gap is insertion minus deletion; its "
            "controls are the method's blurred and inverse maps, of which the larger gap is shown. A method is shown to be "
            "faithful if its gap is above both (paired, p-values corrected for the number of methods). The methods random and "
            f"centre ignore the input. Intervals: 95 %, of the mean, where samples suffice for one.{share or ''}"
            + "".join(f" {name} was left out: {reason}." for name, reason in self.facts.unfit.items()),
            name="methods",
            terminal=True,
        )

    def _position(self) -> list[Table]:
        """How well maps match the objects."""
        methods = [method for method in self.methods if not method.is_control]
        return [
            Table(
                title="Position on the object",
                columns=["method", *LOCAL.values()],
                rows=[(method.name, *(_cell(getattr(method, name)) for name in LOCAL)) for method in methods],
                text="Dice and IoU compare the object with the largest places of the map, as many as the object has. They "
                "measure the position of the map and not its faithfulness to the model. More is better.",
                name="position",
                terminal=True,
            )
        ] * self.has_truth

    def _shuffled(self) -> list[Table]:
        """How much maps change on the model with shuffled weights."""
        methods = [method for method in self.methods if method.forgets is not None]
        stages = [f"{'and ' * bool(n)}{_layers(names)}" for n, names in enumerate(self.facts.cascade)]
        return [
            Table(
                title="Shuffled weights",
                columns=["method", "changes with them", *stages, SHUFFLED["complexity"]],
                rows=[
                    (method.name, method.forgets, *map(_cell, method.cascade or ()), _cell(method.complexity))
                    for method in methods
                ],
                text="Rank correlation of a method's maps with its maps on the model with shuffled weights, by the layers that "
                "are shuffled. A method changes with the weights if it is below 0.5 with all of them shuffled (p-values "
                "corrected for the number of methods); one that does not shows the input and not the model.",
                name="shuffled",
            )
        ] * bool(methods)

    def _folded(self) -> list[Table]:
        """Further measures, comparisons of methods, and every measure of every control."""
        methods = [method for method in self.methods if not method.is_control]
        further = {name: title for name, title in FURTHER.items() if any(getattr(method, name) for method in methods)}
        tables = [
            Table(
                title="Further measures",
                columns=["method", *further.values(), "seconds of a map"],
                rows=[
                    (method.name, *(_cell(getattr(method, name)) for name in further), method.seconds or None)
                    for method in methods
                ],
                text="The smallest share of the places that leads to the class alone, and the smallest without which another "
                "class leads; the error with which a map predicts the effect of hiding patches; how much it changes under a "
                "little noise. Less is better, but more of stability.",
                name="further",
                folded=True,
            ),
            Table(
                title=f"{self.pairs[0].method if self.pairs else REFERENCE} compared with each other method",
                columns=("measure", "compared with", "difference", "p"),
                rows=[
                    (MEASURES[pair.measure], pair.baseline, _cell(pair.difference), PValue(pair.p))
                    for pair in self.pairs
                    if base_method(pair.baseline) == pair.baseline
                ],
                text="Means of the paired differences, on the same samples. p is corrected for all pairs of a measure; the "
                "intervals are those of one pair alone.",
                name="pairs",
                folded=True,
            ),
            Table(
                title="Every measure of every method and control",
                columns=("method", "measure", "mean", "samples"),
                rows=[
                    (method.name, name, _cell(value), value.n)
                    for method in self.methods
                    for name in MEASURES
                    if (value := getattr(method, name)) is not None
                ],
                name="measures",
                page=False,
            ),
        ]
        return [table for table in tables if table.rows and len(table.columns) > 1]

    def _methods(self) -> shown.Facts:
        """What each method is."""
        return shown.Facts(title="What the methods are", facts=[(method.name, method.title) for method in self.facts.methods])

    def _gallery(self) -> Gallery:
        """The first samples with a map of each method; misclassified samples come first."""
        path, data = Path(self.folder), self.manifest["data"]
        rows, kind = parquet.load_rows(Measured, path / ROWS), data["domain"]["kind"]
        first = np.flatnonzero(rows.method == self.facts.methods[0].name)
        order = first[np.lexsort((rows.sample_id[first], rows.prediction[first] == rows.label[first]))][:MOST_SAMPLES]
        samples = rows.sample_id[order].tolist()
        inputs, truths, maps = load_inputs(path, samples), load_truths(path, samples), load_maps(path, samples)
        shared = data["domain"], data.get("sampling")
        examples = []
        for row, sample in zip(order.tolist(), samples, strict=True):
            x, truth = inputs[sample], truths.get(sample)
            label, prediction, explained = (
                class_name(self.classes, int(names[row])) for names in (rows.label, rows.prediction, rows.explained)
            )
            wrong = "" if rows.prediction[row] == rows.label[row] else f", predicted {prediction}"
            image = draw_input(x, truth, *shared, f"sample {sample}, {label}, predicted {prediction}")
            pictures = [Picture(image, "input")] if image else []
            for method in (method.name for method in self.facts.methods):
                values, index = maps[method, sample], int(np.flatnonzero((rows.method == method) & (rows.sample_id == sample))[0])
                count = min(_outlined(rows, index, truth, values.size), int((values > values.min()).sum()))
                title = f"{method}: evidence for {explained} in sample {sample}"
                caption = f"{method}: {_caption(rows, index)}".removesuffix(": ")
                pictures.append(Picture(draw_overlay(x, values, count, truth, *shared, title), caption))
            examples.append(
                Example(
                    pictures=pictures,
                    caption=f"Sample {sample}: {label}{wrong}; evidence for {explained}",
                    anchor=f"sample-{sample}",
                    wide=kind in ("signal", "video"),
                )
            )
        many = "as many as the object has" if self.has_truth else "the fewest that suffice" if self.request.steps else "a fifth"
        below, above = (" below", " above") if kind == "signal" else ("", "")
        text = f"Important places are orange. The black line{below} marks the most important ones: {many}."
        if self.has_truth:
            text += f" The green line{above} marks the object."
        return Gallery(
            title="Samples",
            examples=examples,
            text="The most important columns of each sample." if kind == "vector" else text,
            open_examples=3,
        )


def _layers(names: Sequence[str]) -> str:
    return f"layers {names[-1]} to {names[0]}" if len(names) > 1 else f"layer {names[0]}"


def _cell(measure: Measure | None) -> shown.Measure | None:
    """A mean as a cell."""
    return None if measure is None else shown.Measure(measure.value, measure.low, measure.high)


def _outlined(rows: Measured, row: int, truth: Array | None, places: int) -> int:
    """Number of places to outline: the size of the object, else the share that suffices, else the share `AREA`."""
    if truth is not None:
        return int((truth == 1).sum())
    share = rows.sufficient[row]
    return max(1, round((AREA if np.ma.is_masked(share) else float(share)) * places))


def _caption(rows: Measured, row: int) -> str:
    """The main measures of a map."""
    if rows.blank[row]:
        return "constant map"
    names = {"dice": "Dice", "insertion": "insertion", "deletion": "deletion"}
    figures = {title: getattr(rows, name)[row] for name, title in names.items()}
    return ", ".join(f"{title} {float(value):.2f}" for title, value in figures.items() if not np.ma.is_masked(value))


def summarise(folder: Folder[Measured]) -> ExplainResult:
    """Figures of a folder from its rows and maps."""
    rows, methods = folder.rows, [method.name for method in folder.facts.methods]
    names = sorted(dict.fromkeys(rows.method.tolist()), key=lambda name: methods.index(base_method(name)))
    faithful, forgets = _faithful_p_values(rows, names), _forgetting(rows, names)
    pairs = [pair for measure in COMPARED for pair in _compare_methods(rows, names, measure)]
    n, groups = len(np.unique(rows.sample_id)), len(set(_sample_groups(rows, names[0])))
    compared = max((sum(pair.measure == measure for pair in pairs) for measure in COMPARED), default=0)
    return ExplainResult(
        **folder.head(),
        n=n,
        groups=groups,
        methods=[_summarise_method(folder, name, faithful.get(name), forgets.get(name)) for name in names],
        pairs=pairs,
        attainable=families(len(faithful), len(forgets), compared, groups, n),
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
    claims = {FAITHFUL: faithful, FORGETS: forgets, DIFFERS: compared}
    return [attainable(claim, count, unit, groups, smallest_mean) for claim, count in claims.items() if count]


def base_method(name: str) -> str:
    """The method from which a control is computed, or the method itself."""
    return name.removesuffix(BLURRED).removesuffix(INVERSE)


def _method_rows(rows: Measured, name: str) -> Array:
    """Indices (m,) of the rows of a method, ordered by sample."""
    index = np.flatnonzero(rows.method == name)
    return index[np.argsort(rows.sample_id[index], kind="stable")]


def _sample_groups(rows: Measured, name: str) -> Array:
    """Group (m,) of each sample of a method. A sample without a group gets a unique name."""
    index = _method_rows(rows, name)
    return np.array([group or f"#{sample}" for group, sample in zip(rows.group[index], rows.sample_id[index], strict=True)])


def values(rows: Measured, name: str, measure: str) -> Array:
    """(m,) float64: values of a measure of a method, ordered by sample; NaN if missing."""
    column = getattr(rows, measure)[_method_rows(rows, name)]
    return np.asarray(np.ma.filled(column.astype(np.float64), np.nan))


def _gains(rows: Measured, name: str) -> Array:
    """(m,) float64: insertion minus deletion."""
    return values(rows, name, "insertion") - values(rows, name, "deletion")


def _measure(estimate: Mean | None, measure: str) -> Measure | None:
    """A mean of a measure with the part of its interval that is possible."""
    if estimate is None:
        return None
    low, high = (None, None) if estimate.interval is None else np.clip(estimate.interval, *RANGES.get(measure, (0, 1))).tolist()
    return Measure(value=estimate.value, low=low, high=high, n=estimate.n)


def _summarise_method(folder: Folder[Measured], name: str, faithful_p: float | None, forgets: Any) -> MethodResult:
    rows = folder.rows
    index, groups = _method_rows(rows, name), _sample_groups(rows, name)
    means = {
        measure: _measure((mean_difference if measure in RANGES else mean)(values(rows, name, measure), groups), measure)
        for measure in MEASURES
    }
    return MethodResult(
        name=name,
        queries=float((rows.forwards[index] + rows.backwards[index]).mean()),
        seconds=float(rows.seconds[index].mean()),
        blank=int(rows.blank[index].sum()),
        faithful=None if faithful_p is None else significant(faithful_p),
        faithful_p=faithful_p,
        forgets=forgets,
        cascade=_cascade_means(folder, name, groups),
        gain=_measure(mean_difference(_gains(rows, name), groups), "gain"),
        **means,
    )


def _cascade_means(folder: Folder[Measured], name: str, groups: Array) -> list[Measure] | None:
    """Mean similarity of a method at each stage of the cascade. None for controls and for maps of an attack, which have none."""
    index = _method_rows(folder.rows, name)
    if not folder.facts.cascade or np.ma.getmaskarray(folder.rows.similarity[index]).all():
        return None
    arrays = _arrays(folder.path, "maps", lambda key: key.startswith(f"cascade/{name}/"))
    correlations = np.stack([arrays[f"cascade/{name}/{sample}"] for sample in folder.rows.sample_id[index].tolist()])
    means = [_measure(mean_difference(stage, groups), "similarity") for stage in correlations.T]
    return [measure for measure in means if measure is not None]


def _faithful_p_values(rows: Measured, names: list[str]) -> dict[str, float]:
    """By method with controls: p-value of beating both in insertion minus deletion, corrected for the number of methods."""
    p_values = {}
    for name in names:
        controls = [name + BLURRED, name + INVERSE]
        if not set(controls) <= set(names):
            continue
        groups = _sample_groups(rows, name)
        gaps = [mean_difference(_gains(rows, name) - _gains(rows, control), groups) for control in controls]
        if None not in gaps:
            p_values[name] = max(gap.p if gap is not None and gap.value > 0 else 1.0 for gap in gaps)
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def _forgetting(rows: Measured, names: list[str]) -> dict[str, str]:
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


def _compare_methods(rows: Measured, names: list[str], measure: str) -> list[Pair]:
    reference = next((name for name in names if base_method(name) == name and name.partition("?")[0] == REFERENCE), None)
    if reference is None:
        return []
    comparisons = []
    for baseline in [name for name in names if name != reference]:
        differences, groups = values(rows, reference, measure) - values(rows, baseline, measure), _sample_groups(rows, reference)
        estimate = mean_difference(differences, groups)
        if estimate is not None and (difference := _measure(estimate, "difference")) is not None:
            comparisons.append((baseline, difference, estimate.p))
    corrected = holm([p for _, _, p in comparisons])
    return [
        Pair(method=reference, baseline=baseline, measure=measure, difference=difference, p=p)
        for (baseline, difference, _), p in zip(comparisons, corrected, strict=True)
    ]


def _arrays(path: Path, folder: str, select: Callable[[str], bool]) -> Mapping[str, Array]:
    """Arrays of all files of a folder of the study, by name."""
    files = sorted((path / folder).glob("*.safetensors"))
    return {name: array for file in files for name, array in read_arrays(file, select).items()}


def load_maps(path: Path, samples: Sequence[int]) -> dict[tuple[str, int], Array]:
    """Load all maps of samples: (*places) float32 by method and sample."""
    numbers = {str(sample) for sample in samples}
    arrays = _arrays(path, "maps", lambda name: name.startswith("map/") and name.rpartition("/")[2] in numbers)
    keys = {name: name.removeprefix("map/").rpartition("/") for name in arrays}
    return {(keys[name][0], int(keys[name][2])): array for name, array in arrays.items()}


def load_inputs(path: Path, samples: Sequence[int]) -> dict[int, Array]:
    """Load the inputs of samples: (*shape) float32 by sample."""
    numbers = {str(sample) for sample in samples}
    return {int(name): array for name, array in _arrays(path, "samples", numbers.__contains__).items()}


def load_truths(path: Path, samples: Sequence[int]) -> dict[int, Array]:
    """Load ground truth by sample: (*places) uint8, 1 on the object, 0 off it, 255 ignored. Samples without it are absent."""
    names = {f"{sample}/truth" for sample in samples}
    return {int(name.partition("/")[0]): array for name, array in _arrays(path, "samples", names.__contains__).items()}
