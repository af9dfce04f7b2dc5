"""What `brinell harden` refuses before anything is trained, each in one line."""

import numpy as np
import pytest
import torch

import brinell
from _hardening import samples, spoiled, words
from _helpers import mlp
from brinell.cli import run as cli
from brinell.core.errors import RequestError


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("high", lambda x, y: (x, y + 1), r"high has 3 \(0, 1, 2\) classes, and test 2 \(0, 1\): labels are counted from 0"),

        ("wide", lambda x, y: (np.c_[x, x], y), r"wide has inputs of shape \(6,\), and test of \(3,\)"),
        ("same", lambda x, y: (np.concatenate([x, samples(60, 1)[0][:5]]), np.concatenate([y, y[:5]])),
         r"5 of the 261 training samples in same are among those .* audited on \(256 is 0, 257 is 1, 258 is 2, ...\)"),
        ("few", lambda x, y: (x[:4], y[:4]), "4 training samples are too few to set some aside"),
    ],
)  # fmt: skip
def test_training_data_that_cannot_be_used_are_refused(work, tmp_path, capsys, name, change, line):
    assert cli(words(work, tmp_path / "out", train=spoiled(work, name, change))) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    import re

    assert re.search(line, said), said
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--recipe", "distortions(distortions=flicker)", "--model", "M"], "Flicker distorts"),
        (["--recipe", "pgb"], "there is no defence 'pgb', did you mean 'pgd'?"),
        (["--recipe", "n-fgsm", "--norm", "l2"], "NFGSM works in linf, not in l2"),
        (["--recipe", "benchmark-set"], "names no set: write benchmark-set(path=FOLDER)"),
        (["--eps", "0:0.1:3"], "no single budget above 0"),
        (["--augment", "shift"], "--augment shift is for images"),
        (["--epochs", "0"], "epochs"),
    ],
)
def test_requests_that_cannot_be_carried_out_are_refused(work, tmp_path, capsys, more, line):
    more = [str(work / "model.py") + ":network" if word == "M" else word for word in more]
    assert cli(words(work, tmp_path / "out", *more)) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and line in said, said


def test_a_class_without_training_samples_is_named(work, tmp_path):
    x, y = samples(40, 0)
    lacking = brinell.data(x[y == 0], y[y == 0], classes=("a", "b"))
    with pytest.raises(RequestError, match="hold no sample of class 'b'"):
        brinell.harden(mlp(3, 2), brinell.data(*samples(60, 1), classes=("a", "b")), train=lacking, eps=0.1, out=tmp_path / "out")


def test_a_model_without_gradients_is_refused(tmp_path):
    def function(x):
        return np.stack([1 - x[:, 0], x[:, 0]], 1)

    with pytest.raises(RequestError, match="no weights that could be trained: name a torch module"):
        brinell.harden(function, samples(60, 1), train=samples(256, 0), eps=0.1, out=tmp_path / "out")


def test_other_audits_are_refused_before_anything_is_written(work, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli(words(work, out, "--epochs", "1", "--samples", "20", "--quiet")) == 0
    before = {name: (out / name).read_bytes() for name in ("run.toml", "manifest.json")}
    assert cli(words(work, out, "--epochs", "1", "--samples", "10", "--resume")) == 2
    assert "holds another hardening (samples was 20 and is 10)" in capsys.readouterr().err
    assert {name: (out / name).read_bytes() for name in before} == before
    assert cli(["harden", "--resume", "--out", str(out), "--quiet"]) == 0


def test_the_folder_of_an_audit_is_left_alone(work, tmp_path, done, capsys):
    import shutil

    audit = tmp_path / "audit"
    shutil.copytree(done / "before", audit)
    before = {name: (audit / name).read_bytes() for name in ("report.html", "manifest.json")}
    assert cli(words(work, audit)) == 2
    assert "is the folder of something else, which manifest.json describes" in capsys.readouterr().err
    assert {name: (audit / name).read_bytes() for name in before} == before


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--batch-size", "3", "--recipe", "pgd(steps=2)+plain"], "of which each defence needs two samples: give --batch-size 4"),
        (["--recipe", "plain", "--patience", "2"], "--patience counts checks of robust accuracy, and recipe plain"),
        (["--validation", "1"], "--validation 1 sets no sample of 256 aside"),
    ],
)
def test_what_would_fail_after_the_training_fails_before_it(work, tmp_path, capsys, more, line):
    assert cli(words(work, tmp_path / "out", *more)) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and line in said, said


def test_a_folder_that_no_spec_can_name_is_refused(work, tmp_path, capsys):
    assert cli(words(work, tmp_path / "a&b=c")) == 2
    assert "has a & in it" in capsys.readouterr().err and not (tmp_path / "a&b=c").exists()


class Remembers(torch.nn.Linear):
    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        pass


def test_a_state_that_is_no_tensor_is_refused(tmp_path):
    with pytest.raises(RequestError, match="holds 0._extra_state, which is no tensor"):
        brinell.harden(torch.nn.Sequential(Remembers(3, 2)), samples(60, 1), train=samples(256, 0), eps=0.1, out=tmp_path / "out")


def test_budgets_without_one_to_compare_by_are_refused(tmp_path):
    with pytest.raises(RequestError, match="hold none above 0, by which"):
        brinell.harden(mlp(3, 2), samples(60, 1), train=samples(256, 0), eps=0.1, budgets=0, out=tmp_path / "out")


def test_data_in_memory_need_training_data(tmp_path):
    with pytest.raises(RequestError, match="does not follow from data in memory: give train="):
        brinell.harden(mlp(3, 2), samples(60, 1), eps=0.1, out=tmp_path / "out")


@pytest.mark.parametrize("stored", ["divided", "multiplied", "half", "float64"])
def test_images_in_common_are_found_however_they_are_stored(tmp_path, stored):
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (n, 1, 8, 8), dtype=np.uint8) for n in (60, 20))
    both = np.concatenate([train, test[:3]])
    kept = {
        "divided": both / np.float32(255), "multiplied": both * (np.float32(1) / 255), "half": (both / 255).astype(np.float16),
        "float64": both / 255,
    }[stored]  # fmt: skip
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    with pytest.raises(RequestError, match=r"3 of the 63 training samples .* \(60 is 0, 61 is 1, 62 is 2\)"):
        brinell.harden(module, (test, np.arange(20) % 2), train=(kept, np.arange(63) % 2), eps=0.1, out=tmp_path / "out")
