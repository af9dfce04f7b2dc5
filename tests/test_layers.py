"""Every import contract is seen to fail on a planted violation, and to hold without one."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"

ORDER = "Upper rooms import lower ones, never the reverse, and every room has its place"
CIRCLE = "No circle, within a room either"
PLUGINS = "A plug-in imports no other of its kind"
STUDIES = "A study imports no other study"
AGENT = "The agent knows core and how distortions are called, and no plug-in by name"
READERS = "What reads records knows neither torch nor an attack, not even through others"
CORE = "core is torch, numpy and the standard library"
CHECKERS = "The checkers know core and plug-ins alone"

LAZY = "def planted():\n    {}\n"
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {}\n"

VIOLATIONS = [
    (ORDER, "core/record.py", "import brinell.analysis.proportions"),
    (ORDER, "engine/plan.py", LAZY.format("from brinell.studies.epsilon import recommended")),
    (ORDER, "engine/plan.py", FOR_TYPES.format("from brinell.runners import local")),
    (ORDER, "pages/html.py", "from brinell.studies.review import page"),
    (ORDER, "analysis/means.py", "import brinell.runners.local"),
    (ORDER, "datasets/npz.py", "from brinell.models import torch"),
    (ORDER, "core/streams.py", "import brinell"),  # whose names come from api
    (ORDER, "core/norms.py", "from brinell.testing import linear"),
    (ORDER, "cli/audit.py", LAZY.format("from brinell.testing import linear")),
    (ORDER, "__main__.py", "import brinell.testing"),
    (ORDER, "sideroom/__init__.py", ""),
    (ORDER, "loose.py", ""),
    (CIRCLE, "engine/plan.py", LAZY.format("from brinell.engine import engine")),
    (CIRCLE, "core/domain.py", FOR_TYPES.format("from brinell.core.model import Model")),
    (PLUGINS, "attacks/fgsm.py", LAZY.format("from brinell.attacks import pgd")),
    (PLUGINS, "attacks/_windows.py", "from brinell.attacks.fgsm import FGSM"),
    (PLUGINS, "models/timm.py", "import brinell.models.torchvision"),
    (STUDIES, "studies/review/run.py", "from brinell.studies.detection import records"),
    (AGENT, "rlab/env.py", LAZY.format("from brinell.distortions.gaussian_noise import GaussianNoise")),
    (AGENT, "rlab/agent.py", "import brinell.models.digits_cnn"),
    (READERS, "analysis/means.py", LAZY.format("import torch")),
    (READERS, "core/intervals.py", "import torch"),
    (READERS, "store/run.py", "from brinell.core.patches import Grid"),
    (READERS, "pages/format.py", FOR_TYPES.format("from brinell.engine.plan import Plan")),
    (READERS, "studies/epsilon/analysis.py", "from brinell.engine import eps_grid"),
    (READERS, "studies/review/page.py", "import brinell.plugins"),
    (READERS, "studies/unrestricted/records.py", "from brinell.studies.unrestricted import generator"),
    (READERS, "board/pages.py", "import torch"),
    (CORE, "core/record.py", LAZY.format("import pyarrow as pa")),
    (CHECKERS, "testing/linear.py", "from brinell.store import run"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package and its contracts, in a separate folder."""
    folder = tmp_path_factory.mktemp("layers")
    shutil.copytree(ROOT / "src" / "brinell", folder / "brinell", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def broken(folder):
    """Names of the contracts that do not hold there."""
    process = subprocess.run([sys.executable, "-c", LINT], cwd=folder, env={"PYTHONPATH": "."}, capture_output=True, text=True)
    names = re.findall(r"^(.*) BROKEN", process.stdout, flags=re.MULTILINE)
    assert (process.returncode == 0) == (not names), process.stdout + process.stderr
    assert re.search(rf"{len(CONTRACTS) - len(names)} kept, {len(names)} broken", process.stdout), process.stdout + process.stderr
    return names


def test_the_package_keeps_every_contract(copy):
    assert broken(copy) == []


@pytest.mark.parametrize(("contract", "file", "code"), VIOLATIONS)
def test_a_planted_violation_is_caught(copy, contract, file, code):
    path = copy / "brinell" / file
    before = path.read_text() if path.exists() else None
    new_room = not path.parent.exists()
    path.parent.mkdir(exist_ok=True)
    if new_room:
        (path.parent / "__init__.py").touch()
    try:
        path.write_text((before or "") + "\n" + code + "\n")
        assert contract in broken(copy)
    finally:
        if new_room:
            shutil.rmtree(path.parent)
        elif before is None:
            path.unlink()
        else:
            path.write_text(before)


def test_every_contract_has_a_violation():
    assert {contract["name"] for contract in CONTRACTS} == {contract for contract, _, _ in VIOLATIONS}


def test_reading_records_loads_no_torch():
    package = ROOT / "src" / "brinell"
    files = [file for room in ("analysis", "report", "store") for file in (package / room).glob("*.py")]
    files += [*package.glob("studies/*/analysis.py"), *package.glob("studies/*/page.py")]
    names = [".".join(file.relative_to(package.parent).with_suffix("").parts) for file in files]
    code = f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(package.parent)}).returncode == 0


def test_no_file_is_long():
    """A file has at most 450 lines."""
    folders = ("src", "tests", "benchmarks", "examples", "scripts")
    lines = {path: path.read_text("utf-8").count("\n") for folder in folders for path in (ROOT / folder).rglob("*.py")}
    assert len(lines) > 1000 and not {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > 450}
