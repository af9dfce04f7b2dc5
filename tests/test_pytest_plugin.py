"""The fixture `brinell_audit` of pytest: it fails with the gate's line, and nothing is imported before it is used."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points

CONFTEST = """
import numpy as np
import pytest
from torch import nn, tensor


class Line(nn.Module):
    def forward(self, x):
        z = 10 * (x[:, :1] - 0.5)
        import torch

        return torch.cat([-z, z], 1)


@pytest.fixture
def model():
    return Line()


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.1, 0.3, (30, 2)).astype("float32")
    return x, np.zeros(30, dtype=int)
"""
QUICK = "attack='fgsm', progress=False, without_checks=True"


def run_pytest(folder, test, *words):
    """The output of pytest over one test of a user, and its exit code."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (folder / "test_user.py").write_text(test)
    environment = dict(os.environ)
    if not entry_points(group="pytest11", name="brinell"):  # the environment was made before the entry point was
        distribution = folder / "packages" / "brinell_pytest-0.dist-info"
        distribution.mkdir(parents=True)
        (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: brinell-pytest\nVersion: 0\n")
        (distribution / "entry_points.txt").write_text("[pytest11]\nbrinell = brinell.pytest_plugin\n")
        environment["PYTHONPATH"] = f"{folder / 'packages'}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, "test_user.py"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return process.stdout + process.stderr, process.returncode


def test_the_gate_decides(tmp_path):
    """One test passes, one fails by the gate's line, one has no condition, one cannot be carried out."""
    test = f"""
def test_holds(brinell_audit, model, data):
    result = brinell_audit(model, data, eps=0.1, robust=0.5, {QUICK})
    assert result.robust(eps=0.1).value == 1
    assert brinell_audit(model=model, data=data, eps=0.05, clean=0.5, {QUICK}).folder != result.folder

def test_breaks(brinell_audit, model, data):
    brinell_audit(model, data, eps=0.45, robust=0.3, {QUICK})

def test_no_condition(brinell_audit, model, data):
    brinell_audit(model, data, eps=0.1)

def test_refused(brinell_audit, model, data):
    brinell_audit(model, data, eps=-1, robust=0.3)
"""
    output, code = run_pytest(tmp_path, test, "-rf")
    assert code == 1 and "3 failed, 1 passed" in output
    assert "FAIL  robust accuracy" in output and "the run: " in output and "30" in output
    assert "brinell_audit needs a condition: robust, worst_class, clean, baseline" in output
    assert "brinell: " in output and "Traceback" not in output and "pytest_plugin.py" not in output


def test_options_are_written_as_keywords():
    from brinell import pytest_plugin

    line = "harden the model (brinell harden), or demand no more: --worst-class 0.2, pass --allow CODE or --without-checks"
    assert pytest_plugin._python(line).endswith("worst_class 0.2, pass allow CODE or without_checks")


def test_checks_that_were_not_made_fail_too(tmp_path):
    test = """
def test_unchecked(brinell_audit, model, data):
    brinell_audit(model, data, eps=0.1, robust=0.3, attack='fgsm', progress=False)
"""
    output, code = run_pytest(tmp_path, test)
    assert code == 1 and "FAIL  " in output and "without_checks" in output


def test_listing_imports_neither_torch_nor_numpy(tmp_path, root):
    code = "import sys, brinell.pytest_plugin; sys.exit(bool({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    entries = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert entries == {"brinell": "brinell.pytest_plugin"}
    output, code = run_pytest(tmp_path, "", "--fixtures")
    assert code in (0, 5) and "brinell_audit" in output and "A function that audits a model" in output


def test_nothing_else_imports_pytest(root):
    files = [path for path in (root / "src").rglob("*.py") if "import pytest" in path.read_text(encoding="utf-8")]
    assert [path.name for path in files if "testing" not in path.parts] == ["pytest_plugin.py"]
