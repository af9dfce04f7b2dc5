"""Training an embedding: two clusters that it must separate, digits through the command line, and
data that cannot teach.
"""

import json
import sys

import numpy as np
import pytest
import torch

from _refusals import refused
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.streams import initial
from brinell.distances import _embedding as embedding
from brinell.engine.progress import SilentProgress
from brinell.studies.kit import Call
from brinell.studies.metric import STUDY, MetricRequest
from brinell.studies.metric.run import _batches, carry_out


def clusters(path, n=120, **arrays):
    """The second value says which class, the first nothing, at five times the width: nearness in
    space says little.
    """
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = np.stack([rng.uniform(0, 1, n), 0.4 + 0.2 * y + rng.uniform(0, 0.03, n)], 1)
    np.savez(path, **({"x": x.astype(np.float32), "y": y.astype(np.int64)} | arrays))
    return f"npz:{path}"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("brinell.studies.metric.run.BATCH_SIZE", 32)


def trained(tmp_path, data, name="e.safetensors", **settings):
    request = MetricRequest(data=data, **settings)
    return carry_out(
        Call(
            study=STUDY, request=request, command="", progress=SilentProgress(), out=tmp_path / name
        )
    )


def test_two_classes_that_pixels_confuse_are_told_apart(tmp_path):
    """In space many pairs within a class are farther than pairs across; what is learnt separates
    every held-out pair.
    """
    answer = trained(tmp_path, clusters(tmp_path / "two.npz"), steps=120)
    assert answer.auc["pixels"] < 0.85
    assert answer.auc["embedding"] == 1
    assert answer.auc["low"] > 0.1 and answer.auc["gain"] == pytest.approx(1 - answer.auc["pixels"])
    assert answer.knn["embedding"].value == 1
    assert answer.eps["embedding"]["percent_1"] > answer.eps["pixels"]["percent_1"]
    repeated = trained(tmp_path / "again", clusters(tmp_path / "two.npz"), steps=120)
    assert repeated.digest == answer.digest, "the same seed makes the same file"
    other_seed = trained(tmp_path / "other", clusters(tmp_path / "two.npz"), steps=120, seed=1)
    assert other_seed.digest != answer.digest


def test_nothing_global_is_drawn_from(tmp_path):
    before = torch.get_rng_state()
    trained(tmp_path, clusters(tmp_path / "two.npz"), steps=3)
    assert torch.equal(before, torch.get_rng_state())


def test_batches_hold_classes_alike_often(monkeypatch):
    monkeypatch.setattr("brinell.studies.metric.run.BATCH_SIZE", 64)
    y = np.repeat(np.arange(40), np.arange(1, 41))
    for rows in _batches(y, MetricRequest(steps=20)):
        labels, count = np.unique(y[rows.numpy()], return_counts=True)
        assert len(labels) == 16 and count.max() <= 4 and len(rows.unique()) == len(rows)


DOMAINS = [
    Domain(kind="image", shape=(1, 28, 28)),
    Domain(kind="image", shape=(3, 224, 224)),
    Domain(kind="image", shape=(1, 1, 3)),
    Domain(kind="signal", shape=(12, 1000)),
    Domain(kind="video", shape=(1, 8, 30, 40)),
    Domain(kind="vector", shape=(20_000,)),
    Domain(kind="vector", shape=(3,)),
]


def test_networks_are_small_for_every_kind(subtests):
    for domain in DOMAINS:
        with subtests.test(str(domain)):
            network = embedding.build(embedding.layers_for(domain, 0.5, 0.2))
            assert sum(4 * one.numel() for one in network.parameters()) < 1e6
            initial(network, torch.Generator().manual_seed(0))
            points = network(
                torch.rand(2, *domain.shape, generator=torch.Generator().manual_seed(1))
            )
            assert points.shape == (2, embedding.DIMENSIONS)
            torch.testing.assert_close(points.norm(dim=1), torch.ones(2))


@pytest.mark.slow
def test_digits_through_the_command_line(tmp_path, capsys, monkeypatch):
    """Train, look at what is said, and attack within the ball."""
    out = tmp_path / "digits.safetensors"
    code = cli(
        [
            "train",
            "metric",
            "--out",
            str(out),
            "--test",
            "digits?split=test",
            "--steps",
            "60",
            "--json",
        ]
    )
    answer = json.loads(capsys.readouterr().out)
    assert code == 0 and out.stat().st_size == answer["bytes"] < 1e6
    assert answer["auc"]["low"] > 0 and answer["auc"]["embedding"] > answer["auc"]["pixels"] > 0.5
    assert answer["trained_on"] + answer["held_out"] == 1797
    monkeypatch.chdir(tmp_path)
    ask = [
        "audit",
        "--norm",
        f"embedding:{out}",
        "--eps",
        "0:0.4:3",
        "--attack",
        "apgd-ce?steps=10",
        "--samples",
        "20",
        "--json",
    ]
    assert cli([*ask, "--out", "run"]) == 0
    audit = json.loads(capsys.readouterr().out)
    rates = [rate["value"] for rate in audit["models"][0]["robust_accuracy"]]
    assert rates[0] > rates[-1]
    assert cli(["verify", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]


UNUSABLE_DATA = [
    ({"y": np.zeros(120, np.int64)}, {}, "two samples of one class and one of another"),
    ({"x": np.full((120, 2), 0.5, np.float32)}, {}, "one value only"),
    (
        {"x": np.zeros((4, 2), np.float32), "y": np.array([0, 0, 1, 1])},
        {},
        "no pair within a class",
    ),
    ({}, {"test": "digits"}, "both need inputs of one form"),
]


def test_data_that_cannot_teach_are_named(tmp_path, subtests):
    for number, (arrays, settings, message) in enumerate(UNUSABLE_DATA):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            with pytest.raises(RequestError, match=message):
                trained(folder, clusters(folder / "odd.npz", **arrays), steps=2, **settings)


def test_a_class_of_one_is_named(tmp_path):
    data = clusters(tmp_path / "one.npz", y=np.where(np.arange(120) == 7, 2, np.arange(120) % 2))
    answer = trained(tmp_path, data, steps=20)
    assert any("of one sample (2)" in note or "not learnt: 2" in note for note in answer.notes)


def test_the_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(RequestError, check=refused("studies.metric.run._tools")):
        trained(tmp_path, "digits")
    with pytest.raises(RequestError, check=refused("store.files.check_safetensors_name")):
        trained(tmp_path, "digits", name="e.bin")
