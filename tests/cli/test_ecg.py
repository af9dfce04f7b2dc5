"""Heartbeats from their files to the page: records, tables and archives, a network trained on them, an audit in millivolts."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from _records import record
from brinell.auditing.plan import open_data
from brinell.cli import run as cli
from brinell.core.imports import import_file
from brinell.store.run import Run


@pytest.fixture(scope="module")
def recipe(root):
    return import_file(root / "examples" / "train_ecg.py")


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def trained(recipe, root, data, folder, epochs, rows=None):
    """A network trained on a data set, as the command line names it."""
    found = open_data(data)
    rows = range(len(found)) if rows is None else rows
    y = torch.from_numpy(found.labels())[list(rows)]
    net = recipe.train(found.load(rows), y, len(found.classes), epochs=epochs)
    save_file({name: value.contiguous() for name, value in net.state_dict().items()}, folder / "ecg.safetensors")
    return f"torch:{root}/examples/models/ecg.py:beatnet?weights={folder}/ecg.safetensors", net


def audit(capsys, *words):
    """The result of an audit, and its warnings of data left out."""
    assert cli(["audit", "--norm", "l2", "--json", *words]) == 0, capsys.readouterr().err
    result = json.loads(capsys.readouterr().out)
    return result, [(w["model"], w["text"]) for w in result["warnings"] if w["code"].endswith("-left-out")]


def test_records_to_the_page(recipe, root, tmp_path, capsys):
    """Beats that point down are V; one record has no annotations. No data but what the library of the format writes."""
    for name in ("a", "b", "c"):
        record(tmp_path / "d", name, symbols=["N", "V"] * 40, down="V", annotated=name != "c")
    data = f"wfdb:{tmp_path}/d?records=a"
    model, _ = trained(recipe, root, data, tmp_path, epochs=8)
    held = f"wfdb:{tmp_path}/d?without=a"
    words = ("--data", held, "--model", model, "--eps", "0.5,20", "--samples", "8", "--out", str(tmp_path / "run"))
    filters = "baseline-wander+mains-hum+muscle-noise+electrode-pop+dropout+gain"
    rlab = f"rlab?filters={filters}&steps=40&draws=2&severities=5"
    result, left_out = audit(capsys, *words, "--attack", rlab, "--attack", "apgd?steps=20")
    assert result["clean_accuracy"]["value"] >= 0.9 and result["robust_accuracy"][-1]["value"] == 0
    assert left_out == [(None, "record c has no annotations (c.atr): left out")]
    manifest = Run.open(tmp_path / "run").manifest
    assert manifest["data"]["sampling"] == {"rate": 125.0, "unit": "mV", "start": -62 / 125, "leads": ["MLII"]}
    page = (tmp_path / "run" / "report.html").read_text()
    assert "mV" in re.findall(r">([^<>]+)</text>", page) and 'class="touched"' in page and "125 values per second" in page
    assert cli(["verify", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert cli(["audit", "--data", f"wfdb:{tmp_path}/d?records=c", "--model", model, "--norm", "l2", "--eps", "1"]) == 2
    assert "no record with beats that can be used: record c has no annotations" in capsys.readouterr().err


def test_a_table_to_the_page(recipe, root, tmp_path, capsys, monkeypatch):
    t = np.arange(187) / 125
    beats = [np.exp(-(((t - 0.5) / (0.02 + 0.1 * label)) ** 2)) * (0.8 + 0.01 * row) for row in range(16) for label in (0, 1)]
    lines = [",".join([*(f"{value:.4f}" for value in beat), f"{number % 2}.0"]) for number, beat in enumerate(beats)]
    (tmp_path / "beats.csv").write_text("\n".join([*lines, "," * 187]) + "\n")
    data = f"ecg-csv:{tmp_path}/beats.csv?missing=skip&classes=N+V"
    # As from the command line, on the same beats twice.
    monkeypatch.setattr(sys, "argv", ["train_ecg.py", data, data, "--epochs", "8", "--out", str(tmp_path / "ecg.safetensors")])
    recipe.main()
    told = capsys.readouterr().out
    assert "32 beats, 8 epochs" in told and "recall / F1: N " in told
    model = f"torch:{root}/examples/models/ecg.py:beatnet?weights={tmp_path}/ecg.safetensors"
    words = ("--data", data, "--model", f"{model}&args=classes=2", "--eps", "5", "--attack", "apgd?steps=10")
    result, left_out = audit(capsys, *words, "--out", str(tmp_path / "run"))
    assert [c["name"] for c in result["per_class"]] == ["N", "V"]
    assert left_out == [(None, "1 of 33 rows of beats.csv have missing values (the first is line 33): skipped")]
    assert cli(["audit", "--data", data.replace("skip", "refuse"), "--model", model, "--norm", "l2", "--eps", "5"]) == 2
    assert "no value in column 1 of line 33" in capsys.readouterr().err


def test_real_beats_of_patients_kept_apart(recipe, root, shared, tmp_path, capsys):
    """The recipe on a tenth of the real beats already tells the classes of new patients better than the most frequent one."""
    options = "kind=signal&divide=1000&unit=mV&low=-5&high=5&groups=record"
    data = {part: f"npz:{shared}/ecg_mitbih/mitbih_beats_{part}.npz?{options}" for part in ("train_ds1", "test_ds2")}
    assert not set(recipe.patients(open_data(data["train_ds1"]))) & set(recipe.patients(open_data(data["test_ds2"])))
    model, net = trained(recipe, root, data["train_ds1"], tmp_path, epochs=2, rows=range(1100))
    held = open_data(data["test_ds2"])
    y = torch.from_numpy(held.labels())
    found = recipe.score(net, held.load(range(2000)), y[:2000], 5)
    assert found.accuracy > 0.6 and found.balanced > 1.5 / 5
    words = ("--data", data["test_ds2"], "--model", model, "--eps", "100", "--samples", "18", "--out", str(tmp_path / "run"))
    result, _ = audit(
        capsys, *words, "--attack", "rlab?filters=electrode-pop+muscle-noise&steps=100&draws=2&severities=5&clean_up=false"
    )
    assert result["robust_accuracy"][0]["k"] == 0 and result["n"] == 18, "beats that may be distorted freely all fall"


def test_figures_of_a_confusion_matrix(recipe):
    found = recipe.measure(np.array([[8, 2, 0], [1, 3, 0], [0, 0, 0]]))
    assert (found.accuracy, found.recall) == (pytest.approx(11 / 14), pytest.approx([0.8, 0.75, 0]))
    assert found.balanced == pytest.approx(0.775) and found.f1 == pytest.approx([16 / 19, 6 / 9, 0])


def test_what_the_recipe_distorts_stays_a_beat(recipe):
    x = torch.zeros(64, 1, 187)
    x[:, 0, 62] = 1
    y = recipe.augment(x, torch.Generator().manual_seed(0))
    assert torch.equal(y, recipe.augment(x, torch.Generator().manual_seed(0))) and y.shape == x.shape
    assert ((y[:, 0].argmax(1) - 62).abs() <= 4).float().mean() > 0.9, "the R peak stays about where it is"
    assert Path(recipe.__file__).name == "train_ecg.py"
