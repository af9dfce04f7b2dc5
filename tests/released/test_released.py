"""Folders and JSON of released versions are read, verified and reported by this one."""

import json
import shutil
from pathlib import Path

import pytest

import brinell
from brinell.studies.register import write_page

VERSIONS = sorted(
    path for path in Path(__file__).parent.iterdir() if (path / "audit.json").exists()
)
FOLDERS = [path.with_suffix("") for version in VERSIONS for path in sorted(version.glob("*.json"))]


@pytest.fixture(params=FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def folder(request, tmp_path, monkeypatch):
    """A folder of a released version among the others, which it may name."""
    shutil.copytree(request.param.parent, tmp_path / "archive")
    monkeypatch.chdir(tmp_path / "archive")
    # What follows from records is not kept; folders within others come first.
    manifests = sorted(Path().rglob("manifest.json"), key=lambda path: -len(path.parts))
    for manifest in manifests:
        write_page(manifest.parent)
    return Path(request.param.name)


def holds(new, old, place=""):
    """The first place at which something that was promised is missing or has another value."""
    if isinstance(old, dict):
        if not isinstance(new, dict):
            return place
        missing = [f"{place}.{key}" for key in old if key not in new]
        places = [
            holds(new[key], value, f"{place}.{key}") for key, value in old.items() if key in new
        ]
        return next((name for name in [*missing, *places] if name), "")
    if isinstance(old, list):
        if not isinstance(new, list) or len(new) != len(old):
            return place
        places = [holds(*pair, f"{place}[]") for pair in zip(new, old, strict=True)]
        return next((name for name in places if name), "")
    return "" if new == old or isinstance(old, str) else place


def test_an_archive_is_kept():
    assert FOLDERS, "python tests/released/make.py VERSION"
    size = sum(path.stat().st_size for path in Path(__file__).parent.rglob("*") if path.is_file())
    assert size < 1_000_000


@pytest.mark.slow
def test_a_folder_is_read_reported_and_verified(folder):
    kept = json.loads(folder.with_suffix(".json").read_text(encoding="utf-8"))
    result = brinell.open(folder)
    assert not (place := holds(json.loads(json.dumps(result.payload())), kept)), place
    assert (folder / "report.html").stat().st_size > 1_000
    verified = brinell.verify(folder)
    assert not verified.problems, verified.problems


def test_a_promise_that_is_broken_is_found():
    kept = {"a": [{"b": 1.0}], "c": None}
    assert not holds({"a": [{"b": 1.0, "new": 2}], "c": None, "more": 3}, kept)
    assert holds({"a": [{"d": 1.0}], "c": None}, kept) == ".a[].b"
    assert holds({"a": [{"b": 2.0}], "c": None}, kept) == ".a[].b"
    assert holds({"a": [], "c": None}, kept) == ".a"
