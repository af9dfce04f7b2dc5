"""The process that runs models and attacks is watched by another, so that its exit is never taken for an answer.

A file of a model or an attack runs in the process that imports it, and can end it with any code: `sys.exit(0)`, `os._exit(0)`.
So the command line forks before it loads anything heavy. The child carries the command out and tells its exit code over a pipe
once the verb has returned; the parent waits, forwards signals, and ends with what it was told. A child that ends without telling
anything has no answer, whatever its exit code. Where the system cannot fork, the command runs in the one process there is.
"""

import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from brinell.cli.options import say

FORWARDED = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)
TOGETHER = 1.0
"""Seconds within which two SIGINT are one: a terminal sends Ctrl-C to both processes, and the parent forwards its own."""
PR_SET_PDEATHSIG = 1
"""Of Linux's prctl.h."""


def unanswered(arguments: Sequence[str]) -> int:
    """The exit code of a command that ended without an answer: 1 for a verification, which did not pass; otherwise 3."""
    return 1 if next((word for word in arguments if not word.startswith("-")), "") == "verify" else 3


def supervised(work: Callable[[], int], otherwise: int) -> int:
    """The exit code that `work` returns, carried out in a child process; `otherwise`, and a line, where it never returns."""
    if not hasattr(os, "fork"):
        return work()
    reader, writer = os.pipe()
    secret, parent = os.urandom(16), os.getpid()  # what is written to the pipe by accident is no answer
    sys.stdout.flush()
    sys.stderr.flush()
    # Those that whoever started us ignores stay ignored.
    listened = [one for one in FORWARDED if signal.getsignal(one) not in (signal.SIG_IGN, None)]
    before = {one: signal.getsignal(one) for one in listened}
    signal.pthread_sigmask(signal.SIG_BLOCK, listened)
    child = os.fork()
    if not child:
        os.close(reader)
        _until_parent_ends(parent)
        tidied = _once()
        for one in {signal.SIGINT, signal.SIGTERM} & set(listened):
            signal.signal(one, tidied)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, listened)
        _work(work, writer, secret)
    os.close(writer)
    forwarded: list[int] = []

    def forward(number: int, _: Any) -> None:
        forwarded.append(number)
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for one in listened:
        signal.signal(one, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, listened)
    status = _awaited(child, reader)
    for one, handler in before.items():
        signal.signal(one, handler)
    os.set_blocking(reader, False)  # a process that the child left behind may hold the other end open
    try:
        told = os.read(reader, 64)
    except BlockingIOError:
        told = b""
    os.close(reader)
    if told.startswith(secret):
        return int(told[len(secret) :])
    return _no_answer(os.waitstatus_to_exitcode(status), forwarded, otherwise)


def _awaited(child: int, reader: int) -> int:
    """The status with which the child ended.

    It is asked for five times a second: during one long wait, a signal that came just before it would not be forwarded.
    """
    answered = False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if answered:
            time.sleep(0.01)  # what is registered to run at the end runs now
        else:
            answered = bool(select.select([reader], [], [], 0.2)[0])


def _work(work: Callable[[], int], writer: int, secret: bytes) -> NoReturn:
    """The child: carry out the command, and tell its exit code once it has returned."""
    try:
        code = work()
    except Exception:
        traceback.print_exc()
        code = 3
    with suppress(BrokenPipeError, ValueError):
        sys.stdout.flush()
    os.write(writer, secret + str(code).encode())
    sys.exit(code)


def _no_answer(code: int, forwarded: Sequence[int], otherwise: int) -> int:
    if -code in forwarded:
        say(f"stopped by {signal.Signals(-code).name}; what was computed is kept")
        return 128 - code
    if code < 0:
        short = " (memory may be short)" if code == -signal.SIGKILL else ""
        name = signal.Signals(-code).name
        say(f"error: the process that carried this out was ended by {name}{short}; what was computed is kept")
    else:
        say(
            f"error: the process that carried this out ended itself with code {code}, which is no answer: look for sys.exit and "
            "os._exit in the files of the models and attacks; what was computed is kept"
        )
    return otherwise


def _until_parent_ends(parent: int) -> None:
    """Have the child killed with its parent, so that a run that is killed does not go on unseen. Linux alone can do that."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(3)


def _once() -> Callable[[int, Any], None]:
    """A handler of SIGINT and SIGTERM that lets the work tidy up, and takes two that come together for one."""
    last = -TOGETHER

    def handle(number: int, frame: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TOGETHER:
            last = now
            raise KeyboardInterrupt

    return handle
