"""Progress of a run: one line for all of it at a terminal, and plain lines anywhere else."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO

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
    model: str = ""
    name: str = ""
    samples: int = 0
    expected: int = 0
    """Expected passes."""
    open_samples: int = 0
    forwards: int = 0
    passes: int = 0
    start: float = field(default_factory=lambda: time.monotonic())

    def seconds(self) -> float:
        return time.monotonic() - self.start


class LiveProgress:
    """Shows the stage, the robust samples, the rate, and the remaining time of the whole run.

    A context manager.

    The remaining time is an estimate: the expected passes at the rate of the run so far. `quiet`
    leaves warnings; `verbose` reports stages without samples, too. The stream is standard error by
    default; only terminals get a live line.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        warnings: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self._quiet, self._verbose, self._warnings = quiet, verbose, warnings
        self._console = Console(file=stream, stderr=stream is None)
        self._live = self._console.is_terminal and not self._console.is_jupyter and not quiet

        title = TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        )
        note = TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True))
        bar = BarColumn(bar_width=12 if self._console.width >= 100 else 8)
        self._bar = Progress(
            title,
            bar,
            note,
            console=self._console,
            transient=True,
            expand=True,
            disable=not self._live,
        )

        self._task = self._bar.add_task("", total=None, note="")
        self._stage = _Stage()
        self._passes = self._of_model = 0
        self._forecast: tuple[int, int] | None = None
        """Passes of this model after the stage, and models after this one."""
        self._robust: int | None = None
        self._start = self._refreshed = self._reported = time.monotonic()

    def __enter__(self) -> "LiveProgress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_stage(report=kind is None)
        self._bar.stop()

    def stage(self, model: str, stage: str, samples: int, passes: int) -> None:
        """Begin a stage."""
        self._end_stage()
        model, stage = printable(model), printable(stage)
        if model != self._stage.model:
            self._of_model, self._robust = 0, None
        self._stage, self._forecast = (
            _Stage(model, stage, samples, passes, open_samples=samples),
            None,
        )
        self._reported = time.monotonic()
        if samples:
            self._refresh()

    def forecast(self, stages: Mapping[str, int], models: int) -> None:
        """Record the expected passes from this stage on."""
        # The first is the stage that runs now, whose passes are counted by themselves.
        self._forecast = sum(list(stages.values())[1:]), models

    def count_passes(self, forwards: int, backwards: int) -> None:
        """The model has answered."""
        self._stage.forwards += forwards
        self._stage.passes += forwards + backwards
        if time.monotonic() - self._refreshed >= REFRESH:
            self._refresh()

    def update_open(self, samples: int, robust: int) -> None:
        """Fewer samples are open than before."""
        self._stage.open_samples, self._robust = samples, robust
        self._refresh()

    def note(self, text: str) -> None:
        """Print a note, unless quiet."""
        if not self._quiet:
            self._print(f"note: {text}")

    def warn(self, text: str) -> None:
        """A warning."""
        if self._warnings:
            self._print(f"warning: {text}")

    def _refresh(self) -> None:
        """Show the current progress in the live line; elsewhere print it once a minute."""
        moment = time.monotonic()
        stage = self._stage
        self._refreshed = moment
        note = (
            f"{stage.open_samples:,} open" if self._robust is None else f"{self._robust:,} robust"
        )
        if stage.passes and (self._console.width >= 100 or not self._live):
            note += f", {stage.passes / max(stage.seconds(), 1e-9):,.0f} passes/s"
        passes = self._passes + stage.passes
        total = None
        if self._forecast is not None and passes:
            later, models = self._forecast
            # The passes of this stage that are left, or those in proportion to the open samples if
            # that is less; a tenth of these at least, since a stage may take more than expected.
            open_ = stage.expected * stage.open_samples / stage.samples if stage.samples else 0.0
            remaining = max(min(stage.expected - stage.passes, open_), open_ / 10) + later
            # Each further model is taken to cost as much as this one.
            remaining += models * (self._of_model + stage.passes + remaining)
            note = f"{note}, about {duration(remaining * (moment - self._start) / passes)} left"
            total = passes + remaining

        self._bar.update(
            self._task,
            completed=passes,
            total=total,
            description=f"{stage.model} {stage.name}",
            note=note,
        )
        if not self._live and not self._quiet and moment - self._reported > REPORT_INTERVAL:
            self._reported = moment
            self._print(f"{stage.model} {stage.name}: {note}")

    def _end_stage(self, *, report: bool = True) -> None:
        """Count the passes of the stage among those before, and print its cost."""
        stage = self._stage
        if not stage.name:
            return
        self._passes, self._of_model = self._passes + stage.passes, self._of_model + stage.passes
        if report and not self._quiet and (stage.samples or self._verbose):
            cost = (
                f"{stage.forwards:,} forwards, {duration(stage.seconds())}"
                if stage.samples
                else "nothing to do"
            )
            self._print(f"{stage.model} {stage.name}: {stage.samples:,} samples, {cost}")
        self._stage = _Stage(model=stage.model)

    def _print(self, text: str) -> None:
        self._console.print(
            f"brinell: {printable(text)}", markup=False, highlight=False, soft_wrap=True
        )


def duration(seconds: float) -> str:
    """A readable duration: 4.2 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
