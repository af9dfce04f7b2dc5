"""The code of a folder runs in a process of its own, and changes no verdict about it: not by what
it does to the verifier's modules, nor by what it writes where verdicts are kept.
"""

import multiprocessing
import random
import shutil

import pytest

import brinell
from _cli import audit_arguments
from _forger import Forger, whitewash
from _helpers import workspace
from brinell.cli import run as cli
from brinell.core.confinement import confine

SAMPLES = 16
TAMPERING = (
    "differences.FolderComparison.note = lambda *given, **more: None",
    "differences.FolderComparison.differences = property(lambda self: [], lambda self, value: None)",
    "differences.compare_folders = lambda *given: None",
    "result.VerifyResult.status = property(lambda self: result.Status.PROVED)",
    "result.ENDINGS = dict.fromkeys(result.ENDINGS, (0, 'All holds'))",
    "run._check_files = run._compare = lambda *given, **more: None",
    "repetition.RepeatedAudit._note = lambda *given: None",
)
"""What a model's file does to the modules of whoever imports it."""
CODE = """
import os, pathlib, sys
if os.environ.get("TAMPER"):
    from brinell.studies import differences
    from brinell.studies.audit import repetition
    from brinell.studies.verification import result, run
    {statement}
    place = pathlib.Path(os.environ["BRINELL_CACHE"], "verdicts", "planted.json")
    try:
        place.parent.mkdir(exist_ok=True, parents=True)
        place.write_text("it proved me")
    except OSError:
        pass
"""


@pytest.fixture
def forged(tmp_path, request):
    """A run whose model's file tampers, and in which some broken samples are robust."""
    work = workspace(tmp_path, n=SAMPLES)
    with (work / "model.py").open("a") as file:
        file.write(CODE.format(statement=request.param))
    assert cli(audit_arguments(work, work / "run")) == 0
    forger = Forger(shutil.copytree(work / "run", tmp_path / "forged"))
    samples = sorted({row["sample_id"] for row in forger.select(outcome="broken")})[:6]
    whitewash(forger, samples, lambda stage: {"forwards": 4, "backwards": 3})
    forger.delete_inputs(samples)
    forger.save()
    return forger.path


@pytest.mark.parametrize(
    "forged",
    [
        *random.Random(75).sample(TAMPERING, 1),
        *(pytest.param(statement, marks=pytest.mark.slow) for statement in TAMPERING),
    ],
    indirect=True,
)
def test_code_of_a_model_changes_no_verdict(forged, tmp_path, monkeypatch):
    monkeypatch.setenv("TAMPER", "1")
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "cache"))
    result = brinell.verify(forged, trust=forged, replay=SAMPLES)
    assert result.status == "refused"
    for _ in range(2):
        board = brinell.board(forged, out=tmp_path / "site", trust=forged)
        assert [refusal.run for refusal in board.refused] == [str(forged)]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        is_confined = pool.apply(confine, (tmp_path,))
    names = [file.name for file in (tmp_path / "cache" / "verdicts").glob("*")]
    assert names == ([] if is_confined else ["planted.json"])


def test_code_that_is_no_model_proves_nothing(tmp_path):
    """A stranger's attack is not imported where his folder is judged."""
    work, ran = workspace(tmp_path, n=SAMPLES), tmp_path / "ran"
    ran.write_text("")
    (work / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from brinell.attacks.fgsm import FGSM\n"
        "from pathlib import Path\n"
        f"Path({str(ran)!r}).write_text(Path({str(ran)!r}).read_text() + 'x')\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(FGSM):\n    'Mine.'\n"
    )
    arguments = audit_arguments(work, work / "run", "--attack", f"{work / 'mine.py'}:Mine")
    assert cli(arguments) == 0
    times = ran.read_text()
    copy = shutil.copytree(work / "run", tmp_path / "copy")
    result = brinell.verify(copy, trust=copy)
    assert result.status == "consistent" and "is code" in result.refusal
    assert ran.read_text() == times
    result = brinell.verify(work / "run", replay=SAMPLES)
    assert result.passed, (result.problems, result.refusal, result.undecided)
