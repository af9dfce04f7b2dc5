"""Which files of a folder count, and what is wrong with those that its manifest does not list as
they are."""

import pytest

from brinell.core.errors import RequestError
from brinell.store.inventory import find_faults, list_files, take_inventory

DERIVED = frozenset(("manifest.json", "report.html"))
COUNTED = [
    "deep/report.html",
    "deep/shards/a",
    "other/manifest.json",
    "records/part.parquet",
    "tables/deep/x.csv",
    "tables/x.txt",
]
FREE = [
    ".lock",
    "manifest.json",
    "report.html",
    "tables/x.csv",
    ".cache/a",
    "other/rows.parquet",
    "other/a/b",
]
FREE += ["filled/.parts/a", "filled/a", "filled/sub/a", "records/.x.tmp"]


@pytest.fixture
def folder(tmp_path):
    for name in (*COUNTED, *FREE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_files_that_count(folder):
    assert list_files(folder, DERIVED) == COUNTED
    assert list_files(folder, frozenset()) == sorted([*COUNTED, "manifest.json", "report.html"])
    files = take_inventory(folder, DERIVED)
    assert sorted(files) == COUNTED and len(set(files.values())) == len(COUNTED)


def test_what_is_not_as_it_is_listed(folder):
    manifest = {"files": take_inventory(folder, DERIVED)}
    assert find_faults(folder, manifest, DERIVED) == []
    (folder / "records/part.parquet").write_text("other")
    assert find_faults(folder, manifest, DERIVED) == [
        ("records/part.parquet", "was changed after the run ended")
    ]
    (folder / "tables/x.txt").unlink()
    (folder / "records/more").write_text("")
    (folder / "second").mkdir()
    (folder / "second/manifest.json").write_text("")  # a folder of another command
    assert [(name, words.split()[1]) for name, words in find_faults(folder, manifest, DERIVED)] == [
        ("records/more", "not"), ("records/part.parquet", "changed"), ("tables/x.txt", "missing")
    ]  # fmt: skip
    assert find_faults(folder, {}, DERIVED) and not find_faults(
        folder / "filled" / ".parts" / "none", {}, DERIVED
    )


@pytest.mark.parametrize("name", ["records/part.parquet", "tables/x.csv", "report.html", "records"])
def test_a_link_is_refused(folder, tmp_path_factory, name):
    """Also in place of a folder, and of a file that does not count."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "file"
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(RequestError, match=f"{name} is a symbolic link"):
        list_files(folder, DERIVED)
    assert find_faults(folder, {}, DERIVED)[0][0] == "manifest.json"
