"""Workers on Ray: actors on this machine or on a cluster, each with one GPU where the cluster has
any, whatever the machine of the driver has.
"""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from brinell.core.errors import RequestError, StoppedError, one_line, option
from brinell.engine.executor import Channel, Pool, Worker, WorkerDiedError


class RayPool(Pool):
    """As many actors as the cluster has GPUs or, without them, processors, also of machines that
    join later.

    Ray starts an actor again whose machine is lost.

    The option `on` is `ray`, which starts a cluster on this machine that nobody else reaches;
    `ray:auto`, the cluster that this machine is part of; `ray:HOST:PORT`; or `ray://HOST:PORT`, a
    cluster by its client's port. `command` is sent to the workers. `device` is the one of the
    request: `auto` takes GPUs where the cluster has any.
    """

    def __init__(self, on: str, command: Callable[[Channel], object], *, device: str) -> None:
        super().__init__()
        on = on.strip()
        system, separator, address = on.partition(":")
        if system != "ray" or separator and address in ("", "//"):
            raise RequestError(
                f"{option('on')} is {on!r}: write ray, ray:auto, ray:HOST:PORT or ray://HOST:PORT; "
                "ranks are for commands that a launcher starts"
            )
        if address.startswith("//"):
            address = on

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if not address:
            # Ray reads it when it is imported, on any system: it then listens on loopback alone.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        try:
            import ray
        except ImportError:
            raise RequestError(
                "Ray is not installed, which starts workers: pip install 'brinell[ray]'"
            ) from None
        if not address:
            # From Ray 2.60 on; without it Ray writes one into the home folder.
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                ignore_reinit_error=True,
                include_dashboard=False if not address else None,
            )
        except Exception as error:
            # What does not start is the machine's affair, and Ray has no class of errors for it.
            ray.shutdown()
            if address:
                text = (
                    f"Ray cannot be reached ({one_line(error, 150)}): correct the "
                    f"address in {option('on')}"
                )
                raise RequestError(text) from None
            text = (
                f"Ray did not start on this machine, which may be too busy ({one_line(error, 150)})"
            )
            raise StoppedError(f"{text}: try again, or leave out {option('on')}") from None
        self._ray, self._command, self._device = ray, command, device
        self._open = 0
        """Number of workers that were started."""

    def open_workers(self, shared: Mapping[str, Any]) -> Sequence[Any]:
        on_gpus = self._device.startswith("cuda") or (self._device == "auto" and self._count("GPU"))
        # Ray starts an actor again as often as its machine is lost (-1: without a limit).
        options = {"num_cpus": 1, "num_gpus": int(bool(on_gpus)), "max_restarts": -1}
        actor = self._ray.remote(**options)(Worker)
        self._start = partial(actor.remote, self._command, shared)
        self._resource = "GPU" if on_gpus else "CPU"
        return self.more_workers() or [self._start()]

    def more_workers(self) -> Sequence[Any]:
        new = range(self._open, self._count(self._resource))
        self._open += len(new)
        return [self._start() for _ in new]

    def _count(self, resource: str) -> int:
        """How many the machines of the cluster have together now."""
        return int(self._ray.cluster_resources().get(resource, 0))

    def send(self, worker: Any, task: Any) -> Any:
        return worker.answer.remote(task)

    def wait(self, handles: Sequence[Any]) -> Any:
        done, _ = self._ray.wait(handles, num_returns=1)
        return done[0]

    def result(self, handle: Any) -> Any:
        try:
            return self._ray.get(handle)
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayError as error:
            raise WorkerDiedError(one_line(error, 150)) from None
