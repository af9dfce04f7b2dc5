"""Claims of work in a shared store: who claims a task first has it, and loses it when it gives no sign of life for a while.

A claim of a task is a key that one process creates and others are refused: `TASK.0`. Its holder writes to it a few times a
lease, each time another beat. Whoever finds it looks again later, and where the same beat has stood for a whole lease by the
looker's own clock, the looker creates `TASK.1`: the claim with the highest number counts. So no clocks of two machines are
compared, and of several that steal at once one succeeds.

A claim saves work and decides nothing: a holder that was only slow and one that stole from it both finish, and which result
counts is decided where results are created (`runners.shards`).
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from brinell.core.errors import BrinellError
from brinell.store.shared import Store

LEASE = 60.0
"""Seconds without a sign of life after which a claim is lost."""
BEATS = 4
"""Signs of life in a lease."""


class Claim:
    """A task that this process holds while the block runs; afterwards it is free."""

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
        if self._mine():
            self._store.delete(self._key)

    def renew(self) -> bool:
        """Give a sign of life; False where another process has taken the task over."""
        if not self._mine():
            return False
        self._beat += 1
        self._store.write(self._key, told(self._me, self._lease, self._beat))
        return True

    def _mine(self) -> bool:
        content = self._store.read(self._key)
        return content is not None and json.loads(content)["by"] == self._me

    def _live(self) -> None:
        while not self._over.wait(self._lease / BEATS):
            try:
                if not self.renew():
                    return
            except BrinellError:
                return  # the store is gone for longer than it is waited for; the work itself will tell


class Claims:
    """The claims of a run in a folder of a store, as one process, `me`, sees them.

    After `lease` seconds without a sign of life its own claims are lost. The clock only ever grows, and is its own.
    """

    def __init__(
        self, store: Store, folder: str, me: str, lease: float = LEASE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._folder, self._me, self._lease, self._clock = store, folder, me, lease, clock
        self._seen: dict[str, tuple[bytes, float]] = {}
        """What was found under a name, and since when it stands there."""

    def first(self, tasks: Sequence[str]) -> tuple[Claim, str] | None:
        """Claim the first of some tasks that nobody holds: the claim and the task; None where all are held."""
        held: dict[str, list[int]] = {}
        for name in self._store.names(self._folder):
            task, _, number = name.rpartition(".")
            held.setdefault(task, []).append(int(number))
        for task in tasks:
            numbers = sorted(held.get(task, ()))
            if numbers and not self._lost(f"{task}.{numbers[-1]}"):
                continue
            key = f"{self._folder}/{task}.{numbers[-1] + 1 if numbers else 0}"
            if self._store.create(key, told(self._me, self._lease, 0)):
                for old in numbers:
                    self._store.delete(f"{self._folder}/{task}.{old}")
                return Claim(self._store, key, self._me, self._lease), task
        return None

    def _lost(self, name: str) -> bool:
        """Whether the holder of a claim has given no sign of life for a lease, as far as this process has watched."""
        content, now = self._store.read(f"{self._folder}/{name}"), self._clock()
        if content is None:
            return False  # it was given back this moment, most likely because the task is done
        before, since = self._seen.get(name, (None, now))
        if before != content:
            self._seen[name] = content, now
            return False
        return now - since > float(json.loads(content)["lease"])


def told(me: str, lease: float, beat: int) -> bytes:
    """What a claim says: who holds it, for how long without a sign of life, and the last of these."""
    return json.dumps({"by": me, "lease": lease, "beat": beat}).encode()
