"""Where the processes of a command run, and how many: the options `on` and `tasks`, which every command with shards takes.

The command starts its processes by Ray or submitit and waits for them. Each begins with a shard of its own (`runners.ray`,
`runners.slurm`); the folder in the store is complete when one of them ends with exit code 0.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError, StoppedError, one_line, option
from brinell.core.suggestions import suggestion
from brinell.runners import ray, slurm
from brinell.runners.shard_worker import MAX_SHARDS
from brinell.runners.task import Outcome
from brinell.store.shared import address_of

SYSTEMS = ("ray", "slurm")
"""What starts processes."""
MINUTES = 240
"""Time limit of a SLURM job, where SBATCH_TIMELIMIT sets none; a job that exceeds it is queued again and continues."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The processes of one command."""

    system: str
    """ray or slurm."""
    target: str | None
    """The address of a cluster of Ray, or a partition of SLURM."""
    tasks: int
    """Number of processes, and of shards."""
    out: Path
    """The folder or address where they meet."""

    @classmethod
    def from_options(cls, on: str | None, tasks: int | None, *, out: Path | None, shard: str | None) -> "Placement | None":
        """The placement that the options name; None without any.

        Raises:
            RequestError: an unknown system, or options that are missing or exclude each other.
        """
        if on is None:
            if tasks is not None:
                raise RequestError(f"{option('tasks')} is for {option('on')}, which names ray or slurm: add it, or leave it out")
            return None
        system, separator, target = on.strip().partition(":")
        if system not in SYSTEMS or (separator and not target):
            advice = "write ray, ray:ADDRESS, slurm or slurm:PARTITION"
            raise RequestError(
                f"{option('on')} is {on!r}{suggestion(system, SYSTEMS) if system not in SYSTEMS else ''}: {advice}"
            )
        if tasks is None or not 1 <= tasks <= MAX_SHARDS:
            problem = f"{option('tasks')} is {'missing' if tasks is None else tasks}"
            raise RequestError(f"{problem}: give the number of processes to start, from 1 to {MAX_SHARDS}")
        if shard is not None:
            raise RequestError(f"{option('on')} gives each process a shard of its own: leave {option('shard')} out")
        if out is None:
            raise RequestError(f"{option('on')} needs {option('out')}: the folder or address where the processes meet")
        return cls(system=system, target=target or None, tasks=tasks, out=out if address_of(out) else out.absolute())

    @property
    def shard(self) -> str:
        """The shard by which this process reads what the others made."""
        return f"1/{self.tasks}"

    def carry_out(self, arguments: Sequence[str], *, device: str, message: Callable[[str], None]) -> None:
        """Start the processes and wait for them.

        Args:
            arguments: the command line without `brinell`, `out` and `shard`.
            device: the requested device; one that begins with cuda takes a GPU for each process.
            message: receives messages to the user.

        Raises:
            RequestError: Ray, submitit or SLURM is missing, or all processes refused the request.
            StoppedError: none of them finished.
        """
        out = address_of(self.out) or str(self.out)
        words = [*arguments, "--out", out, "--quiet"]
        gpus = int(device.startswith("cuda"))
        library, start = (ray, self._on_ray) if self.system == "ray" else (slurm, self._on_slurm)
        library.check_installed()
        message(f"note: {self.tasks} tasks on {self.system}; `brinell progress {out}` shows how far they are")
        outcomes = start(words, gpus)
        failures = [outcome for outcome in outcomes if outcome.code]
        if not failures:
            return
        first = next((failure for failure in failures if failure.message), failures[0])
        reason = first.message or f"exit code {first.code}"
        text = f"{len(failures)} of {len(outcomes)} tasks on {self.system} failed ({reason})"
        if len(failures) < len(outcomes):
            message(f"note: {text}; the others finished their work")
        elif {failure.code for failure in failures} == {RequestError.exit_code}:
            raise RequestError(f"{text}: correct the request and start it again")
        else:
            raise StoppedError(f"{text}: start the command again to go on")

    def _on_ray(self, arguments: list[str], gpus: int) -> list[Outcome]:
        """Run the tasks on a cluster of Ray, or on one that is started here."""
        try:
            return ray.run(arguments, self.tasks, address=self.target, gpus=gpus)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:  # as Ray says that it reaches no cluster
            remedy = f"correct the address in {option('on')}, or leave it out for a cluster on this machine"
            raise RequestError(f"Ray cannot run the tasks ({one_line(error, 150)}): {remedy}") from None

    def _on_slurm(self, arguments: list[str], gpus: int) -> list[Outcome]:
        """Queue the tasks as an array of jobs, and wait for all."""
        if shutil.which("sbatch") is None:
            raise RequestError("this machine has no sbatch, which queues jobs: type the command on a login node of the cluster")
        parameters: dict[str, Any] = {"timeout_min": MINUTES} | ({"gpus_per_node": 1} if gpus else {})
        parameters |= {"slurm_partition": self.target} if self.target else {}
        logs = Path("slurm") if address_of(self.out) else self.out.with_name(f"{self.out.name}-slurm")
        jobs = slurm.submit(arguments, self.tasks, logs=logs, cluster="slurm", **parameters)
        return [slurm.outcome_of(job) for job in jobs]
