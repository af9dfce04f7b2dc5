"""Rows of `brinell epsilon`, the recommended budgets that follow from them, and the report.

A budget is sound if no allowed change reaches another class or another sample of the class, and
none is noticed. Each condition limits eps for each sample; the smallest limit is the budget of the
sample. At half the distance to the nearest sample of another class, the balls around samples of two
classes do not meet, so a classifier can be right on all of both balls (Yang et al. 2020, A closer
look at accuracy vs. robustness, section 3).

arrays/means.safetensors      NORM: (classes, classes) float64, mean distances between classes, NaN
                              without a pair; of each norm
arrays/outlines.safetensors   x: (k, *shape) float32, ids and labels: (k,) int64, the first sample
                              of each of the first classes
arrays/pairs.safetensors      by condition in the first norm x: (k, 2, *shape) float32, samples at
                              the common limit and what lies there; ids and eps: (k,), labels: (k,
                              2)
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AliasChoices, BeforeValidator, Field

from brinell.analysis.folder_result import Result
from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import class_name, rate
from brinell.core.record import Array, Columns, column
from brinell.engine.eps_grid import parse_eps
from brinell.manifest import Amount, Content, Count, Facts, TableOf
from brinell.reports.distances import MOST_CLASSES, MOST_NAMED, class_distances, nearness_sentence
from brinell.reports.numbers import counted, distance, listed, percent, short
from brinell.reports.pictures import picture
from brinell.reports.values import (
    Cell,
    Curve,
    Detail,
    Example,
    Figures,
    Gallery,
    Note,
    Percent,
    Picture,
    Report,
    Series,
    Step,
    Table,
)
from brinell.store import parquet, rows
from brinell.store.files import read_arrays
from brinell.store.table import ROWS, Folder
from brinell.studies.epsilon import EpsilonRequest
from brinell.studies.result import FolderResult

CONDITIONS = {
    "label": "label constancy",
    "interpolation": "interpolation",
    "perception": "perceptibility",
}
"""Names for people of the conditions: eps is at most half of the distance to the nearest sample
of another class; it is below the distance to the nearest different sample of the class; a change
of eps goes unnoticed."""
SOUND = ("label", "interpolation")
"""The conditions of a sound budget, above which an error need not be one of the model."""
MEANS, OUTLINES = "arrays/means.safetensors", "arrays/outlines.safetensors"
PAIRS = "arrays/pairs.safetensors"
USUAL = {
    "linf": ("2/255", "4/255", "8/255", "16/255", "0.1", "0.2", "0.3"),
    "l2": ("0.25", "0.5", "1", "2", "3", "4.5"),
    "l1": ("5", "12", "40"),
    "l0": ("1", "5", "10", "50"),
}
"""Usual budgets in publications on images in [0, 1]."""
OUTLINED = (0.1, 0.2, 0.3)
"""Budgets in Linf of the outlines, as a share of the range of the data, besides the recommended
ones."""
TOLERANCE = 0.5 / 256
"""Share of the range by which a value may differ from the background for the detector
`background`."""
POINTS = 80
"""Budgets at which a curve is drawn."""
_DISTANCES = (
    "other class: least",
    "other class: median",
    "own class: median",
    "other class is nearer",
    "training, other class: least",
)


@dataclass(frozen=True, kw_only=True)
class Distances(Columns):
    """Rows as columns, each a (rows,) array: one for each norm and sample."""

    norm: Array = column("string", "norm of the distances")
    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    same: Array = column(
        "float64", "distance to the nearest different sample of the class; infinite without one"
    )
    other: Array = column(
        "float64", "distance to the nearest sample of another class; infinite without one"
    )
    train_same: Array = column(
        "float64", "distance to the nearest training sample of the class", null=True
    )
    train_other: Array = column(
        "float64", "distance to the nearest training sample of another class", null=True
    )
    unnoticed: Array = column("float64", "largest eps whose change goes unnoticed", null=True)


class Evidence(Content):
    """Evidence for perceptibility in one norm."""

    by: Literal["people", "noise"]
    """Answers of people in a review, or random changes judged by SSIM and PSNR."""
    n: Count
    folder: str | None = None
    """The folder of the review; null for noise."""


class EpsilonFacts(Facts):
    """Facts that the request leaves open."""

    evidence: TableOf[Evidence]
    """Evidence for perceptibility, by norm; none of norms without it."""
    train: Count
    """The number of training samples, 0 without training data."""
    background: Amount | None = None
    """Share of all values that are the background of the pictures; null if they have none."""
    notes: TableOf[str]


Finite = Annotated[
    float | None,
    BeforeValidator(lambda value: value if value is not None and math.isfinite(value) else None),
]
"""A number; null where it would be infinite or not a number."""


class ClassBudget(Result):
    """The recommended eps of a class or of all samples, and its distances; null without a limit or
    a neighbour.
    """

    class_: int | None = Field(
        serialization_alias="class", validation_alias=AliasChoices("class", "class_")
    )
    n: int
    limits: dict[str, Finite]
    """The largest budget that keeps each condition on all but the allowed share of the samples:
    label, interpolation and, where it was measured, perception."""
    eps: Finite
    """The smallest of the limits."""
    sound: Finite
    """The same without the condition of perception, so that an error counts against the model."""
    other_least: Finite
    other_median: Finite
    """Smallest and median distance to the nearest sample of another class."""
    same_median: Finite
    """Median distance to the nearest different sample of the class."""
    nearer_other: float
    """Share of the samples whose nearest neighbour has another label."""
    train_least: Finite
    """Smallest distance to a training sample of another class; null without training data."""


class ClassJudgement(Result):
    """A budget that was asked about, by the samples of a class or all samples."""

    class_: int | None = Field(
        serialization_alias="class", validation_alias=AliasChoices("class", "class_")
    )
    n: int
    broken: dict[str, Rate]
    """By condition the samples on which the budget breaks it; left out where it was not
    measured."""
    passed: dict[str, bool]
    """By condition whether it holds on all but the allowed share of the samples."""


class NormRecommendation(Result):
    """Recommendations in one norm."""

    norm: str
    overall: ClassBudget
    outline: float | None
    """Budget up to which the outline of another class, added to a sample, keeps within the
    budget that is sound in L2; null if the sound budget is below, or if unknown."""
    audit: float | None
    """Largest eps to audit with: the sound one, or `outline`; null without a limit."""
    sound_budgets: list[str]
    """Usual budgets of publications up to `audit`, ascending."""
    per_class: list[ClassBudget]
    per_sample: list[Finite]
    """Minimum, first quartile, median, third quartile and maximum of the budgets of single
    samples."""
    means: list[list[Finite]] = Field(repr=False)
    """Mean distances by class of the row and class of the column; null without a pair."""


class EpsilonResult(FolderResult):
    """What `brinell epsilon --json` prints."""

    request: EpsilonRequest
    facts: EpsilonFacts
    n: int
    norms: list[NormRecommendation]
    judgements: list[ClassJudgement]
    """The budget that was asked about, in the first norm: all samples, then each class; empty
    where none was."""

    def class_columns(self, model: str) -> Mapping[str, Mapping[str, Cell]]:
        """Median distance to the nearest sample of another class, in the first norm."""
        first = self.norms[0]
        medians = {
            self.classes[c.class_]: c.other_median for c in first.per_class if c.class_ is not None
        }
        return {f"to another class, {distance(first.norm)}": medians}

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        table = parquet.load_rows(Distances, Path(self.folder) / ROWS)
        domain = self.manifest["data"]["domain"]
        shape = " × ".join(map(str, domain["shape"]))
        train = self.facts.train
        curves = [
            _curve(limits_of(table, norm.norm), norm.norm, _usual(norm.norm, domain))
            for norm in self.norms
        ]

        title = "Share of the samples on which each condition breaks"
        return Report(
            verb="epsilon",
            title=f"Which eps for {self.data}",
            subject=f"{counted(self.n, 'sample')}, "
            f"{counted(len(self.classes), 'class', 'classes')}; {domain['kind']} "
            "of "
            f"shape {shape}"
            + f"; neighbours in {counted(train, 'training sample')} too"
            * bool(train),
            sentences=list(self._sentences()),
            blocks=[
                replace(curves[0], title=title),
                *self._judgement_table(),
                self._limits_table(),
                *(
                    [Figures(title=f"{title}, other norms", figures=curves[1:])]
                    if curves[1:]
                    else []
                ),
                *self._pairs(domain),
                *self._outlines(domain),
                *map(self._means, self.norms),
                *map(self._classes, self.norms),
            ],
            notes=[
                *(
                    Note(code, "note" if code == "duplicates" else "warn", text)
                    for code, text in self.facts.notes.items()
                ),
                *self._omissions(),
            ],
            steps=list(self._steps()),
        )

    def _omissions(self) -> Iterator[Note]:
        """A note on the tables that the page leaves to the files."""
        if len(self._names) > MOST_CLASSES:
            norms = [norm.norm for norm in self.norms]
            files = [
                f"tables/{kind}-{norm}.csv" for norm in norms for kind in ("distances", "classes")
            ]
            yield Note(
                "many-classes",
                "note",
                f"The tables of {counted(len(self._names), 'class', 'classes')} are files: "
                f"{listed(files, len(files))}.",
            )

    @property
    def _allowed(self) -> str:
        return f"{100 * self.request.allow:.3g} %"

    def _sentences(self) -> Iterator[str]:
        """The judgement of a named budget, the one recommended budget with its reason, and classes
        that are nearer to another class than to themselves.
        """
        if self.judgements:
            yield self._judgement()
        best = self.norms[0]
        name = distance(best.norm)
        sound = best.overall.sound
        if sound == 0:
            broken = [name for key, name in CONDITIONS.items() if best.overall.limits.get(key) == 0]
            yield f"No eps above 0 is sound in {name}: {broken[0]} breaks at once."
        elif best.outline is not None:
            yield (
                f"{name}: audit up to {short(best.outline)}: above it the outline of another "
                "class, added to a sample, is farther than the budget that is sound in L2."
            )
        elif best.audit is None:
            yield f"{name}: audit without a limit by distance: no sample has a neighbour."
        else:
            yield (
                f"{name}: audit up to {short(best.audit)}: except on at most {self._allowed} of "
                "the samples, no change within it leads to another sample of the data."
            )

        for norm in self.norms:
            yield from filter(
                None, [nearness_sentence(distance(norm.norm), self._names, norm.means)]
            )

    def _judgement(self) -> str:
        """The conditions that the budget breaks, and for which classes."""
        every, *classes = self.judgements
        texts = []
        for key in every.passed:
            broken = [self._name(entry.class_) for entry in classes if not entry.passed[key]]
            whom = listed(broken, MOST_NAMED) if len(broken) < len(classes) else "every class"
            texts.append(f"{CONDITIONS[key]} {f'fails for {whom}' if broken else 'holds'}")
        norm = distance(self.norms[0].norm)
        return f"eps {self.request.eps} in {norm}: {'; '.join(texts)}."

    def _judgement_table(self) -> Iterator[Table]:
        if not self.judgements:
            return
        keys = [*self.judgements[0].passed]
        table = Table(
            title=f"What eps {self.request.eps} keeps in {distance(self.norms[0].norm)}, by class",
            columns=("class", "samples", *(f"{CONDITIONS[key]}: broken on" for key in keys)),
            rows=[
                (
                    self._name(entry.class_),
                    entry.n,
                    *(
                        Detail(entry.broken[key], "holds" if entry.passed[key] else "fails")
                        for key in keys
                    ),
                )
                for entry in self.judgements
            ],
            text=f"The share of the samples on which the budget breaks a condition. It holds if "
            f"that is at most {self._allowed}.",
            name="judgement",
            terminal=True,
        )

        every, *rows = table.rows
        if len(rows) > MOST_CLASSES:
            yield replace(table, page=False, terminal=False)
            # Of a row the shares come after the class and its number of samples.
            order = sorted(
                range(len(rows)),
                key=lambda k: -max(cell.value.value or 0.0 for cell in rows[k][2:]),
            )
            largest = [every, *(rows[k] for k in order[:MOST_CLASSES])]
            text = f" The {MOST_CLASSES} classes with the largest; tables/judgement.csv has all."
            table = replace(table, rows=largest, text=table.text + text, name="")
        yield table

    def _limits_table(self) -> Table:
        """Each limit with its meaning, norm by norm."""
        overall = [norm.overall.limits for norm in self.norms]
        rows: list[tuple[Cell, ...]] = [
            ("recommended", *(norm.audit for norm in self.norms), "audit up to it"),
            *(
                (CONDITIONS[key], *(limits.get(key) for limits in overall), meaning)
                for key, meaning in self._meanings().items()
            ),
        ]
        background = "the inputs have no background"
        share = self.facts.background
        limits: list[float | None] = [None] * len(self.norms)
        if share is not None:
            domain = self.manifest["data"]["domain"]
            span = float(np.max(np.subtract(domain["high"], domain["low"])))
            limits = [TOLERANCE * span if norm.norm == "linf" else None for norm in self.norms]
            background = (
                "above it, a detector of changed background sees the change: "
                f"{percent(share)} of all values are one background"
            )

        rows += [
            ("background", *limits, background),
            (
                "outline",
                *(norm.outline for norm in self.norms),
                "above it, the outline of another class, added to a sample, is farther than the "
                "budget that is sound in L2",
            ),
            (
                "usual budgets",
                *(", ".join(norm.sound_budgets) or None for norm in self.norms),
                "of publications, up to the recommended one",
            ),
        ]

        return Table(
            title="Limits of eps, and what each means",
            columns=("limit", *(distance(norm.norm) for norm in self.norms), "meaning"),
            rows=rows,
            text=self._method(),
            name="budgets",
            folded=True,
            terminal=True,
        )

    def _meanings(self) -> dict[str, str]:
        """The event above the limit of each condition."""
        people = [entry for entry in self.facts.evidence.values() if entry.by == "people"]
        if people:
            who = f"half of the people notice; the pairs lie in {people[0].folder}"
        elif self.facts.evidence:
            who = "random changes show by SSIM or PSNR; brinell review makes pairs to look at"
        else:
            who = "not measured: no picture, and no review"
        return {
            "label": "above it, balls around samples of two classes meet: the label may change",
            "interpolation": "above it, an input can become another sample of its class",
            "perception": f"above it, {who}" if self.facts.evidence else who,
        }

    def _steps(self) -> Iterator[Step]:
        best = self.norms[0]
        spec = self.request.data
        evidence = self.facts.evidence.get(best.norm)
        # The largest usual budget, or the end of the range; empty where no budget is sound.
        budget = (
            best.sound_budgets[-1]
            if best.sound_budgets
            else f"{best.audit:.3g}"
            if best.audit
            else ""
        )

        audit = f"brinell audit --data {spec} --norm {best.norm} --eps"
        if budget:
            yield Step(
                "Audit up to the largest usual budget within the range, or up to its end.",
                f"{audit} 0:{budget}:9",
            )

        if best.audit != 0:
            yield Step(
                "Or audit each sample within its own "
                f"budget{' that is sound by distance' * bool(evidence)}.",
                f'{audit} "recommended:FOLDER{"?conditions=label+interpolation" * bool(evidence)}"',
            )
        if evidence and evidence.by == "noise":
            yield Step(
                "Perceptibility was measured on random changes: ask people, then "
                "pass their answers as --evidence.",
                f"brinell review {spec} --out answers",
            )

    def _classes(self, norm: NormRecommendation) -> Table:
        lowest, first, middle, third, highest = map(short, norm.per_sample)

        spread = (
            f"from {lowest} to {highest}, half of them between {first} and {third}, median {middle}"
        )

        return Table(
            title=f"Eps and distances by class, {distance(norm.norm)}",
            columns=("class", "samples", "eps", *CONDITIONS.values(), *_DISTANCES),
            rows=[
                (
                    *(
                        self._name(entry.class_),
                        entry.n,
                        entry.eps,
                        *map(entry.limits.get, CONDITIONS),
                    ),
                    *(
                        entry.other_least,
                        entry.other_median,
                        entry.same_median,
                        Percent(entry.nearer_other),
                        entry.train_least,
                    ),
                )
                for entry in (norm.overall, *norm.per_class)
            ],
            text=f"Largest budget that keeps each condition on all but {self._allowed} "
            "of the samples of the class, "
            "the smallest of them, which is recommended, and exact distances to "
            "the nearest samples. Budgets of single samples: "
            f"{spread if lowest != highest else f'all {middle}'}.",
            name=f"classes-{norm.norm}",
            folded=True,
            page=len(norm.per_class) <= MOST_CLASSES,
        )

    def _means(self, norm: NormRecommendation) -> Table:
        # In L2 the distances of all pairs come out of matrix products, and none is left out.
        is_part = self.request.pairs and norm.norm != "l2"
        source = (
            f"Over at most {counted(self.request.pairs, 'sample')} of a class."
            if is_part
            else "Over all pairs of samples."
        )

        return class_distances(
            distance(norm.norm),
            self._names,
            norm.means,
            text=source,
            name=f"distances-{norm.norm}",
            folded=norm is not self.norms[0],
        )

    @property
    def _names(self) -> list[str]:
        return [self._name(label) for label in range(len(self.norms[0].means))]

    def _method(self) -> str:
        texts = [
            "Label constancy: eps is at most half of the distance to the nearest "
            "sample of another class, so that the balls "
            "around samples of different classes never meet. Interpolation: eps "
            "is below the distance to the nearest different "
            "sample of the class. Training data count; samples outside the data may be nearer."
        ]

        for norm, entry in self.facts.evidence.items():
            noise = (
                f"random changes of {entry.n} samples keep SSIM {self.request.ssim:g} "
                f"and PSNR {self.request.psnr:g} dB"
            )
            people = f"half of {entry.n} answers of people notice changes of this size"
            texts.append(
                f"Perceptibility in {distance(norm)}: {people if entry.by == 'people' else noise}."
            )
        return " ".join(texts)

    def _name(self, label: int | None) -> str:
        return "all samples" if label is None else class_name(self.classes, label)

    def _pairs(self, domain: Mapping[str, Any]) -> Iterator[Gallery]:
        """Samples at the limit of each condition in the first norm, beside what lies there."""
        content = read_arrays(Path(self.folder) / PAIRS)
        norm = self.norms[0].norm
        low = float(np.min(domain["low"]))
        high = float(np.max(domain["high"]))
        examples = []
        for key, condition in CONDITIONS.items():
            for number, pair in enumerate(content.get(f"{key}/x", ())):
                sample = int(content[f"{key}/ids"][number])
                eps = short(float(content[f"{key}/eps"][number]))
                first, second = map(self._name, content[f"{key}/labels"][number].tolist())
                # A perceptible change has no second sample; its pair is the sample and its changed
                # copy.
                inputs = {first: pair[0], f"{second}, changed by {eps}": pair[1]}
                if key != "perception":
                    inputs = {first: pair[0], f"nearest {second}": pair[1]}
                # In L0 a mean of two samples is halfway in no sense: all values would differ from
                # both.
                if key == "label" and norm != "l0":
                    inputs = {
                        first: pair[0],
                        "halfway": pair.mean(axis=0),
                        f"nearest {second}": pair[1],
                    }
                pictures = [
                    Picture(picture(x, domain["kind"], low, high, title=caption), caption)
                    for caption, x in inputs.items()
                ]
                caption = f"{condition}: sample {sample}, {first}, at eps {eps}"
                examples.append(Example(pictures=pictures, caption=caption))

        if examples:
            yield Gallery(
                title="The pairs to look at",
                examples=examples,
                text=f"Samples whose own limit in {distance(norm)} is nearest to the common one. "
                "Label constancy: the balls around two classes meet halfway. Interpolation: the "
                "nearest sample of the class. Perceptibility: the smallest change that shows.",
                open_examples=len(examples),
            )

    def _outlines(self, domain: Mapping[str, Any]) -> Iterator[Gallery]:
        first = self.norms[0]
        if first.norm != "linf" or len(first.per_class) < 2:
            return
        content = read_arrays(Path(self.folder) / OUTLINES)
        budgets = _drawn(first.overall, domain)
        if self.request.eps is not None:
            budgets = sorted({*budgets, *parse_eps(self.request.eps).values})
        x = content["x"]
        names = [self._name(label) for label in content["labels"].tolist()]
        low = float(np.min(domain["low"]))
        high = float(np.max(domain["high"]))
        changed = {f"eps {short(eps)}": _outlined(x, domain, eps) for eps in budgets}

        examples = []
        for number, name in enumerate(names):
            # The other sample is that of the next class, of the first one for the last.
            second = (number + 1) % len(names)
            inputs = {f"x₀: {name}": x[number], f"x₁: {names[second]}": x[second]}
            inputs |= {caption: arrays[number] for caption, arrays in changed.items()}
            pictures = [
                Picture(
                    picture(array, domain["kind"], low, high, title=f"{name}, {caption}"), caption
                )
                for caption, array in inputs.items()
            ]
            examples.append(Example(pictures=pictures, caption=""))

        yield Gallery(
            title="Does the picture still show its class?",
            examples=examples,
            text="The outline of another class is added to a sample: x₀ + eps · "
            "sign(x₁). A distance between samples does not "
            "see it: if you see the second class at a budget, this budget does "
            "not keep the label, even where it is sound by "
            "distance. Then audit up to the budget before it. Budgets in Linf.",
            open_examples=3,
        )


def _usual(norm: str, domain: Mapping[str, Any]) -> dict[str, float]:
    """Usual budgets by their texts; none for data other than images in [0, 1]."""
    usual = domain["kind"] == "image" and (domain["low"], domain["high"]) == (0.0, 1.0)
    return {text: parse_eps(text).values[0] for text in USUAL[norm]} if usual else {}


def _curve(limits: Mapping[str, Array], norm: str, usual: Mapping[str, float]) -> Curve:
    finite = np.concatenate([limit[np.isfinite(limit) & (limit > 0)] for limit in limits.values()])
    # A few samples with extreme limits would squeeze the curve: half a percent at each end is cut.
    ends = [
        *(np.quantile(finite, [0.005, 0.995]).tolist() if len(finite) else []),
        *usual.values(),
    ] or [1.0]
    # A little room on both sides, so that the first and last ticks stand within the axis.
    grid = np.geomspace(min(ends) / 1.4, max(ends) * 1.2, POINTS)
    ticks = {short(float(eps)): float(eps) for eps in np.geomspace(grid[0], grid[-1], 5)}

    return Curve(
        title=distance(norm),
        series=[
            Series(
                name=CONDITIONS[name],
                points=[(float(eps), float((limit < eps).mean())) for eps in grid],
            )
            for name, limit in limits.items()
        ],
        ticks=[(eps, text) for text, eps in (usual or ticks).items()],
        axis=f"eps in {distance(norm)}",
        logarithmic=True,
    )


def limits_of(table: Distances, norm: str) -> dict[str, Array]:
    """Largest eps (n,) in a norm that keeps each condition, for each sample, infinite without a
    limit.

    Training samples count as neighbours. Budgets in L0 are integers.
    """
    table = rows.take(table, table.norm == norm)
    other = np.minimum(table.other, np.ma.filled(table.train_other, np.inf))
    same = np.minimum(table.same, np.ma.filled(table.train_same, np.inf))
    limits = {"label": other / 2, "interpolation": same * (1 - 1e-6)}  # strictly below the distance
    # In a norm perceptibility was measured for all samples or for none.
    if not np.ma.getmaskarray(table.unnoticed).any():
        limits["perception"] = np.asarray(table.unnoticed)
    return {name: np.floor(limit) for name, limit in limits.items()} if norm == "l0" else limits


def sample_budgets(limits: Mapping[str, Array]) -> Array:
    """Budget (n,) of each sample."""
    return np.asarray(np.stack(list(limits.values())).min(0))


def common_budgets(
    limits: Mapping[str, Array], allow: float, *, exact: bool = False
) -> dict[str, float]:
    """Largest common eps that keeps each condition on all but the share `allow` of the samples,
    rounded down to three digits unless `exact`; infinite without a limit.
    """
    # So many samples may lie below the common budget: it is the limit at this place of the sorted
    # ones. The small addition undoes rounding, as of 0.29 * 100, which lies below 29.
    places = {
        name: min(math.floor(allow * len(limit) + 1e-9), len(limit) - 1)
        for name, limit in limits.items()
    }
    common = {name: float(np.sort(limit)[places[name]]) for name, limit in limits.items()}
    return common if exact else {name: round_down(limit) for name, limit in common.items()}


def round_down(eps: float) -> float:
    """Round eps down to three significant digits."""
    if not math.isfinite(eps) or eps <= 0:
        return max(eps, 0.0)
    unit = 10.0 ** (math.floor(math.log10(eps)) - 2)
    # Rounding may lift the number above eps: then it is one unit less.
    rounded = float(f"{math.floor(eps / unit) * unit:.3g}")
    return rounded if rounded <= eps else float(f"{(math.floor(eps / unit) - 1) * unit:.3g}")


def budgets_by(limits: Mapping[str, Array], labels: Array, by: str, allow: float) -> Array:
    """Budget (n,) float64 of each sample in an audit: by sample, by class, or for the whole set."""
    if by == "sample":
        return sample_budgets(limits)
    eps, groups = np.empty(len(labels)), labels if by == "class" else np.zeros_like(labels)
    for group in np.unique(groups):
        members = groups == group
        eps[members] = min(
            common_budgets({name: limit[members] for name, limit in limits.items()}, allow).values()
        )
    return eps


def summarise(folder: Folder[Distances]) -> EpsilonResult:
    """All recommendations of a folder, from its rows."""
    arrays, norms = read_arrays(folder.path / MEANS), folder.request.norm
    recommended = [_recommend(folder, norm, arrays[norm].tolist()) for norm in norms]
    return EpsilonResult(
        **folder.head(),
        n=len(folder.rows) // len(norms),
        norms=recommended,
        judgements=_judge(folder.rows, folder.request),
    )


def _judge(table: Distances, request: EpsilonRequest) -> list[ClassJudgement]:
    """The budget that was asked about, for all samples and for each class."""
    if request.eps is None:
        return []
    (eps,) = parse_eps(request.eps).values
    norm = request.norm[0]
    labels = table.label[table.norm == norm]
    limits = limits_of(table, norm)
    groups = [(None, np.ones(len(labels), bool))]
    groups += [(label, labels == label) for label in np.unique(labels).tolist()]

    judgements = []
    for label, members in groups:
        own = {name: limit[members] for name, limit in limits.items()}
        common = common_budgets(own, request.allow, exact=True)
        broken = {
            name: rate(int((limit < eps).sum()), len(limit), eps=eps) for name, limit in own.items()
        }
        passed = {name: eps <= limit for name, limit in common.items()}
        n = int(members.sum())
        judgements.append(ClassJudgement(class_=label, n=n, broken=broken, passed=passed))
    return judgements


def _recommend(
    folder: Folder[Distances], norm: str, means: list[list[float | None]]
) -> NormRecommendation:
    table = rows.take(folder.rows, folder.rows.norm == norm)
    limits = limits_of(folder.rows, norm)
    allow = folder.request.allow
    every = np.ones(len(table), bool)
    overall = _class_budget(None, table, limits, every, allow)  # of no class, but of all samples
    # A distance between samples does not see the outline of another class in a sample.
    outline = _find_outline(folder, overall) if norm == "linf" else None
    audit = overall.sound if outline is None else outline
    usual = _usual(norm, folder.manifest["data"]["domain"])
    quantiles = np.quantile(sample_budgets(limits), [0, 0.25, 0.5, 0.75, 1], method="nearest")

    return NormRecommendation(
        norm=norm,
        overall=overall,
        outline=outline,
        audit=audit,
        sound_budgets=[text for text, eps in usual.items() if audit is None or eps <= audit],
        per_class=[
            _class_budget(k, table, limits, table.label == k, allow)
            for k in np.unique(table.label).tolist()
        ],
        per_sample=quantiles.tolist(),
        means=means,
    )


def _class_budget(
    label: int | None, table: Distances, limits: Mapping[str, Array], members: Array, allow: float
) -> ClassBudget:
    """The budgets and distances of the samples in `members` (n,) bool; `label` is their class, or
    None for all samples.
    """
    common = common_budgets({name: limit[members] for name, limit in limits.items()}, allow)
    other = table.other[members]
    same = table.same[members]

    return ClassBudget(
        class_=label,
        n=len(other),
        limits={**common},
        eps=min(common.values()),
        sound=min(common[name] for name in SOUND),
        other_least=other.min(),
        other_median=np.median(other),
        same_median=np.median(same),
        nearer_other=(other < same).mean(),
        train_least=np.ma.filled(table.train_other[members], np.inf).min(),
    )


def _drawn(overall: ClassBudget, domain: Mapping[str, Any]) -> list[float]:
    """The budgets at which outlines are drawn, ascending: the recommended ones, and `OUTLINED`."""
    span = float(np.max(np.subtract(domain["high"], domain["low"])))
    return sorted(
        {eps for eps in (overall.eps, overall.sound, *(share * span for share in OUTLINED)) if eps}
    )


def _outlined(x: Array, domain: Mapping[str, Any], eps: float) -> Array:
    """Samples (k, *shape) with the outline of the next one."""
    low = np.asarray(domain["low"], np.float32)
    high = np.asarray(domain["high"], np.float32)
    # Bounds by channel stand at the first axis of a sample, so that they meet the values.
    low = low.reshape(-1, *[1] * (x.ndim - 2)) if low.ndim else low
    high = high.reshape(-1, *[1] * (x.ndim - 2)) if high.ndim else high
    signs = np.sign(np.roll(x, -1, axis=0) - low.min())  # the lower bound may differ from 0
    return np.asarray(np.clip(x + eps * signs, low, high))


def _find_outline(folder: Folder[Distances], overall: ClassBudget) -> float | None:
    """The largest budget in Linf at which the outline of another class keeps within the sound
    budget of L2.

    Returns None if the sound budget of Linf is smaller, or if L2 was not measured.
    """
    x = read_arrays(folder.path / OUTLINES)["x"]
    domain = folder.manifest["data"]["domain"]
    if "l2" not in folder.request.norm or not overall.sound or len(x) < 2:
        return None

    of_l2 = common_budgets(limits_of(folder.rows, "l2"), folder.request.allow)
    within = min(of_l2[name] for name in SOUND)
    changes = {
        eps: _outlined(x, domain, eps).astype(np.float64) - x for eps in _drawn(overall, domain)
    }
    # How fast the L2 distance of an outline grows with eps; clamping makes it a little slower.
    slopes = np.array(
        [
            np.linalg.norm(change.reshape(len(x), -1), axis=1) / eps
            for eps, change in changes.items()
        ]
    )
    eps = within / float(np.median(slopes)) if slopes.max() > 0 else overall.sound
    return eps if within and eps < overall.sound else None
