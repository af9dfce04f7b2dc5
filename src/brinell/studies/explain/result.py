"""Rows of a study of saliency maps, the means by method, paired comparisons of methods, and the
report.

arrays/GROUP.safetensors   input/SAMPLE: (*shape) float32; truth/SAMPLE: (*places) uint8;
                           map/METHOD/SAMPLE: (*places) float32
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.attainable import shortfall, smallest_mean
from brinell.analysis.folder_result import Result
from brinell.analysis.inference import holm, significant
from brinell.analysis.means import Mean, mean, mean_difference
from brinell.analysis.robust_accuracy import class_name
from brinell.analysis.statements import Statement, Subject, state
from brinell.core.record import Array, Columns, column
from brinell.manifest import Content, Count, Facts, Listing, TableOf
from brinell.reports.numbers import counted, listed, percent
from brinell.reports.saliency import draw_overlay
from brinell.reports.statements import sentence
from brinell.reports.values import (
    Cell,
    Example,
    Gallery,
    Note,
    Percent,
    Picture,
    Points,
    Report,
    Span,
    Step,
    Table,
)
from brinell.reports.values import Facts as Listed
from brinell.store import parquet
from brinell.store.files import read_arrays
from brinell.store.table import ROWS, Folder
from brinell.studies.explain import ExplainRequest
from brinell.studies.explain.best_of import BestMethod, best_of
from brinell.studies.result import FolderResult

BLURRED, INVERSE = ", blurred", ", inverse"
"""Suffixes of the name of a method in the rows of its blurred map and its negated map."""
LOCAL = {"dice": "Dice", "iou": "IoU", "pointing": "pointing"}
"""Columns that measure the position of a map on the object, with their titles."""
MEASURES = (*LOCAL, "deletion", "insertion")
"""Columns that measure a map. All are shares."""
CONTROLS = frozenset({"centre", "random"})
"""Methods that know nothing of the model, and serve as controls for others."""
MOST_SAMPLES = 12
"""Largest number of samples on the page."""
AREA = 0.2
"""Share of the places to outline without ground truth."""


def file_of(number: int) -> str:
    """The file of the arrays of a group."""
    return f"arrays/{number:05d}.safetensors"


@dataclass(frozen=True, kw_only=True)
class ExplainRows(Columns):
    """Rows as columns, each a (rows,) array."""

    method: Array = column("string", "the method as the request names it, or its control")
    sample_id: Array = column("int64", "position of the sample in the data")
    group: Array = column(
        "string", "group of related samples, such as a video; empty without a group"
    )
    label: Array = column("int32", "true class")
    prediction: Array = column("int32", "class that the model predicts")
    explained: Array = column("int32", "class that the map explains")
    forwards: Array = column("int64", "inputs shown to the model for the map", zero=True)
    backwards: Array = column("int64", "gradients computed for the map", zero=True)
    seconds: Array = column(
        "float64", "wall time, shared evenly by the samples of a batch", zero=True, claimed=True
    )
    blank: Array = column(
        "bool", "true if the map is constant, which leaves nothing to measure", zero=True
    )
    dice: Array = column("float64", "Dice with the ground truth, at its area", null=True)
    iou: Array = column(
        "float64", "intersection over union with the ground truth, at its area", null=True
    )
    pointing: Array = column(
        "float64", "1 if the largest value lies on the object, else 0", null=True
    )
    deletion: Array = column(
        "float64",
        "area under the probability of the class while places are hidden, the most important first",
        null=True,
    )
    insertion: Array = column(
        "float64", "area under that probability while places are shown in that order", null=True
    )


class MethodFacts(Content):
    """A method of explanation."""

    name: str
    """The method as the request names it."""
    title: str
    """Short description."""


class ExplainFacts(Facts):
    """Facts that the request leaves open."""

    methods: Listing[MethodFacts]
    unfit: TableOf[str]
    """Default methods that do not fit the model or the data, with the reason."""
    left_out: TableOf[Count]
    """Number of requested samples that are excluded, by reason."""


class MapMeasure(Result):
    """A mean over samples with its 95 % interval, over groups of related samples where there are
    any.
    """

    value: float
    low: float | None
    """Lower end of the interval, within the possible values; null if unknown: fewer than six
    groups, a group that dominates, or nearly equal values."""
    high: float | None
    n: int
    """Number of samples."""


class MethodResult(Result):
    """Measures of one method.

    A measure is null if the request left it out or ground truth is missing.
    """

    name: str
    """The method as the request names it; `NAME, blurred` and `NAME, inverse` are controls
    computed from its maps."""
    queries: float
    """Mean number of forward and backward passes for a map."""
    seconds: float
    """Mean wall time of a map; samples of a batch share its time evenly."""
    dice: MapMeasure | None
    iou: MapMeasure | None
    pointing: MapMeasure | None
    deletion: MapMeasure | None
    insertion: MapMeasure | None
    """Means of the columns of these names. Less is better in deletion, more in the others."""
    gain: MapMeasure | None
    """Insertion minus deletion: higher is better."""
    blank: int
    """Samples with a constant map, which the measures leave out."""
    faithful: bool | None
    """True if the method is shown to beat the controls random and centre on the same inputs in
    insertion minus deletion (`faithful_p` is at most 0.05), else false: not shown. Null for
    controls, if it was not measured, and if so few samples cannot show it."""
    faithful_p: float | None
    """The larger p-value of these two paired comparisons, corrected for the number of methods
    (Holm 1979)."""

    @property
    def is_control(self) -> bool:
        """True for a blurred or inverse map."""
        return base_method(self.name) != self.name


class ExplainResult(FolderResult):
    """What `brinell explain --json` prints."""

    request: ExplainRequest
    facts: ExplainFacts
    n: int
    """Number of explained samples."""
    groups: int
    """Number of groups of related samples; a sample without a group counts as one. Intervals
    need six of equal size."""
    best: list[BestMethod]
    """The best method by each measure: Dice and IoU with ground truth, and gain (insertion minus
    deletion), with the others behind it."""
    methods: list[MethodResult]
    """Methods in the order of the request, each followed by its controls."""
    statements: list[Statement]
    """Which methods are shown to be faithful; empty if it was not measured."""
    shortfall: str
    """Why so few samples cannot show that a method is faithful; empty if they can."""

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        (model,) = self.names
        related = f"{self.groups} groups of related samples" if self.groups != self.n else ""
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.facts.left_out.items())
        parts = (
            f"{self.data}, {counted(self.n, 'sample')}",
            related,
            f"left out: {left_out}" if left_out else "",
        )

        return Report(
            verb="explain",
            title=f"Saliency maps of {model}",
            subject="; ".join(filter(None, parts)),
            sentences=list(self._sentences()),
            blocks=[
                self._main_table(),
                *self._position(),
                self._gallery(),
                Listed(
                    title="What the methods are",
                    facts=[(method.name, method.title) for method in self.facts.methods],
                ),
            ],
            notes=list(self._notes()),
            steps=[
                Step(
                    "Put it next to the attacks on the same model, class by class.",
                    "brinell report FOLDER RUN",
                )
            ],
        )

    def _methods(self) -> list[MethodResult]:
        return [method for method in self.methods if not method.is_control]

    def _sentences(self) -> Iterator[str]:
        """The best method by the measure that was asked for, and the methods that beat the
        controls.
        """
        best = {entry.measure: entry for entry in self.best}
        if "dice" in best:
            yield sentence(best["dice"].statement)

        if "gain" in best:
            gains = [
                f"{method.name} has {percent(method.gain.value)}"
                for method in self._methods()
                if is_control(method.name) and method.gain
            ]
            yield sentence(best["gain"].statement)
            if gains:
                yield f"Of the controls, which ignore the model, {listed(gains)}."

        if not best:
            yield f"{counted(len(self._methods()), 'method')} explained {counted(self.n, 'sample')}."
        yield from map(sentence, self.statements)

    def _behind(self, measure: str, name: str) -> Points | None:
        """The difference of a method to the best."""
        best = next((entry for entry in self.best if entry.measure == measure), None)
        behind = None if best is None else best.behind.get(name)
        return None if behind is None else Points(behind.value, behind.low, behind.high)

    def _notes(self) -> Iterator[Note]:
        """What these samples cannot show, and maps that measure nothing."""
        if self.shortfall:
            yield Note("samples", "warn", self.shortfall)
        for method in self._methods():
            if method.blank:
                text = (
                    f"The map of {method.name} is constant on {method.blank} of "
                    f"{counted(self.n, 'sample')}"
                )
                yield Note("blank-map", "note", f"{text}; its measures exclude them.")

    def _main_table(self) -> Table:
        """Deletion and insertion of each method beside its controls, what follows from them, and
        the cost.
        """
        rows = list[tuple[Cell, ...]]()
        for method in self.methods:
            # An inverse map checks a method, and is none that somebody would choose.
            if method.name.endswith(INVERSE):
                continue
            curves = (method.deletion, method.insertion)
            means = [None if measure is None else measure.value for measure in curves]
            gain = method.gain
            verdict = {True: "shown", False: "not shown", None: None}[method.faithful]
            rows.append(
                (
                    method.name,
                    *map(_percent, curves),
                    None if None in means else Span(*means),
                    None if gain is None else Points(gain.value, gain.low, gain.high),
                    self._behind("gain", method.name),
                    verdict,
                    round(method.queries) or None,
                )
            )

        return Table(
            title="Methods",
            columns=(
                "method",
                "deletion",
                "insertion",
                "from deletion to insertion",
                "gap",
                "behind the best",
                "above the controls",
                "queries",
            ),
            rows=rows,
            text="The mean probability of the class while the most important places "
            "are hidden first (deletion, less is better) or shown first (insertion, more is "
            "better). The gap between them is in points, and so is the mean difference to the "
            "best on the same inputs. The methods random and centre ignore the model: a method is "
            "shown to be faithful if its gap is above both on the same inputs (paired, p-values "
            "corrected for the number of methods). A blurred map is a further row, and no "
            "condition. Intervals: 95 %, of the mean, where samples suffice for one."
            + "".join(
                f" {name} was left out: {reason}." for name, reason in self.facts.unfit.items()
            ),
            name="methods",
            terminal=True,
        )

    def _position(self) -> list[Table]:
        """How well maps match the objects."""
        return [
            Table(
                title="Position on the object",
                columns=["method", "Dice", "Dice behind", "IoU", "IoU behind", "pointing"],
                rows=[
                    (
                        method.name,
                        _percent(method.dice),
                        self._behind("dice", method.name),
                        _percent(method.iou),
                        self._behind("iou", method.name),
                        _percent(method.pointing),
                    )
                    for method in self._methods()
                ],
                text="Dice and IoU compare the object with the largest places of the "
                "map, as many as the object has; pointing "
                "is the share of maps whose largest place lies on it. They "
                "measure the position of the map and not its "
                "faithfulness to the model. More is better. Behind: mean difference to the best "
                "on the same inputs, in points.",
                name="position",
                terminal=True,
            )
        ] * (self.request.truth is not None)

    def pictures_of_samples(self, samples: Collection[int]) -> Mapping[int, Picture]:
        """The map of each sample by the best method, or by the first where none was measured."""
        path, data = Path(self.folder), self.manifest["data"]
        rows = parquet.load_rows(ExplainRows, path / ROWS)
        # The last measure is the gain, where it was made: it judges a map by the model.
        method = self.best[-1].name if self.best else self.facts.methods[0].name
        ids = sorted({*rows.sample_id.tolist()}.intersection(samples))
        arrays = load_arrays(path, ids)
        subject = "the attacked input" if self.request.run else "the clean input"
        maps = {sample: self._map(rows, arrays, data, method, sample) for sample in ids}
        return {
            sample: replace(picture, caption=f"what counts in {subject}, {picture.caption}")
            for sample, picture in maps.items()
        }

    def _map(
        self,
        rows: ExplainRows,
        arrays: Mapping[str, Array],
        data: Mapping[str, Any],
        method: str,
        sample: int,
    ) -> Picture:
        """The map of a sample by a method, with its main measures."""
        x, truth = arrays[f"input/{sample}"], arrays.get(f"truth/{sample}")
        values = arrays[f"map/{method}/{sample}"]
        (row,) = np.flatnonzero((rows.method == method) & (rows.sample_id == sample)).tolist()
        area = max(1, round(AREA * values.size)) if truth is None else int((truth == 1).sum())
        # Places with the lowest value are no evidence, even where fewer than the area are above it.
        count = min(area, int((values > values.min()).sum()))

        explained = class_name(self.classes, int(rows.explained[row]))
        title = f"{method}: evidence for {explained} in sample {sample}"
        shared = data["domain"], data.get("sampling")
        caption = f"{method}: {_caption(rows, row)}".removesuffix(": ")
        return Picture(draw_overlay(x, values, count, truth, *shared, title), caption)

    def _gallery(self) -> Gallery:
        """The first samples with a map of each method; misclassified samples come first."""
        path = Path(self.folder)
        data = self.manifest["data"]
        kind = data["domain"]["kind"]
        rows = parquet.load_rows(ExplainRows, path / ROWS)
        first = np.flatnonzero(rows.method == self.facts.methods[0].name)
        # The last key counts first: false, for a misclassified sample, comes before true.
        order = first[
            np.lexsort((rows.sample_id[first], rows.prediction[first] == rows.label[first]))
        ][:MOST_SAMPLES]
        arrays = load_arrays(path, rows.sample_id[order].tolist())
        shared = (data["domain"], data.get("sampling"))
        examples = []

        for row, sample in zip(order.tolist(), rows.sample_id[order].tolist(), strict=True):
            x = arrays[f"input/{sample}"]
            truth = arrays.get(f"truth/{sample}")
            label = class_name(self.classes, int(rows.label[row]))
            prediction = class_name(self.classes, int(rows.prediction[row]))
            explained = class_name(self.classes, int(rows.explained[row]))
            wrong = "" if rows.prediction[row] == rows.label[row] else f", predicted {prediction}"
            title = f"sample {sample}, {label}, predicted {prediction}"
            # The input alone: no map, and no place that it marks.
            image = draw_overlay(x, None, 0, truth, *shared, title)
            pictures = [Picture(image, "input")] if image else []
            pictures += [
                self._map(rows, arrays, data, method.name, sample) for method in self.facts.methods
            ]
            examples.append(
                Example(
                    pictures=pictures,
                    caption=f"Sample {sample}: {label}{wrong}; evidence for {explained}",
                    anchor=f"sample-{sample}",
                    wide=kind in ("signal", "video"),
                )
            )

        extent = "as many as the object has" if self.request.truth else "a fifth"
        below, above = (" below", " above") if kind == "signal" else ("", "")
        text = (
            f"Important places are orange. The black line{below} marks the most "
            f"important ones: {extent}."
        )
        if self.request.truth:
            text += f" The green line{above} marks the object."
        return Gallery(
            title="Samples",
            examples=examples,
            text="The most important columns of each sample." if kind == "vector" else text,
            open_examples=1,
        )


def _percent(measure: MapMeasure | None) -> Percent | None:
    return None if measure is None else Percent(measure.value, measure.low, measure.high)


def _caption(rows: ExplainRows, row: int) -> str:
    """The main measures of a map."""
    if rows.blank[row]:
        return "constant map"
    figures = {
        LOCAL.get(name, name): getattr(rows, name)[row]
        for name in ("dice", "insertion", "deletion")
    }
    return ", ".join(
        f"{title} {percent(value, 0)}"
        for title, value in figures.items()
        if not np.ma.is_masked(value)
    )


def summarise(folder: Folder[ExplainRows]) -> ExplainResult:
    """Figures of a folder from its rows."""
    rows = folder.rows
    methods = [method.name for method in folder.facts.methods]
    # Sorting keeps the order of equal keys, so the controls of a method follow it.
    names = sorted(
        dict.fromkeys(rows.method.tolist()), key=lambda name: methods.index(base_method(name))
    )
    faithful = _faithful_p_values(rows, names)

    # Samples of one patient, say, are alike: tests go by groups.
    n, groups = len(np.unique(rows.sample_id)), len(set(_sample_groups(rows, names[0])))
    unit = "samples" if groups == n else "groups of related samples"
    claim = "method can be told from the controls random and centre"
    short = shortfall(claim, len(faithful), unit, groups, smallest_mean)
    results = [
        _summarise_method(rows, name, None if short else faithful.get(name)) for name in names
    ]

    return ExplainResult(
        **folder.head(),
        n=n,
        groups=groups,
        best=list(_best(rows, names)),
        methods=results,
        statements=faithful_statements(results, n),
        shortfall=short,
    )


def faithful_statements(methods: Sequence[MethodResult], n: int) -> list[Statement]:
    """Which methods are shown to be faithful; empty if it was not measured."""
    checked = [method for method in methods if method.faithful is not None]
    subjects = [
        Subject(name=method.name, value=method.gain.value if method.gain else 0.0)
        for method in checked
        if method.faithful
    ]

    if not checked:
        return []
    statement = state(
        "faithful",
        subjects=subjects,
        quantity="insertion minus deletion",
        eps_text="",
        n=n,
        supported=bool(subjects),
        family=len(checked),
    )
    return [statement]


def is_control(name: str) -> bool:
    """True for a method that ignores the model."""
    return name.partition("?")[0] in CONTROLS


def base_method(name: str) -> str:
    """The method from which a control is computed, or the method itself."""
    return name.removesuffix(BLURRED).removesuffix(INVERSE)


def _method_rows(rows: ExplainRows, name: str) -> Array:
    """Indices (m,) of the rows of a method; all methods have the samples in the same order."""
    return np.flatnonzero(rows.method == name)


def _sample_groups(rows: ExplainRows, name: str) -> Array:
    """Group (m,) of each sample of a method. A sample without a group gets a unique name."""
    index = _method_rows(rows, name)
    return np.array(
        [
            group or f"#{sample}"
            for group, sample in zip(rows.group[index], rows.sample_id[index], strict=True)
        ]
    )


def values(rows: ExplainRows, name: str, measure: str) -> Array:
    """(m,) float64: values of a measure of a method; NaN if missing."""
    column = getattr(rows, measure)[_method_rows(rows, name)]
    return np.asarray(np.ma.filled(column.astype(np.float64), np.nan))


def _gains(rows: ExplainRows, name: str) -> Array:
    """(m,) float64: insertion minus deletion."""
    return values(rows, name, "insertion") - values(rows, name, "deletion")


def _measure(estimate: Mean | None, lowest: float) -> MapMeasure | None:
    """A mean with the part of its interval that is possible, from `lowest` to 1."""
    if estimate is None:
        return None
    low, high = (
        (None, None)
        if estimate.interval is None
        else np.clip(estimate.interval, lowest, 1).tolist()
    )
    return MapMeasure(value=estimate.value, low=low, high=high, n=estimate.n)


def _summarise_method(rows: ExplainRows, name: str, faithful_p: float | None) -> MethodResult:
    index, groups = _method_rows(rows, name), _sample_groups(rows, name)
    return MethodResult(
        name=name,
        queries=float((rows.forwards[index] + rows.backwards[index]).mean()),
        seconds=float(rows.seconds[index].mean()),
        blank=int(rows.blank[index].sum()),
        faithful=None if faithful_p is None else significant(faithful_p),
        faithful_p=faithful_p,
        gain=_measure(mean_difference(_gains(rows, name), groups), -1),
        **{measure: _measure(mean(values(rows, name, measure), groups), 0) for measure in MEASURES},
    )


def _faithful_p_values(rows: ExplainRows, names: list[str]) -> dict[str, float]:
    """By method the p-value of beating random and centre in insertion minus deletion on the same
    inputs, corrected for the number of methods.
    """
    controls = [name for name in names if is_control(name)]

    p_values = {}
    for name in names:
        if is_control(name) or base_method(name) != name or not controls:
            continue
        groups = _sample_groups(rows, name)
        gaps = [
            mean_difference(_gains(rows, name) - _gains(rows, control), groups)
            for control in controls
        ]
        # Above both controls: of the two tests the worse one counts, and a gap below 0 proves
        # nothing.
        if None not in gaps:
            p_values[name] = max(
                gap.p if gap is not None and gap.value > 0 else 1.0 for gap in gaps
            )

    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def _best(rows: ExplainRows, names: list[str]) -> Iterator[BestMethod]:
    """The best method by each measure that was made."""
    methods = [name for name in names if base_method(name) == name]
    candidates = [name for name in methods if not is_control(name)] or methods
    # The gain is no column: it is the difference of two.
    columns = {"dice": "dice", "iou": "iou", "gain": ""}
    for measure, source in columns.items():
        measured = {
            name: values(rows, name, source) if source else _gains(rows, name) for name in methods
        }
        best = best_of(measure, measured, _sample_groups(rows, methods[0]), candidates)
        if best is not None:
            yield best


def load_arrays(path: Path, samples: Sequence[int]) -> dict[str, Array]:
    """Inputs, ground truth and maps of samples, by their names in the files."""
    numbers = {str(sample) for sample in samples}
    files = sorted((path / "arrays").glob("*.safetensors"))
    return {
        name: array
        for file in files
        for name, array in read_arrays(
            file, lambda name: name.rpartition("/")[2] in numbers
        ).items()
    }
