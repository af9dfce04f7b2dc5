"""Progress as numbers in a file of Prometheus' text format, which its node exporter collects; no package is needed for it.

Prometheus, Exposition formats, text-based format: a line of help and one of type before the values of each metric.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from brinell.runners.progress import LiveProgress
from brinell.store.files import write_text

EVERY = 5.0
"""Seconds between two writes of the file."""
TOLD = {
    "brinell_running": ("gauge", "1 while the process works on the run, 0 when it has ended."),
    "brinell_stage_samples": ("gauge", "Samples that the stage began on; in shards those of all processes, as in the next two."),
    "brinell_samples_open": ("gauge", "Samples that the stage is not done with."),
    "brinell_samples_robust": ("gauge", "Samples that nothing has broken at the largest budget."),
    "brinell_forwards_total": ("counter", "Forward evaluations of this process."),
    "brinell_backwards_total": ("counter", "Backward evaluations of this process."),
    "brinell_seconds_left": ("gauge", "Until the run ends, estimated from the passes that are expected."),
}


class Metrics:
    """Progress that is handed on to another one and kept in a file (`engine.progress.Progress`).

    Args:
        path: the file, which is replaced as a whole, so that no reader sees a part of it.
        inner: what is told besides.
    """

    def __init__(self, path: Path, inner: LiveProgress) -> None:
        self._path, self._inner, self._written = path, inner, -EVERY
        self._labels, self._running = "", 1
        self._values: dict[str, float] = {"brinell_forwards_total": 0, "brinell_backwards_total": 0}

    def stage(self, model: str, stage: str, samples: int, passes: int) -> None:
        """A stage begins; it is told of where it has samples."""
        self._inner.stage(model, stage, samples, passes)
        if samples:
            self._labels = f'{{model="{_quoted(model)}",stage="{_quoted(stage)}"}}'
            self._values |= {"brinell_stage_samples": samples, "brinell_samples_open": samples}
            self._write(always=True)

    def ahead(self, stages: Mapping[str, int], models: int) -> None:
        """What is expected."""
        self._inner.ahead(stages, models)

    def passes(self, forwards: int, backwards: int) -> None:
        """The model has answered."""
        self._inner.passes(forwards, backwards)
        self._values["brinell_forwards_total"] += forwards
        self._values["brinell_backwards_total"] += backwards
        self._write()

    def open(self, samples: int, robust: int) -> None:
        """Fewer samples are open than before."""
        self._inner.open(samples, robust)
        self._values |= {"brinell_samples_open": samples, "brinell_samples_robust": robust}
        self._write()

    def note(self, text: str) -> None:
        """A line in passing, which is no number."""
        self._inner.note(text)

    def warn(self, text: str) -> None:
        """A warning, which is no number either."""
        self._inner.warn(text)

    def end(self) -> None:
        """The process no longer works on the run."""
        self._running = 0
        self._write(always=True)

    def _write(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if now - self._written < EVERY and not always:
            return
        self._written = now
        left = self._inner.seconds_left() if self._running else 0.0
        values = self._values | {"brinell_running": self._running} | ({} if left is None else {"brinell_seconds_left": left})
        lines = []
        for name, (kind, text) in TOLD.items():
            if name in values:
                labels = self._labels if name in ("brinell_stage_samples", "brinell_samples_open") else ""
                lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{labels} {values[name]:.15g}"]
        write_text(self._path, "\n".join(lines) + "\n")


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
