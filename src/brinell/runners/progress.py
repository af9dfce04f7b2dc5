"""Live progress: one line for the whole run at a terminal or in a notebook, plain lines anywhere else, and a file of numbers."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from brinell.core.errors import Spelling, spell
from brinell.core.outward import printable
from brinell.store.files import write_text

REFRESH = 0.1
"""Seconds between two looks of the line."""
LONG = 60.0
"""Seconds after which a stage that goes on says so where there is no line to look at."""


@dataclass
class _Stage:
    """The stage that runs."""

    model: str = ""
    name: str = ""
    samples: int = 0
    expected: int = 0
    """Passes that it is expected to cost."""
    left: int = 0
    forwards: int = 0
    passes: int = 0
    started: float = field(default_factory=lambda: time.monotonic())

    @property
    def title(self) -> str:
        return f"{self.model} {self.name}"

    def seconds(self) -> float:
        return max(time.monotonic() - self.started, 1e-9)

    def passes_left(self) -> float:
        """Those that are expected and not spent, or what the samples that are still open ask for where that is less."""
        open_ = self.expected * self.left / self.samples if self.samples else 0.0
        return max(min(self.expected - self.passes, open_), open_ / 10)


class LiveProgress:
    """Tells the stage, how many samples are still robust, the rate, and the time left for the whole run. A context manager.

    The time left is an estimate: the passes that are expected, at the rate of the run so far.

    Args:
        quiet: leave out notes, stages and the line; warnings stay.
        verbose: tell of stages that ran on nothing, too.
        stream: where lines go; none is standard error. A line that is rewritten is for a terminal or a notebook alone.
        spelling: how lines spell options.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        stream: TextIO | None = None,
        spelling: Spelling = Spelling.PYTHON,
    ) -> None:
        self._quiet, self._verbose, self._stream, self._spelling = quiet, verbose, stream, spelling
        self._console = Console(file=stream, stderr=stream is None)
        self._line: _Line | None = None
        self._stage = _Stage()
        self._passes, self._seconds = 0, 0.0
        self._of_model = 0
        self._ahead: tuple[int, int] | None = None
        """Passes of this model after the stage, and models after this one."""
        self._robust: int | None = None
        self._began = self._shown = self._told = time.monotonic()

    def __enter__(self) -> "LiveProgress":
        if not self._quiet:
            self._line = _line(self._console)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end_stage(told=kind is None)
        if self._line is not None:
            self._line.close()

    def stage(self, model: str, stage: str, samples: int, passes: int) -> None:
        """A stage begins."""
        self._end_stage()
        model, stage = printable(model), printable(stage)
        if model != self._stage.model:
            self._of_model, self._robust = 0, None
        self._stage, self._ahead = _Stage(model, stage, samples, passes, left=samples), None
        self._told = time.monotonic()
        if samples:
            self._refresh(always=True)

    def ahead(self, stages: Mapping[str, int], models: int) -> None:
        """What is expected from this stage on."""
        self._ahead = sum(list(stages.values())[1:]), models

    def passes(self, forwards: int, backwards: int) -> None:
        """The model has answered."""
        self._stage.forwards += forwards
        self._stage.passes += forwards + backwards
        self._refresh()

    def open(self, samples: int, robust: int) -> None:
        """Fewer samples are open than before."""
        self._stage.left, self._robust = samples, robust
        self._refresh()

    def note(self, text: str) -> None:
        """A line in passing, which --quiet leaves out."""
        if not self._quiet:
            self._print(f"note: {spell(text, self._spelling)}", kept=True)

    def warn(self, text: str) -> None:
        """A warning."""
        self._print(f"warning: {spell(text, self._spelling)}", kept=True)

    def seconds_left(self) -> float | None:
        """Until the run ends, as far as can be told; None where the stage does not know what is ahead, or has no rate yet."""
        stage = self._stage
        if self._ahead is None or not stage.passes:
            return None
        after, models = self._ahead
        here = stage.passes_left()
        whole = self._of_model + stage.passes + here + after
        pace = (self._seconds + stage.seconds()) / (self._passes + stage.passes)
        return here * stage.seconds() / stage.passes + (after + models * whole) * pace

    def _refresh(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if self._quiet or (now - self._shown < REFRESH and not always):
            return
        self._shown = now
        left = self.seconds_left()
        if self._line is not None:
            spent = now - self._began
            self._line.show(self._stage.title, self._note(left), None if left is None else spent / (spent + left))
        elif now - self._told > LONG:
            self._told = now
            self._print(f"{self._stage.title}: {self._note(left)}")

    def _note(self, left: float | None) -> str:
        parts = [f"{self._stage.left:,} open" if self._robust is None else f"{self._robust:,} robust"]
        if self._stage.passes:
            parts.append(f"{self._stage.passes / self._stage.seconds():,.0f} passes/s")
        if left is not None:
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def _end_stage(self, *, told: bool = True) -> None:
        stage = self._stage
        if not stage.name:
            return
        self._passes, self._seconds = self._passes + stage.passes, self._seconds + stage.seconds()
        self._of_model += stage.passes
        if told and not self._quiet and (stage.samples or self._verbose):
            spent = f"{stage.forwards:,} forwards, {duration(stage.seconds())}" if stage.samples else "nothing to do"
            self._print(f"{stage.title}: {stage.samples:,} samples, {spent}")
        self._stage = _Stage(model=stage.model)

    def _print(self, text: str, *, kept: bool = False) -> None:
        """Print a line; `kept` where it says something that no report says, so that a notebook keeps it below the cell."""
        text = f"brinell: {printable(text)}"
        if self._line is None:
            print(text, file=self._stream or sys.stderr, flush=True)
        else:
            self._line.print(text, kept)


class _Line(Protocol):
    """A line that is rewritten."""

    def show(self, title: str, note: str, share: float | None) -> None:
        """Rewrite it; `share` of the run is done, where that is known."""

    def print(self, text: str, kept: bool) -> None:
        """Print a line above it that stays; `kept` as of `LiveProgress`."""

    def close(self) -> None:
        """Take it away."""


def _line(console: Console) -> _Line | None:
    """The line where there is something that can rewrite one."""
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
        total, done = (None, 0.0) if share is None else (1.0, share)
        self._bar.update(self._task, description=title, note=note, total=total, completed=done)

    def print(self, text: str, kept: bool) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._bar.stop()


class _NotebookLine:
    """One output of a notebook's cell, which is replaced; it needs nothing beside the notebook itself."""

    def __init__(self) -> None:
        from IPython.display import display

        self._handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, title: str, note: str, share: float | None) -> None:
        done = "" if share is None else f"{100 * share:3.0f} % "
        self._handle.update({"text/plain": f"{done}{title}: {note}"}, raw=True)

    def print(self, text: str, kept: bool) -> None:
        if kept:
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        self._handle.update({"text/plain": ""}, raw=True)


def duration(seconds: float) -> str:
    """A time as people say it: 4.2 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


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
    """Progress that is handed on to another one and kept in a file, which is replaced as a whole (`engine.progress.Progress`)."""

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
