"""Common refusals come without torch, whose import takes longer than all checks of names, files and folders."""

import json
import subprocess
import sys

import numpy as np
import pytest

from brinell import plugins
from brinell.core.settings import Names
from brinell.engine.sources import CHECKS, RUN, SOURCE
from brinell.studies import register
from brinell.studies.kit import Output, Study

PROGRAM = """
import json, sys
from brinell.cli import run
for arguments in json.load(sys.stdin):
    try:
        code = run(arguments)
    except BaseException as error:
        code = repr(error)
    if code != 2 or "torch" in sys.modules:
        print(f"{arguments}: code {code}, torch {'torch' in sys.modules}")
        break
"""
PLACES = ("none", "empty")
WRONG = {
    "dataset": ("nothing.npz", "npz:nothing.npz", "bad.npz", "bare.npz", "short.npz", "npz:good.npz?kind=sound", "mnist:nowhere",
                "nodata", "table.csv", "array.npy", "good.npz?x=z", "good.npz?no_such=1",
                *(f"{name}:{place}" for name in sorted({*plugins.names("dataset")} - {"digits", "table"}) for place in PLACES)),
    "model": ("nomodel", "nothing.py:net", "onnx:nothing.onnx", "weights.pt", "timm:resnet18?no_such=1",
              "timm:resnet18?weights=nothing.pth", "nowhere/net.onnx", "torch.onnx"),
    "attack": ("noattack", "ngfsm"),
    "distance": ("l7",),
    "explainer": ("grad-cm",),
    "budgets": ("much", "3,5", "0:1"),
    RUN: ("nowhere", "empty"),
    SOURCE: ("no/run", "empty"),
}  # fmt: skip
"""By the kind of a setting, or by the setting: texts that every verb refuses."""


def _lines(study: Study) -> list[list[str]]:
    """Command lines of a verb, each with one wrong name; other settings that must be given have right ones."""
    needed = {name: "good.npz" for name, field in study.request.model_fields.items() if field.is_required()}
    out = ["--out", "result"] if study.output is Output.FILE else []
    lines = []
    for setting in study.request.model_fields:
        mark = study.request.names_of(setting) or Names("")
        for text in WRONG.get(mark.kind) or (WRONG.get(setting, ()) if mark.kind == "folder" else ()):
            values = needed | {setting: text}
            words = [word for name, value in values.items() if name not in study.positional for word in (_flag(name), value)]
            lines.append([study.verb, *(values[name] for name in study.positional if name in values), *words, *out])
    if study.output is Output.ANSWER_ONLY or needed:
        return lines
    return [*lines, [study.verb, "--out", "/proc/nothing/result.safetensors"]]


def _flag(setting: str) -> str:
    """The option of a setting."""
    return f"--{setting.replace('_', '-')}"


@pytest.fixture
def folder(tmp_path):
    """A folder with data of which most do not open."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "good.npz", x=rng.random((6, 1, 8, 8), dtype=np.float32), y=np.arange(6) % 2)
    np.savez(tmp_path / "bare.npz", a=np.zeros(3))
    np.savez(tmp_path / "short.npz", x=rng.random((6, 1, 8, 8), dtype=np.float32), y=np.arange(5))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "bad.npz").write_text("no archive")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "weights.pt").write_bytes(b"")
    (tmp_path / "torch.onnx").write_bytes(b"\x80\x04}.")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.slow
def test_a_wrong_name_is_refused_without_torch(folder):
    lines = [line for verb in register.entries() for line in _lines(register.load(verb))]
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(lines), cwd=folder, capture_output=True, text=True, check=True
    )
    assert not answer.stdout, answer.stdout + answer.stderr
    assert len(answer.stderr.splitlines()) == len(lines)


def test_every_check_has_wrong_names():
    assert set(WRONG) == set(CHECKS)
