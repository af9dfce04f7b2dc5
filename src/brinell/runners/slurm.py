"""A run on SLURM through submitit: an array of jobs, each of which works on the run in the store until it is complete.

Any command with --shard can run so: an audit, a benchmark set, a transfer, explanations.

A job that is preempted or exceeds its time limit is queued again and continues; its claims pass to other jobs after a lease.
Plain SLURM works too: `--shard $SLURM_ARRAY_TASK_ID/16` in your script does the same (docs/guides/several-machines.md).
submitit keeps what it needs to start a job, pickled, in the folder of its logs; nothing else reads that.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError, one_line
from brinell.runners.task import Outcome, check_arguments, run_command

FAILURE = re.compile(r"ended with exit code (-?\d+)(?:: (.*))?")
"""How a job says that its command failed."""


class CommandJob:
    """A command that a job runs, and runs again after preemption."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.arguments = list(arguments)

    def __call__(self) -> int:
        """Run the command; raise RuntimeError if its exit code is not 0 (the job's log has the reason)."""
        code, message = run_command(self.arguments)
        if code:
            raise RuntimeError(f"brinell {self.arguments[0]} ended with exit code {code}{f': {message}' if message else ''}")
        return code

    def checkpoint(self) -> Any:
        """The job that submitit queues after preemption: the same command, because the store records finished work."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(
    arguments: Sequence[str], shards: int, *, logs: Path | str = "slurm", cluster: str | None = None, **parameters: Any
) -> list[Any]:
    """Queue a run as an array of jobs.

    Args:
        arguments: the command line without `brinell` and without --shard: `["audit", "run.toml", "--out", "/shared/run"]`.
            Its --out is a folder that all nodes see, or the address of a store.
        shards: the number of shards, which is that of the jobs.
        logs: a folder for the logs of the jobs, which all nodes see.
        cluster: `slurm`, or `local` for processes on this machine; none takes SLURM where it is installed.
        parameters: submitit's parameters of the jobs: `timeout_min=240`, `gpus_per_node=1`, `slurm_partition="gpu"`,
            `slurm_array_parallelism=64`.

    Returns:
        submitit's jobs; `job.result()` waits for one.

    Raises:
        RequestError: submitit is not installed, or the arguments name no --out or a --shard.
    """
    check_arguments(arguments)
    executor = check_installed().AutoExecutor(folder=logs, cluster=cluster)
    executor.update_parameters(name="brinell", **parameters)
    workers = [CommandJob([*arguments, "--shard", f"{number}/{shards}"]) for number in range(1, shards + 1)]
    with executor.batch():
        return [executor.submit(worker) for worker in workers]


def check_installed() -> Any:
    """The module submitit; raises RequestError where it is not installed."""
    try:
        import submitit
    except ImportError:
        raise RequestError("jobs are queued by submitit, which is not installed: pip install brinell[slurm]") from None
    return submitit


def outcome_of(job: Any) -> Outcome:
    """Wait for a job of submitit; returns how its command ended."""
    error = job.exception()
    if error is None:
        return Outcome(0, "")
    failures = FAILURE.findall(str(error))
    code, message = failures[-1] if failures else ("1", one_line(error, 150))
    return Outcome(int(code), message)
