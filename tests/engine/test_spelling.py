"""Bare paths are understood, or answered with the right spelling."""

import re

import pytest

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.engine.request import Request
from brinell.engine.sources import build_source
from brinell.engine.spelling import expand_spec
from brinell.engine.toml import parse_request

MODELS = """
from dataclasses import dataclass

def make():
    return None

def _hidden():
    return None

@dataclass(frozen=True, kw_only=True)
class Plugin:
    '''A model plugin of one's own.'''
"""


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """Empty files under the names that people have, which is all that is looked at."""
    for name in (
        "data.npz photos/cat/1.jpg photos/dog/2.JPG clips/run/1.mp4 "
        "listed/labels.csv listed/images/1.png heap/1.png heap/2.png "
        "ecg/100.hea cifar/test_batch.bin "
        "torchvision/MNIST/raw/t10k-images-idx3-ubyte.gz set/manifest.json "
        "run/run.toml "
        "empty/notes.txt stored/images.npz net.onnx forest.skops net.pt "
        "forest.pkl net.h5 x.npy x.pt x.zip 1.png table.csv "
        "digits/cat/1.jpg"
    ).split():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "set/manifest.json").write_text('{"verb": "benchmark"}')
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "one.py").write_text("def only(): pass\n")
    (tmp_path / "broken.py").write_text("def only(\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


UNDERSTOOD = [
    ("dataset", "data.npz", "npz:data.npz"),
    ("dataset", "data.npz?layout=last", "npz:data.npz?layout=last"),
    ("dataset", "nowhere.npz", "npz:nowhere.npz"),
    ("dataset", "table.csv?label=y", "table:table.csv?label=y"),
    ("dataset", "photos", "image-folder:photos"),
    ("dataset", "photos/?size=32", "image-folder:photos?size=32"),
    ("dataset", "./photos", "image-folder:./photos"),
    ("dataset", "listed", "image-folder:listed"),
    ("dataset", "clips", "video-folder:clips"),
    ("dataset", "ecg", "wfdb:ecg"),
    ("dataset", "cifar", "cifar10:cifar"),
    ("dataset", "torchvision", "mnist:torchvision"),
    ("dataset", "set", "bench:set"),
    ("dataset", "digits", "digits"),
    ("dataset", "npz:data.npz", "npz:data.npz"),
    ("dataset", "in-memory:data.npz", "in-memory:data.npz"),
    ("dataset", "models.py:Plugin", "models.py:Plugin"),
    ("model", "net.onnx", "onnx:net.onnx"),
    ("model", "forest.skops?trusted=a.B", "sklearn:forest.skops?trusted=a.B"),
    ("model", "models.py:make?weights=net.pt", "torch:models.py:make?weights=net.pt"),
    ("model", "models.py:Plugin", "models.py:Plugin"),
    ("model", "broken.py:only", "torch:broken.py:only"),
    ("model", "torch:models.py:make", "torch:models.py:make"),
    ("model", "http://127.0.0.1:8080/v2/models/digits", "http://127.0.0.1:8080/v2/models/digits"),
    ("model", "digits-cnn", "digits-cnn"),
]


def test_bare_paths_are_understood(workspace):
    for kind, bare, spec in UNDERSTOOD:
        assert expand_spec(kind, bare) == spec
        assert expand_spec(kind, spec) == spec, "what is spelt stays"


ANSWERED = [
    (
        "dataset",
        "x.npy",
        r"it holds one array and no labels: save inputs and labels by numpy.savez",
    ),
    ("dataset", "x.pt", r"such files are not read: save inputs and labels by numpy.savez"),
    ("dataset", "x.zip", r"it is packed: unpack it"),
    ("dataset", "1.png", r"one picture: name the folder that holds a folder for each class"),
    (
        "dataset",
        "heap",
        r"its files have no classes: put them in a folder for each class, or list "
        r"them .* in labels.csv",
    ),
    ("dataset", "stored", r"name the file, as stored/images.npz"),
    ("dataset", "run", r"it is a run, whose data is named in its run.toml"),
    ("dataset", "empty", r"write NAME:DIR with a NAME of `brinell plugins dataset`"),
    ("dataset", "no/such", r"there is no file or folder no/such: check the path"),
    (
        "model",
        "d.safetensors",
        r"holds weights, which .* write model.py:FACTORY\?weights=d.safetensors, where",
    ),
    ("model", "forest.pkl", r"a pickle runs code .* skops.io.dump and name FILE.skops"),
    (
        "model",
        "net.h5",
        r"make it net.onnx by python -m tf2onnx.convert, or hand brinell.audit a function",
    ),
    ("model", "models.py", r"names no function: write models.py:FACTORY \(it has make, Plugin\)"),
    ("model", "one.py", r"write one.py:only"),
    ("model", "photos", r"the model photos is a folder: name the file in it"),
]


def test_paths_that_mean_nothing_are_answered_with_the_right_spelling(workspace):
    (workspace / "config.json").write_text("{}")
    for kind, bare, message in [
        *ANSWERED,
        ("model", str(workspace), f"save_pretrained wrote: write hf:{workspace}"),
    ]:
        with pytest.raises(RequestError) as error:
            expand_spec(kind, bare)
        assert re.search(message, str(error.value)), error.value


def test_requests_keep_the_spec_and_not_the_path(workspace):
    request = parse_request(
        Request,
        {"data": "photos", "model": ["net.onnx", "digits-cnn"], "surrogate": "models.py:make"},
    )
    assert (request.data, request.model) == ("image-folder:photos", ("onnx:net.onnx", "digits-cnn"))
    assert request.surrogate == ("torch:models.py:make",)


PROGRAM = """
from functools import partial

import torch

SIZE = torch.float32

def good():
    return torch.nn.Linear(2, 2)

net = good
small = partial(good)
"""


def open_model(spec):
    return build_source("model", expand_spec("model", spec))(
        Domain(kind="image", shape=(1, 8, 8), low=0, high=1)
    )


def test_models_whose_name_is_nearly_right(workspace):
    (workspace / "nets.py").write_text(PROGRAM)
    for spec, advice in [
        ("net.onnx:net", "has no part 'net', write net.onnx"),
        ("nets.py", "it has good, net, small)"),
        (
            "nope.onnx",
            "there is no file nope.onnx: check the path in onnx:FILE, did you mean 'net.onnx'?",
        ),
        (
            "nope.skops",
            "there is no file nope.skops: check the path in sklearn:FILE.skops, "
            "did you mean 'forest.skops'?",
        ),
        ("nt.onnx", "did you mean 'net.onnx'?"),
    ]:
        with pytest.raises(RequestError) as failure:
            open_model(spec)
        assert advice in str(failure.value)
