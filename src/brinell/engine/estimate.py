"""Estimate of the cost of an audit, from a pilot on a few samples.

The cost depends on the model: attacks stop on broken samples, stages wait for conditions, and an attack costs more than its
passes. A pilot runs the plan on a few samples for some seconds and measures passes and time of each stage. Stages that it did not
reach are assumed to break nothing, at the pace of the slowest stage.
"""

import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from brinell.core.model import Model
from brinell.core.record import CLEAN, Array
from brinell.core.streams import Streams
from brinell.engine.answers import with_logits
from brinell.engine.audit import run_audit
from brinell.engine.cascade import Stage
from brinell.engine.cells import stage_cell
from brinell.engine.checks import SAMPLES
from brinell.engine.consistency import evenly_spaced
from brinell.engine.group_attack import predict, session
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import SilentProgress
from brinell.engine.state import is_open
from brinell.store.run import Run

MIN_SAMPLES, MAX_SAMPLES = 8, 128
"""Smallest and largest number of samples of a pilot."""
PILOT = 0.8
"""Share of the time that the pilot is sized for."""
NORMAL = 1.96
ROW = 200
"""Bytes of memory for the row of a sample in a stage."""
clock = time.perf_counter
"""The clock of all calibrations."""


class _TimeOver(Exception):
    """The time of the calibration is over."""


@dataclass(frozen=True, kw_only=True)
class StageEstimate:
    """Expected cost of a stage on one model."""

    name: str
    forwards: float
    backwards: float
    seconds: float
    expected: bool
    """True if the stage is expected to run; the figures of a waiting stage are its cost after an alarm."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Expected cost of a plan on one model."""

    model: str
    stages: tuple[StageEstimate, ...]
    seconds: float
    low: float
    """Lower end of the 95 % interval of the seconds, over pilots of the same size."""
    high: float
    alarm_seconds: float
    """Additional seconds of the stages that wait for an alarm, if one is raised."""
    memory: int
    """Peak bytes of the process until the end of the calibration, plus those of the run's rows."""
    samples: int
    """Number of samples of the pilot."""
    calibration_seconds: float
    """Seconds that the calibration took."""

    @property
    def passes(self) -> float:
        """Forwards plus backwards of the expected stages."""
        return sum(stage.forwards + stage.backwards for stage in self.stages if stage.expected)


def estimate(plan: Plan, source: ModelSource, seconds: float) -> Estimate | None:
    """Estimate the cost of the plan on one of its models; None for a remote model, which is not queried for an estimate.

    Args:
        plan: the plan.
        source: one of its models.
        seconds: approximate time for the estimate.
    """
    start = clock()
    model = source.open()
    if model.info.server is not None or not len(plan.ids) or not len(plan.levels):
        return None
    with session(model, plan.device), tempfile.TemporaryDirectory(prefix="brinell-") as folder:
        model = with_logits(model, plan.dataset, {"answers": {}, "probes": {}}, plan.device)
        small = replace(source, open=lambda: model)
        index = _draw_samples(plan, min(len(plan.ids), _pilot_size(plan, source, model, seconds)))
        part = replace(plan, ids=plan.ids[index], labels=plan.labels[index], units=plan.units[index], models=(small,))
        watch = _PilotProgress(seconds)
        try:
            run = run_audit(part, Path(folder), watch, command="a calibration")
        except _TimeOver:
            run = Run.open(folder, thresholds=True)
        stages, sample_seconds = _extrapolate(plan, _Pilot(part, small, run, watch))
    n, m = len(plan.ids), len(index)
    fixed = watch.check_seconds * min(SAMPLES, n) / min(SAMPLES, m)
    total = fixed + sum(stage.seconds for stage in stages if stage.expected)
    spread = NORMAL * float(sample_seconds.std(ddof=1)) * np.sqrt(m * (1 - m / n)) if m > 1 else total
    masked = {stage.name for stage in plan.stages if stage.turn.when == "masked"}
    return Estimate(
        model=source.name,
        stages=stages,
        seconds=total,
        low=max(fixed, total - spread),
        high=total + spread,
        alarm_seconds=sum(stage.seconds for stage in stages if stage.name in masked and not stage.expected),
        memory=peak_memory(plan.device) + ROW * n * (1 + len(plan.stages)),
        samples=m,
        calibration_seconds=clock() - start,
    )


def peak_memory(device: torch.device) -> int:
    """Peak bytes of this process, on its GPU or else in main memory."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _pilot_size(plan: Plan, source: ModelSource, model: Model, seconds: float) -> int:
    """Number of samples for which there is time, if a third of the largest possible cost is spent."""
    x = plan.dataset.load(plan.ids[evenly_spaced(len(plan.ids), min(16, len(plan.ids)))].tolist()).to(plan.device)
    predict(model, x, plan.request.batch_size)
    start = clock()
    predict(model, x, plan.request.batch_size)
    pace = (clock() - start) / len(x)
    passes = sum(
        sum(plan.cost_once(source, stage)) for stage in plan.stages if not stage.waits and stage.name not in source.skipped
    )
    return int(np.clip(3 * PILOT * seconds / max(1e-9, 1.5 * pace * passes), MIN_SAMPLES, MAX_SAMPLES))


def _draw_samples(plan: Plan, count: int) -> Array:
    """(count,) positions of samples drawn at random, ascending; regular steps could coincide with an order of the data."""
    draw = Streams.of(plan.request.seed, torch.as_tensor(plan.ids)).fold("pilot").uniform().numpy()
    return np.sort(np.argsort(draw)[:count])


class _PilotProgress(SilentProgress):
    """Progress of a pilot: passes and seconds of each stage, and the end of the pilot when its time is over."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._start, self._stage_start, self._current = seconds, clock(), 0.0, ""
        self.check_seconds = 0.0
        """Seconds until the first attack began."""
        self.expected: dict[str, int] = {}
        """Expected passes of the current and later stages on the pilot's samples, by stage."""
        self.passes, self.seconds = defaultdict[str, int](int), defaultdict[str, float](float)
        """Passes and seconds of the stages so far, by name."""

    def forecast(self, stages: Mapping[str, int], models: int) -> None:
        """Note the stages that are expected to run, of which the first begins."""
        self._stage_start, self._current = clock(), next(iter(stages))
        if not self.expected:
            self.check_seconds = self._stage_start - self._start
        self.expected = dict(stages)

    def count_passes(self, forwards: int, backwards: int) -> None:
        """Count passes of the current stage, and end the pilot after its time; attacks get at least half of it."""
        if not self._current:
            return
        self.passes[self._current] += forwards + backwards
        self.seconds[self._current] = clock() - self._stage_start
        if clock() - self._start > max(self._seconds, self.check_seconds + self._seconds / 2):
            raise _TimeOver

    def pace(self, stage: str) -> float:
        """Seconds per pass of a stage, or of the slowest one if the pilot did not reach it."""
        paces = {name: self.seconds[name] / passes for name, passes in self.passes.items() if passes}
        return paces.get(stage, max(paces.values(), default=0.0))


class _Pilot:
    """Costs of each stage on the m samples of a pilot."""

    def __init__(self, plan: Plan, source: ModelSource, run: Run, watch: _PilotProgress) -> None:
        self.plan, self.source, self.run, self.watch = plan, source, run, watch
        self.records = run.records()

    def by_sample(self, attack: str, column: str) -> Array:
        """(m,): cost of a stage on each sample of the pilot."""
        is_stage = self.records.attack == attack
        values = np.ma.getdata(getattr(self.records, column))[is_stage]
        index = np.searchsorted(self.plan.ids, self.records.sample_id[is_stage])
        return np.bincount(index, values, minlength=len(self.plan.ids))

    def is_complete(self, stage: Stage) -> bool:
        """True if the pilot finished the stage."""
        return self.run.has_part(stage_cell(self.plan, self.source, stage))

    def waits(self, stage: Stage) -> bool:
        """True if the stage waits for an alarm that the pilot did not raise."""
        return stage.waits and not self.watch.expected.get(stage.name) and not self.by_sample(stage.name, "forwards").any()

    def forwards_backwards(self, stage: Stage) -> tuple[Array, Array]:
        """(m,) forwards and (m,) backwards of a stage, measured or, if the pilot did not reach it, expected."""
        if self.is_complete(stage) and not self.waits(stage):
            return self.by_sample(stage.name, "forwards"), self.by_sample(stage.name, "backwards")
        passes = np.array(self.plan.cost_once(self.source, stage), dtype=float)
        if self.waits(stage):
            attacks = stage.turn.share * self.open.astype(float)
        else:
            attacked = round(self.watch.expected.get(stage.name, 0) / max(1.0, passes.sum()))
            attacks = (np.arange(len(self.plan.ids)) < attacked).astype(float)
        return attacks * passes[0], attacks * passes[1]

    @property
    def open(self) -> Array:
        """(m,) bool: samples that are robust at some budget, which another stage would attack."""
        rows_ = self.records
        broken = np.isclose(np.ma.filled(rows_.broken, np.inf), self.plan.levels[0])
        wrong = (rows_.attack == CLEAN) & ~is_open(rows_.outcome)
        return ~np.isin(self.plan.ids, rows_.sample_id[broken | wrong])


def _extrapolate(plan: Plan, pilot: _Pilot) -> tuple[tuple[StageEstimate, ...], Array]:
    """Estimates of all stages that can run, and the seconds (m,) of the full run that each sample of the pilot represents."""
    scale, sample_seconds = len(plan.ids) / len(pilot.plan.ids), np.zeros(len(pilot.plan.ids))
    estimates = []
    for stage in plan.stages:
        if stage.name in pilot.source.skipped:
            continue
        forwards, backwards = pilot.forwards_backwards(stage)
        pace, waits = pilot.watch.pace(stage.name), pilot.waits(stage)
        if not waits:
            sample_seconds += scale * pace * (forwards + backwards)
        estimates.append(
            StageEstimate(
                name=stage.name,
                forwards=scale * float(forwards.sum()),
                backwards=scale * float(backwards.sum()),
                seconds=scale * pace * float((forwards + backwards).sum()),
                expected=not waits,
            )
        )
    return tuple(estimates), sample_seconds
