"""The page of a study of segmentation: curves over the budget, pictures with their maps, classes, confusions and attacks."""

import colorsys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

import numpy as np
from markupsafe import Markup
from PIL import Image

from brinell.analysis.robust_accuracy import class_name
from brinell.core.record import Array
from brinell.pages import figures
from brinell.pages.gallery import COLOURS
from brinell.pages.html import fill
from brinell.reports.film import thumbnail
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
MAPS = {"mask": "mask", "before": "without attack", "after": "attacked"}
"""Titles of the maps that a folder keeps of each picture, by name."""
GREY = (128, 128, 128)
"""Colour of pixels that a mask leaves out."""
Colours = dict[int, tuple[int, int, int]]
"""By label."""


def render(folder: Folder[Answers]) -> str:
    """The page as one HTML document."""
    result, facts = summarise(folder), folder.manifest
    names = [str(name) for name in facts["data"]["classes"]]
    examples = read_examples(folder, result)
    colours = colours_of([arrays for _, arrays in examples], len(names))
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
        pictures=[
            {
                "name": picture.name,
                "before": picture.accuracy[0],
                "after": picture.accuracy[-1],
                "views": views_of(arrays, picture.sample, colours),
            }
            for picture, arrays in examples
        ],
        colours=[(class_name(names, label), f"rgb{colour}") for label, colour in colours.items()],
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


def read_examples(folder: Folder[Answers], result: DenseResult) -> list[tuple[PictureFigures, dict[str, Array]]]:
    """The pictures that lose most: their figures, and their pixels and maps by name."""

    def loss(picture: PictureFigures) -> float:
        """How much of a picture is lost."""
        return (picture.accuracy[0] or 0.0) - (picture.accuracy[-1] or 0.0)

    ordered = sorted((picture for picture in result.pictures if picture.accuracy[0] is not None), key=loss, reverse=True)
    size, position = int(folder.manifest["group"]), {picture.sample: number for number, picture in enumerate(result.pictures)}
    examples = []
    for picture in ordered[:MOST_PICTURES]:
        arrays = read_arrays(folder.path / inputs_path(position[picture.sample] // size))
        examples.append((picture, {name: arrays[f"{name}-{picture.sample}"] for name in ("picture", *MAPS)}))
    return examples


def colours_of(examples: Iterable[Mapping[str, Array]], classes: int) -> Colours:
    """The colour of each of the classes that occur on the maps, by label in rising order."""
    labels = {int(label) for arrays in examples for name in MAPS for label in np.unique(arrays[name])}
    return dict(zip(sorted(labels.intersection(range(classes))), distinct_colours(), strict=False))


def views_of(arrays: Mapping[str, Array], sample: int, colours: Colours) -> list[tuple[str, Markup]]:
    """A picture, its mask, and the predicted classes before and after."""
    image = Image.fromarray(np.ascontiguousarray(arrays["picture"].transpose(1, 2, 0)))
    maps = [(title, thumbnail(painted(arrays[name], colours), SIDE, title)) for name, title in MAPS.items()]
    return [(title, Markup(uri)) for title, uri in [("picture", thumbnail(image, SIDE, f"picture {sample}")), *maps]]


def painted(classes: Array, colours: Colours) -> Image.Image:
    """(h, w) classes as colours; grey where a mask leaves pixels out."""
    palette = np.full((256, 3), GREY, dtype=np.uint8)
    for label, colour in colours.items():
        palette[label] = colour
    return Image.fromarray(palette[classes])


def distinct_colours() -> Iterator[tuple[int, int, int]]:
    """Dark grey, the colours that everybody tells apart, and then hues that lie far apart, without end."""
    yield 48, 48, 56
    yield from COLOURS
    for number in count(1):
        red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.65 + 0.3 * (number % 2), 0.95 - 0.25 * (number // 2 % 2))
        yield round(255 * red), round(255 * green), round(255 * blue)
