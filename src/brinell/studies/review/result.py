"""Pairs and answers of a review, the thresholds that follow from them, and the report."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from brinell.analysis.folder_result import Result
from brinell.analysis.results import OfClass, Share
from brinell.analysis.robust_accuracy import class_name, share
from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.core.record import Array, Columns, column
from brinell.manifest import Content, Count, Listing, fault
from brinell.reports import html
from brinell.reports.film import png
from brinell.reports.numbers import counted, distance, short
from brinell.reports.saliency import draw_overlay
from brinell.reports.values import Curve, Link, Report, Series, Step, Table
from brinell.store import parquet
from brinell.store.files import read_arrays, write_text
from brinell.store.table import Folder
from brinell.studies.result import FolderResult
from brinell.studies.review import STUDY, ReviewRequest
from brinell.studies.review.choices import (
    MapAnswer,
    MapAnswerFile,
    MethodChoice,
    ReviewFacts,
    choice_sentences,
    choice_tables,
    choices_of,
)
from brinell.studies.review.psychometric import Threshold, fit

PAIRS, ANSWERS, JUDGE = "arrays/pairs.safetensors", "answers.jsonl", "pairs.html"
"""Clean and changed pictures, uint8 (n, H, W, C), or inputs and maps by name; the answers of all
persons; the page on which a person judges the pairs."""
AREA = 0.2
"""Share of the places of a map that are outlined."""


@dataclass(frozen=True, kw_only=True)
class Trials(Columns):
    """Pairs as columns, each a (rows,) array, in the order of presentation."""

    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "class of the clean picture, or the one that the maps explain")
    eps: Array = column(
        "float64", "size of the change in the norm of the review; 0 if both pictures are equal"
    )
    changed_left: Array = column("bool", "true if the changed picture is on the left")
    left_method: Array = column(
        "string", "method of the map on the left; empty for changes", zero=True
    )
    right_method: Array = column(
        "string", "method of the map on the right; empty for changes", zero=True
    )


class Answer(Content):
    """A person's answer to a pair."""

    trial: Count
    """Number of the pair, from 0."""
    reviewer: str
    """Name of the person; may be empty."""
    differs: bool
    """True if the person noticed a difference."""
    named: Count | None
    """Class that the person saw in the changed picture; null for none of these."""


class AnswerFile(Content):
    """The answers that the page saves, and those of all persons that the folder keeps."""

    review: str
    """Digest of the pairs that were judged."""
    answers: Listing[Answer]


class ClassThreshold(Threshold, OfClass):
    """The threshold of one class."""


class SizeGroup(Result):
    """How often people name the class of the picture, and notice the change, at one size of the
    change.
    """

    eps: float
    """Mean size in the group; 0 for equal pairs."""
    right: Share
    noticed: Share


class ReviewResult(FolderResult):
    """The result of `brinell review`."""

    beside = (ANSWERS, JUDGE)

    request: ReviewRequest
    facts: ReviewFacts
    reviewers: list[str]
    answers: int
    trials: int
    false_alarms: Share
    """Equal pairs that were judged to differ."""
    overall: Threshold | None
    """The threshold over all classes; null before the first changed pair is judged."""
    per_class: list[ClassThreshold]
    """Thresholds of the classes with a judged changed pair, in the order of the classes."""
    by_size: list[SizeGroup]
    """Answers by size of the change, ascending."""
    maps: list[MethodChoice]
    """How often people choose the map of each method; empty for a review of changes."""

    @property
    def of_maps(self) -> bool:
        """True if the pairs are maps."""
        return self.request.maps is not None

    def add(self, file: Path) -> "ReviewResult":
        """Add the answers in a saved file, and write the pages; a later answer of a person to a
        pair replaces an earlier one.
        """
        digest = self.manifest["files"][PAIRS]
        path = Path(self.folder) / ANSWERS
        files = [path, file] if path.exists() else [file]
        answers = [
            answer
            for part in files
            for answer in load_answers(
                part, digest, self.trials, len(self.classes), of_maps=self.of_maps
            )
        ]

        last = {(answer.reviewer, answer.trial): answer for answer in answers}
        content = _form(self.of_maps)(review=digest, answers=[last[key] for key in sorted(last)])
        write_text(path, content.model_dump_json())
        result: ReviewResult = STUDY.open(Path(self.folder))
        result.write()
        return result

    def write(self) -> Path:
        """Write the page that shows the pairs, and the page of the results.

        The first is not told the size of a change, or which pictures are equal, nor the method of a
        map.
        """
        trials = parquet.load_rows(Trials, Path(self.folder) / "rows.parquet")
        arrays = read_arrays(Path(self.folder) / PAIRS)

        pairs = (
            self._pairs_of_maps(trials, arrays)
            if self.of_maps
            else self._pairs_of_changes(trials, arrays)
        )
        digest = self.manifest["files"][PAIRS]
        text = html.render(
            Path(__file__).parent / JUDGE,
            classes=self.classes,
            review=digest,
            pairs=pairs,
            maps=self.of_maps,
        )
        write_text(Path(self.folder) / JUDGE, text)
        return super().write()

    def _pairs_of_changes(
        self, trials: Trials, arrays: Mapping[str, Array]
    ) -> list[dict[str, Any]]:
        """The pictures of each pair, and which of them is marked."""
        pairs: list[dict[str, Any]] = []
        for side, *pair in zip(
            trials.changed_left.tolist(), arrays["clean"], arrays["changed"], strict=True
        ):
            pictures = [
                png(Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture))
                for picture in pair
            ]
            # The page asks for the class of the changed picture; for an equal pair, of the side
            # drawn for it.
            pairs.append(
                {"pictures": pictures[::-1] if side else pictures, "marked": 0 if side else 1}
            )
        return pairs

    def _pairs_of_maps(self, trials: Trials, arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
        """The input, two maps of it, and the class that they explain."""
        data = self.manifest["data"]
        pairs: list[dict[str, Any]] = []
        shared = (None, data["domain"], data.get("sampling"))

        for trial, sample in enumerate(trials.sample_id.tolist()):
            methods = trials.left_method[trial], trials.right_method[trial]
            name = class_name(self.classes, int(trials.label[trial]))
            x = arrays[f"input/{sample}"]
            # The input alone, then each map over it.
            pictures = [str(draw_overlay(x, None, 0, *shared, "input"))]
            for method in methods:
                values = arrays[f"map/{method}/{sample}"]
                # A share of the places, but none to which the map gives its least value.
                count = min(max(1, round(AREA * values.size)), int((values > values.min()).sum()))
                pictures.append(str(draw_overlay(x, values, count, *shared, "map")))
            pairs.append({"pictures": pictures, "class": name})

        return pairs

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        by = ", ".join(filter(None, self.reviewers))
        judge = Step(
            f"Open FOLDER/{JUDGE} in a browser, judge the pairs, and pass the file that it saves.",
            "brinell review FOLDER/run.toml --out FOLDER --resume --answers FILE",
        )
        steps = () if self.answers else (judge,)
        links = (Link("Judge the pairs", JUDGE),)

        if self.of_maps:
            return Report(
                verb="review",
                title=f"Maps that people choose on {self.data}",
                subject=f"{self.answers} of {counted(self.trials, 'pair')} of maps "
                f"judged{by and f' by {by}'}; {counted(len(self.maps), 'method')}",
                sentences=list(choice_sentences(self.maps)),
                blocks=[*choice_tables(self.maps, self.facts)],
                steps=steps,
                links=links,
            )

        return Report(
            verb="review",
            title=f"Changes that people notice on {self.data}",
            subject=f"{self.answers} of {counted(self.trials, 'pair')} "
            f"judged{by and f' by {by}'}; {distance(self.request.norm)}",
            sentences=["No changed pair has been judged yet."]
            if self.overall is None
            else self._sentences(self.overall),
            blocks=() if self.overall is None else self._blocks(self.overall),
            steps=steps,
            links=links,
        )

    def _sentences(self, overall: Threshold) -> list[str]:
        """The threshold, or on which side of the sizes that were shown it lies."""
        # An end is None where it lies beyond those sizes.
        if overall.threshold is not None:
            answer = f"A change of {short(overall.threshold)} is noticed in half of the cases."
        elif overall.low is None and overall.high is None:
            answer = "The answers are too few for a threshold: judge more pairs."
        elif overall.high is None:
            answer = "Fewer than half of the largest changes were noticed: review larger ones."
        else:
            answer = "More than half of the smallest changes were noticed: review smaller ones."

        if overall.low:
            answer += f" Below {short(overall.low)} most changes are not noticed."
        alarms = self.false_alarms
        corrected = (
            f"{alarms.k} of {counted(alarms.n, 'equal pair')} "
            f"{'was' if alarms.n == 1 else 'were'} judged to differ; "
        )
        return [answer, f"{corrected}the thresholds are corrected for these false alarms."]

    def _blocks(self, overall: Threshold) -> list[Curve | Table]:
        """The curve over the sizes, and the tables by class and by size."""
        sizes = [group for group in self.by_size if group.eps > 0]
        groups = [("all classes", overall), *((entry.name, entry) for entry in self.per_class)]

        return [
            Curve(
                title="Share of pairs judged to differ",
                series=[
                    Series(
                        name="all classes", points=[(group.eps, group.noticed) for group in sizes]
                    )
                ],
                ticks=[(group.eps, short(group.eps)) for group in sizes],
                axis=f"size of the change, {distance(self.request.norm)}",
                logarithmic=True,
            ),
            Table(
                title="Class by class",
                columns=("class", "half noticed at", "noticed", "pairs"),
                rows=[(name, entry.cell(), entry.noticed, entry.n) for name, entry in groups],
                text="Size at which half of the changes are noticed, corrected for "
                "false alarms, with 95 % intervals (Schütt, "
                "Harmeling, Macke & Wichmann 2016). It depends on the screen, "
                "the viewing distance and the person. Two classes "
                "differ only if their intervals hardly overlap.",
                name="thresholds",
                terminal=True,
            ),
            Table(
                title="Is it still the same class?",
                columns=("size", "class correct", "judged to differ"),
                rows=[(group.eps, group.right, group.noticed) for group in self.by_size],
                text="How often people named the correct class of the changed "
                "picture, and how often they noticed a difference. "
                "A budget preserves the class if people name it as often as at "
                "size 0, where both pictures are equal.",
                name="sizes",
            ),
        ]


def _form(of_maps: bool) -> type[AnswerFile] | type[MapAnswerFile]:
    """The form of a file of answers."""
    return MapAnswerFile if of_maps else AnswerFile


def load_answers(
    file: Path, digest: str, trials: int, classes: int, *, of_maps: bool = False
) -> list[Any]:
    """The answers in a file, to the pairs of a digest: to maps if `of_maps`."""
    form = _form(of_maps)
    try:
        content = bounded.json_of(file)
    except (OSError, RequestError) as error:
        raise RequestError(f"{file} is no file of answers: {one_line(error)}") from None
    if reason := fault(content, form):
        raise RequestError(f"{file} is no file of answers: {reason}")
    if content["review"] != digest:
        raise RequestError(
            f"{file} answers other pairs than those of the review: name the "
            "folder whose page saved it"
        )

    answers: list[Any] = list(form.model_validate(content).answers)
    if any(
        answer.trial >= trials or (getattr(answer, "named", None) or 0) >= classes
        for answer in answers
    ):
        raise RequestError(f"{file} answers a pair or names a class that the review does not have")
    return answers


def summarise(folder: Folder[Trials]) -> ReviewResult:
    """The figures of a review."""
    trials = folder.rows
    names = folder.head()["classes"]
    path = folder.path / ANSWERS
    digest = folder.manifest["files"].get(PAIRS, "")
    of_maps = folder.request.maps is not None
    answers = []
    if path.exists():
        answers = load_answers(path, digest, len(trials), len(names), of_maps=of_maps)

    trial_numbers = np.array([answer.trial for answer in answers], int)
    if of_maps:
        return _summarise_maps(folder, trial_numbers, answers)
    size = trials.eps[trial_numbers]
    label = trials.label[trial_numbers]
    differs = np.array([answer.differs for answer in answers], bool)
    classes = np.array([-1 if answer.named is None else answer.named for answer in answers], int)

    return ReviewResult(
        **folder.head(),
        reviewers=sorted({answer.reviewer for answer in answers}),
        answers=len(answers),
        trials=len(trials),
        false_alarms=share(differs[size == 0]),
        overall=fit(size, differs),
        per_class=[
            ClassThreshold(class_=number, name=class_name(names, number), **dict(threshold))
            for number in range(len(names))
            # False alarms depend on the person and not on the class, so every curve uses all equal
            # pairs.
            if (
                threshold := fit(
                    *(values[(size == 0) | (label == number)] for values in (size, differs))
                )
            )
        ],
        by_size=_size_groups(size, classes == label, differs),
        maps=[],
    )


def _summarise_maps(
    folder: Folder[Trials], numbers: Array, answers: list[MapAnswer]
) -> ReviewResult:
    """The figures of a review of maps; `numbers` (answers,) are those of the pairs."""
    trials = folder.rows
    pairs = np.stack([trials.left_method, trials.right_method], axis=1)[numbers]
    preferences = [answer.preference for answer in answers]

    return ReviewResult(
        **folder.head(),
        reviewers=sorted({answer.reviewer for answer in answers}),
        answers=len(answers),
        trials=len(trials),
        false_alarms=share([]),
        overall=None,
        per_class=[],
        by_size=[],
        maps=choices_of([*folder.facts.methods], pairs, trials.sample_id[numbers], preferences),
    )


def _size_groups(size: Array, right: Array, differs: Array) -> list[SizeGroup]:
    """Answers grouped by size of the change.

    Clipping alters sizes a little, so sizes within 15 % share a group.
    """
    groups: list[list[int]] = []
    for index in np.argsort(size, kind="stable").tolist():
        first = size[groups[-1][0]] if groups else None
        # Unchanged inputs are a group of their own.
        if first is None or (size[index] > 0) != (first > 0) or size[index] > 1.15 * first:
            groups.append([])
        groups[-1].append(index)

    return [
        SizeGroup(
            eps=float(size[group].mean()), right=share(right[group]), noticed=share(differs[group])
        )
        for group in groups
    ]
