"""Objects of pictures: checks of their boxes and classes, and their files in three forms."""

import xml.etree.ElementTree as tree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from brinell.core import bounded
from brinell.core.boxes import Objects
from brinell.core.data import Truth
from brinell.core.errors import RequestError, one_line, short
from brinell.core.record import Array

SLACK = 1.0
"""Pixels by which a box may exceed its picture, as rounding in annotations does; such boxes are
cut at the border."""
FRACTIONS = 8
"""Pixels of a picture's side above which boxes that end at 1 are fractions of it."""
FORMS = (
    "boxes.json (files, boxes and labels, or COCO's images, annotations and "
    "categories), or annotations/*.xml of VOC"
)


class Annotation(NamedTuple):
    """One picture of an annotated folder."""

    file: str
    """Name of the picture in images/."""
    objects: Objects
    """With boxes in pixels of the stored picture."""


def make_objects(boxes: Any, labels: Any, crowd: Any, subject: str) -> Objects:
    """Objects of one picture from lists or arrays."""
    from brinell.core.values import as_array  # needs torch, which files do not

    corners = as_array(boxes, f"boxes of {subject}") if np.size(boxes) else np.zeros((0, 4))
    classes = as_array(labels, f"labels of {subject}") if np.size(labels) else np.zeros(0, np.int64)
    marks = (
        np.zeros(len(classes), bool)
        if crowd is None
        else np.asarray(crowd).astype(bool).reshape(-1)
    )

    if corners.ndim != 2 or corners.shape[1] != 4 or corners.dtype.kind not in "iuf":
        raise RequestError(
            f"the boxes of {subject} have shape {corners.shape}: give four "
            "corners x0, y0, x1, y1 for each"
        )
    if classes.ndim != 1 or classes.dtype.kind not in "iu":
        raise RequestError(
            f"the labels of {subject} are {short(labels)}: give the number of a class for each box"
        )
    if not len(corners) == len(classes) == len(marks):
        raise RequestError(
            f"{subject} has {len(corners)} boxes, {len(classes)} labels and "
            f"{len(marks)} marks of crowds: give one each"
        )
    return Objects(boxes=corners.astype(np.float64), labels=classes.astype(np.int64), crowd=marks)


def check_objects(objects: Objects, size: tuple[int, int], classes: int, subject: str) -> Objects:
    """The objects of a picture, with boxes cut at its border."""
    if not len(objects):
        return objects
    boxes, (height, width) = objects.boxes, size
    if not np.isfinite(boxes).all():
        raise RequestError(f"{subject} has a box with NaN or infinity: correct or drop it")
    # Boxes without an area are most often corners and sides, or centre and sides.
    empty = ((boxes[:, 2] <= boxes[:, 0]) | (boxes[:, 3] <= boxes[:, 1])).nonzero()[0]
    if len(empty):
        raise RequestError(
            f"box {empty[0]} of {subject} is {_text(boxes[empty[0]])} and has no "
            "area as corners x0, y0, x1, y1: "
            f"{_other_form(boxes, size)}"
        )

    # In a tiny picture corners up to 1 may be pixels.
    if boxes.max() <= 1 and min(size) > FRACTIONS:
        raise RequestError(
            f"all boxes of {subject} end at {boxes.max():g}, in a picture of "
            f"{width} x {height} pixels: if they are fractions, "
            "multiply them by its sides"
        )
    # A pixel beyond the border is rounding, which is cut off; more is another size.
    low, high = boxes[:, :2].min(1), np.maximum(boxes[:, 2] - width, boxes[:, 3] - height)
    outside = ((low < -SLACK) | (high > SLACK)).nonzero()[0]
    if len(outside):
        raise RequestError(
            f"box {outside[0]} of {subject} is {_text(boxes[outside[0]])}, "
            f"outside of the picture of {width} x {height} pixels: "
            "give corners in pixels of the picture"
        )
    if (wrong := objects.labels[(objects.labels < 0) | (objects.labels >= classes)]).size:
        raise RequestError(
            f"{subject} has an object of class {wrong[0]}, and there are classes "
            f"0 to {classes - 1}: name every class, or count "
            "the labels from 0"
        )
    return replace(objects, boxes=np.clip(boxes, 0, [width, height, width, height]))


def _other_form(boxes: Array, size: tuple[int, int]) -> str:
    """What to do about boxes (k, 4) that are not corners.

    A form in which they fit into the picture is named.
    """
    first, sides, limit = boxes[:, :2], boxes[:, 2:], np.array(size[::-1]) + SLACK

    remedies = []
    # Each reading is tried on all boxes of the picture: a remedy that fits some is none.
    if (sides > 0).all():
        if (first >= -SLACK).all() and (first + sides <= limit).all():
            remedies.append(
                "if they are a corner and sides, add the corner to the sides (x1 = x0 + width)"
            )
        if (first - sides / 2 >= -SLACK).all() and (first + sides / 2 <= limit).all():
            remedies.append(
                "if they are centre and sides, write centre - sides / 2 and centre + sides / 2"
            )
    return "; ".join(remedies) or "write x0 < x1 and y0 < y1, or drop it"


def object_truth(objects: Sequence[Objects], subject: str) -> Truth:
    """The truth of pictures with these objects; refuses data without a single one to find."""
    if not any(picture.count for picture in objects):
        raise RequestError(f"no picture of {subject} has an object: there is nothing to find")
    return Truth(task="detection", load=lambda indices: [objects[index] for index in indices])


def scale(objects: Objects, size: tuple[int, int], new: tuple[int, int]) -> Objects:
    """The objects of a picture that is stretched from one (height, width) to another."""
    ratio = [new[1] / size[1], new[0] / size[0]]
    return replace(objects, boxes=objects.boxes * [*ratio, *ratio])


def _text(box: Array) -> str:
    """A box as text."""
    return ", ".join(f"{value:g}" for value in box)


def read_annotations(folder: Path) -> tuple[list[Annotation], tuple[str, ...]]:
    """The annotated pictures of a folder in order, and the names of the classes."""
    candidates = (folder / "boxes.json", *sorted(folder.glob("*.json")))
    if files := [path for path in candidates if path.is_file()]:
        return _read_json(files[0])
    for name in ("annotations", "Annotations"):
        if listing := sorted((folder / name).glob("*.xml")):
            return _read_voc(listing)
    raise RequestError(f"{folder} has no annotations: put {FORMS} beside images/")


def _read_json(file: Path) -> tuple[list[Annotation], tuple[str, ...]]:
    """The pictures and classes of boxes.json, or of COCO's file."""
    content = bounded.json_of(file)
    try:
        if "annotations" in content:
            return _read_coco(content, file)

        # Pictures in our own form.
        return [
            Annotation(
                name := entry["file"],
                make_objects(
                    entry["boxes"], entry["labels"], entry.get("crowd"), f"{name} in {file}"
                ),
            )
            for entry in content["images"]
        ], tuple(map(str, content["classes"]))
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        raise RequestError(
            f"{file} is incomplete ({type(error).__name__}: {one_line(error)}): give {FORMS}"
        ) from None


def _read_coco(content: Mapping[str, Any], file: Path) -> tuple[list[Annotation], tuple[str, ...]]:
    """COCO's pictures, annotations and categories, which are counted in the order of their ids."""
    categories = sorted(content["categories"], key=lambda entry: int(entry["id"]))
    place = {int(entry["id"]): label for label, entry in enumerate(categories)}
    rows: dict[Any, list[Any]] = {entry["id"]: [] for entry in content["images"]}
    for entry in content["annotations"]:
        if entry["category_id"] not in place:
            raise RequestError(
                f"{file} has an object of category {entry['category_id']}, which "
                "is not listed: add it to categories"
            )
        if entry["image_id"] not in rows:
            raise RequestError(
                f"{file} has an object in image {entry['image_id']}, which is not "
                "listed: add it to images"
            )
        # A corner and the sides.
        x, y, width, height = entry["bbox"]
        rows[entry["image_id"]].append(
            (
                (x, y, x + width, y + height),
                place[entry["category_id"]],
                bool(entry.get("iscrowd", 0)),
            )
        )

    pictures = []
    for entry in content["images"]:
        boxes, labels, crowd = (
            zip(*rows[entry["id"]], strict=True) if rows[entry["id"]] else ((), (), ())
        )
        name = str(entry["file_name"])
        pictures.append(Annotation(name, make_objects(boxes, labels, crowd, f"{name} in {file}")))
    return pictures, tuple(str(entry["name"]) for entry in categories)


def _read_voc(files: Sequence[Path]) -> tuple[list[Annotation], tuple[str, ...]]:
    """VOC's files, one for each picture.

    Classes count in sorted order; what is marked difficult is nothing to find.
    """
    # Sorted over all files, so that the numbers of classes do not depend on the first picture.
    names = sorted({name for file in files for _, name, _ in voc_rows(voc_root(file), file)})

    pictures = []
    for file in files:
        root = voc_root(file)
        rows = list(voc_rows(root, file))
        # A picture without objects is a picture too: nothing is to be found in it.
        boxes, labels, crowd = zip(*rows, strict=True) if rows else ((), (), ())
        objects = make_objects(boxes, [names.index(label) for label in labels], crowd, str(file))
        pictures.append(Annotation(root.findtext("filename") or f"{file.stem}.jpg", objects))
    return pictures, tuple(names)


def voc_root(file: Path) -> tree.Element:
    """The content of a file of VOC; refuses definitions of entities, which such files
    never hold.
    """
    content = bounded.read(file, bounded.MOST_TEXT)
    # Entities that refer to each other grow without bound when they are read.
    if b"<!" in content.replace(b"<!--", b""):
        raise RequestError(
            f"{file} holds a declaration (<!...>), which no annotation needs: remove it"
        )
    try:
        return tree.fromstring(content)
    except tree.ParseError as error:
        raise RequestError(f"{file} is no XML ({one_line(error)}): restore it") from None


def voc_rows(root: tree.Element, file: Path) -> Iterator[tuple[tuple[float, ...], str, bool]]:
    """The corners, counted from 0, the class and the mark of each object."""
    for entry in root.iter("object"):
        box = entry.find("bndbox")
        try:
            corners = [float(box.findtext(key) or "") for key in ("xmin", "ymin", "xmax", "ymax")]  # type: ignore[union-attr]
        except (AttributeError, ValueError):
            raise RequestError(
                f"{file} has an object without xmin, ymin, xmax and ymax: add them"
            ) from None

        name = (entry.findtext("name") or "").strip()
        if not name:
            raise RequestError(f"{file} has an object without a name: add its class")

        # VOC counts pixels from 1, and names the last one of the box.
        yield (
            (corners[0] - 1, corners[1] - 1, corners[2], corners[3]),
            name,
            entry.findtext("difficult") == "1",
        )
