"""The page of a study of a detector: AP and recall over the budget, errors, and pictures with boxes before and after."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image, ImageDraw

from brinell.core.boxes import ERRORS, FALSE, HIT, IGNORED, MISLABELLED, MISPLACED, MISSED
from brinell.core.record import Array
from brinell.pages import figures
from brinell.pages.html import fill
from brinell.reports.film import thumbnail
from brinell.store.files import read_arrays
from brinell.store.table import Folder
from brinell.studies.dense.detection_analysis import InputSet, Study, found_boxes, open_study, summary
from brinell.studies.dense.detection_results import DetectionResult, PictureFigures
from brinell.studies.dense.detection_terminal import TITLES
from brinell.studies.dense.detection_words import eps_text, figure_text, reading, value_text
from brinell.studies.dense.records import CLEAN, Answers, inputs_path
from brinell.studies.dense.results import Figure

MOST_PICTURES = 6
"""Pictures that the page shows."""
SIDE = 220
"""Longest side of a picture on the page in pixels."""
COLOURS = {
    HIT: (46, 160, 67),
    FALSE: (214, 39, 40),
    MISLABELLED: (255, 153, 0),
    MISPLACED: (30, 120, 220),
    IGNORED: (150, 150, 150),
    MISSED: (255, 255, 255),
}
"""Colours of boxes by outcome; missed objects are drawn thin."""
LEGEND = {
    HIT: "finds an object",
    FALSE: "false",
    MISLABELLED: "another class",
    MISPLACED: "misplaced",
    MISSED: "missed object (thin)",
}


def render(folder: Folder[Answers]) -> str:
    """The page as one HTML document."""
    study = open_study(folder)
    result, facts = summary(folder, study), folder.manifest
    texts = [eps_text(result.norm, figure.eps) for figure in result.ap50]
    attacked = [error for error in ERRORS if getattr(result.errors, error)]
    shares = [error for error in attacked if error != FALSE]
    return fill(
        __package__,
        "detection.html",
        {},
        result=result,
        sentences=reading(result),
        notes=[("note", note) for note in result.notes],
        sets=curve([("AP50", result.ap50), ("AP", result.ap), (recall_title(result), result.recall)], texts, result),
        sets_legend=[("AP50", 0), ("AP", 1), (recall_title(result), 2)],
        shares=curve([(TITLES[error], getattr(result.errors, error)) for error in shares], texts, result) if shares else None,
        shares_legend=[(TITLES[error], number) for number, error in enumerate(shares)],
        errors=[(TITLES[error], error, getattr(result.errors, error)) for error in attacked],
        recall_title=recall_title(result),
        figure_text=figure_text,
        value_text=value_text,
        texts=texts,
        eps_text=dict(zip((figure.eps for figure in result.ap50), texts, strict=True)),
        attacks=[str(attack) for attack in facts["attacks"]],
        titles=TITLES | {CLEAN: "without an attack"},
        classes=sorted(result.per_class, key=lambda entry: -entry.objects),
        pictures=pictures(folder, study, result, attacked),
        legend=[(text, f"rgb{COLOURS[outcome]}") for outcome, text in LEGEND.items()],
        request=facts["request"],
    )


def recall_title(result: DetectionResult) -> str:
    """The name of the recall on the page."""
    return f"recall at {result.least_score:g}"


def curve(series: Sequence[tuple[str, Sequence[Figure]]], texts: Sequence[str], result: DetectionResult) -> Markup:
    """Figures over the budget, with their intervals."""
    labels = [(figure.eps, text) for figure, text in zip(result.ap50, texts, strict=True)]
    lines = [
        figures.Series(
            name=name, rates=[figures.Point(point.eps, point.value, point.low, point.high) for point in points], style=style
        )
        for style, (name, points) in enumerate(series)
    ]
    title = f"{', '.join(name for name, _ in series)} of {result.model} over the budget"
    return figures.curve(lines, labels, title=title, distance=result.norm)


def pictures(folder: Folder[Answers], study: Study, result: DetectionResult, attacked: Sequence[str]) -> list[dict[str, Any]]:
    """The pictures that lose most objects, with their boxes without an attack and under each."""

    def loss(picture: PictureFigures) -> tuple[int, int]:
        """How many objects a picture loses."""
        return picture.losses[-1] - picture.losses[0], picture.objects

    size = int(folder.manifest["group"])
    order = sorted(range(len(result.pictures)), key=lambda number: loss(result.pictures[number]), reverse=True)
    last = len(study.levels) - 1
    sets = [("without an attack", study.sets[0][0]), *((TITLES[error], study.set_of(error, last)) for error in attacked)]
    examples = []
    for number in order[:MOST_PICTURES]:
        picture = result.pictures[number]
        pixels = read_arrays(folder.path / inputs_path(number // size))[f"picture-{picture.sample}"]
        views = [(title, view(pixels, study, inputs, number, title)) for title, inputs in sets]
        examples.append({"name": picture.name, "objects": picture.objects, "losses": picture.losses, "views": views})
    return examples


def view(pixels: Array, study: Study, inputs: InputSet, number: int, title: str) -> Markup:
    """A picture with its shown boxes, coloured by outcome, and the objects that are missed."""
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).convert("RGB")
    scale = SIDE / max(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(image)
    boxes, objects, outcomes = found_boxes(study, inputs, number)
    for corners, outcome in zip(objects.boxes, outcomes.objects, strict=True):
        if outcome == MISSED:
            draw.rectangle([float(value) * scale for value in corners], outline=COLOURS[MISSED], width=1)
    for corners, outcome in zip(boxes.boxes[::-1], outcomes.boxes[::-1], strict=True):
        low, high = np.minimum(corners[:2], corners[2:]), np.maximum(corners[:2], corners[2:])
        draw.rectangle([float(value) * scale for value in (*low, *high)], outline=COLOURS[outcome], width=2)
    return thumbnail(image, SIDE, f"picture {number}, {title}")
