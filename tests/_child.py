"""What a test does in a forked child, and the memory that it took there: a property of the child alone, whatever ran before."""

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


def in_a_child(body: Callable[[], Answer]) -> tuple[Answer, int]:
    """What `body` returns in a forked child, and how many bytes the child held at its highest beyond what it began with.

    A child begins with what its parent holds at the time, not with the parent's highest. What fails in it fails here, with the
    child's traceback. The answer travels as JSON."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        _carry_out(body, writes)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    assert content, f"the child ended without an answer: status {status}"
    end, answer, grown = json.loads(content)
    if end == "skipped":
        pytest.skip(answer)
    assert end == "returned", f"in the child:\n{answer}"
    return answer, grown


def _carry_out(body: Callable[[], Answer], writes: int) -> None:
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
    with os.fdopen(writes, "w") as pipe:
        pipe.write(content)
    os._exit(0)
