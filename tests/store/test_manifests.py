"""Manifests whose values are of other types, out of range or missing: one line for each, from every verb that reads them."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from _helpers import Recorder, audited
from _mutations import mutations, unsealed, written
from brinell.cli import run as cli


def line(x):
    import torch

    z = 10 * (x[:, 0] - 0.5)
    return torch.stack([-z, z], 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("folders")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0.2, 0.55, (6, 2)).astype(np.float32), np.zeros(6, dtype=int)
    return audited(folder / "run", Recorder(line), x, y, eps="0:0.3:3", attack=("fgsm",)).path


def one_line(capsys: pytest.CaptureFixture[str], told: str, arguments: list[str]) -> int:
    """The exit code of a command; what it says must be one line for a person."""
    code = cli(arguments)
    said = capsys.readouterr().err
    assert "should not happen" not in said and "Traceback" not in said, (told, said)
    assert code in (0, 1, 2), (told, code)
    if code == 2:
        assert said.count("\n") == 1 and "\u001b" not in said and len(said) < 600, (told, said)
    return code


@pytest.mark.parametrize("count", [12, pytest.param(None, marks=pytest.mark.slow)])
def test_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int | None) -> None:
    shutil.copytree(run, tmp_path / "run")
    file = tmp_path / "run/manifest.json"
    refused = 0
    for told, wrong in mutations(unsealed(file), count):
        written(file, wrong)
        for verb in (["report"], ["gate", "--robust", "0"], ["verify"], ["compare"]):
            more = [str(run)] if verb == ["compare"] else []
            refused += one_line(capsys, f"{verb[0]}: {told}", [verb[0], str(tmp_path / "run"), *more, *verb[1:]]) == 2
    assert refused
