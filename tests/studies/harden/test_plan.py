"""Tests of the requests that `brinell harden` rejects in one line before any training."""

import numpy as np
import pytest
import torch

import brinell
from _hardening import harden_arguments, samples, save_spoiled
from _helpers import mlp
from _refusals import refused
from brinell.cli import run as cli
from brinell.core.errors import RequestError

UNUSABLE_DATA = [
    (
        "high",
        lambda x, y: (x, y + 1),
        r"high has vectors of shape \(3,\) from 0.0 to 1.0 in 3 classes \(0, 1 "
        r"and 2\), but test has .*: both need",
    ),
    (
        "wide",
        lambda x, y: (np.c_[x, x], y),
        r"wide has vectors of shape \(6,\) .* in 2 classes \(0 and 1\), but test "
        r"has vectors of shape \(3,\)",
    ),
    (
        "same",
        lambda x, y: (np.concatenate([x, samples(60, 1)[0][:5]]), np.concatenate([y, y[:5]])),
        r"5 of the 261 training samples in same also occur in the audit data "
        r"\(256 is 0, 257 is 1, 258 is 2 and 2 more\)",
    ),
    ("few", lambda x, y: (x[:4], y[:4]), "4 training samples are too few for a validation set"),
]


def test_unusable_training_data_is_rejected(workspace, tmp_path, capsys, subtests):
    for number, (name, change, line) in enumerate(UNUSABLE_DATA):
        with subtests.test(str(line)):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert (
                cli(
                    harden_arguments(
                        workspace, folder / "out", train=save_spoiled(workspace, name, change)
                    )
                )
                == 2
            )
            message = capsys.readouterr().err
            assert len(message.splitlines()) == 1
            import re

            assert re.search(line, message), message
            assert not (folder / "out" / "manifest.json").exists()


INVALID_REQUESTS = [
    (["--recipe", "distortions(distortions=flicker)", "--model", "M"], "Flicker distorts"),
    (["--recipe", "pgb"], "there is no defence 'pgb', did you mean 'pgd'?"),
    (["--recipe", "n-fgsm", "--norm", "l2"], "NFGSM works in linf, not in l2"),
    (["--recipe", "benchmark-set"], "needs a path: write benchmark-set(path=FOLDER)"),
    (["--eps", "0:0.1:3"], "is not a single budget above 0"),
    (["--augment", "shift"], "--augment shift needs images"),
    (["--epochs", "0"], "epochs"),
    (
        ["--batch-size", "3", "--recipe", "pgd(steps=2)+plain"],
        "each defence of the recipe needs two samples: set --batch-size 4",
    ),
]


def test_invalid_requests_are_rejected(workspace, tmp_path, capsys, subtests):
    for number, (options, line) in enumerate(INVALID_REQUESTS):
        with subtests.test(str(line)):
            folder = tmp_path / str(number)
            folder.mkdir()
            options = [
                str(workspace / "model.py") + ":network" if word == "M" else word
                for word in options
            ]
            assert cli(harden_arguments(workspace, folder / "out", *options)) == 2
            message = capsys.readouterr().err
            assert len(message.splitlines()) == 1 and line in message, message
    assert cli(harden_arguments(workspace, tmp_path / "a&b=c")) == 2
    assert "contains &" in capsys.readouterr().err and not (tmp_path / "a&b=c").exists()


@pytest.mark.slow
def test_a_resume_with_other_settings_is_rejected_before_writing(workspace, tmp_path, capsys):
    folder = tmp_path / "out"
    assert cli(harden_arguments(workspace, folder, "--epochs", "1", "--samples", "20")) == 0
    contents = {name: (folder / name).read_bytes() for name in ("run.toml", "manifest.json")}
    assert (
        cli(harden_arguments(workspace, folder, "--epochs", "1", "--samples", "10", "--resume"))
        == 2
    )
    assert "holds another harden study (samples was 20 and is 10)" in capsys.readouterr().err
    assert {name: (folder / name).read_bytes() for name in contents} == contents
    assert cli(["harden", "--resume", "--out", str(folder)]) == 0


def test_the_folder_of_an_audit_is_not_overwritten(workspace, tmp_path, hardened_run, capsys):
    import shutil

    audit = tmp_path / "audit"
    shutil.copytree(hardened_run / "before", audit)
    contents = {name: (audit / name).read_bytes() for name in ("report.html", "manifest.json")}
    assert cli(harden_arguments(workspace, audit)) == 2
    assert "belongs to another command (see its manifest.json)" in capsys.readouterr().err
    assert {name: (audit / name).read_bytes() for name in contents} == contents


class LinearWithState(torch.nn.Linear):
    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        pass


def without_gradients(x):
    return np.stack([1 - x[:, 0], x[:, 0]], 1)


def test_models_and_data_in_memory_that_cannot_be_trained(tmp_path, subtests):
    x, y = samples(40, 0)
    named = brinell.data(*samples(60, 1), classes=("a", "b"))
    incomplete = brinell.data(x[y == 0], y[y == 0], classes=("a", "b"))
    for line, model, settings in (
        ("has no sample of class 'b'", mlp(3, 2), {"data": named, "train": incomplete}),
        ("no trainable weights", without_gradients, {}),
        (
            "holds 0._extra_state, which is not a tensor",
            torch.nn.Sequential(LinearWithState(3, 2)),
            {},
        ),
        ("data in memory has no training split", mlp(3, 2), {"train": None}),
    ):
        usual = {
            "data": samples(60, 1),
            "train": samples(256, 0),
            "eps": 0.1,
            "out": tmp_path / "out",
        }
        settings = {key: value for key, value in (usual | settings).items() if value is not None}
        with subtests.test(line), pytest.raises(RequestError, match=line):
            brinell.harden(model, **settings)


def test_duplicate_images_are_found_in_any_storage_format(tmp_path, subtests):
    for number, stored in enumerate(["divided", "multiplied", "half", "float64"]):
        with subtests.test(str(stored)):
            folder = tmp_path / str(number)
            folder.mkdir()
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
            with pytest.raises(RequestError, check=refused("studies.harden.run._check_disjoint")):
                brinell.harden(
                    module,
                    (test, np.arange(20) % 2),
                    train=(inputs, np.arange(63) % 2),
                    eps=0.1,
                    out=folder / "out",
                )
