"""Runs part of a test in a forked child and measures its memory, independent of earlier tests."""

import json
import os
import resource
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

import pytest

Answer = TypeVar("Answer")


def peak() -> int:
    """Bytes that this process held at its highest."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_in_child(body: Callable[[], Answer]) -> tuple[Answer, int]:
    """Returns the result of `body` in a forked child, and the peak memory of the child above its
    start, in bytes.

    A child begins with what its parent holds at the time, not with the parent's highest. A failure
    in the child fails here, with the child's traceback. The answer travels as JSON."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        _run_child(body, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    assert content, f"the child ended without an answer: status {status}"
    outcome, answer, growth = json.loads(content)
    if outcome == "skipped":
        pytest.skip(answer)
    assert outcome == "returned", f"in the child:\n{answer}"
    return answer, growth


def _run_child(body: Callable[[], Answer], write_end: int) -> None:
    """The child, from its first to its last line."""
    before = peak()
    try:
        content = json.dumps(("returned", body(), peak() - before))
    except pytest.skip.Exception as skipped:
        content = json.dumps(("skipped", str(skipped), 0))
    except BaseException:
        content = json.dumps(("failed", traceback.format_exc(), 0))
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(write_end, "w") as pipe:
        pipe.write(content)
    os._exit(0)
