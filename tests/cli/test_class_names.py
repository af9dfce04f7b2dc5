"""Tests of every verb on a folder of pictures whose class names are the model's in another order."""

import json

import numpy as np
import pytest
from PIL import Image

from brinell.cli import run as cli
from brinell.store.run import Run

NAMES = ("red", "green", "blue")
NETWORK = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, order):
        super().__init__()
        self.order = nn.Parameter(torch.eye(3)[list(order)] * 8)
    def forward(self, x):
        return x.mean((-1, -2)) @ self.order.T
def net(order="012"):
    return Net([int(number) for number in order])
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Pictures that are mostly red, green or blue, in folders of these names, and a network that
    knows the colours."""
    place, rng = tmp_path_factory.mktemp("colours"), np.random.default_rng(0)
    for folder in ("pictures", "training"):
        for channel, name in enumerate(NAMES):
            (place / folder / name).mkdir(parents=True)
            for number in range(12):
                pixels = rng.integers(90, 130, (6, 6, 3))
                pixels[..., channel] += 20
                Image.fromarray(pixels.astype(np.uint8)).save(
                    place / folder / name / f"{number}.png"
                )
    (place / "net.py").write_text(NETWORK)
    (place / "named").mkdir()
    (place / "named" / "net.py").write_text(NETWORK)
    (place / "named" / "classes.json").write_text(json.dumps(NAMES))
    return place


def words(verb, place, model, out, *options):
    """A command over the pictures."""
    return [
        verb,
        "--data",
        f"image-folder:{place}/pictures",
        "--model",
        model,
        "--out",
        str(out),
        *options,
    ]


AUDIT = ("--eps", "0,4/255", "--attack", "apgd-ce?steps=5", "--samples", "36")


@pytest.mark.parametrize(
    "model",
    [
        "{0}/net.py:net?class_names=Red+Green+Blue",
        pytest.param("{0}/named/net.py:net", marks=pytest.mark.slow),
    ],
)
def test_an_audit_is_that_of_the_right_order(place, tmp_path, capsys, model):
    assert cli(words("audit", place, model.format(place), tmp_path / "named", *AUDIT)) == 0
    assert "matched by name: its answers 2, 1, 0 are blue, green, red" in capsys.readouterr().err
    assert (
        cli(words("audit", place, f"{place}/net.py:net?args=order=210", tmp_path / "right", *AUDIT))
        == 0
    )
    named, right = (Run.open(tmp_path / name) for name in ("named", "right"))
    assert named.manifest["models"][0]["class_order"] == [2, 1, 0] and not right.manifest["models"][
        0
    ].get("class_order")
    for column in ("sample_id", "label", "clean_pred", "outcome", "adv_pred", "linf"):
        ours, theirs = (getattr(run.rows, column) for run in (named, right))
        assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), column
    assert cli(["verify", str(tmp_path / "named")]) == 0
    assert "matched by name" in (tmp_path / "named" / "report.html").read_text(encoding="utf-8")


def test_a_model_that_names_no_classes_is_proposed_its_order(place, tmp_path, capsys):
    assert (
        cli(words("audit", place, f"{place}/net.py:net?args=order=120", tmp_path / "run", *AUDIT))
        == 0
    )
    captured = capsys.readouterr()
    assert "class_names=green+blue+red" in captured.out + captured.err
    assert Run.open(tmp_path / "run").manifest["models"][0].get("class_order", []) == []


@pytest.mark.slow
def test_a_class_that_the_model_does_not_know_is_refused_by_every_verb(place, tmp_path, capsys):
    for verb in ("audit", "explain", "transfer", "harden"):
        out = tmp_path / ("agent.safetensors" if verb == "train agent" else verb)
        command = words(verb, place, f"{place}/net.py:net?class_names=red+green+cyan", out)
        command += ["--train", f"image-folder:{place}/training"] if verb == "harden" else []
        assert cli(command) == 2, verb
        line = capsys.readouterr().err
        assert "it has no 'blue'" in line and "class_names=" in line and not out.exists(), line


@pytest.mark.slow
def test_a_hardened_model_keeps_its_order(place, tmp_path):
    options = (
        "--train",
        f"image-folder:{place}/training",
        "--eps",
        "2/255",
        "--epochs",
        "1",
        "--json",
    )
    assert (
        cli(
            words(
                "harden",
                place,
                f"{place}/named/net.py:net",
                tmp_path / "hard",
                "--recipe",
                "pgd",
                *options,
            )
        )
        == 0
    )
    after = Run.open(tmp_path / "hard" / "after")
    assert after.manifest["models"][0]["class_order"] == [2, 1, 0]
    records = after.rows
    assert np.mean(records.clean_pred == records.label) > 0.8


@pytest.mark.slow
def test_a_classifier_of_hugging_face_is_matched_by_id2label(place, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(
        embedding_size=4,
        hidden_sizes=[4],
        depths=[1],
        num_labels=3,
        id2label=dict(enumerate(NAMES)),
        label2id={name: number for number, name in enumerate(NAMES)},
    )
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / "hf")
    for name, order in (("hf", [2, 1, 0]), ("sorted", None)):
        if order is None:
            content = json.loads((tmp_path / "hf" / "config.json").read_text())
            content["id2label"] = {"0": "blue", "1": "green", "2": "red"}
            content["label2id"] = {"blue": 0, "green": 1, "red": 2}
            (tmp_path / "hf" / "config.json").write_text(json.dumps(content))
        command = words(
            "audit", place, f"hf:{tmp_path}/hf?processor=false", tmp_path / f"run-{name}", *AUDIT
        )
        assert cli(command) == 0
        assert (
            Run.open(tmp_path / f"run-{name}").manifest["models"][0].get("class_order", None)
            == order
        )
    content["label2id"] = {"blue": 1, "green": 0, "red": 2}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(content))
    capsys.readouterr()
    assert (
        cli(words("audit", place, f"hf:{tmp_path}/hf?processor=false", tmp_path / "bad", *AUDIT))
        == 2
    )
    assert "contradict each other" in capsys.readouterr().err
