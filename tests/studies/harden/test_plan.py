"""Tests of the requests that `brinell harden` rejects in one line before any training."""

import numpy as np
import pytest
import torch

import brinell
from _hardening import harden_arguments, samples, save_spoiled
from _helpers import mlp
from brinell.cli import run as cli
from brinell.core.errors import RequestError


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("high", lambda x, y: (x, y + 1), r"high has 3 \(0, 1, 2\) classes, but test has 2 \(0, 1\): both need the same classes"),

        ("wide", lambda x, y: (np.c_[x, x], y), r"wide has inputs of shape \(6,\), but test has \(3,\)"),
        ("same", lambda x, y: (np.concatenate([x, samples(60, 1)[0][:5]]), np.concatenate([y, y[:5]])),
         r"5 of the 261 training samples in same also occur in the audit data \(256 is 0, 257 is 1, 258 is 2, ...\)"),
        ("few", lambda x, y: (x[:4], y[:4]), "4 training samples are too few for a validation set"),
    ],
)  # fmt: skip
def test_unusable_training_data_is_rejected(workspace, tmp_path, capsys, name, change, line):
    assert cli(harden_arguments(workspace, tmp_path / "out", train=save_spoiled(workspace, name, change))) == 2
    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1
    import re

    assert re.search(line, message), message
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--recipe", "distortions(distortions=flicker)", "--model", "M"], "Flicker distorts"),
        (["--recipe", "pgb"], "there is no defence 'pgb', did you mean 'pgd'?"),
        (["--recipe", "n-fgsm", "--norm", "l2"], "NFGSM works in linf, not in l2"),
        (["--recipe", "benchmark-set"], "needs a path: write benchmark-set(path=FOLDER)"),
        (["--eps", "0:0.1:3"], "is not a single budget above 0"),
        (["--augment", "shift"], "--augment shift needs images"),
        (["--epochs", "0"], "epochs"),
    ],
)
def test_invalid_requests_are_rejected(workspace, tmp_path, capsys, options, line):
    options = [str(workspace / "model.py") + ":network" if word == "M" else word for word in options]
    assert cli(harden_arguments(workspace, tmp_path / "out", *options)) == 2
    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1 and line in message, message


def test_a_class_without_training_samples_is_named(workspace, tmp_path):
    x, y = samples(40, 0)
    incomplete = brinell.data(x[y == 0], y[y == 0], classes=("a", "b"))
    with pytest.raises(RequestError, match="has no sample of class 'b'"):
        brinell.harden(
            mlp(3, 2), brinell.data(*samples(60, 1), classes=("a", "b")), train=incomplete, eps=0.1, out=tmp_path / "out"
        )


def test_a_model_without_gradients_is_rejected(tmp_path):
    def function(x):
        return np.stack([1 - x[:, 0], x[:, 0]], 1)

    with pytest.raises(RequestError, match="no trainable weights: pass a torch module"):
        brinell.harden(function, samples(60, 1), train=samples(256, 0), eps=0.1, out=tmp_path / "out")


def test_a_resume_with_other_settings_is_rejected_before_writing(workspace, tmp_path, capsys):
    folder = tmp_path / "out"
    assert cli(harden_arguments(workspace, folder, "--epochs", "1", "--samples", "20", "--quiet")) == 0
    contents = {name: (folder / name).read_bytes() for name in ("run.toml", "manifest.json")}
    assert cli(harden_arguments(workspace, folder, "--epochs", "1", "--samples", "10", "--resume")) == 2
    assert "holds another hardening (samples was 20 and is 10)" in capsys.readouterr().err
    assert {name: (folder / name).read_bytes() for name in contents} == contents
    assert cli(["harden", "--resume", "--out", str(folder), "--quiet"]) == 0


def test_the_folder_of_an_audit_is_not_overwritten(workspace, tmp_path, hardened_run, capsys):
    import shutil

    audit = tmp_path / "audit"
    shutil.copytree(hardened_run / "before", audit)
    contents = {name: (audit / name).read_bytes() for name in ("report.html", "manifest.json")}
    assert cli(harden_arguments(workspace, audit)) == 2
    assert "belongs to another command (see its manifest.json)" in capsys.readouterr().err
    assert {name: (audit / name).read_bytes() for name in contents} == contents


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--batch-size", "3", "--recipe", "pgd(steps=2)+plain"],
            "each defence of the recipe needs two samples: set --batch-size 4",
        ),
        (["--recipe", "plain", "--patience", "2"], "--patience counts checks of robust accuracy, and recipe plain"),
        (["--validation", "1"], "--validation 1 sets aside none of 256 samples"),
    ],
)
def test_late_failures_are_detected_before_the_training(workspace, tmp_path, capsys, options, line):
    assert cli(harden_arguments(workspace, tmp_path / "out", *options)) == 2
    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1 and line in message, message


def test_a_folder_name_with_an_ampersand_is_rejected(workspace, tmp_path, capsys):
    assert cli(harden_arguments(workspace, tmp_path / "a&b=c")) == 2
    assert "contains &" in capsys.readouterr().err and not (tmp_path / "a&b=c").exists()


class LinearWithState(torch.nn.Linear):
    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        pass


def test_a_state_without_tensors_is_rejected(tmp_path):
    with pytest.raises(RequestError, match="holds 0._extra_state, which is not a tensor"):
        brinell.harden(
            torch.nn.Sequential(LinearWithState(3, 2)), samples(60, 1), train=samples(256, 0), eps=0.1, out=tmp_path / "out"
        )


def test_budgets_without_a_positive_eps_are_rejected(tmp_path):
    with pytest.raises(RequestError, match="contains no budget above 0"):
        brinell.harden(mlp(3, 2), samples(60, 1), train=samples(256, 0), eps=0.1, budgets=0, out=tmp_path / "out")


def test_data_in_memory_need_training_data(tmp_path):
    with pytest.raises(RequestError, match="data in memory has no training split: pass the training samples as train="):
        brinell.harden(mlp(3, 2), samples(60, 1), eps=0.1, out=tmp_path / "out")


@pytest.mark.parametrize("stored", ["divided", "multiplied", "half", "float64"])
def test_duplicate_images_are_found_in_any_storage_format(tmp_path, stored):
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (n, 1, 8, 8), dtype=np.uint8) for n in (60, 20))
    overlapping = np.concatenate([train, test[:3]])
    inputs = {
        "divided": overlapping / np.float32(255),
        "multiplied": overlapping * (np.float32(1) / 255),
        "half": (overlapping / 255).astype(np.float16),
        "float64": overlapping / 255,
    }[stored]
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    with pytest.raises(RequestError, match=r"3 of the 63 training samples .* \(60 is 0, 61 is 1, 62 is 2\)"):
        brinell.harden(module, (test, np.arange(20) % 2), train=(inputs, np.arange(63) % 2), eps=0.1, out=tmp_path / "out")
