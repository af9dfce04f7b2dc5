"""Processes that work on one run and are killed by SIGKILL; benchmarks/kill_shards.py does it at random moments, twenty times."""

import multiprocessing
import os

import pytest

from _helpers import audit_command, rows_of, run_in_process, workspace
from brinell.cli import run as cli
from brinell.runners import shards
from brinell.store.run import Run
from brinell.store.shared import FolderStore


def command(work, out, *arguments):
    return [*audit_command(work), "--attack", "pgd?steps=3", "--batch-size", "1", "--quiet", "--out", str(out), *arguments]


@pytest.fixture(scope="module")
def single_run(tmp_path_factory):
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
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("shares", [(0.6,), pytest.param((0.02, 0.3, 0.5), marks=pytest.mark.nightly)])
def test_one_after_the_other_is_killed(single_run, tmp_path, shares):
    out, calls = tmp_path / "run", int((single_run / "calls").read_text())
    for number, share in enumerate(shares, 1):
        words = command(single_run, out, "--shard", f"{number}/4")
        assert run_in_process(words, TEST_KILL_AT=str(int(share * calls))) == -9
    claims = FolderStore(out).names("shards/claims")
    assert claims, "a process that was killed gives nothing back"
    assert run_in_process(["audit", "--resume", "--quiet", "--out", str(out)]) == 0
    assert rows_of(Run.open(out).records()) == rows_of(Run.open(single_run / "alone").records())
    assert not (out / "shards").exists() and (out / "report.html").exists()


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_at_once_of_which_one_is_killed(single_run, tmp_path):
    out, context, calls = tmp_path / "run", multiprocessing.get_context("fork"), int((single_run / "calls").read_text())

    def body(number, call):
        os.environ |= {"TEST_KILL_AT": str(call), "TEST_CALLS": "0"}
        os._exit(cli(command(single_run, out, "--shard", f"{number}/2")))

    processes = [context.Process(target=body, args=(number, call)) for number, call in ((1, calls // 2), (2, 0))]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] in ([-9, 0], [0, 0])
    assert rows_of(Run.open(out).records()) == rows_of(Run.open(single_run / "alone").records())
