"""Manifests whose values are of other types, out of range or missing: one line for each, from every
verb that reads them.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from _helpers import Recorder, run_audit
from _mutations import mutations, read_unsealed, write_unsealed
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
    return run_audit(folder / "run", Recorder(line), x, y, eps="0:0.3:3", attack=("fgsm",)).path


def one_line(capsys: pytest.CaptureFixture[str], label: str, arguments: list[str]) -> int:
    """The exit code of a command; what it says must be one line for a person."""
    code = cli(arguments)
    message = capsys.readouterr().err
    assert "BRINELL_DEBUG" not in message and "Traceback" not in message, (label, message)
    assert code in (0, 1, 2, 4), (label, code)
    if code == 2:
        assert message.count("\n") == 1 and "\u001b" not in message and len(message) < 600, (
            label,
            message,
        )
    return code


@pytest.mark.parametrize("count", [12, pytest.param(None, marks=pytest.mark.nightly)])
def test_a_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int | None
) -> None:
    shutil.copytree(run, tmp_path / "run")
    file = tmp_path / "run/manifest.json"
    refusals = 0
    for label, wrong in mutations(read_unsealed(file), count):
        write_unsealed(file, wrong)
        for verb in (["report"], ["gate", "--robust", "0"], ["verify"], ["compare"]):
            arguments = (
                [str(run), "--out", str(tmp_path / "c" / str(refusals))]
                if verb == ["compare"]
                else []
            )
            refusals += (
                one_line(
                    capsys,
                    f"{verb[0]}: {label}",
                    [verb[0], str(tmp_path / "run"), *arguments, *verb[1:]],
                )
                == 2
            )
    assert refusals
