"""The place of this process among those that a launcher started: srun, torchrun, mpirun or an
Indexed Job, which run one command many times.

Rank 0 drives: it owns the folder, the screen and the exit code. It works, too, and so do the
others (`engine.rank_pool`).
"""

import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from brinell.core.errors import RequestError, option
from brinell.core.user_files import user_path

RANKS = "ranks"
"""The value of the option `on` that asks for ranks, whatever their number."""
ALONE = "local"
"""The value that leaves the work to this process, whatever launcher started it."""
USUAL_PORT = 29500
"""The port of torch's launchers."""
JOB_PORTS = range(20_000, 29_000)
"""Ports of jobs whose launcher names none: each job has the one that its number gives."""


@dataclass(frozen=True)
class Launcher:
    """The variables by which a launcher tells a process its place."""

    rank: str
    size: str
    local_rank: str = ""
    job: tuple[str, ...] = ()
    """Variables that tell the jobs on one machine apart."""


LAUNCHERS = (
    Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    Launcher(
        "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", job=("SLURM_JOB_ID", "SLURM_STEP_ID")
    ),
    Launcher(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        job=("PMIX_NAMESPACE",),
    ),
    Launcher("JOB_COMPLETION_INDEX", "WORLD_SIZE"),
)
"""Torchrun, SLURM, Open MPI and Kubernetes; the first whose variables are set counts."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of a process among the ranks of its job."""

    rank: int
    size: int
    local_rank: int
    """Its number on its machine, which is that of its GPU."""
    address: str
    """The host of rank 0."""
    port: int
    attempt: str
    """The number of the start of the job, where the launcher starts it again."""
    has_store: bool
    """True if the launcher itself holds a store at this address."""
    token_file: Path | None
    """The file of the token that the user named; None for that in the folder of the run."""


def find_place(on: str | None, environment: Mapping[str, str] = os.environ) -> Place | None:
    """The place that a launcher gave to this process; None for a process that works alone.

    Args:
        on: the option of that name: `ranks` or `ranks:FILE` insists on ranks, and nothing leaves it
            to the launcher.
        environment: the variables of the process.
    """
    word, _, file = (on or "").partition(":")
    if on is not None and word != RANKS:
        return None
    launcher = next(
        (row for row in LAUNCHERS if row.rank in environment and row.size in environment), None
    )
    if launcher is None:
        if on is None:
            return None
        raise RequestError(
            f"{option('on')} is {on!r}, and no launcher started this process: start it by srun, "
            "torchrun or mpirun, or set RANK and WORLD_SIZE"
        )

    rank = _number(environment, launcher.rank)
    size = _number(environment, launcher.size)
    if rank >= max(size, 1):
        raise RequestError(f"{launcher.rank} is {rank}, and {launcher.size} is {size}: correct one")
    # A launcher that starts one process needs no ranks.
    if size == 1 and on is None:
        return None
    return Place(
        rank=rank,
        size=size,
        local_rank=_number(environment, launcher.local_rank),
        address=_address(environment, size),
        port=_port(environment, launcher),
        attempt=environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
        has_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        token_file=user_path(file) if file else None,
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    """A whole number in a variable; 0 where it is not set."""
    text = environment.get(name, "0")
    if not text.isdecimal():
        raise RequestError(f"{name} is {text!r}, and must be a whole number: correct it")
    return int(text)


def _address(environment: Mapping[str, str], size: int) -> str:
    """The host of rank 0: the one that is named, the first of a SLURM job, or this machine."""
    if host := environment.get("MASTER_ADDR"):
        return host
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
    if nodes:
        return first_host(nodes)
    if environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(size):
        return "127.0.0.1"
    raise RequestError(
        "the launcher does not say where rank 0 is: set MASTER_ADDR to the name of its machine"
    )


def first_host(nodes: str) -> str:
    """The first host of a list as SLURM writes it: gpu003 of `gpu[003-010,12],login1`."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0] if first else nodes)


def _port(environment: Mapping[str, str], launcher: Launcher) -> int:
    """The port that is named, that of the job's number, or the usual one."""
    if "MASTER_PORT" in environment:
        return _number(environment, "MASTER_PORT")
    job = " ".join(environment.get(name, "") for name in launcher.job).strip()
    return JOB_PORTS[zlib.crc32(job.encode()) % len(JOB_PORTS)] if job else USUAL_PORT
