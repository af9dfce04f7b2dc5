"""Live progress on standard error: a bar at a terminal, a line per stage anywhere else."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class LiveProgress:
    """Tells stage, samples still open, rate and time left. A context manager.

    Time left is an estimate from the samples closed so far: the forwards that remain are known only when they were spent.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._label, self._samples, self._left, self._broken = "", 0, 0, 0
        self._forwards, self._started = 0, time.monotonic()

    def __enter__(self) -> "LiveProgress":
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end_stage()
        if self._bar is not None:
            self._bar.stop()

    def stage(self, model: str, stage: str, samples: int, forwards: int) -> None:
        """A stage begins."""
        self._end_stage()
        self._label, self._samples, self._left, self._broken = f"{model} {stage}", samples, samples, 0
        self._forwards, self._started = 0, time.monotonic()
        if self._bar is not None:
            self._task = self._bar.add_task(self._label, total=samples, note="")

    def passes(self, forwards: int, backwards: int) -> None:
        """The model has answered."""
        self._forwards += forwards
        self._refresh()

    def open(self, samples: int, broken: int) -> None:
        """Fewer samples are open than before."""
        self._left, self._broken = samples, broken
        self._refresh()

    def message(self, text: str) -> None:
        """A line in passing."""
        self._console.print(f"brinell: {text}", markup=False, highlight=False, soft_wrap=True)

    def _refresh(self) -> None:
        if self._bar is None or self._task is None:
            return
        spent = time.monotonic() - self._started
        done = self._samples - self._left
        note = f"{self._left} open, {self._forwards / max(spent, 1e-9):,.0f} forwards/s"
        if done and self._left:
            note += f", about {_duration(spent / done * self._left)} left"
        self._bar.update(self._task, completed=done, note=note)

    def _end_stage(self) -> None:
        if not self._label:
            return
        spent = time.monotonic() - self._started
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
        if sys.exc_info()[0] is None:
            self.message(f"{self._label}: {self._samples} samples, {self._forwards:,} forwards, {_duration(spent)}")
        self._label = ""


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
