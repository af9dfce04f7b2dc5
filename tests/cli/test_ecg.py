"""Heartbeats from their files to the page: records, tables and archives, a network trained on them,
an audit in millivolts.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from _records import write_record
from brinell.cli import run as cli
from brinell.core.user_files import import_file
from brinell.engine.sources import open_data
from brinell.store.run import Run


@pytest.fixture(scope="module")
def recipe(root):
    return import_file(root / "examples" / "train_ecg.py")


@pytest.fixture(autouse=True)
def _work_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def trained(recipe, root, data, folder, epochs, rows=None):
    """A network trained on a data set, as the command line names it."""
    dataset = open_data(data)
    rows = range(len(dataset)) if rows is None else rows
    y = torch.from_numpy(dataset.labels())[list(rows)]
    rhythm = recipe.has_rhythm(dataset)
    net = recipe.train(dataset.load(rows), y, len(dataset.classes), rhythm=rhythm, epochs=epochs)
    save_file(
        {name: value.contiguous() for name, value in net.state_dict().items()},
        folder / "ecg.safetensors",
    )
    factory = "rhythmnet" if rhythm else "beatnet"
    return f"torch:{root}/examples/models/ecg.py:{factory}?weights={folder}/ecg.safetensors", net


def audit(capsys, *words):
    """The result of an audit, and its warnings of data left out."""
    assert cli(["audit", "--norm", "l2", "--json", *words]) == 0, capsys.readouterr().err
    result = json.loads(capsys.readouterr().out)
    return result, [
        (w["model"], w["text"]) for w in result["warnings"] if w["code"].endswith("-left-out")
    ]


@pytest.mark.slow
def test_records_to_the_page(recipe, root, tmp_path, capsys):
    """Beats that point down are V; one record has no annotations.

    No data but what the library of the format writes.
    """
    for name in ("a", "b", "c"):
        write_record(tmp_path / "d", name, symbols=["N", "V"] * 40, down="V", annotated=name != "c")
    data = f"wfdb:{tmp_path}/d?records=a"
    model, _ = trained(recipe, root, data, tmp_path, epochs=8)
    data_spec = f"wfdb:{tmp_path}/d?without=a"
    words = (
        "--data",
        data_spec,
        "--model",
        model,
        "--eps",
        "0.5,20",
        "--samples",
        "8",
        "--out",
        str(tmp_path / "run"),
    )
    distortions = "baseline-wander+mains-hum+muscle-noise+electrode-pop+dropout+gain"
    rlab = f"rlab?distortions={distortions}&steps=40&draws=2&severities=5"
    result, left_out = audit(capsys, *words, "--attack", rlab, "--attack", "apgd?steps=20")
    assert (
        result["models"][0]["clean_accuracy"]["value"] >= 0.9
        and result["models"][0]["robust_accuracy"][-1]["value"] == 0
    )
    ((code, remark),) = left_out
    assert code is None and remark.startswith("record c has no annotations (c.atr): left out")
    manifest = Run.open(tmp_path / "run").manifest
    assert manifest["data"]["sampling"] == {
        "rate": 125.0,
        "unit": "mV",
        "start": -62 / 125,
        "leads": ["MLII"],
    }
    page = (tmp_path / "run" / "report.html").read_text()
    assert (
        "mV" in re.findall(r">([^<>]+)</text>", page)
        and 'class="touched"' in page
        and "125 values per second" in page
    )
    assert cli(["verify", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert (
        cli(
            [
                "audit",
                "--data",
                f"wfdb:{tmp_path}/d?records=c",
                "--model",
                model,
                "--norm",
                "l2",
                "--eps",
                "1",
            ]
        )
        == 2
    )
    assert (
        "no record with beats that can be used: record c has no annotations"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_table_to_the_page(recipe, root, tmp_path, capsys, monkeypatch):
    t = np.arange(187) / 125
    beats = [
        np.exp(-(((t - 0.5) / (0.02 + 0.1 * label)) ** 2)) * (0.8 + 0.01 * row)
        for row in range(16)
        for label in (0, 1)
    ]
    lines = [
        ",".join([*(f"{value:.4f}" for value in beat), f"{number % 2}.0"])
        for number, beat in enumerate(beats)
    ]
    (tmp_path / "beats.csv").write_text("\n".join([*lines, "," * 187]) + "\n")
    data = f"ecg-csv:{tmp_path}/beats.csv?missing=skip&classes=N+V"
    # As from the command line, on the same beats twice.
    monkeypatch.setattr(
        sys,
        "argv",
        ["train_ecg.py", data, data, "--epochs", "8", "--out", str(tmp_path / "ecg.safetensors")],
    )
    recipe.main()
    output = capsys.readouterr().out
    assert "32 beats, 8 epochs" in output and "recall / F1: N " in output
    model = f"torch:{root}/examples/models/ecg.py:beatnet?weights={tmp_path}/ecg.safetensors"
    words = (
        "--data",
        data,
        "--model",
        f"{model}&args=classes=2",
        "--eps",
        "5",
        "--attack",
        "apgd?steps=10",
    )
    result, left_out = audit(capsys, *words, "--out", str(tmp_path / "run"))
    assert [c["name"] for c in result["models"][0]["per_class"]] == ["N", "V"]
    assert left_out == [
        (None, f"1 of 33 rows of {tmp_path}/beats.csv have missing values: skipped")
    ]
    assert (
        cli(
            [
                "audit",
                "--data",
                data.replace("skip", "refuse"),
                "--model",
                model,
                "--norm",
                "l2",
                "--eps",
                "5",
            ]
        )
        == 2
    )
    assert "beats.csv has no value in line 33" in capsys.readouterr().err


@pytest.mark.slow
def test_a_rhythm_is_seen_and_not_touched(recipe, root, tmp_path, capsys):
    """S differs from N in that it comes early, for its own recording: an S of a slow one comes
    later than an N of a quick one.
    """
    rng = np.random.default_rng(0)
    t, n = (np.arange(187) - 62) / 125, 480
    y, record = np.arange(n) % 2, np.arange(n) // 2 % 4
    pace = np.array([0.5, 0.65, 0.85, 1.1])[record] * rng.uniform(0.97, 1.03, n)
    beats = 1000 * np.exp(-((t / 0.03) ** 2)) * rng.uniform(0.8, 1.2, (n, 1)) + rng.normal(
        0, 20, (n, 187)
    )
    arrays = {
        "beats_uV": beats.astype(np.int16),
        "labels": y,
        "classes": np.array(["N", "S"]),
        "fs": 125.0,
        "r_index": 62,
    }
    arrays |= {"before": pace * (1 - 0.3 * y), "after": pace * (1 - 0.3 * y), "record": record}
    np.savez(tmp_path / "d.npz", **arrays)
    plain = f"npz:{tmp_path}/d.npz?kind=signal&divide=1000&unit=mV&low=-5&high=5&groups=record"
    data = f"{plain}&rhythm=before+after"
    model, net = trained(recipe, root, data, tmp_path, epochs=6)
    dataset = open_data(data)
    x, labels = dataset.load(range(n)), torch.from_numpy(dataset.labels())
    assert recipe.score(net, x, labels, 2).accuracy > 0.95
    swapped = torch.cat(
        [x[:, :1], x[:, 1:].roll(4, 0)], 1
    )  # recordings take turns, and in each N and S do
    assert recipe.score(net, swapped, labels, 2).accuracy < 0.05, "it is the rhythm that tells"
    rlab = "rlab?distortions=electrode-pop+muscle-noise&steps=30&draws=2&severities=5"
    words = (
        "--data",
        data,
        "--model",
        f"{model}&args=classes=2",
        "--eps",
        "1, 100",
        "--samples",
        "first:8",
    )
    attacks = [
        word
        for attack in ("pgd?steps=10", "square?steps=50", rlab)
        for word in ("--attack", f"{attack}&alone=true")
    ]
    result, _ = audit(capsys, *words, "--out", str(tmp_path / "run"), *attacks)
    assert result["n"] == 8 and result["models"][0]["robust_accuracy"][-1]["value"] < 1
    run, model_path = Run.open(tmp_path / "run"), result["models"][0]["name"]
    broke = {
        stage["attack"]: run.adversarial(model_path, stage["attack"], range(8))
        for stage in result["models"][0]["stages"]
    }
    assert len(broke) == 3 and all(broke.values())
    for sample, array in (entry for examples in broke.values() for entry in examples.items()):
        assert np.array_equal(array[1:], x[sample, 1:]) and not np.array_equal(
            array[0], x[sample, 0]
        )
    page = (tmp_path / "run" / "report.html").read_text()
    assert (
        "mV" in re.findall(r">([^<>]+)</text>", page)
        and "3 of its 4 columns or channels fixed" in page
    )
    assert "fixed: seconds since the beat before 0." in page and ">channel 1<" not in page
    assert cli(["verify", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert cli(["epsilon", data]) == 2
    assert "remove rhythm=" in capsys.readouterr().err


@pytest.mark.slow
def test_real_beats_of_patients_kept_apart(recipe, root, shared, tmp_path, capsys):
    """The recipe on a tenth of the real beats already tells the classes of new patients better than
    the most frequent one."""
    options = "kind=signal&divide=1000&unit=mV&low=-5&high=5&groups=record"
    data = {
        part: f"npz:{shared}/ecg_mitbih/mitbih_beats_{part}.npz?{options}"
        for part in ("train_ds1", "test_ds2")
    }
    assert not set(recipe.patients(open_data(data["train_ds1"]))) & set(
        recipe.patients(open_data(data["test_ds2"]))
    )
    model, net = trained(recipe, root, data["train_ds1"], tmp_path, epochs=2, rows=range(1100))
    dataset = open_data(data["test_ds2"])
    y = torch.from_numpy(dataset.labels())
    score = recipe.score(net, dataset.load(range(2000)), y[:2000], 5)
    assert score.accuracy > 0.6 and score.balanced > 1.5 / 5
    words = (
        "--data",
        data["test_ds2"],
        "--model",
        model,
        "--eps",
        "100",
        "--samples",
        "18",
        "--out",
        str(tmp_path / "run"),
    )
    result, _ = audit(
        capsys,
        *words,
        "--attack",
        "rlab?distortions=electrode-pop+muscle-noise&steps=100&draws=2&severities=5&clean_up=false",
    )
    assert result["models"][0]["robust_accuracy"][0]["k"] == 0 and result["n"] == 18, (
        "beats that may be distorted freely all fall"
    )


def test_figures_of_a_confusion_matrix(recipe):
    score = recipe.measure(np.array([[8, 2, 0], [1, 3, 0], [0, 0, 0]]))
    assert (score.accuracy, score.recall) == (pytest.approx(11 / 14), pytest.approx([0.8, 0.75, 0]))
    assert score.balanced == pytest.approx(0.775) and score.f1 == pytest.approx([16 / 19, 6 / 9, 0])


def test_what_the_recipe_distorts_stays_a_beat(recipe):
    x = torch.zeros(64, 1, 187)
    x[:, 0, 62] = 1
    y = recipe.augment(x, torch.Generator().manual_seed(0))
    assert (
        torch.equal(y, recipe.augment(x, torch.Generator().manual_seed(0))) and y.shape == x.shape
    )
    assert ((y[:, 0].argmax(1) - 62).abs() <= 4).float().mean() > 0.9, (
        "the R peak stays about where it is"
    )
    assert Path(recipe.__file__).name == "train_ecg.py"
