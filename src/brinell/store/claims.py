"""Claims of tasks in a shared store. The first process to claim a task holds it until its heartbeat stops for one lease.

A claim is a key, `TASK.0`, that only one process can create. The holder rewrites the key several times per lease, with a new
beat each time. Another process that reads the same beat for a full lease, by its own clock, creates `TASK.1`. The claim with the
highest number counts. So clocks of different machines are never compared, and one of several simultaneous takeovers succeeds.

A claim only avoids duplicate work. If a slow holder and its successor both finish, the creation of the result decides which
result counts (`runners.shards`).
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from brinell.core.errors import BrinellError
from brinell.store.shared import Store

LEASE = 60.0
"""Seconds without a heartbeat after which a claim expires."""
BEATS = 4
"""Heartbeats per lease."""


class Claim:
    """A context manager that holds a task while its block runs, and releases the task afterwards."""

    def __init__(self, store: Store, key: str, me: str, lease: float) -> None:
        self._store, self._key, self._me, self._lease = store, key, me, lease
        self._beat = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="brinell-claim", daemon=True)

    def __enter__(self) -> "Claim":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(self._lease)
        if self._is_mine():
            self._store.delete(self._key)

    def renew(self) -> bool:
        """Write the next heartbeat. Returns False if another process has taken the task over."""
        if not self._is_mine():
            return False
        self._beat += 1
        self._store.write(self._key, claim_content(self._me, self._lease, self._beat))
        return True

    def _is_mine(self) -> bool:
        """True if this process still holds the claim."""
        content = self._store.read(self._key)
        return content is not None and json.loads(content)["by"] == self._me

    def _live(self) -> None:
        """Renew the claim until it is over."""
        while not self._over.wait(self._lease / BEATS):
            try:
                if not self.renew():
                    return
            except BrinellError:
                return  # The store is unreachable: the task's own writes report it.


class Claims:
    """The claims of a run, as one process sees them.

    Args:
        store: the shared store.
        folder: the folder of the store that holds the claims.
        me: a unique name of this process.
        lease: seconds without a heartbeat after which this process loses its claims.
        clock: a monotonic clock of this process, in seconds.
    """

    def __init__(
        self, store: Store, folder: str, me: str, lease: float = LEASE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._folder, self._me, self._lease, self._clock = store, folder, me, lease, clock
        self._beats: dict[str, tuple[bytes, float]] = {}
        """By claim: its last observed content, and the clock time of the first observation of that content."""

    def first(self, tasks: Sequence[str]) -> tuple[Claim, str] | None:
        """Claim the first free task. Returns the claim and the task, or None if other processes hold all tasks."""
        numbers_of: dict[str, list[int]] = {}
        for name in self._store.names(self._folder):
            task, _, number = name.rpartition(".")
            numbers_of.setdefault(task, []).append(int(number))
        for task in tasks:
            numbers = sorted(numbers_of.get(task, ()))
            if numbers and not self._is_lost(f"{task}.{numbers[-1]}"):
                continue
            key = f"{self._folder}/{task}.{numbers[-1] + 1 if numbers else 0}"
            if self._store.create(key, claim_content(self._me, self._lease, 0)):
                for old in numbers:
                    self._store.delete(f"{self._folder}/{task}.{old}")
                return Claim(self._store, key, self._me, self._lease), task
        return None

    def _is_lost(self, name: str) -> bool:
        """True if this process has observed no heartbeat of a claim for one lease."""
        content, clock_time = self._store.read(f"{self._folder}/{name}"), self._clock()
        if content is None:
            return False  # The holder has just released it, most likely because the task is done.
        previous, since = self._beats.get(name, (None, clock_time))
        if previous != content:
            self._beats[name] = content, clock_time
            return False
        return clock_time - since > float(json.loads(content)["lease"])


def claim_content(me: str, lease: float, beat: int) -> bytes:
    """The JSON content of a claim: its holder, its lease in seconds and its latest heartbeat."""
    return json.dumps({"by": me, "lease": lease, "beat": beat}).encode()
