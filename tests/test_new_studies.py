"""A new study is one folder: from an installed package or within the package, it has all that the
others have, and nothing is edited.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import brinell

SCRIPT = """
import contextlib, inspect, io, json, sys, threading
from pathlib import Path

import jsonschema

import brinell
from brinell.cli import run
from brinell.core.user_files import import_file
from brinell.studies import register
from brinell.testing import check_study

work, root = Path(sys.argv[1]), Path(sys.argv[2])
small = ["--samples", "20", "--size", "0", "--size", "0.3"]


def command(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(["tally", *words]) == 0, words
    return out.getvalue()


assert "Count how often a model predicts each class" in command("--help")
told = json.loads(command(*small, "--json", "--out", str(work / "a")))
jsonschema.validate(told, register.schema("tally"))
assert [sum(level["counts"]) for level in told["levels"]] == [20, 20] and (work / "a" / "report.html").exists()
result = brinell.tally("digits-cnn", "digits", samples=20, size=(0, 0.3), out=work / "b")
assert [level.counts for level in result.levels] == [level["counts"] for level in told["levels"]]
assert brinell.open(work / "b") == result and "size" in inspect.signature(brinell.tally).parameters
assert command(*small, "--resume", "--out", str(work / "a"))

generate = import_file(root / "scripts" / "generate_docs.py")
page = generate.command_pages()["docs/reference/commands/tally.md"]
assert "## brinell tally" in page and "def tally(" in page and "tally.json" in generate.json_page()
check_study(register.load("tally"), {"samples": 10, "size": [0.0, 0.3]})
print("all of it")
"""


@pytest.fixture
def by_entry_point(tmp_path: Path, root: Path) -> str:
    """The package and the metadata of an installation, outside of Brinell."""
    shutil.copytree(
        root / "examples" / "study" / "brinell_tally", tmp_path / "site" / "brinell_tally"
    )
    distribution = tmp_path / "site" / "brinell_tally-0.1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: brinell-tally\nVersion: 0.1\n"
    )
    (distribution / "entry_points.txt").write_text("[brinell.study]\ntally = brinell_tally\n")
    return os.pathsep.join([str(tmp_path / "site"), str(Path(brinell.__file__).parents[1])])


@pytest.fixture
def by_folder(tmp_path: Path, root: Path) -> str:
    """The same files as a folder in a copy of the package."""
    package = tmp_path / "src" / "brinell"
    shutil.copytree(
        Path(brinell.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(root / "examples" / "study" / "brinell_tally", package / "studies" / "tally")
    return str(package.parent)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["by_entry_point", "by_folder"])
def test_a_study_is_one_folder(
    place: str, tmp_path: Path, root: Path, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(place)
    work = tmp_path / "work"
    work.mkdir()
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(work), str(root)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=work,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.stdout.strip().endswith("all of it"), process.stdout + process.stderr


def test_the_page_for_contributors_holds_the_example(root: Path) -> None:
    page = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = sorted((root / "examples" / "study" / "brinell_tally").glob("*.py"))
    assert len(files) == 3 and not [
        file.name
        for file in files
        if f"```python\n{file.read_text(encoding='utf-8')}```" not in page
    ]
