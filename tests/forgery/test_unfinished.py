"""A run that states that it is not finished has no inventory; no other command takes it in silence."""

import json
import shutil

import pytest

import brinell
from _refusals import refused
from brinell.core.errors import RequestError
from brinell.store.run import LAYOUT

SETTINGS = {"model": "digits-cnn?width=4", "data": "digits", "samples": 12, "eps": "0.1,0.3", "attack": "fgsm"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run, and a copy that says that it is active."""
    folder = tmp_path_factory.mktemp("runs")
    brinell.audit(**SETTINGS, out=folder / "run")
    copy = shutil.copytree(folder / "run", folder / "copy")
    manifest = json.loads((copy / "manifest.json").read_text())
    LAYOUT.save(copy, manifest | {"state": "running", "finished": None})
    return folder / "run", copy


def test_a_comparison_says_it(runs, tmp_path):
    with pytest.raises(RequestError, match="copy is not finished"):
        brinell.compare(list(runs), out=tmp_path / "c")


def test_a_study_refuses_it(runs, tmp_path_factory, subtests):
    for call in [
        lambda run, out: brinell.review(data="digits", change=f"run:{run}", trials=4, out=out),
        lambda run, out: brinell.explain(run=run, samples=2, method="gradient", out=out),
    ]:
        with subtests.test(str((call,))):
            tmp_path = tmp_path_factory.mktemp("row")
            with pytest.raises(RequestError, match="is not finished"):
                call(runs[1], tmp_path / "out")


def test_a_folder_with_a_link_is_refused(runs, tmp_path):
    copy = shutil.copytree(runs[0], tmp_path / "run")
    (copy / "report.html").rename(tmp_path / "page.html")
    (copy / "report.html").symlink_to(tmp_path / "page.html")
    with pytest.raises(RequestError, check=refused("store.inventory.list_files")):
        brinell.open(copy)
