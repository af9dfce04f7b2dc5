"""Explanations of a region of a map and of one object, on models that look at nothing but the place itself."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import brinell
from _pictures import write_pictures
from _spots import Spots, entries, spots
from brinell.cli import run as cli
from brinell.core.errors import BrinellError
from brinell.studies.explain import STUDY
from brinell.studies.explain.result import load_maps

TABLE = STUDY.resolve(STUDY.table)
METHODS = ["rlab", "occlusion?windows=8", "centre"]
QUICK = {"method": METHODS, "copies": 0, "steps": 8}


class Pooled(torch.nn.Module):
    """Class 1 where the first channel is above a half on average over 3 x 3 pixels."""

    def forward(self, x):
        lead = 20 * (torch.nn.functional.avg_pool2d(x[:, :1], 3, 1, 1) - 0.5)
        return torch.cat([-lead, lead], 1)


def squares(n=3):
    """Pictures of 16 x 16 pixels with a bright square in the left half and one in the right half, and their masks."""
    x, masks = np.full((n, 3, 16, 16), 0.2, np.float32), np.zeros((n, 16, 16), np.uint8)
    for number in range(n):
        for left in (1, 10):
            top = 1 + 3 * number
            x[number, :, top : top + 5, left : left + 5] = 0.8
            masks[number, top : top + 5, left : left + 5] = 1
    return brinell.data(x, masks=masks, classes=["dark", "bright"])


def objects_data():
    """Four pictures of two, one, no and two objects."""
    x, objects = spots([(0, 0), (3, 1)], [(1, 2)], [], [(2, 0), (0, 2)])
    return brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])


def figure(result, name, measure):
    """The mean of a measure of a method."""
    return getattr(next(method for method in result.methods if method.name == name), measure).value


@pytest.fixture(scope="module")
def of_class(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regions") / "class"
    return brinell.explain(Pooled(), squares(), region="class:bright", out=folder, **QUICK)


def test_maps_of_a_class_lie_on_its_pixels(of_class):
    assert of_class.request.region == "class:bright" and of_class.n == 3
    assert figure(of_class, "rlab", "dice") > 0.75 > 0.5 > figure(of_class, "centre", "dice")
    assert figure(of_class, "rlab", "insertion") > figure(of_class, "rlab", "deletion") + 0.3
    assert figure(of_class, "rlab", "decisive") < 0.3, "the region changes when half of it is hidden"


def test_a_class_is_explained_where_the_model_sees_it(tmp_path):
    data = squares(2)
    masks = data.info.truth.load([0, 1]).copy()
    masks[0, :, 8:] = 0  # the model sees more of the class than the mask has
    masks[1] = 1 - masks[1]  # and here nothing of what has it
    x = data.load([0, 1]).numpy()
    x[1] = 0.2
    wrong = brinell.data(x, masks=masks, classes=["dark", "bright"])
    result = brinell.explain(Pooled(), wrong, region="class:bright", out=tmp_path / "run", **QUICK)
    assert result.facts.left_out == {"whose answer has nothing of the region": 1}
    folder = TABLE.read(result.folder)
    assert set(folder.rows.explained.tolist()) == {1}
    assert load_maps(folder.path, [0])["occlusion?windows=8", 0][:, 11:].max() > 0, "the second square is seen as well"
    by_mask = brinell.explain(Pooled(), wrong, region="class:bright", explain="label", out=tmp_path / "label", **QUICK)
    assert list(by_mask.facts.left_out) == ["whose region the model gets mostly wrong"]
    assert (load_maps(TABLE.read(by_mask.folder).path, [0])["occlusion?windows=8", 0][:, 11:] == 0).all()


def test_maps_of_a_rectangle_lie_in_it_though_the_same_class_lies_beside(tmp_path):
    result = brinell.explain(Pooled(), squares(), region="box:0,0,8,16", out=tmp_path / "run", **QUICK | {"explain": "label"})
    folder = TABLE.read(result.folder)
    maps = load_maps(folder.path, [0, 1, 2])
    for sample in range(3):
        values = maps["occlusion?windows=8", sample]
        assert (values[:, 11:] == 0).all() and values[:, :8].max() > 0, "nothing beyond the rectangle and its border matters"
    assert set(folder.rows.label.tolist()) == {0}, "most of the rectangle is dark"


def test_maps_of_an_object_lie_in_its_box_and_not_on_the_other_object(tmp_path):
    first = brinell.explain(Spots(), objects_data(), region="object:0", out=tmp_path / "first", **QUICK)
    second = brinell.explain(Spots(), objects_data(), region="object:1", out=tmp_path / "second", **QUICK)
    assert first.n == 3 and second.n == 2
    assert second.facts.left_out == {"without the object": 2}
    assert figure(first, "rlab", "dice") > 0.85 and figure(second, "rlab", "dice") > 0.85
    rows = TABLE.read(second.folder).rows
    assert set(zip(rows.sample_id.tolist(), rows.label.tolist(), rows.explained.tolist(), strict=True)) == {(0, 1, 1), (3, 2, 2)}
    assert set(rows.forwards[rows.method == "rlab"].tolist()) == {256}


def test_the_largest_object_of_a_class_is_explained_and_one_that_is_not_found_is_left_out(tmp_path):
    x, objects = spots([(0, 0)], [(1, 0)], [(2, 1)])
    x[1] = 0.2  # nothing to see where the object should be
    data = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])
    result = brinell.explain(Spots(), data, region="class:red", out=tmp_path / "run", **QUICK)
    assert result.n == 1
    assert result.facts.left_out == {"without the object": 1, "whose object the model does not find": 1}


def test_the_page_and_the_terminal_name_the_region(of_class, tmp_path, capsys):
    page = (Path(of_class.folder) / "report.html").read_text(encoding="utf-8")
    assert "region class:bright" in page and "share of the region that keeps its class" in page
    assert "The green line marks the object" in page.replace("\n", " ")
    data, model = write_pictures(tmp_path, n=2)
    command = ["explain", "--data", data, "--model", model, "--region", "class:bright", "--method", "centre", "--copies", "0"]
    assert cli([*command, "--out", str(tmp_path / "run")]) == 0
    assert "region class:bright, 2 samples" in " ".join(capsys.readouterr().out.split())
    assert cli([*command, "--out", str(tmp_path / "json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["request"]["region"] == "class:bright"


REFUSALS = [
    (squares, {}, "holds masks, of which one part is explained: add --region, class:NAME for the pixels of a class"),
    (objects_data, {}, "holds boxes, of which one part is explained: add --region, class:NAME for the largest object"),
    (squares, {"region": "class:blue"}, "there is no class 'blue': the data have dark, bright"),
    (squares, {"region": "object:1"}, "region is 'object:1': write class:NAME"),
    (objects_data, {"region": "box:0,0,4,4"}, "region is 'box:0,0,4,4': write class:NAME"),
    (squares, {"region": "box:0,0,4"}, "write box:X0,Y0,X1,Y1 with whole pixels"),
    (squares, {"region": "box:4,0,4,9"}, "a picture has 16 x 16 pixels: give a rectangle in it"),
    (squares, {"region": "box:0,0,16,16"}, "smaller than the picture"),
    (squares, {"region": "class:dark", "truth": "masks:DIR"}, "--truth does not go with --region, since the region is"),
    (squares, {"region": "class:dark", "cascade": 1}, "shuffled weights are compared for classifiers alone"),
    (squares, {"region": "class:dark", "method": "gradient"}, "a region is explained by scores alone"),
    (objects_data, {"region": "object:7"}, "no sample remains to explain"),
]


def test_what_cannot_be_explained_is_refused_in_one_line(tmp_path, subtests):
    for number, (data, settings, message) in enumerate(REFUSALS):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            model = Pooled() if data is squares else Spots()
            with pytest.raises(BrinellError) as refusal:
                brinell.explain(model, data(), out=folder / "run", **{"method": "centre"} | settings)
            assert message in str(refusal.value) and "\n" not in str(refusal.value)


def test_classes_have_no_region(capsys, tmp_path):
    assert cli(["explain", "--samples", "2", "--region", "class:3", "--out", str(tmp_path / "run")]) == 2
    assert "--region is for masks and boxes" in capsys.readouterr().err
