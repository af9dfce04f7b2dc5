"""A run on SLURM through submitit: an array of jobs, each of which works on the run in the store until it is whole.

The run is whatever takes --shard: an audit, a benchmark set, a transfer, explanations.

A job that is preempted or runs out of its time is queued again, and goes on with what is left; what it held passes to the others
after a lease. SLURM itself needs nothing of this: `--shard $SLURM_ARRAY_TASK_ID/16` in a script of your own does the same
(docs/scale.md). submitit keeps what it needs to start a job, pickled, in the folder of its logs; nothing else reads that.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError


class Worker:
    """A command that a job runs, and runs again after it was preempted."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)

    def __call__(self) -> int:
        """Run it; a RuntimeError where its exit code is not 0, and the job's log says why."""
        code = subprocess.run([sys.executable, "-m", "brinell", *self.words]).returncode
        if code:
            raise RuntimeError(f"brinell {self.words[0]} ended with exit code {code}")
        return code

    def checkpoint(self) -> Any:
        """What submitit queues in its place: the same, because the store knows what is done."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(
    words: Sequence[str], shards: int, *, logs: Path | str = "slurm", cluster: str | None = None, **parameters: Any
) -> list[Any]:
    """Queue a run as an array of jobs.

    Args:
        words: the command line without its first word and without --shard: `["audit", "run.toml", "--out", "/shared/run"]`. Its
            --out is a folder that all nodes see, or the address of a store.
        shards: the number of shards, which is that of the jobs.
        logs: a folder for the logs of the jobs, which all nodes see.
        cluster: `slurm`, or `local` for processes on this machine; none takes SLURM where it is installed.
        parameters: what submitit is told of the jobs: `timeout_min=240`, `gpus_per_node=1`, `slurm_partition="gpu"`,
            `slurm_array_parallelism=64`.

    Returns:
        submitit's jobs; `job.result()` waits for one.

    Raises:
        RequestError: submitit is not installed, or the words name no --out or a --shard.
    """
    check_words(words)
    try:
        import submitit
    except ImportError:
        raise RequestError("jobs are queued by submitit, which is not installed: pip install brinell[slurm]") from None
    executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
    executor.update_parameters(name="brinell", **parameters)
    workers = [Worker([*words, "--shard", f"{number}/{shards}"]) for number in range(1, shards + 1)]
    with executor.batch():
        return [executor.submit(worker) for worker in workers]


def check_words(words: Sequence[str]) -> None:
    """Refuse a command line that does not say where its processes meet: that names no --out, or already a --shard."""
    if not any(word.partition("=")[0] == "--out" for word in words):
        raise RequestError("the command names no --out: give the folder or address where its processes meet")
    if any(word.partition("=")[0] == "--shard" for word in words):
        raise RequestError("the command names --shard, which each of its processes is given its own of: leave it out")
