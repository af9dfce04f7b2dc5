"""Progress of a run: in lines and in the live line of a terminal."""

import io
import re
import types

import numpy as np
import pytest

from _helpers import Recorder, plan_of, threshold
from brinell.reports import live_progress as progress
from brinell.reports.live_progress import LiveProgress, duration
from brinell.studies.audits import run_audit

X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
Y = np.zeros(5, dtype=int)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it."""
    timer = types.SimpleNamespace(at=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: timer.at)
    return timer


def audit(tmp_path, progress, **request):
    plan = plan_of(Recorder(threshold(0.5)), X, Y, eps="0.1,0.15", **request)
    with progress:
        run_audit(plan, tmp_path / "run", progress, command="from a test")


def test_stages_are_numbered_and_those_that_ran_on_nothing_are_left_out(tmp_path):
    """The number of a stage is its place in the plan, whose stages the page counts; two wait for
    alarms that never come.
    """
    attacks = (
        "fgsm",
        "pgd?steps=2",
        "bim?steps=2&within=0",
        "square?steps=9&when=masked",
        "apgd-ce?steps=9&when=random",
        "pgd",
    )
    out, verbose_out = io.StringIO(), io.StringIO()
    audit(tmp_path / "a", LiveProgress(stream=out), attack=attacks)
    stages = [
        line.partition("recorder ")[2].partition(",")[0].partition(":")[0]
        for line in out.getvalue().splitlines()
        if "recorder " in line
    ]
    assert stages == ["clean", "checks", "1/6 FGSM", "2/6 PGD", "6/6 PGD"]
    audit(tmp_path / "b", LiveProgress(stream=verbose_out, verbose=True), attack=attacks)
    lines_ = [
        line
        for line in verbose_out.getvalue().splitlines()
        if line.endswith(": 0 samples, nothing to do")
    ]
    assert [line.partition("recorder ")[2].partition(":")[0] for line in lines_] == [
        "3/6 BIM, 2 steps",
        "4/6 Square, 9 steps",
        "5/6 APGD-CE, 9 steps",
    ]


def test_plain_lines_are_no_more_than_stages_and_messages(tmp_path):
    out = io.StringIO()
    audit(tmp_path, LiveProgress(stream=out), attack=("fgsm",))
    assert all(
        re.fullmatch(
            r"brinell: (recorder .*: \d+ samples, [\d,]+ forwards, [\d.]+ s|note: .*)", line
        )
        for line in out.getvalue().splitlines()
    ), out.getvalue()
    assert "\x1b" not in out.getvalue() and "\r" not in out.getvalue()


def test_quiet_leaves_warnings_alone(tmp_path):
    out = io.StringIO()
    progress = LiveProgress(stream=out, quiet=True)
    audit(tmp_path, progress, attack=("fgsm",))
    progress.note("something")
    progress.warn("something else")
    assert out.getvalue() == "brinell: warning: something else\n"


def test_time_left_by_hand(clock):
    """10 passes took 5 s.

    30 of 40 are left here, 60 after, and two models more of 100 passes each: 290 passes at 0.5 s.
    """
    progress = LiveProgress(stream=io.StringIO())
    progress.stage("m", "1/2 A", 4, 40)
    progress.forecast({"a": 40, "b": 40, "c": 20}, 2)
    clock.at += 5
    progress.count_passes(6, 4)
    (task,) = progress._bar.tasks
    assert task.fields[
        "note"
    ] == "4 open, 2 passes/s, about 2 min 25 s left" and task.percentage == pytest.approx(
        100 * 10 / 300
    )
    progress.update_open(1, 3)
    assert task.fields["note"].endswith("about 1 min 55 s left"), (
        "a quarter of the samples is open: 10, 60 and 2 x 80"
    )


def test_a_long_stage_says_so_once_a_minute(clock):
    out = io.StringIO()
    with LiveProgress(stream=out) as progress:
        progress.stage("m", "1/1 A", 4, 4000)
        progress.forecast({"a": 40}, 0)
        for _ in range(130):
            clock.at += 1
            progress.count_passes(1, 1)
        progress.update_open(0, 3)
    lines = out.getvalue().splitlines()
    assert [line for line in lines if "left" in line] == [
        "brinell: m 1/1 A: 4 open, 2 passes/s, about 32 min 19 s left",
        "brinell: m 1/1 A: 4 open, 2 passes/s, about 31 min 18 s left",
    ]
    assert lines[-1] == "brinell: m 1/1 A: 4 samples, 130 forwards, 2 min 10 s" and len(lines) == 3


def test_a_terminal_has_one_line_that_is_rewritten(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with LiveProgress(stream=out) as progress:
        progress.stage("[m]", "1/2 A", 4, 40)
        progress.forecast({"a": 40, "b": 60}, 0)
        clock.at += 5
        progress.count_passes(6, 4)
        clock.at += 1
        progress.update_open(1, 3)
        progress._bar.refresh()
        progress.warn("look out")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert "[m] 1/2 A" in text and "3 robust, 2 passes/s, about 42.0 s left" in text
    assert "brinell: warning: look out\n" in text
    assert text.count("brinell: [m] 1/2 A: 4 samples, 6 forwards, 6.0 s\n") == 1


def test_times_read_well(subtests):
    for seconds, text in [(4.24, "4.2 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")]:
        with subtests.test(str((seconds, text))):
            assert duration(seconds) == text
