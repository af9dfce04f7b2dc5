"""The exit code of the command line is what a verb returned, whatever the files of models and
attacks do to the process."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brinell.cli import run as cli
from brinell.cli import supervise
from brinell.cli.supervise import exit_code_without_answer

PROGRAM = """
import os, select, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from brinell.cli.supervise import run_supervised
def waits():
    reader, writer = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writer)  # so that a signal just before the wait ends it too
    try:
        print(os.getpid(), flush=True)
        select.select([reader], [], [], 50)
    except KeyboardInterrupt:
        select.select([], [], [], 0.3)
        print("tidied", flush=True)
        return 130
sys.exit(run_supervised(lambda: WORK, 3))
"""
MODEL = """
import os, sys
import torch
from torch import nn
def net():
    {}
    torch.manual_seed(0)  # a layer left to chance may be right on no sample, and then no attack is called
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""


def supervising(work, **options):
    words = [sys.executable, "-c", PROGRAM.replace("WORK", work)]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


ENDS = [
    ("0", 0, ""),
    ("1", 1, ""),
    ("130", 130, ""),
    ("os._exit(0)", 3, "ended itself with code 0 and gave no answer"),
    ("os._exit(1)", 3, "ended itself with code 1"),
    ("sys.exit(0)", 3, "ended itself with code 0"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", 3, "SIGSEGV"),
    ("os.kill(os.getpid(), signal.SIGKILL)", 3, "SIGKILL (memory may be short)"),
    ("1 / 0", 3, "ZeroDivisionError"),
    (
        "[os.write(n, b'0') for n in range(3, 10) if "
        "os.path.exists(f'/proc/self/fd/{n}')] and os._exit(0)",
        3,
        "no answer",
    ),
    ("(__import__('atexit').register(os._exit, 0), 2)[1]", 2, ""),
]
"""What a command does, its exit code, and what is said."""


@pytest.mark.slow
def test_only_what_was_returned_counts(subtests):
    for work, code, message in ENDS:
        with subtests.test(work=work):
            process = supervising(work)
            out, error = process.communicate()
            assert process.returncode == code
            assert message in error and bool(error) == bool(message) and not out
            if code == 3 and "Error" not in message:
                assert error.count("\n") == 1


def test_ends_of_a_child_of_this_process(monkeypatch, capsys, subtests):
    """The same where a fault of the parent's side shows: what it returns, and the one line that it
    says.
    """
    monkeypatch.setattr(supervise.sys, "exit", os._exit)  # the child must not go on with the tests

    rows = [
        (lambda: 0, 0, ""),
        (lambda: 4, 4, ""),
        (lambda: os._exit(0), 9, "ended itself with code 0 and gave no answer"),
        (lambda: os._exit(5), 9, "ended itself with code 5"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), 9, "ended by SIGKILL (memory may be short)"),
        (lambda: os.kill(os.getpid(), signal.SIGUSR2), 9, "ended by SIGUSR2; what"),
        (lambda: 1 // 0, 3, ""),
    ]
    handlers = [signal.getsignal(number) for number in supervise.FORWARDED]
    for work, code, message in rows:
        with subtests.test(code=code, message=message):
            assert supervise.run_supervised(work, 9) == code
            error = capsys.readouterr().err
            assert message in error and error.count("\n") == bool(message)
            assert [signal.getsignal(number) for number in supervise.FORWARDED] == handlers


def test_two_interruptions_at_once_are_one(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(supervise.time, "monotonic", lambda: now[0])
    handle, interruptions = supervise._interrupt_once(), []
    for moment in (100.0, 100.5, 100.99, 101.0, 101.5, 102.5):
        now[0] = moment
        try:
            handle(signal.SIGINT, None)
        except KeyboardInterrupt:
            interruptions.append(moment)
    assert interruptions == [100.0, 101.0, 102.5]


def test_verify_that_ends_without_an_answer_has_failed():
    assert [
        exit_code_without_answer(words)
        for words in (
            ["verify", "run"],
            ["--trust", "x", "verify"],
            ["audit"],
            ["gate", "verify"],
            [],
        )
    ] == [
        1,
        1,
        3,
        3,
        3,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_child(number):
    process = supervising("waits()")
    assert int(process.stdout.readline()) != process.pid
    process.send_signal(number)
    assert process.communicate()[0] == "tidied\n"
    assert process.returncode == 130


@pytest.mark.slow
def test_ctrl_c_at_a_terminal_counts_once():
    """A terminal sends it to both processes, and the parent forwards what it got: the child is
    still let tidy up.
    """
    process = supervising("waits()", start_new_session=True)
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate()[0] == "tidied\n"
    assert process.returncode == 130


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the parent's death is told on Linux alone"
)
def test_a_killed_command_leaves_nothing_that_goes_on():
    process = supervising("waits()")
    child = int(process.stdout.readline())
    process.kill()
    process.communicate()  # which ends once nobody holds the pipe any more
    status = Path(f"/proc/{child}/status")
    while (
        status.exists() and "\nState:\tZ" not in status.read_text()
    ):  # until the test's time is over
        os.sched_yield()


# Files of models and attacks


def brinell(*words):
    line = [sys.executable, "-m", "brinell", *map(str, words)]
    process = subprocess.run(line, capture_output=True, text=True)
    return process.returncode, process.stderr


@pytest.mark.slow
def test_a_model_that_ends_the_process_has_not_been_audited(tmp_path):
    (tmp_path / "model.py").write_text(MODEL.format("os._exit(0)"))
    code, output = brinell(
        "audit",
        "--data",
        "digits",
        "--model",
        f"{tmp_path}/model.py:net",
        "--out",
        tmp_path / "run",
    )
    assert code == 3 and "no answer" in output and output.count("\n") == 1


def test_a_model_that_leaves_is_no_success(tmp_path_factory, capsys, subtests):
    """In the process of the caller too, where a file's own exit is an exception."""
    for place in ["import", "factory", "answer"]:
        with subtests.test(place=place):
            tmp_path = tmp_path_factory.mktemp("case")
            file = tmp_path / "model.py"
            if place == "import":
                file.write_text("raise SystemExit(0)\n")
            elif place == "factory":
                file.write_text(MODEL.format("sys.exit(0)"))
            else:
                layer = (
                    "import sys\nfrom torch import nn\nclass Net(nn.Module):\n    "
                    "def forward(self, x):\n        sys.exit(0)\n"
                )
                file.write_text(layer + "def net():\n    return Net()\n")
            words = [
                "audit",
                "--data",
                "digits",
                "--model",
                f"{file}:net",
                "--samples",
                "4",
                "--out",
                str(tmp_path / "run"),
            ]
            assert cli(words) == 2
            out, message = capsys.readouterr()
            assert not out and message.count("\n") == 1 and "SystemExit" in message


@pytest.mark.slow
def test_an_attack_that_leaves_is_no_success(tmp_path, capsys):
    fgsm = (Path(__file__).parents[2] / "src/brinell/attacks/fgsm.py").read_text()
    leaves = re.sub(r"(    def __call__.*?:\n)", r"\1        raise SystemExit(0)\n", fgsm)
    assert leaves != fgsm
    (tmp_path / "leaves.py").write_text(leaves)
    (tmp_path / "model.py").write_text(MODEL.format("pass"))
    words = [
        "audit",
        "--data",
        "digits",
        "--samples",
        "40",
        "--model",
        f"{tmp_path}/model.py:net",
        "--eps",
        "0.1",
    ]
    words += ["--attack", f"{tmp_path}/leaves.py:FGSM"]
    assert cli([*words, "--out", str(tmp_path / "run")]) == 3
    assert "ended the program" in capsys.readouterr().err
