"""A command as a task of a cluster: one of several processes that share a run through its store (`runners.shard_worker`)."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from brinell.core.errors import RequestError

ERROR = "brinell: error: "
"""How a command begins the line that says why it failed."""


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    """Its exit code."""
    message: str
    """The line that says why it failed; empty without one."""


def run_command(arguments: Sequence[str], folder: str | None = None, environment: dict[str, str] | None = None) -> Outcome:
    """Run a command in a child process, so that a crash does not end the process of the cluster.

    Args:
        arguments: the command line without `brinell`.
        folder: the working folder, where this machine has it.
        environment: the environment of the process; by default that of its parent.
    """
    place = folder if folder is not None and Path(folder).is_dir() else None
    command, message = [sys.executable, "-m", "brinell", *arguments], ""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", cwd=place, env=environment) as process:
        for line in process.stderr or ():
            sys.stderr.write(line)
            message = line.removeprefix(ERROR).strip() if line.startswith(ERROR) else message
    return Outcome(process.returncode, message)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise RequestError for a command line without --out, or with --shard."""
    if not any(word.partition("=")[0] == "--out" for word in arguments):
        raise RequestError("the command names no --out: give the folder or address where its processes meet")
    if any(word.partition("=")[0] == "--shard" for word in arguments):
        raise RequestError("the command names --shard, which each of its processes is given its own of: leave it out")
