"""Processes that work on one run and are killed by SIGKILL; benchmarks/kill_shards.py does it at random moments, twenty times."""

import multiprocessing
import os

import pytest

from _helpers import audit_words, in_a_process_of_its_own, rows_of, workspace
from brinell.cli import run as cli
from brinell.runners import shards
from brinell.store.run import Run
from brinell.store.shared import FolderStore


def command(work, out, *more):
    return [*audit_words(work), "--attack", "pgd?steps=3", "--batch-size", "1", "--quiet", "--out", str(out), *more]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    work = workspace(tmp_path_factory.mktemp("work"), n=9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_CALLS", "0")
        assert cli(command(work, work / "alone")) == 0
        (work / "calls").write_text(os.environ["TEST_CALLS"])
    return work


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch):
    monkeypatch.setenv("TEST_CALLS", "0")
    monkeypatch.setitem(shards.run.__kwdefaults__, "lease", 0.5)


# At which of the calls of an undisturbed run, as a share: first the check of the clean samples, then the checks, then the attack.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "shares", [(0.9,), pytest.param((0.02, 0.3, 0.5), marks=pytest.mark.slow), pytest.param((0.8, 0.02), marks=pytest.mark.slow)]
)
def test_one_after_the_other_is_killed(alone, tmp_path, shares):
    out, calls = tmp_path / "run", int((alone / "calls").read_text())
    for number, share in enumerate(shares, 1):
        words = command(alone, out, "--shard", f"{number}/4")
        assert in_a_process_of_its_own(words, TEST_KILL_AT=str(int(share * calls))) == -9
    held = FolderStore(out).names("shards/claims")
    assert held, "a process that was killed gives nothing back"
    assert in_a_process_of_its_own(["audit", "--resume", "--quiet", "--out", str(out)]) == 0
    assert rows_of(Run.open(out).records()) == rows_of(Run.open(alone / "alone").records())
    assert not (out / "shards").exists() and (out / "report.html").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_at_once_of_which_one_is_killed(alone, tmp_path):
    out, context, calls = tmp_path / "run", multiprocessing.get_context("fork"), int((alone / "calls").read_text())

    def body(number, at):
        os.environ |= {"TEST_KILL_AT": str(at), "TEST_CALLS": "0"}
        os._exit(cli(command(alone, out, "--shard", f"{number}/2")))

    processes = [context.Process(target=body, args=(number, at)) for number, at in ((1, calls // 2), (2, 0))]
    for one in processes:
        one.start()
    for one in processes:
        one.join(120)
    assert [one.exitcode for one in processes] in ([-9, 0], [0, 0])
    assert rows_of(Run.open(out).records()) == rows_of(Run.open(alone / "alone").records())
