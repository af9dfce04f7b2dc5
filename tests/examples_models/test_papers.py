"""The run files of the papers' victims, carried out as they are on random weights: one photograph,
few queries.
"""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import brinell
from _sets import rows_of
from brinell.cli import run as cli
from brinell.engine.plan import model_opener
from brinell.engine.sources import open_data
from brinell.models.torchvision import PUBLISHED_ARGUMENTS

models = pytest.importorskip("torchvision.models", reason="the victims are of torchvision")
FOLDER = Path(__file__).parents[2] / "examples" / "papers"
VICTIMS = ("densenet121", "resnet50", "inception_v3", "vgg16")


def write_photograph(label=0):
    """A folder with one photograph and the names of the classes of ImageNet."""
    folder = Path("imagenet")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    Image.fromarray(pixels).resize((400, 320)).save(folder / "images" / "one.png")
    (folder / "labels.csv").write_text(f"file,imagenet_index\none.png,{label}\n")
    (folder / "imagenet_classes.json").write_text(json.dumps([f"c{i}" for i in range(1000)]))


def write_weights(name):
    """Random weights of a victim, which keep the scale of what they are shown."""
    generator = torch.Generator().manual_seed(0)
    state = models.get_model(name, weights=None, **PUBLISHED_ARGUMENTS.get(name, {})).state_dict()
    for tensor in state.values():
        if tensor.ndim > 1:
            scale = (2 / tensor[0].numel()) ** 0.5
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * scale)
    Path("weights").mkdir(exist_ok=True)
    torch.save(state, f"weights/{name}.pth")


def prediction(file):
    """The class that the first model of a run file predicts for its photograph."""
    request = tomllib.loads(file.read_text())
    data = open_data(request["data"])
    model = request["model"][0] if isinstance(request["model"], list) else request["model"]
    return model_opener(model, data)().predict(data.load([0])).argmax(1).item()


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_photograph()
    yield tmp_path
    for path in tmp_path.glob("weights/*"):
        path.unlink()  # pytest keeps folders, and these are large


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if name == "vgg16" else pytest.mark.slow)
        for name in VICTIMS
    ],
)
def test_benchmark_of_a_victim(working_folder, name):
    """The agent asks the network with these weights; what it finds or not is a row of the set."""
    file = FOLDER / f"{name}.toml"
    write_weights(name)
    write_photograph(prediction(file))
    arguments = ["benchmark", str(file), "--steps", "4", "--refine", "0", "--samples", "1", "--out"]
    assert cli([*arguments, "set"]) == 0
    (row,) = rows_of(Path("set"), "rows.parquet")
    assert row["outcome"] in ("reached", "not_reached") and row["queries"] > 4
    assert row["clean_prediction"] == row["label"]
    result = brinell.open("set")
    assert result.names == [name] and result.request.distortions == "gaussian-noise"
    assert "8 x 8 values" in result.facts.patches


@pytest.mark.nightly
def test_transfer_among_the_victims(working_folder):
    for name in VICTIMS:
        write_weights(name)
    file = FOLDER / "transfer.toml"
    write_photograph(prediction(file))
    attack = "rlab?distortions=gaussian-noise&patch=8&steps=2&refine=0&clean_up=false"
    assert (
        cli(["transfer", str(file), "--attack", attack, "--samples", "1", "--out", "transfer"]) == 0
    )
    result = brinell.open("transfer")
    assert sorted(result.models) == sorted(VICTIMS) and len(result.cells) == 16


def test_each_run_file_names_a_victim():
    files = {path.stem: tomllib.loads(path.read_text()) for path in FOLDER.glob("*.toml")}
    assert files.keys() == {*VICTIMS, "transfer"}
    for name in VICTIMS:
        assert files[name]["model"].startswith(f"torchvision:{name}?weights=")
        assert files[name]["model"] in files["transfer"]["model"]
