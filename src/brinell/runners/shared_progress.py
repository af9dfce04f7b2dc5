"""Progress of one process that meets others in a store, kept there for whoever looks from outside (`brinell progress`).

shards/progress/BY.json      what a process works on, and how fast; written anew a few times a minute
"""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from brinell.engine.progress import Progress
from brinell.runners.progress import LiveProgress
from brinell.store.folder import SHARDS
from brinell.store.shared import Store

FOLDER = f"{SHARDS}/progress"
EVERY, LEAST = 15.0, 3.0
"""Seconds between two writes, and where a stage begins meanwhile."""


@dataclass
class Standing:
    """What a process says of itself."""

    by: str
    """What tells it from all others."""
    host: str
    """Its machine, and its number there."""
    model: str = ""
    stage: str = ""
    samples: int = 0
    """Samples that the stage began on, of all processes, as in the next two."""
    left: int = 0
    """Samples that the stage is not done with."""
    robust: int | None = None
    """Samples of the model that nothing has broken at the largest budget."""
    forwards: int = 0
    """Forward evaluations of this process."""
    backwards: int = 0
    rate: float | None = None
    """Forwards and backwards a second of this process, since the stage began."""
    passes_left: float | None = None
    """Those that are expected of all processes until the run ends."""


class SharedProgress:
    """Progress that is handed on to `inner` and kept in a store, by what tells this process from all others (`Progress`)."""

    def __init__(self, store: Store, me: str, inner: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._inner, self._clock = store, inner, clock
        self._key = f"{FOLDER}/{me}.json"
        self._standing = Standing(me, f"{socket.gethostname()}:{os.getpid()}")
        self._expected = LiveProgress(quiet=True)  # it tells nothing, and knows what is left
        self._written = -EVERY
        self._began, self._passes = clock(), 0

    def stage(self, model: str, stage: str, samples: int, passes: int) -> None:
        """A stage begins; it is told of where it has samples."""
        self._inner.stage(model, stage, samples, passes)
        self._expected.stage(model, stage, samples, passes)
        self._began, self._passes = self._clock(), 0
        if samples:
            now = self._standing
            now.robust = now.robust if model == now.model else None
            now.model, now.stage, now.samples, now.left, now.rate = model, stage, samples, samples, None
            self._write(LEAST)

    def ahead(self, stages: Mapping[str, int], models: int) -> None:
        """What is expected."""
        self._inner.ahead(stages, models)
        self._expected.ahead(stages, models)

    def passes(self, forwards: int, backwards: int) -> None:
        """The model has answered."""
        self._inner.passes(forwards, backwards)
        self._expected.passes(forwards, backwards)
        self._standing.forwards += forwards
        self._standing.backwards += backwards
        self._passes += forwards + backwards
        self._write()

    def open(self, samples: int, robust: int) -> None:
        """Fewer samples are open than before."""
        self._inner.open(samples, robust)
        self._expected.open(samples, robust)
        self._standing.left, self._standing.robust = samples, robust
        self._write()

    def note(self, text: str) -> None:
        """A line in passing, which is no number."""
        self._inner.note(text)

    def warn(self, text: str) -> None:
        """A warning, which is no number either."""
        self._inner.warn(text)

    def _write(self, least: float = EVERY) -> None:
        now = self._clock()
        if now - self._written < least:
            return
        self._written = now
        if self._passes and now > self._began:
            self._standing.rate = self._passes / (now - self._began)
            left = self._expected.seconds_left()
            self._standing.passes_left = None if left is None else left * self._standing.rate
        self._store.write(self._key, json.dumps(asdict(self._standing)).encode())
