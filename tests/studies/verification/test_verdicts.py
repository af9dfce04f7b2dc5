"""A folder that was verified and is as it was is not repeated; whatever decides the outcome changes
where it is kept, and nothing is read from the folder.
"""

import json
import shutil

import numpy as np
import pytest

import brinell
from _cli import audit_arguments
from _forger import Forger, whitewash
from _helpers import workspace
from brinell.cli import run as cli
from brinell.studies.verification import run as verification


@pytest.fixture
def repetitions(monkeypatch, tmp_path):
    """The folders that were repeated, in a cache of their own."""
    folders, repeat = [], verification._verify_apart

    def counted(call, study, folder, request, replaced):
        folders.append(folder.name)
        return repeat(call, study, folder, request, replaced)

    monkeypatch.setattr(verification, "_verify_apart", counted)
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "cache"))
    return folders


@pytest.fixture
def work(tmp_path, repetitions):
    """A workspace with a run, whose model imports a module beside it."""
    folder = workspace(tmp_path, n=8)
    (folder / "helper.py").write_text("SCALE = 1\n")
    (folder / "model.py").write_text("import helper\n" + (folder / "model.py").read_text())
    assert cli(audit_arguments(folder, folder / "run")) == 0
    return folder


def test_a_folder_is_repeated_once(work, repetitions):
    first, second = (brinell.verify(work / "run") for _ in range(2))
    assert first.passed and first.payload() == second.payload() and repetitions == ["run"]


def append(file):
    file.write_bytes(file.read_bytes() + b"\n")


CHANGES = {
    "the model's file": lambda work: append(work / "model.py"),
    "a module beside it": lambda work: append(work / "helper.py"),
    "the data": lambda work: np.savez_compressed(
        work / "data.npz", **np.load(work / "data.npz", allow_pickle=False)
    ),
    "the page": lambda work: append(work / "run" / "report.html"),
    "a new file": lambda work: (work / "run" / "more.txt").write_text(""),
    "the request": lambda work: append(work / "run" / "run.toml"),
    "the number of samples": lambda work: {"replay": 3},
    "trust": lambda work: {"trust": work / "run"},
    "the model that the person names": lambda work: (f"torch:{work / 'model.py'}:parabola",),
}


@pytest.mark.parametrize(
    "change",
    ["a module beside it", *(pytest.param(name, marks=pytest.mark.slow) for name in CHANGES)],
)
def test_what_decides_is_asked_again(work, repetitions, change):
    brinell.verify(work / "run")
    stored = list((work / "cache" / "verdicts").glob("*.json"))
    changed = CHANGES[change](work)
    arguments = changed if isinstance(changed, tuple) else ()
    settings = changed if isinstance(changed, dict) else {}
    result = brinell.verify(work / "run", *arguments, **settings)
    assert repetitions == ["run", "run"] or result.status == "refused", change
    added = {*(work / "cache" / "verdicts").glob("*.json")} - {*stored}
    assert len(added) == (result.passed and not arguments)


@pytest.mark.slow
def test_nothing_of_a_refused_or_moved_folder_is_taken_over(work, repetitions):
    brinell.verify(work / "run")
    (stored,) = (work / "cache" / "verdicts").glob("*.json")
    forged = shutil.copytree(work / "run", work / "forged")
    forger = Forger(forged)
    samples = sorted({row["sample_id"] for row in forger.select(outcome="broken")})[:4]
    whitewash(forger, samples, lambda stage: {"forwards": 4, "backwards": 3})
    forger.delete_inputs(samples)
    forger.save()
    for place in (forged, forged / ".verdicts", forged.parent / "verdicts"):
        place.mkdir(exist_ok=True)
        shutil.copyfile(stored, place / stored.name)
    (forged / stored.name).unlink()
    for _ in range(2):
        assert brinell.verify(forged, trust=forged, replay=8).status == "refused"
    assert repetitions == ["run", "forged", "forged"]


@pytest.mark.slow
def test_a_damaged_outcome_is_made_again(work, repetitions):
    brinell.verify(work / "run")
    (stored,) = (work / "cache" / "verdicts").glob("*.json")
    content = json.loads(stored.read_text())
    for number, text in enumerate(
        ("", "[]", json.dumps(content | {"more": 1}), stored.read_text()[:-9])
    ):
        stored.write_text(text)
        assert brinell.verify(work / "run").passed and len(repetitions) == 2 + number
    assert json.loads(stored.read_text()) == content


@pytest.mark.slow
def test_a_board_is_made_again_without_a_repetition(work, repetitions):
    for name in ("second", "third"):
        assert cli(audit_arguments(work, work / name)) == 0
    folders = [str(work / name) for name in ("run", "second", "third")]
    first, second = (brinell.board(folders, out=work / "site") for _ in range(2))
    assert first.verified == second.verified == 3 and sorted(repetitions) == [
        "run",
        "second",
        "third",
    ]
