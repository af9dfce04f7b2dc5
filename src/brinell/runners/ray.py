"""A run on Ray: a task for each shard, or fewer; each is a process that works on the run in the store until it is whole.

The run is whatever takes --shard: an audit, a benchmark set, a transfer, explanations.

Ray starts the tasks as it has processors or GPUs for them, asks its autoscaler for more where it has not, and starts a task again
whose machine is lost. A model is loaded once in a task. The tasks share nothing through Ray, so neither inputs nor models pass
through its object store.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError
from brinell.runners.slurm import check_words


def run(
    words: Sequence[str],
    shards: int,
    *,
    tasks: int | None = None,
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    retries: int = 3,
) -> list[int]:
    """Carry out a run on Ray, and wait for it.

    Args:
        words: the command line without its first word and without --shard: `["audit", "run.toml", "--out", "/shared/run"]`. Its
            --out is a folder that all nodes see, or the address of a store.
        shards: the number of shards.
        tasks: how many work on them, at most as many as there are shards; none starts one for each.
        address: the cluster, such as `auto` or `10.0.0.1:6379`; none starts one on this machine for the time of the call.
        cpus: processors that a task needs.
        gpus: GPUs that a task needs; a part of one is shared by several tasks.
        retries: how often a task is started again whose process or machine is lost.

    Returns:
        The exit code of each task, in the order of the shards where they begin.

    Raises:
        RequestError: Ray is not installed, the cluster's token is not there, the words name no --out or a --shard, or there are
            more tasks than shards or none.
    """
    check_words(words)
    tasks = shards if tasks is None else tasks
    if not 1 <= tasks <= shards:
        raise RequestError(f"{tasks} tasks cannot share {shards} shards: take from 1 to {shards}")
    numbers = [f"{1 + task * shards // tasks}/{shards}" for task in range(tasks)]
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise RequestError("tasks are started by Ray, which is not installed: pip install brinell[ray]") from None
    with token(address):
        return _run(ray, words, numbers, address, cpus=cpus, gpus=gpus, retries=retries)


def _run(
    ray: Any, words: Sequence[str], numbers: list[str], address: str | None, *, cpus: float, gpus: float, retries: int
) -> list[int]:
    ray.init(address=address or "local", log_to_driver=False, **({} if address else {"include_dashboard": False}))
    try:
        started = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=retries)(carried_out)
        return list(ray.get([started.remote([*words, "--shard", number]) for number in numbers]))
    finally:
        ray.shutdown()


def carried_out(words: Sequence[str]) -> int:
    """The exit code of a command, in a process of its own, so that a model that ends it does not end Ray's."""
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return subprocess.run([sys.executable, "-m", "brinell", *words], env=os.environ | threads).returncode


@contextmanager
def token(address: str | None) -> Iterator[None]:
    """The token by which Ray from 2.60 on knows who may ask: that of a cluster, which must be there, or one of our own.

    The latter is in the environment for the time of the block, so that Ray writes none into the person's home.
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
    """Always the same, because Ray reads the token once in a process and would show it to the next cluster, too."""
    return secrets.token_hex(32)
