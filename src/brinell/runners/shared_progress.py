"""Progress of one of several processes that share a store, written to the store for `brinell progress`.

shards/progress/BY.json      the work and rate of a process, rewritten a few times a minute
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
WRITE_INTERVAL, STAGE_INTERVAL = 15.0, 3.0
"""Seconds between two writes, in general and at the start of a stage."""


@dataclass
class ProcessStatus:
    """Status that a process reports."""

    by: str
    """Unique name of the process."""
    host: str
    """Host name and process id."""
    model: str = ""
    stage: str = ""
    samples: int = 0
    """Samples of the stage, over all processes, as in the next two."""
    open_samples: int = 0
    """Samples that the stage is not finished with."""
    robust: int | None = None
    """Samples of the model that nothing has broken at the largest budget."""
    forwards: int = 0
    """Forward evaluations of this process."""
    backwards: int = 0
    rate: float | None = None
    """Forwards and backwards a second of this process, since the stage began."""
    passes_left: float | None = None
    """Expected passes of all processes until the run ends."""


class SharedProgress:
    """Progress that forwards all reports to `inner` and keeps a status in a store, under the name of this process."""

    def __init__(self, store: Store, name: str, inner: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._inner, self._clock = store, inner, clock
        self._key = f"{FOLDER}/{name}.json"
        self._status = ProcessStatus(name, f"{socket.gethostname()}:{os.getpid()}")
        self._expected = LiveProgress(quiet=True)  # it prints nothing and estimates the remaining time
        self._written = -WRITE_INTERVAL
        self._start, self._passes = clock(), 0

    def stage(self, model: str, stage: str, samples: int, passes: int) -> None:
        """A stage begins; only stages with samples are recorded."""
        self._inner.stage(model, stage, samples, passes)
        self._expected.stage(model, stage, samples, passes)
        self._start, self._passes = self._clock(), 0
        if samples:
            status = self._status
            status.robust = status.robust if model == status.model else None
            status.model, status.stage, status.samples, status.open_samples, status.rate = model, stage, samples, samples, None
            self._write(STAGE_INTERVAL)

    def forecast(self, stages: Mapping[str, int], models: int) -> None:
        """Forward the forecast."""
        self._inner.forecast(stages, models)
        self._expected.forecast(stages, models)

    def count_passes(self, forwards: int, backwards: int) -> None:
        """The model has answered."""
        self._inner.count_passes(forwards, backwards)
        self._expected.count_passes(forwards, backwards)
        self._status.forwards += forwards
        self._status.backwards += backwards
        self._passes += forwards + backwards
        self._write()

    def update_open(self, samples: int, robust: int) -> None:
        """Fewer samples are open than before."""
        self._inner.update_open(samples, robust)
        self._expected.update_open(samples, robust)
        self._status.open_samples, self._status.robust = samples, robust
        self._write()

    def note(self, text: str) -> None:
        """Forward a note."""
        self._inner.note(text)

    def warn(self, text: str) -> None:
        """Forward a warning."""
        self._inner.warn(text)

    def _write(self, interval: float = WRITE_INTERVAL) -> None:
        """Write the status, at most every few seconds."""
        now = self._clock()
        if now - self._written < interval:
            return
        self._written = now
        if self._passes and now > self._start:
            self._status.rate = self._passes / (now - self._start)
            remaining = self._expected.seconds_left()
            self._status.passes_left = None if remaining is None else remaining * self._status.rate
        self._store.write(self._key, json.dumps(asdict(self._status)).encode())
