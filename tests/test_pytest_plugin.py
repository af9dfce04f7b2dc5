"""The fixture `brinell_audit` of pytest: it fails with the gate's line, and nothing is imported
before it is used.
"""

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points

import pytest
import torch

from brinell.datasets.digits import Digits
from brinell.pytest_plugin import _audit

pytest_plugins = ("pytester",)
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
    x = rng.uniform(0.1, 0.3, (8, 2)).astype("float32")
    return x, np.zeros(8, dtype=int)
"""
QUICK = "attack='fgsm', progress=False, without_checks=True"


def run_pytest(pytester, test, *words):
    """The output of pytest over a test of a user, in this process."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test)
    pytester.makeini("[pytest]\nfilterwarnings = error")
    if not entry_points(
        group="pytest11", name="brinell"
    ):  # the environment was made before the entry point was
        words = ("-p", "brinell.pytest_plugin", *words)
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", *words)
    return "\n".join(result.outlines + result.errlines), result


def test_the_gate_decides(pytester):
    """One test passes, one fails by the gate's line, one has no condition, one cannot be carried
    out."""
    test = f"""
def test_holds(brinell_audit, model, data):
    result = brinell_audit(model, data, eps=0.1, robust=0.5, {QUICK})
    assert result.robust(eps=0.1).value == 1

def test_breaks(brinell_audit, model, data):
    brinell_audit(model, data, eps=0.45, robust=0.3, {QUICK})

def test_no_condition(brinell_audit, model, data):
    brinell_audit(model, data, eps=0.1)

def test_refused(brinell_audit, model, data):
    brinell_audit(model, data, eps=-1, robust=0.3)
"""
    output, result = run_pytest(pytester, test, "-rf")
    result.assert_outcomes(passed=1, failed=3)
    assert "FAIL  robust accuracy" in output and "the run: " in output and "8" in output
    assert "brinell_audit needs a condition: robust, worst_class, clean, baseline" in output
    assert "brinell: " in output and "Traceback" not in output and "pytest_plugin.py" not in output


def test_options_are_written_as_keywords():
    from brinell import pytest_plugin

    line = (
        "harden the model (brinell harden), or demand no more: --worst-class 0.2, "
        "pass --allow CODE or --without-checks"
    )
    assert pytest_plugin._python(line).endswith(
        "worst_class 0.2, pass allow CODE or without_checks"
    )


def test_checks_that_were_not_made_fail_too(pytester):
    test = f"""
def test_unchecked(brinell_audit, model, data):
    result = brinell_audit(model=model, data=data, eps=0.05, clean=0.5, {QUICK})
    assert result.folder.endswith("brinell-1")
    brinell_audit(model, data, eps=0.1, robust=0.1, attack='fgsm', progress=False)
"""
    output, result = run_pytest(pytester, test)
    result.assert_outcomes(failed=1)
    assert "FAIL  " in output and "without_checks" in output and "brinell-2" in output


def test_an_audit_until_it_is_decided(pytester):
    """The gate passes on the interval that holds at every look, most often with fewer samples."""
    test = f"""
import numpy as np

def test_decided(brinell_audit, model):
    x = np.random.default_rng(0).uniform(0.1, 0.3, (60, 2)).astype("float32")
    y = np.zeros(60, dtype=int)
    result = brinell_audit(model, (x, y), eps=0.1, robust=0.5, until_decided=True, {QUICK})
    assert result.n < 60 and 0.5 <= result.robust(eps=0.1).low
    brinell_audit(model, (x, y), eps=0.45, robust=0.5, until_decided=True, {QUICK})

def test_undecidable(brinell_audit, model, data):
    brinell_audit(model, data, eps=0.1, clean=0.5, until_decided=True, {QUICK})

def test_too_few(brinell_audit, model, data):
    brinell_audit(model, data, eps=0.1, robust=0.8, until_decided=True, {QUICK})

def test_open(brinell_audit, model):
    x = np.array([[0.2, 0.2], [0.45, 0.2]], dtype="float32").repeat(20, axis=0)
    y = np.zeros(40, dtype=int)
    brinell_audit(model, (x, y), eps=0.1, robust=0.5, until_decided=True, {QUICK})
"""
    output, result = run_pytest(pytester, test, "-rf")
    result.assert_outcomes(failed=4)
    assert "FAIL  robust accuracy" in output and "brinell-2" in output
    assert "until_decided=True needs robust" in output
    assert "8 samples cannot decide whether robust accuracy reaches 0.8" in output
    assert "OPEN  robust accuracy at eps 0.1: 20 of 40 samples" in output


def test_listing_imports_neither_torch_nor_numpy(pytester, root):
    code = (
        "import sys, brinell.pytest_plugin; sys.exit(bool({'torch', 'numpy', "
        "'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    entries = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"][
        "pytest11"
    ]
    assert entries == {"brinell": "brinell.pytest_plugin"}
    output, _ = run_pytest(pytester, "", "--fixtures")
    assert "brinell_audit" in output and "A function that audits a model" in output


def test_nothing_else_imports_pytest(root):
    files = [
        path
        for path in (root / "src").rglob("*.py")
        if "import pytest" in path.read_text(encoding="utf-8")
    ]
    assert [path.name for path in files if "testing" not in path.parts] == ["pytest_plugin.py"]


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_the_guides_example_tells_masked_gradients_from_a_linear_model(masked):
    """docs/guides/ci-gate.md: any slice of 20 digits at 8/255 passes, and none behind a rounding,
    which has no gradient.
    """
    data = Digits()()
    x, y = data.load(range(539)), torch.from_numpy(data.labels()[:539])
    linear, places = (
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)),
        torch.randperm(539),
    )
    optimiser = torch.optim.Adam(linear.parameters(), 0.05)
    for _ in range(100):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(linear(x[places[:300]]), y[places[:300]]).backward()
        optimiser.step()

    class Rounded(torch.nn.Sequential):
        def forward(self, x):
            return super().forward((15 * x).round() / 15)

    part = places[300:320] if masked else places[400:420]
    model = Rounded(linear) if masked else linear
    _, failures = _audit(
        (),
        {"model": model, "data": (x[part], y[part]), "eps": 8 / 255, "progress": False},
        {"robust": 0.1},
    )
    assert bool(failures) is masked, failures
