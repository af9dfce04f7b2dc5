"""A task from outside, as CONTRIBUTING describes it: audit, transfer and verification take it from
an installed package, and nothing is edited."""

import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import brinell
from brinell import plugins
from brinell.cli import run
from brinell.core.errors import BrinellError, ContractError

GRADES, EPS = 10, (0.05, 0.1)


class Scale(torch.nn.Module):
    """Grade k leads where nine times the mean of the pixels is nearest to k."""

    def forward(self, x):
        mean = x.flatten(1).mean(1, keepdim=True)
        return -(9 * mean - torch.arange(float(GRADES), device=x.device)).square()


class Brighter(Scale):
    """The same of brighter pictures."""

    def forward(self, x):
        return super().forward(1.1 * x)


def pictures(n=12):
    """Pictures away from black and white, and grades that the network misses by one at most."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.2, 0.8, (n, 1, 1)) + rng.uniform(-0.05, 0.05, (n, 6, 6))
    y = np.clip(grade(x.mean((1, 2))) + rng.integers(-1, 2, n), 0, GRADES - 1)
    return x.astype(np.float32), y.astype(np.int64)


def grade(mean):
    """The grade that `Scale` answers for pictures of a mean."""
    return np.clip(np.round(9 * mean), 0, GRADES - 1)


def worst(x, y, eps):
    """The share of pictures whose grade is near enough, however their mean is moved by eps."""
    means = [x.mean((1, 2)) + step for step in (-eps, 0, eps)]
    return np.mean([np.abs(grade(mean) - y) <= 1 for mean in means], axis=0) == 1


@pytest.fixture
def installed(tmp_path, root, monkeypatch):
    """The package with the metadata of an installation, outside of Brinell."""
    site = tmp_path / "site"
    shutil.copytree(root / "examples" / "task" / "brinell_ordinal", site / "brinell_ordinal")
    distribution = site / "brinell_ordinal-0.1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: brinell-ordinal\nVersion: 0.1\n"
    )
    (distribution / "entry_points.txt").write_text(
        "[brinell.task]\nordinal = brinell_ordinal:TASK\n"
        "[brinell.dataset]\nordered-digits = brinell_ordinal.run:OrderedDigits\n"
    )
    monkeypatch.syspath_prepend(str(site))
    plugins._installed.cache_clear()
    yield site
    plugins._installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith("brinell_ordinal")]:
        del sys.modules[name]


@pytest.fixture
def data(installed):
    """The pictures as data of the task."""
    from brinell_ordinal.run import Ordered

    x, y = pictures()
    return Ordered(brinell.data(x, y, classes=[str(number) for number in range(GRADES)]))


def test_an_audit_finds_the_worst_case_and_is_verified(data, tmp_path, monkeypatch):
    x, y = pictures()
    folder = tmp_path / "audit"
    result = brinell.audit(Scale(), data, eps=list(EPS), attack="pgd?steps=5", out=folder)
    shares = [rate.value for rate in result.robust_accuracy]
    assert shares == pytest.approx([worst(x, y, eps).mean() for eps in EPS], abs=1e-9)
    assert result.clean_accuracy.value == 1 and 0 < shares[1] < shares[0] < 1
    assert "stay near enough" in str(result) and (folder / "report.html").exists()
    assert brinell.open(folder) == result

    verified = brinell.verify(folder, Scale(), data)
    assert not verified.problems and verified.replayed

    monkeypatch.undo()  # as where the package is not installed
    with pytest.raises(BrinellError, match="no task 'ordinal' is installed"):
        brinell.open(folder)


def test_a_transfer_takes_the_task_and_a_benchmark_says_why_not(data, tmp_path):
    x, y = pictures()
    moved = brinell.transfer(
        model=[Scale(), Brighter()], data=data, eps=0.1, attack="pgd?steps=5", out=tmp_path / "t"
    )
    figures = {(cell.source, cell.model): cell.figures[0].value for cell in moved.cells}
    assert figures["Scale", "Scale"] == pytest.approx(worst(x, y, 0.1).mean())
    assert figures[None, "Scale"] > figures["Brighter", "Scale"] >= figures["Scale", "Scale"]

    with pytest.raises(BrinellError, match="holds classes, masks or boxes"):
        brinell.benchmark(Scale(), data, out=tmp_path / "set")
    with pytest.raises(BrinellError, match="write a number of steps"):
        brinell.audit(Scale(), data, eps=0.1, criterion="near", out=tmp_path / "b")


@pytest.mark.parametrize("way", ["file", "entry point"])
def test_the_command_takes_the_task_by_a_spec_of_its_data(installed, tmp_path, capsys, way):
    small = ["--samples", "4", "--eps", "0.1", "--attack", "pgd?steps=2", "--model", "digits-cnn"]
    file = installed / "brinell_ordinal" / "run.py"
    spec = "ordered-digits" if way == "entry point" else f"{file}:OrderedDigits"

    assert run(["audit", "--data", spec, *small, "--out", str(tmp_path / "a")]) == 0
    assert "stay near enough" in capsys.readouterr().out
    two = [*small, "--model", "digits-cnn?width=8"]
    assert run(["transfer", "--data", spec, *two, "--out", str(tmp_path / "t")]) == 0
    audit = brinell.audit(
        "digits-cnn", spec, samples=4, eps=0.1, attack="pgd?steps=2", out=tmp_path / "b"
    )
    assert audit.robust_accuracy == brinell.open(tmp_path / "a").robust_accuracy


def test_an_audit_refuses_a_margin_that_its_answers_deny(data, tmp_path, monkeypatch):
    from brinell_ordinal.run import FarOff

    right = FarOff.margin
    breaks = (
        lambda self, logits, y, x: -right(self, logits, y, x),
        lambda self, logits, y, x: right(replace(self, steps=0), logits, y, x),
        lambda self, logits, y, x: right(self, logits, y, x) + 50,
    )
    for number, wrong in enumerate(breaks):
        monkeypatch.setattr(FarOff, "margin", wrong)
        folder = tmp_path / str(number)
        with pytest.raises(ContractError, match="`wrong` must agree"):
            brinell.audit(Scale(), data, eps=list(EPS), attack="pgd?steps=5", out=folder)
        assert not folder.exists()
