"""The page of a study of segmentation: curves over the budget, pictures with their maps, classes, confusions and attacks."""

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from brinell.analysis.robust_accuracy import class_name
from brinell.core.record import Array
from brinell.pages import figures
from brinell.pages.filmstrip import thumbnail
from brinell.pages.html import fill
from brinell.store.files import read_arrays
from brinell.store.table import Folder
from brinell.studies.dense.records import Answers, inputs_path
from brinell.studies.dense.results import DenseResult, Figure, PictureFigures
from brinell.studies.dense.segmentation_analysis import summarise
from brinell.studies.dense.words import eps_text, reading

MOST_PICTURES = 9
"""Pictures that the page shows."""
SIDE = 168
"""Longest side of a picture on the page in pixels."""
IGNORED = (128, 128, 128)
"""Colour of pixels that a mask leaves out."""


def render(folder: Folder[Answers]) -> str:
    """The page as one HTML document."""
    result, facts = summarise(folder), folder.manifest
    series = [("pixel accuracy", result.pixel_accuracy), ("mean IoU", result.miou)]
    series += [("certified pixel accuracy", result.certified)] if result.certified else []
    texts = [eps_text(result, figure.eps) for figure in result.miou]
    return fill(
        __package__,
        "page.html",
        {},
        result=result,
        sentences=reading(result),
        notes=[("note", note) for note in result.notes],
        curve=curve(series, texts, result),
        legend=[(name, number) for number, (name, _) in enumerate(series)],
        certified={figure.eps: figure for figure in result.certified},
        texts=texts,
        attacks=[str(attack) for attack in facts["attacks"]],
        classes=sorted(result.per_class, key=lambda figures_of_class: figures_of_class.iou[-1] or 0.0),
        pictures=pictures(folder, result),
        colours=colours_of(result, [str(name) for name in facts["data"]["classes"]]),
        request=facts["request"],
    )


def curve(series: Sequence[tuple[str, Sequence[Figure]]], texts: Sequence[str], result: DenseResult) -> Markup:
    """The figures over the budget, with their intervals."""
    labels = [(figure.eps, text) for figure, text in zip(result.miou, texts, strict=True)]
    title = f"pixel accuracy and mean IoU of {result.model} over the budget"
    lines = [
        figures.Series(
            name=name, rates=[figures.Point(point.eps, point.value, point.low, point.high) for point in points], style=style
        )
        for style, (name, points) in enumerate(series)
    ]
    return figures.curve(lines, labels, title=title, distance=result.norm)


def pictures(folder: Folder[Answers], result: DenseResult) -> list[dict[str, Any]]:
    """The pictures that lose most, with their maps."""

    def loss(picture: PictureFigures) -> float:
        """How much of a picture is lost."""
        return (picture.accuracy[0] or 0.0) - (picture.accuracy[-1] or 0.0)

    ordered = sorted((picture for picture in result.pictures if picture.accuracy[0] is not None), key=loss, reverse=True)
    size, position = int(folder.manifest["group"]), {picture.sample: number for number, picture in enumerate(result.pictures)}
    examples = []
    for picture in ordered[:MOST_PICTURES]:
        arrays = read_arrays(folder.path / inputs_path(position[picture.sample] // size))
        views = views_of(arrays, picture.sample)
        examples.append({"name": picture.name, "before": picture.accuracy[0], "after": picture.accuracy[-1], "views": views})
    return examples


def colours_of(result: DenseResult, names: Sequence[str]) -> list[tuple[str, str]]:
    """Names and colours of the classes that masks or wrong predictions hold."""
    predicted = {confusion.predicted for confusion in result.confusions}
    labels = {figures_of_class.class_ for figures_of_class in result.per_class}
    labels |= {label for label, name in enumerate(names) if name in predicted}
    return [(class_name(names, label), f"rgb{colour(label)}") for label in sorted(labels)]


def views_of(arrays: Mapping[str, Array], sample: int) -> list[tuple[str, Markup]]:
    """A picture, its mask, and the predicted classes before and after."""
    image = Image.fromarray(np.ascontiguousarray(arrays[f"picture-{sample}"].transpose(1, 2, 0)))
    maps = [("mask", "mask"), ("without attack", "before"), ("attacked", "after")]
    return [
        ("picture", Markup(thumbnail(image, SIDE, f"picture {sample}"))),
        *((title, Markup(thumbnail(painted(arrays[f"{name}-{sample}"]), SIDE, title))) for title, name in maps),
    ]


def painted(classes: Array) -> Image.Image:
    """(h, w) classes as colours."""
    palette = np.array([colour(label) for label in range(255)] + [IGNORED], dtype=np.uint8)
    return Image.fromarray(palette[classes])


def colour(label: int) -> tuple[int, int, int]:
    """The colour of a class: dark grey for the first, and then hues that lie far apart."""
    if label == 0:
        return 48, 48, 56
    red, green, blue = colorsys.hsv_to_rgb(label * 0.618034 % 1, 0.65 + 0.3 * (label % 2), 0.95 - 0.25 * (label // 2 % 2))
    return round(255 * red), round(255 * green), round(255 * blue)
