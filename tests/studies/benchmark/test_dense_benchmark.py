"""Benchmark sets of pictures with masks and boxes: rows, truth and costs, on models whose answers
are known.
"""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import brinell
from _helpers import Recorder
from _pictures import make_pictures, write_pictures
from _sets import arrays_of, rows_of
from _spots import QUADRANTS, Spots, entries, spots
from brinell.analysis.pictures import read_boxes
from brinell.cli import run as cli
from brinell.core.detection import BoxForm
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError
from brinell.core.model import MapOutput, ModelInfo

SETTINGS = {"distortions": "contrast+occlusion", "steps": 160, "refine": 10, "levels": "1,2"}


class Threshold(nn.Module):
    """Class 1 where the first channel is above a half."""

    def forward(self, x):
        lead = x[:, :1] - 0.5
        return torch.cat([-lead, lead], 1)


def masked():
    """Five pictures; one mask has no valid pixel, another leaves out a row."""
    x, masks = make_pictures()
    masks[0], masks[1, 0] = 255, 255
    return x, masks


def confusion(x, mask):
    """Counts of valid pixels by true and predicted class."""
    predicted = (x[0] > 0.5).astype(int)
    pairs = [
        (true, wrong, int(((mask == true) & (predicted == wrong)).sum()))
        for true in (0, 1)
        for wrong in (0, 1)
    ]
    return [list(pair) for pair in pairs if pair[2]]


@pytest.fixture(scope="module")
def masks_set(tmp_path_factory):
    x, masks = masked()
    folder = tmp_path_factory.mktemp("masks") / "set"
    data = brinell.data(x, masks=masks, classes=["dark", "bright"])
    return brinell.benchmark(Threshold(), data, out=folder, criterion="pixels:0.2", **SETTINGS)


@pytest.fixture(scope="module")
def boxes_set(tmp_path_factory):
    x, objects = spots([(0, 0), (3, 1)], [(1, 2)], [], [(2, 0), (0, 2)])
    folder = tmp_path_factory.mktemp("boxes") / "set"
    data = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])
    return brinell.benchmark(Spots(), data, out=folder, patch=8, **SETTINGS)


def test_counts_in_the_rows_are_those_of_the_stored_inputs(masks_set):
    _, masks = masked()
    arrays, rows = arrays_of(Path(masks_set.folder)), rows_of(Path(masks_set.folder))
    reached = [row for row in rows if row["reached"]]
    assert masks_set.outcomes["reached"] and len(reached) > masks_set.outcomes["reached"]
    for row in reached:
        sample, level = row["sample_id"], row["level"]
        mask = arrays[f"{sample}/truth"]
        assert (mask == masks[sample]).all()
        assert (np.asarray(Image.open(io.BytesIO(row["truth"]["bytes"]))) == mask).all()
        counts = confusion(arrays[f"{sample}/{level:g}/input"], mask)
        assert json.loads(row["answer"]) == counts
        assert row["valid"] == (mask != 255).sum() == sum(count for *_, count in counts)
        assert row["wrong"] == sum(count for true, predicted, count in counts if true != predicted)
        assert row["adversarial"] == (row["wrong"] >= 0.2 * row["valid"]) == (level > 0)
        assert row["label"] is row["prediction"] is None


def test_a_picture_without_a_valid_pixel_or_an_object_is_left_out(masks_set, boxes_set):
    assert [row["sample_id"] for row in rows_of(Path(masks_set.folder), "rows.parquet")] == [
        1,
        2,
        3,
        4,
    ]
    assert [row["sample_id"] for row in rows_of(Path(boxes_set.folder), "rows.parquet")] == [
        0,
        1,
        3,
    ]


def test_boxes_in_the_rows_are_those_of_the_stored_inputs(boxes_set):
    arrays = arrays_of(Path(boxes_set.folder))
    reached = [row for row in rows_of(Path(boxes_set.folder)) if row["reached"]]
    assert boxes_set.outcomes["reached"] == 3
    for row in reached:
        x = torch.as_tensor(arrays[f"{row['sample_id']}/{row['level']:g}/input"])[None]
        truth = json.loads(row["truth"])
        assert truth == arrays[f"{row['sample_id']}/truth"].tolist()
        shares = Spots()(x)[0, :, 4:]
        lost = 0
        for *corners, label, _ in truth:
            quadrant = QUADRANTS.tolist().index(corners)
            lost += not (shares[quadrant].argmax() == label and shares[quadrant, label] > 0.4)
        assert (row["valid"], row["wrong"]) == (len(truth), lost)
        assert read_boxes(row["answer"]).scores[0] == pytest.approx(float(shares.max()), abs=1e-5)
        if row["level"] == 1:
            assert row["adversarial"] and lost >= len(truth) / 2


@pytest.mark.parametrize("name", ["masks", "boxes"])
def test_a_set_is_data_for_other_models(name, request, tmp_path):
    benchmark = request.getfixturevalue(f"{name}_set")
    model = Threshold() if name == "masks" else Spots()
    result = brinell.audit(
        model, f"bench:{benchmark.folder}", eps=[1e-4], attack="pgd?steps=1", out=tmp_path / "run"
    )
    rows = [row for row in rows_of(Path(benchmark.folder)) if row["level"] == 1]
    valid, wrong = (sum(row[name] for row in rows) for name in ("valid", "wrong"))
    clean = result.clean_accuracy
    assert clean.value == pytest.approx(1 - wrong / valid) == benchmark.levels[1].accuracy
    untouched = brinell.audit(
        model,
        f"bench:{benchmark.folder}?level=clean",
        eps=[1e-4],
        attack="pgd?steps=1",
        out=tmp_path / "clean",
    )
    assert untouched.clean_accuracy.value == 1


def test_every_forward_is_counted(tmp_path, subtests):
    for number, task in enumerate(["segmentation", "detection"]):
        with subtests.test(str(task)):
            folder = tmp_path / str(number)
            folder.mkdir()
            if task == "segmentation":
                x, masks = masked()
                data = brinell.data(x, masks=masks, classes=["dark", "bright"])
                output, network = MapOutput(classes=2, height=12, width=12), Threshold()
            else:
                x, objects = spots([(0, 0), (3, 1)], [(1, 2)], [(2, 0), (0, 2)])
                data = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])
                output, network = BoxForm(candidates=4, classes=3), Spots()
            domain = Domain(kind="image", shape=data.domain.shape, levels=data.domain.levels)
            model = Recorder(
                lambda x: network(x).flatten(1), domain, classes=int(np.prod(output.shape))
            )
            model.info = ModelInfo(output=output)
            result = brinell.benchmark(model, data, out=folder / "set", **SETTINGS | {"steps": 40})
            rows = rows_of(folder / "set", "rows.parquet")
            assert result.queries == model.queries
            assert all(
                row["queries"] > row["queries_to_success"]
                for row in rows
                if row["queries_to_success"]
            )


def test_the_card_says_what_it_holds(tmp_path):
    data, model = write_pictures(tmp_path)
    command = [
        "benchmark",
        "--data",
        data,
        "--model",
        model,
        "--steps",
        "30",
        "--refine",
        "2",
        "--levels",
        "1,2",
    ]
    command += ["--criterion", "pixels:0.1"]
    assert cli([*command, "--out", str(tmp_path / "set")]) == 0
    card = (tmp_path / "set" / "README.md").read_text(encoding="utf-8")
    assert (
        "- image-segmentation" in card
        and "the criterion pixels:0.1 is met" in card
        and "| wrong |" in card
    )


BOX_CRITERIA = [
    ({"criterion": "lost"}, "criterion is 'lost': write"),
    ({"criterion": "missed+false"}, "one kind of error ends the search"),
    (
        {"criterion": "true<0.1"},
        "criterion is 'true<0.1': write --criterion .* for data with boxes",
    ),
    (
        {"criterion": "pixels:0.5"},
        "criterion is 'pixels:0.5': write --criterion .* for data with boxes",
    ),
]


def test_what_boxes_cannot_have_is_refused_before_anything_is_computed(tmp_path, subtests):
    for number, (settings, message) in enumerate(BOX_CRITERIA):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            x, objects = spots([(0, 0)])
            data = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])
            with pytest.raises(BrinellError, match=message):
                brinell.benchmark(Spots(), data, out=folder / "set", **settings)
            assert not (folder / "set").exists()


def test_classes_have_no_criterion_of_masks_or_boxes(tmp_path, capsys, subtests):
    for number, criterion in enumerate(["pixels:0.5", "missed:0.5"]):
        with subtests.test(str(criterion)):
            folder = tmp_path / str(number)
            folder.mkdir()
            command = [
                "benchmark",
                "--samples",
                "2",
                "--out",
                str(folder / "set"),
                "--criterion",
                criterion,
            ]
            assert cli(command) == 2
            assert (
                f"criterion '{criterion}' is not known: write --criterion"
                in capsys.readouterr().err
            )
            assert not (folder / "set").exists()


def test_masks_have_no_criterion_of_classes_or_boxes(tmp_path, capsys, subtests):
    for number, criterion in enumerate(["true<0.1", "class=bright>0.9", "missed:0.5"]):
        with subtests.test(str(criterion)):
            folder = tmp_path / str(number)
            folder.mkdir()
            data, model = write_pictures(folder)
            command = [
                "benchmark",
                "--data",
                data,
                "--model",
                model,
                "--out",
                str(folder / "set"),
                "--criterion",
                criterion,
            ]
            assert cli(command) == 2
            message = capsys.readouterr().err
            assert (
                message.count("\n") == 1
                and f"criterion is '{criterion}': write --criterion pixels" in message
            )
            assert "for data with masks" in message and not (folder / "set").exists()


def test_a_truth_that_does_not_fit_the_pictures_is_refused(masks_set, monkeypatch, subtests):
    from brinell.datasets import bench

    read = bench._tensor
    for damage in ["size", "class"]:
        with subtests.test(str(damage)):

            def damaged(file, name):
                array = read(file, name)
                if not name.endswith("/truth"):
                    return array
                return array[:-1] if damage == "size" else array * 0 + 7

            monkeypatch.setattr(bench, "_tensor", damaged)
            with pytest.raises(
                BrinellError, match="has shape" if damage == "size" else "holds the class 7"
            ):
                bench.Bench(path=str(masks_set.folder))()
