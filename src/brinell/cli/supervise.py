"""Runs models and attacks in a child process, so that an early exit is never taken for an answer.

A file of a model or an attack runs in the process that imports it, and can end it with any code:
`sys.exit(0)`, `os._exit(0)`. So the command line forks before it loads large libraries. The child
executes the command and sends its exit code over a pipe once the verb has returned. The parent
waits, forwards signals, and exits with that code. A child that ends without sending a code has no
answer, whatever its exit code. If the system cannot fork, the command runs in the only process.
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

from brinell.cli.options import say, verb_of

FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
SAME_SIGNAL = 1.0
"""Seconds within which two SIGINT count as one: a terminal sends Ctrl-C to both processes, and the
parent forwards its signal.
"""
PR_SET_PDEATHSIG = 1
"""Of Linux's prctl.h."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, by which schedulers end a command: what was computed is kept, as on Ctrl-C."""


def interruption_code(interruption: KeyboardInterrupt) -> int:
    """The exit code of an interrupted command, as shells count signals: 130, or 143 on SIGTERM."""
    number = signal.SIGTERM if isinstance(interruption, Terminated) else signal.SIGINT
    return 128 + number


def exit_code_without_answer(arguments: Sequence[str]) -> int:
    """The exit code of a command without an answer: 1 for a verification, otherwise 3."""
    return 1 if verb_of(arguments) == "verify" else 3


def run_supervised(work: Callable[[], int], fallback: int) -> int:
    """The exit code that `work` returns in a child process.

    If it never returns, a line says so, and the exit code is `fallback`.
    """
    if not hasattr(os, "fork"):
        return work()
    reader, writer = os.pipe()
    secret = os.urandom(16)  # what is written to the pipe by accident is no answer
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()

    # Signals that whoever started us ignores stay ignored. None may arrive before its handler is
    # set, so all are blocked until then.
    signals = [
        number for number in FORWARDED if signal.getsignal(number) not in (signal.SIG_IGN, None)
    ]
    handlers = {number: signal.getsignal(number) for number in signals}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    child = os.fork()
    if not child:
        os.close(reader)
        _until_parent_ends(parent)
        interrupt = _interrupt_once()
        for number in {signal.SIGINT, signal.SIGTERM} & set(signals):
            signal.signal(number, interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        _work(work, writer, secret)

    # The parent from here on.
    os.close(writer)
    forwarded: list[int] = []

    def forward(number: int, _: Any) -> None:
        """Forward a signal to the child."""
        forwarded.append(number)
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in signals:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    status = _wait_for(child, reader)
    for number, handler in handlers.items():
        signal.signal(number, handler)

    # A process that the child left behind may hold the other end open.
    os.set_blocking(reader, False)
    try:
        message = os.read(reader, 64)
    except BlockingIOError:
        message = b""
    os.close(reader)
    if message.startswith(secret):
        return int(message[len(secret) :])
    return _report_no_answer(os.waitstatus_to_exitcode(status), forwarded, fallback)


def _wait_for(child: int, reader: int) -> int:
    """The status with which the child ended.

    It is asked for five times a second: during one long wait, a signal that came just before it
    would not be forwarded.
    """
    has_answered = False

    while True:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return status
        if has_answered:
            time.sleep(0.01)  # what is registered to run at the end runs now
        else:
            has_answered = bool(select.select([reader], [], [], 0.2)[0])


def _work(work: Callable[[], int], writer: int, secret: bytes) -> NoReturn:
    """Do the work in the child, and send its exit code to the parent."""
    try:
        code = work()
    except Exception:
        traceback.print_exc()
        code = 3
    with suppress(BrokenPipeError, ValueError):
        sys.stdout.flush()
    os.write(writer, secret + str(code).encode())
    sys.exit(code)


def _report_no_answer(code: int, forwarded: Sequence[int], fallback: int) -> int:
    """Explain an exit without an answer; returns the exit code."""
    # A process that a signal ended has minus its number for a code. A signal that was passed on is
    # what the caller sent, and no failure.
    if -code in forwarded:
        say(f"stopped by {signal.Signals(-code).name}; what was computed is kept")
        return 128 - code

    if code < 0:
        # Linux ends a process that takes the last memory by SIGKILL, and says nothing to it.
        hint = " (memory may be short)" if code == -signal.SIGKILL else ""
        name = signal.Signals(-code).name
        say(
            f"error: the process of this command was ended by {name}{hint}; what "
            "was computed is kept"
        )
    else:
        say(
            f"error: the process of this command ended itself with code {code} "
            "and gave no answer: look for sys.exit and "
            "os._exit in the files of the models and attacks; what was computed is kept"
        )
    return fallback


def _until_parent_ends(parent: int) -> None:
    """Have the system kill the child when its parent is killed, so that no run continues unseen.

    Only Linux supports this.
    """
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            # The last three arguments are not used.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have ended before the system was asked.
    if os.getppid() != parent:
        os._exit(3)


def _interrupt_once() -> Callable[[int, Any], None]:
    """A handler of SIGINT and SIGTERM that lets the work clean up; two at once count as one."""
    last_time = -SAME_SIGNAL

    def handle(number: int, frame: Any) -> None:
        """Interrupt once for signals that arrive together."""
        nonlocal last_time
        current_time = time.monotonic()
        # A shell sends one signal to the whole group: the child gets it twice.
        if current_time - last_time >= SAME_SIGNAL:
            last_time = current_time
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    return handle
