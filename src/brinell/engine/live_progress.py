"""Live progress: one line for the whole run at a terminal or in a notebook, plain lines anywhere else."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from brinell.core.outward import printable

REFRESH = 0.1
"""Seconds between two updates of the line."""
REPORT_INTERVAL = 60.0
"""Seconds between two reports on a running stage without a live line."""


@dataclass
class _Stage:
    """The current stage."""

    model: str = ""
    name: str = ""
    samples: int = 0
    expected: int = 0
    """Expected passes."""
    open_samples: int = 0
    forwards: int = 0
    passes: int = 0
    start: float = field(default_factory=lambda: time.monotonic())

    @property
    def title(self) -> str:
        """Model and stage."""
        return f"{self.model} {self.name}"

    def seconds(self) -> float:
        """Seconds since the start of the stage, above 0."""
        return max(time.monotonic() - self.start, 1e-9)

    def passes_left(self) -> float:
        """Remaining expected passes, or those in proportion to the open samples if that is less."""
        open_ = self.expected * self.open_samples / self.samples if self.samples else 0.0
        return max(min(self.expected - self.passes, open_), open_ / 10)


class LiveProgress:
    """Shows the stage, the robust samples, the rate, and the remaining time of the whole run. A context manager.

    The remaining time is an estimate: the expected passes at the rate of the run so far.

    Args:
        quiet: suppress notes, stages and the live line, but not warnings.
        verbose: also report stages without samples.
        stream: receives the lines; None is standard error. Only terminals and notebooks get a live line.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self._quiet, self._verbose, self._stream = quiet, verbose, stream
        self._console = Console(file=stream, stderr=stream is None)
        self._line: _Line | None = None
        self._stage = _Stage()
        self._passes, self._seconds = 0, 0.0
        self._of_model = 0
        self._forecast: tuple[int, int] | None = None
        """Passes of this model after the stage, and models after this one."""
        self._robust: int | None = None
        self._start = self._refreshed = self._reported = time.monotonic()

    def __enter__(self) -> "LiveProgress":
        if not self._quiet:
            self._line = _open_line(self._console)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end_stage(report=kind is None)
        if self._line is not None:
            self._line.close()

    def stage(self, model: str, stage: str, samples: int, passes: int) -> None:
        """Begin a stage."""
        self._end_stage()
        model, stage = printable(model), printable(stage)
        if model != self._stage.model:
            self._of_model, self._robust = 0, None
        self._stage, self._forecast = _Stage(model, stage, samples, passes, open_samples=samples), None
        self._reported = time.monotonic()
        if samples:
            self._refresh(always=True)

    def forecast(self, stages: Mapping[str, int], models: int) -> None:
        """Record the expected passes from this stage on."""
        self._forecast = sum(list(stages.values())[1:]), models

    def count_passes(self, forwards: int, backwards: int) -> None:
        """The model has answered."""
        self._stage.forwards += forwards
        self._stage.passes += forwards + backwards
        self._refresh()

    def update_open(self, samples: int, robust: int) -> None:
        """Fewer samples are open than before."""
        self._stage.open_samples, self._robust = samples, robust
        self._refresh()

    def note(self, text: str) -> None:
        """Print a note, unless quiet."""
        if not self._quiet:
            self._print(f"note: {text}", permanent=True)

    def warn(self, text: str) -> None:
        """A warning."""
        self._print(f"warning: {text}", permanent=True)

    def seconds_left(self) -> float | None:
        """Estimated seconds until the run ends; None without a forecast or a rate."""
        stage = self._stage
        if self._forecast is None or not stage.passes:
            return None
        later_passes, models = self._forecast
        stage_passes = stage.passes_left()
        model_passes = self._of_model + stage.passes + stage_passes + later_passes
        pace = (self._seconds + stage.seconds()) / (self._passes + stage.passes)
        return stage_passes * stage.seconds() / stage.passes + (later_passes + models * model_passes) * pace

    def _refresh(self, *, always: bool = False) -> None:
        """Show or print the current progress, at most every `REFRESH` seconds."""
        now = time.monotonic()
        if self._quiet or (now - self._refreshed < REFRESH and not always):
            return
        self._refreshed = now
        remaining = self.seconds_left()
        if self._line is not None:
            elapsed = now - self._start
            self._line.show(
                self._stage.title, self._note(remaining), None if remaining is None else elapsed / (elapsed + remaining)
            )
        elif now - self._reported > REPORT_INTERVAL:
            self._reported = now
            self._print(f"{self._stage.title}: {self._note(remaining)}")

    def _note(self, remaining: float | None) -> str:
        """Open samples, speed and remaining time as text."""
        parts = [f"{self._stage.open_samples:,} open" if self._robust is None else f"{self._robust:,} robust"]
        if self._stage.passes:
            parts.append(f"{self._stage.passes / self._stage.seconds():,.0f} passes/s")
        if remaining is not None:
            parts.append(f"about {duration(remaining)} left")
        return ", ".join(parts)

    def _end_stage(self, *, report: bool = True) -> None:
        stage = self._stage
        if not stage.name:
            return
        self._passes, self._seconds = self._passes + stage.passes, self._seconds + stage.seconds()
        self._of_model += stage.passes
        if report and not self._quiet and (stage.samples or self._verbose):
            cost = f"{stage.forwards:,} forwards, {duration(stage.seconds())}" if stage.samples else "nothing to do"
            self._print(f"{stage.title}: {stage.samples:,} samples, {cost}")
        self._stage = _Stage(model=stage.model)

    def _print(self, text: str, *, permanent: bool = False) -> None:
        """Print a line. A notebook's live line shows `permanent` ones only, such as notes and warnings."""
        text = f"brinell: {printable(text)}"
        if self._line is None:
            print(text, file=self._stream or sys.stderr, flush=True)
        else:
            self._line.print(text, permanent)


class _Line(Protocol):
    """A live line, which is rewritten."""

    def show(self, title: str, note: str, share: float | None) -> None:
        """Rewrite the line; `share` is the finished share of the run, if known."""

    def print(self, text: str, permanent: bool) -> None:
        """Print a lasting line above the live line; `permanent` as in `LiveProgress`."""

    def close(self) -> None:
        """Remove the live line."""


def _open_line(console: Console) -> _Line | None:
    if console.is_jupyter:
        return _NotebookLine()
    return _TerminalLine(console) if console.is_terminal else None


class _TerminalLine:
    """A line at the foot of a terminal, with a bar."""

    def __init__(self, console: Console) -> None:
        self._console = console
        title = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        note = TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True))
        bar = [BarColumn(bar_width=12)] if console.width >= 100 else []
        self._bar = Progress(title, *bar, note, console=console, transient=True, expand=True)
        self._task = self._bar.add_task("", total=None, note="")
        self._bar.start()

    def show(self, title: str, note: str, share: float | None) -> None:
        """Update the progress bar."""
        total, completed = (None, 0.0) if share is None else (1.0, share)
        self._bar.update(self._task, description=title, note=note, total=total, completed=completed)

    def print(self, text: str, permanent: bool) -> None:
        """Print a line above the progress bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the progress bar."""
        self._bar.stop()


class _NotebookLine:
    """A replaceable output of a notebook cell, which needs no further packages."""

    def __init__(self) -> None:
        from IPython.display import display

        self._handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, title: str, note: str, share: float | None) -> None:
        """Update the notebook's line."""
        percentage = "" if share is None else f"{100 * share:3.0f} % "
        self._handle.update({"text/plain": f"{percentage}{title}: {note}"}, raw=True)

    def print(self, text: str, permanent: bool) -> None:
        """Print a line that stays."""
        if permanent:
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        """Clear the line."""
        self._handle.update({"text/plain": ""}, raw=True)


def duration(seconds: float) -> str:
    """A readable duration: 4.2 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
