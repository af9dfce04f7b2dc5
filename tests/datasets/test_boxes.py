"""Boxes as data: three forms of annotations with equal objects, and one clear line for each fault."""

import json

import numpy as np
import pytest
from PIL import Image

import brinell
from _refusals import refused
from _spots import entries, spots
from brinell.core.boxes import Objects
from brinell.core.errors import RequestError
from brinell.datasets.boxes import Boxes

BOXES, LABELS = [[2, 4, 20, 16], [10, 0, 30, 24]], [1, 0]


def pictures(folder, *sizes):
    """Pictures in images/."""
    (folder / "images").mkdir()
    for number, size in enumerate(sizes):
        Image.fromarray(np.full((size[1], size[0], 3), 100, np.uint8)).save(
            folder / "images" / f"{number}.png"
        )


def plain(folder, boxes=BOXES, labels=LABELS, **more):
    """boxes.json with two pictures, the second without objects."""
    images = [
        {"file": "0.png", "boxes": boxes, "labels": labels, "crowd": [False] * len(labels), **more}
    ]
    images.append({"file": "1.png", "boxes": [], "labels": [], "crowd": []})
    (folder / "boxes.json").write_text(json.dumps({"classes": ["cat", "dog"], "images": images}))


def coco(folder):
    """The same as COCO's JSON, whose categories have other ids."""
    annotations = [
        {
            "image_id": 7,
            "category_id": 9 if label == 0 else 18,
            "bbox": [x0, y0, x1 - x0, y1 - y0],
            "iscrowd": 0,
        }
        for (x0, y0, x1, y1), label in zip(BOXES, LABELS, strict=True)
    ]
    content = {
        "images": [{"id": 7, "file_name": "0.png"}, {"id": 8, "file_name": "1.png"}],
        "annotations": annotations,
        "categories": [{"id": 18, "name": "dog"}, {"id": 9, "name": "cat"}],
    }
    (folder / "instances.json").write_text(json.dumps(content))


def voc(folder):
    """The same as VOC's XML, whose corners count from 1."""
    (folder / "annotations").mkdir()
    names = ("cat", "dog")
    objects = "".join(
        f"<object><name>{names[label]}</name><difficult>0</difficult><bndbox><xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin>"
        f"<xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>"
        for (x0, y0, x1, y1), label in zip(BOXES, LABELS, strict=True)
    )
    for number, content in enumerate((objects, "")):
        text = f"<annotation><filename>{number}.png</filename>{content}</annotation>"
        (folder / "annotations" / f"{number}.xml").write_text(text)


def test_all_forms_hold_the_same_objects_and_the_digest_depends_on_them(tmp_path_factory):
    for write in (plain, coco, voc):
        tmp_path = tmp_path_factory.mktemp("case")
        pictures(tmp_path, (40, 30), (40, 30))
        write(tmp_path)
        data = Boxes(path=str(tmp_path))()
        first, second = data.info.truth.load([0, 1])
        assert first.boxes.tolist() == BOXES and first.labels.tolist() == LABELS and not len(second)
        assert data.classes == ("cat", "dog") and data.labels().tolist() == [0, 0]
        assert data.info.truth.task == "detection" and data.load([0]).shape == (1, 3, 30, 40)
    digests = {data.digest()}
    plain(tmp_path, labels=[1, 1])
    digests.add(Boxes(path=str(tmp_path))().digest())
    Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(tmp_path / "images" / "1.png")
    digests.add(Boxes(path=str(tmp_path))().digest())
    assert len(digests) == 3


def test_boxes_are_stretched_with_their_pictures(tmp_path):
    pictures(tmp_path, (40, 30), (20, 20))
    plain(tmp_path)
    (first,) = Boxes(path=str(tmp_path), side=60)().info.truth.load([0])
    assert first.boxes.tolist() == [[3, 8, 30, 32], [15, 0, 45, 48]]


def test_faults_are_named(tmp_path_factory):
    rows = [
        (
            {"boxes": [[2, 4, 60, 16], [1, 1, 2, 2]]},
            "box 0 of 0.png .* outside of the picture of 40 x 30",
        ),
        (
            {"boxes": [[1, 1, 2, 2], [30, 5, 30, 9]]},
            "box 1 of 0.png .* has no area .* write x0 < x1 and y0 < y1, or drop it$",
        ),
        (
            {"boxes": [[1, 1, 2, 2], [15, 5, 10, 25]]},
            "a corner and sides, add the corner to the sides .x1 = x0 . width.$",
        ),
        (
            {"boxes": [[9, 9, 2, 2], [35, 25, 10, 8]]},
            ": if they are centre and sides, write centre - sides / 2",
        ),
        ({"file": "../../secret.png"}, "secret.png"),
        ({"boxes": [[1, 1, 2, 2]]}, "has 1 boxes, 2 labels"),
        ({"boxes": [[1, 1, 2], [1, 1, 2]]}, "give four corners"),
        ({"labels": [0, 5]}, "an object of class 5, and there are classes 0 to 1"),
        ({"boxes": [], "labels": []}, "no picture of .* has an object"),
        ({"boxes": [[1, 1, float("nan"), 2], [1, 1, 2, 2]]}, "NaN or infinity"),
    ]
    for change, message in rows:
        tmp_path = tmp_path_factory.mktemp("case")
        pictures(tmp_path, (40, 30), (40, 30))
        plain(tmp_path, **change)
        with pytest.raises(RequestError, match=message):
            Boxes(path=str(tmp_path))()


def test_pictures_of_several_sizes_a_missing_picture_and_bad_annotations_are_refused(tmp_path):
    pictures(tmp_path, (40, 30), (20, 20))
    with pytest.raises(RequestError, check=refused("datasets._boxes.read_annotations")):
        Boxes(path=str(tmp_path))()
    voc(tmp_path)
    bomb = (
        "<!DOCTYPE a [<!ENTITY b "
        '"cccc">]><annotation><object><name>&b;</name></object></annotation>'
    )
    (tmp_path / "annotations" / "0.xml").write_text(bomb)
    with pytest.raises(RequestError, match="holds a declaration"):
        Boxes(path=str(tmp_path))()
    plain(tmp_path)
    with pytest.raises(RequestError, check=refused("datasets._listing.one_size")):
        Boxes(path=str(tmp_path))()
    (tmp_path / "images" / "1.png").unlink()
    with pytest.raises(RequestError, check=refused("datasets._listing.picture_path")):
        Boxes(path=str(tmp_path))()


def test_boxes_in_memory():
    x, objects = spots([(0, 0), (3, 1)], [])
    data = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])
    first, second = data.info.truth.load([0, 1])
    assert (
        isinstance(first, Objects)
        and first.labels.tolist() == [0, 1]
        and not len(second)
        and data.classes[2] == "blue"
    )
    assert brinell.data(x, boxes=[(objects[0].boxes, objects[0].labels), ([], [])]).classes == (
        "0",
        "1",
    )


def test_boxes_in_memory_are_checked():
    x, objects = spots([(0, 0)], [(1, 1)])
    with pytest.raises(brinell.BrinellError, match="boxes hold 1 for 2 pictures"):
        brinell.data(x, boxes=entries(objects[:1]))
    with pytest.raises(brinell.BrinellError, check=refused("inputs.data")):
        brinell.data(x, [0, 1], boxes=entries(objects))
    with pytest.raises(brinell.BrinellError, match="picture 1 .* outside of the picture"):
        brinell.data(
            x, boxes=[{"boxes": [], "labels": []}, {"boxes": [[0, 0, 99, 5]], "labels": [0]}]
        )
    with pytest.raises(
        brinell.BrinellError, match="picture 0 end at 0.9, .*: if they are fractions, multiply"
    ):
        brinell.data(x, boxes=[{"boxes": [[0.1, 0.2, 0.6, 0.9]], "labels": [0]}, ([], [])])
    with pytest.raises(brinell.BrinellError, check=refused("datasets._memory._objects_of")):
        brinell.data(x, boxes=[3, 4])
