"""A run on Ray: a task for each shard, or fewer; each is a process that works on the run in the store until it is whole.

Any command with --shard can run so: an audit, a benchmark set, a transfer, explanations.

Ray starts the tasks as it has processors or GPUs for them, asks its autoscaler for more where it has not, and starts a task again
whose machine is lost. Each task loads a model once. The tasks share nothing through Ray, so neither inputs nor models pass
through its object store.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError
from brinell.runners.task import Outcome, check_arguments, run_command


def run(
    arguments: Sequence[str],
    shards: int,
    *,
    tasks: int | None = None,
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    retries: int = 3,
) -> list[Outcome]:
    """Run a command on Ray and wait for it.

    Args:
        arguments: the command line without `brinell` and without --shard: `["audit", "run.toml", "--out", "/shared/run"]`.
            Its --out is a folder that all nodes see, or the address of a store.
        shards: the number of shards.
        tasks: how many work on them, at most as many as there are shards; none starts one for each.
        address: the cluster, such as `auto` or `10.0.0.1:6379`; None starts one on this machine during the call.
        cpus: processors that a task needs.
        gpus: GPUs that a task needs; a part of one is shared by several tasks.
        retries: how often a task is started again whose process or machine is lost.

    Returns:
        How each task ended, in the order of the shards where they begin.

    Raises:
        RequestError: Ray is not installed, the cluster's token is missing, the arguments have no --out or have a --shard, or the
            number of tasks is not between 1 and the number of shards.
    """
    check_arguments(arguments)
    tasks = shards if tasks is None else tasks
    if not 1 <= tasks <= shards:
        raise RequestError(f"{tasks} tasks cannot share {shards} shards: take from 1 to {shards}")
    numbers = [f"{1 + task * shards // tasks}/{shards}" for task in range(tasks)]
    library = check_installed()
    with cluster_token(address):
        return _run(library, arguments, numbers, address, cpus=cpus, gpus=gpus, retries=retries)


def check_installed() -> Any:
    """The module ray, which then reports no statistics; raises RequestError where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise RequestError("tasks are started by Ray, which is not installed: pip install brinell[ray]") from None
    return ray


def _run(
    ray: Any, arguments: Sequence[str], numbers: list[str], address: str | None, *, cpus: float, gpus: float, retries: int
) -> list[Outcome]:
    """Run the shards as Ray tasks; returns how they ended."""
    ray.init(address=address or "local", log_to_driver=False, **({} if address else {"include_dashboard": False}))
    try:
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=retries)(_run_task)
        commands = [[*arguments, "--shard", number] for number in numbers]
        return list(ray.get([task.remote(command, os.getcwd()) for command in commands]))
    finally:
        ray.shutdown()


def _run_task(arguments: Sequence[str], folder: str) -> Outcome:
    """Run a command in the folder where the run was started, if the machine has it; with one thread by default."""
    return run_command(arguments, folder, os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")})


@contextmanager
def cluster_token(address: str | None) -> Iterator[None]:
    """Provide the authentication token of Ray (2.60 and later): the cluster's, which must exist, or a local one.

    The local token is in the environment within the `with` block, so that Ray writes none into the user's home.
    """
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")).expanduser()
    if os.environ.get("RAY_AUTH_MODE") == "disabled" or os.environ.get("RAY_AUTH_TOKEN") or file.exists():
        yield
        return
    if address is not None:
        raise RequestError(
            f"Ray asks for a token and there is none in {file}: copy that of the cluster's head there, set RAY_AUTH_TOKEN, or "
            "set RAY_AUTH_MODE=disabled where the whole cluster does without"
        )
    os.environ["RAY_AUTH_TOKEN"] = _own_token()
    try:
        yield
    finally:
        del os.environ["RAY_AUTH_TOKEN"]


@cache
def _own_token() -> str:
    """A constant token per process, because Ray reads the token once and uses it for later clusters as well."""
    return secrets.token_hex(32)
