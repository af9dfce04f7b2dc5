"""The state of an installation: what is there, what is missing and for which kind of model, without
torch.
"""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _lazy import library
from _spots import Spots, entries, spots
from brinell.analysis.statements import Statement
from brinell.cli import run as cli
from brinell.datasets.digits import Digits
from brinell.models._torch_model import TorchModel
from brinell.models.digits_cnn import DigitsCnn
from brinell.reports.statements import sentence
from brinell.studies.doctor import run as doctor

stats = library("scipy.stats")
WRONG_FORM = """
from torch import nn
from brinell.datasets.digits import Digits
from brinell.models.digits_cnn import DigitsCnn


class Widened(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = DigitsCnn()(Digits()().domain).module

    def forward(self, x):
        return self.network(x * 0.25 + 0.5)


def net():
    return Widened().eval()
"""
"""A network that wants inputs less 0.5, divided by 0.25."""
GPUS = (("V100", 16, 7), ("H100", 80, 9))
SUMS = {"all", "dev"}
"""Extras that are sums of others, or for developers."""


def state(capsys, code=0):
    assert cli(["doctor", "--json"]) == code
    return json.loads(capsys.readouterr().out)


def without(monkeypatch, *missing, versions=None):
    """As if these packages were not installed, or in other versions."""
    version = metadata.version

    def look_up(name):
        if name in missing:
            raise metadata.PackageNotFoundError(name)
        return (versions or {}).get(name) or version(name)

    monkeypatch.setattr(doctor.metadata, "version", look_up)


def test_every_extra_has_a_purpose_and_a_line_in_the_guide(root):
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(doctor.PURPOSES) == set(extras) - SUMS
    guide = (root / "docs" / "guides" / "first-audit.md").read_text()
    assert set(re.findall(r"^\| `([a-z]+)` \|", guide, re.MULTILINE)) == set(extras) - {"dev"}


def test_requirements_are_those_of_the_project(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    packages = {
        package.name: package.needed for package in doctor.find_packages() if package.extra is None
    }
    expected = dict(
        re.match(r"([A-Za-z0-9_-]+)>=([0-9.]+)", text).groups() for text in project["dependencies"]
    )
    assert packages == expected


def test_torch_is_not_imported():
    code = (
        "import sys; from brinell.cli import run; run(['doctor', '--json']); "
        "sys.exit(int('torch' in sys.modules))"
    )
    if sys.platform == "win32" or any(path.exists() for path in doctor.DRIVERS):
        pytest.skip("this machine has a GPU, which torch is asked about")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_gpus(monkeypatch, tmp_path, capsys):
    """Torch is asked where the system knows a GPU."""
    monkeypatch.setattr(doctor, "DRIVERS", (tmp_path,))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "cannot use the GPU of this machine" in state(capsys)["devices"]["cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    gpus = [
        SimpleNamespace(name=f"NVIDIA {name}", total_memory=size * 2**30, major=major)
        for name, size, major in GPUS
    ]
    monkeypatch.setattr(torch.cuda, "get_device_properties", gpus.__getitem__)
    monkeypatch.setattr(
        torch.cuda,
        "mem_get_info",
        lambda number: (3 * 2**30, 0) if number else (_ for _ in ()).throw(RuntimeError),
    )
    content = state(capsys)
    assert [*content["devices"]] == ["cpu", "cuda:0", "cuda:1"] and content["auto"] == "cuda:0"
    assert cli(["doctor"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("device")]
    assert lines[1:] == [
        "device    cuda:0: NVIDIA V100, 16 GiB; it has no TF32",
        "device    cuda:1: NVIDIA H100, 80 GiB, 3 GiB free; TF32 is off in runs, "
        "--precision tf32 switches it on",
        "device    --device auto takes cuda:0",
    ]


def test_lines_name_the_remedy(monkeypatch, capsys):
    without(monkeypatch, "onnxruntime", "wfdb")
    assert cli(["doctor"]) == 0
    text = capsys.readouterr().out
    for extra in ("onnx", "ecg"):
        assert re.search(rf"missing   {extra} .* \(pip install 'brinell\[{extra}\]'\)", text)
    assert "GiB free" in text and "cpu" in text and "processors" in text


def test_a_needed_package_that_is_too_old(monkeypatch, capsys):
    versions = {"numpy": "1.26.4", "torch": "2.2.0+cpu"}
    without(monkeypatch, versions=versions)
    answer = state(capsys, code=1)
    needed = [package for package in answer["packages"] if package["extra"] is None]
    assert {package["name"] for package in needed if not package["ready"]} == set(versions)


def test_versions(monkeypatch):
    versions = {
        "2.14.1+cu130": True,
        "2.9": False,
        "3": True,
        "2.11": True,
        "2.11.0rc1": True,
        "1.12": False,
        "2.10.9": False,
    }
    ready = {}
    for version in versions:
        without(monkeypatch, versions={"torch": version})
        (ready[version],) = (
            package.ready for package in doctor.find_packages() if package.name == "torch"
        )
    assert ready == versions


@pytest.mark.parametrize("n", [12, 200])
def test_a_better_form_is_a_statement_on_the_test_that_decides(n, tmp_path, capsys):
    """It is shown with 200 samples and may be chance with 12; the counts are those of the model."""
    (tmp_path / "model.py").write_text(WRONG_FORM)
    data = Digits()()
    rows = np.random.default_rng(n).permutation(len(data))[:n].tolist()
    x, labels = data.load(rows), np.asarray(data.labels())[rows]
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=labels)
    network = DigitsCnn()(data.domain).module
    with torch.no_grad():
        right, base = [
            network(inputs).argmax(1).numpy() == labels for inputs in (x, x * 0.25 + 0.5)
        ]

    options = ["--data", str(tmp_path / "data.npz"), "--model", f"{tmp_path / 'model.py'}:net"]
    code = cli(["doctor", *options, "--json"])
    (fit,) = json.loads(capsys.readouterr().out)["fits"]
    statement = Statement.model_validate(fit["statement"])
    assert (statement.kind, statement.n) == ("fits", n)
    assert statement.against[0].k == base.sum() and statement.subjects[0].k >= right.sum() - 1
    wins, defeats = int((right & ~base).sum()), int((base & ~right).sum())
    by_answers = stats.binom.sf(wins - 1, wins + defeats, 0.5)
    assert statement.family == fit["forms_tried"] > 10
    assert statement.supported == (statement.p <= 0.001) == (n == 200) == bool(code)
    if statement.supported:
        assert statement.p <= 2 * statement.family * by_answers * (1 + 1e-9)
    assert cli(["doctor", *options]) == code
    text = " ".join(capsys.readouterr().out.split())
    assert sentence(statement) in text
    assert ("shown to be better" in text) is statement.supported


def test_forms_are_sorted_and_each_thing_is_said_once(tmp_path, capsys, monkeypatch):
    """Rows by right answers, the best one with its line, in lines as wide as the terminal; what is
    stated is reached in the form that is named."""
    (tmp_path / "model.py").write_text(WRONG_FORM)
    monkeypatch.setenv("COLUMNS", "72")
    options = ["--data", "digits", "--model", f"{tmp_path / 'model.py'}:net", "--expect", "0.99"]
    assert cli(["doctor", *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 72
    answer, table = " ".join(lines).split("right of 200")
    rights = [int(line.split()[0]) for line in lines if re.match(r" +\d+  ", line)]
    assert rights == sorted(rights, reverse=True) and len(rights) > 1
    assert answer.count(f"right on {rights[-1]} of 200") == 1 and "% stated; but it is" in answer
    assert answer.count("let the model begin with") in (1, 2)
    assert re.search(r"let the model begin with x = .*", answer)


def test_the_row_that_is_right_most_often_has_its_line():
    """Also where the answer names others."""
    rows = [
        doctor.FormRow(form=form, right=right, line=line)
        for form, right, line in (("with a", 195, "write a"), ("with b", 194, "write b"))
    ]
    for text, count in (("it is right on 194 with b: write b", 1), ("with a: write a", 0)):
        fit = doctor.ModelFit(
            model="net",
            n=200,
            passed=False,
            text=text,
            statement=None,
            as_good=[],
            forms_tried=9,
            forms=rows,
        )
        assert [*doctor._lines_of(fit)].count("with a: write a") == count


def test_detectors_and_segmenters_are_judged_on_real_pictures():
    """Objects at random; a detector that is right, and one that counts classes from 1."""
    rng = np.random.default_rng(0)
    pictures = [
        [(int(place), int(rng.integers(2))) for place in rng.permutation(4)[: rng.integers(1, 5)]]
        for _ in range(12)
    ]
    x, objects = spots(*pictures)
    data = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])
    shifted = nn.Sequential(Spots(), Shifted())
    for network, is_right in ((Spots(), True), (shifted, False)):
        model = TorchModel(network, data.domain, data_classes=3, name="net")
        fit = doctor._fit_of_pictures(data, model, torch.device("cpu"))
        assert fit.passed is is_right and fit.n > 8 and f"of {fit.n} objects" in fit.text
        assert fit.forms[0].right == (fit.n if is_right else 0)
        assert ("with the class minus 1" in fit.text) is not is_right


class Shifted(nn.Module):
    """Candidates with the class plus 1."""

    def forward(self, candidates):
        return torch.cat((candidates[..., :4], candidates[..., 4:].roll(1, -1)), -1)
