"""Workers on Ray: actors on this machine or on a cluster, each with one GPU where the command uses
GPUs.
"""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from brinell.core.errors import RequestError, StoppedError, one_line, option
from brinell.engine.executor import Channel, Pool, Worker, WorkerDiedError


class RayPool(Pool):
    """As many actors as the cluster has GPUs or, without them, processors.

    Ray starts an actor again whose machine is lost.

    The option `on` is `ray`, which starts a cluster on this machine, or `ray:ADDRESS`; `command` is
    sent to the workers.
    """

    def __init__(self, on: str, command: Callable[[Channel], object], *, gpus: bool) -> None:
        super().__init__()
        system, separator, address = on.strip().partition(":")
        if system != "ray" or (separator and not address):
            raise RequestError(f"{option('on')} is {on!r}: write ray or ray:ADDRESS")

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
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
            ray.init(address=address or "local", log_to_driver=False, ignore_reinit_error=True)
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
        self._ray, self._command, self._gpus = ray, command, gpus

    def open_workers(self, shared: Mapping[str, Any]) -> Sequence[Any]:
        count = int(self._ray.cluster_resources().get("GPU" if self._gpus else "CPU", 1))
        options = {"num_cpus": 1, "num_gpus": int(self._gpus), "max_restarts": -1}
        actor = self._ray.remote(**options)(Worker)
        return [actor.remote(self._command, shared) for _ in range(max(1, count))]

    def send(self, worker: Any, task: Any) -> Any:
        return worker.answer.remote(task)

    def wait(self, handles: Sequence[Any]) -> Any:
        return self._ray.wait(handles, num_returns=1)[0][0]

    def result(self, handle: Any) -> Any:
        try:
            return self._ray.get(handle)
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayError as error:
            raise WorkerDiedError(one_line(error, 150)) from None
