"""Processes that are killed and disks that are full, at random moments of every study that leaves a
folder: nothing is lost, and success is told of nothing that was not written.
"""

import errno
import os
import random
import zlib
from pathlib import Path

import pytest

from _nights import of_tonight
from _study_examples import EXAMPLES, Needs
from brinell.core.errors import RequestError, StoppedError
from brinell.studies import register
from brinell.testing import studies as rules

CHANGES = ("mkdir", "replace", "unlink", "write_bytes")
"""Methods of paths that change a folder."""
FAULTS = ("killed before", "killed after", "full")
STOPPED = 3


def break_at(moment, fault):
    """Let the change of this number, and on a full disk all that follow, fail."""
    changes = 0

    def broken(change):
        def instead(path, *arguments, **settings):
            nonlocal changes
            changes += 1
            if fault == "full" and changes >= moment and change.__name__ not in ("mkdir", "unlink"):
                raise OSError(errno.ENOSPC, "No space left on device")
            if fault == "killed before" and changes == moment:
                os.kill(os.getpid(), 9)
            answer = change(path, *arguments, **settings)
            if fault == "killed after" and changes == moment:
                os.kill(os.getpid(), 9)
            return answer

        return instead

    for name in CHANGES:
        setattr(Path, name, broken(getattr(Path, name)))


def exit_code_of(run, out, moment, fault):
    """How a process ends that makes a folder with a fault: 0 where it ended before."""
    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 1
    try:
        break_at(moment, fault)
        run.call(out=out)
        code = 0
    except StoppedError:
        code = STOPPED
    finally:
        os._exit(code)


def go_on(run, out):
    """Resume a call; where it had not begun, or cannot be resumed, give it again."""
    try:
        run.call(out=out, **({"resume": True} if run.study.resume else {}))
    except RequestError as error:
        assert "to resume" in str(error)
        run.call(out=out)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_nothing_is_lost(tmp_path_factory, subtests):
    for verb, example in EXAMPLES.items():
        folder = tmp_path_factory.mktemp("study")
        run = rules.finish(register.load(verb), example | Needs(folder)(verb), folder)
        rng = random.Random(zlib.crc32(verb.encode()) + of_tonight(1)[0])
        for fault in FAULTS:
            moment = rng.randint(1, 2 * run.writes)
            with subtests.test(f"{verb}, {fault} change {moment}"):
                check_fault(run, folder / fault, moment, fault)


def check_fault(run, out, moment, fault):
    """A process with a fault, and the call that goes on, leave what an undisturbed call leaves."""
    code = exit_code_of(run, out, moment, fault)
    assert code in (0, STOPPED if fault == "full" else -9)
    if code:
        go_on(run, out)
    assert rules.rows_match(rules.rows_of(out), run.rows)
    assert (out / "report.html").exists()
    assert not [file.name for file in out.rglob(".*") if file.suffix == ".tmp"]
