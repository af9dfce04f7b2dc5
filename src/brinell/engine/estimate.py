"""Estimate of the cost of an audit, from a pilot on a few samples.

The cost depends on the model: attacks stop on broken samples, stages wait for conditions, and an attack costs more than its
passes. A pilot runs the plan on a few samples for some seconds and measures the samples and passes of each stage. Then each
expected stage runs for a moment on a full group to measure its pace. Stages that the pilot did not reach are assumed to break
nothing.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from brinell.core import losses
from brinell.core.errors import MemoryShortError, ModelError
from brinell.core.model import Model
from brinell.core.record import CLEAN, Array
from brinell.core.streams import Streams
from brinell.engine import consistency
from brinell.engine.answers import with_logits
from brinell.engine.audit import run_audit
from brinell.engine.cascade import Stage
from brinell.engine.cells import stage_cell
from brinell.engine.checks import SAMPLES
from brinell.engine.group_worker import open_surrogates
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import SilentProgress
from brinell.engine.shard import Group, make_setting, predict, run_shard, session
from brinell.engine.state import is_open
from brinell.store.run import Run

MIN_SAMPLES, MAX_SAMPLES = 8, 128
"""Smallest and largest number of samples of a pilot."""
MOMENT = 0.6
"""Seconds for which each stage runs to measure its pace, if time permits."""
WARM = 2
"""Number of warm-up calls of the model before the clock of a stage starts."""
PILOT = 0.6
"""Share of the time for the pilot."""
NORMAL = 1.96
ROW = 60
"""Bytes of memory per row when a page reads all rows."""
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
        seconds: approximate time for the estimate, most of it for the pilot.
    """
    start = clock()
    model = source.open()
    if model.info.server is not None or not len(plan.ids) or not len(plan.levels):
        return None
    with session(model, plan.device), tempfile.TemporaryDirectory(prefix="brinell-") as folder:
        model = with_logits(model, plan.dataset, {"answers": {}, "probes": {}}, plan.device)
        small = replace(source, open=lambda: model)
        size = _pilot_size(plan, source, model, seconds)
        while True:
            pilot_start = clock()
            index = _draw_samples(plan, min(len(plan.ids), size))
            part = replace(plan, ids=plan.ids[index], labels=plan.labels[index], units=plan.units[index], models=(small,))
            watch = _PilotProgress(PILOT * seconds - (pilot_start - start))
            try:
                run = run_audit(part, Path(folder) / str(size), watch, command="a calibration")
            except _TimeOver:
                run = Run.open(Path(folder) / str(size), thresholds=True)
            remaining = PILOT * seconds - (clock() - start)
            next_size = int(size * remaining / max(1e-9, clock() - pilot_start))
            if size >= min(MAX_SAMPLES, len(plan.ids)) or next_size < 2 * size:
                break
            size = min(next_size, MAX_SAMPLES)
        pilot = _Pilot(part, small, run, watch)
        stages, sample_seconds = _extrapolate(plan, model, pilot, start + seconds)
    n, m = len(plan.ids), len(index)
    fixed = watch.check_seconds * min(SAMPLES, n) / min(SAMPLES, m) + n * pilot.clean_pace
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
        memory=peak_memory(plan.device) + ROW * n * len(plan.budgets.values) * (1 + len(plan.stages)),
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
    x = plan.dataset.load(plan.ids[consistency.evenly_spaced(len(plan.ids), min(16, len(plan.ids)))].tolist()).to(plan.device)
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
    """Progress of a pilot: records the forecast and ends the pilot when its time is over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._start = clock()
        self.check_seconds = 0.0
        """Seconds until the first attack began."""
        self.expected: dict[str, int] = {}
        """Expected passes of the current and later stages on the pilot's samples, by stage."""

    def forecast(self, stages: Mapping[str, int], models: int) -> None:
        """Note the stages that are expected to run."""
        if not self.expected:
            self.check_seconds = clock() - self._start
        self.expected = dict(stages)

    def count_passes(self, forwards: int, backwards: int) -> None:
        """End the calibration after its time."""
        # The checks always run, and attacks get at least half of the time.
        if self.expected and clock() - self._start > max(self._seconds, self.check_seconds + self._seconds / 2):
            raise _TimeOver


class _Pilot:
    """Costs of each stage on the m samples of a pilot."""

    def __init__(self, plan: Plan, source: ModelSource, run: Run, watch: _PilotProgress) -> None:
        self.plan, self.source, self.run, self.watch = plan, source, run, watch
        self.records = run.records()
        self.clean_pace = float(self.by_sample(CLEAN, "seconds").mean())

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


class _Paces:
    """Measures the seconds per pass of a stage at the group size of the full run."""

    def __init__(self, plan: Plan, source: ModelSource, model: Model, moment: float) -> None:
        self.plan, self.source, self.model, self.moment = plan, source, model, moment
        ids = plan.ids[consistency.evenly_spaced(len(plan.ids), min(len(plan.ids), plan.group_size))]
        index = np.searchsorted(plan.ids, ids)
        x = plan.dataset.load(ids.tolist()).to(plan.device)
        logits = predict(model, x, plan.request.batch_size)
        confidence, pred = (column.cpu().numpy() for column in losses.decision(logits))
        labels = torch.as_tensor(plan.labels[index], device=logits.device)
        streams = Streams.of(plan.request.seed, torch.as_tensor(ids, device=logits.device))
        group = Group(
            sample_id=ids,
            label=plan.labels[index],
            target=None if plan.targeting is None else plan.targeting.classes(logits, labels, streams).cpu().numpy(),
            clean_pred=pred,
            clean_confidence=confidence,
            level=np.zeros(len(ids), dtype=np.int64),
            x=x,
            unit=plan.units[index],
        )
        self.group = group.select(np.flatnonzero(pred == group.label))

    def measure(self, stage: Stage, samples: int) -> float | None:
        """Measure seconds per pass on this many samples; None if the stage ends too early.

        The samples are attacked at the smallest budget. Most are robust there, and on robust samples a stage spends most of its
        time.
        """
        clock = _Clock(self.moment)
        group = self.group.select(consistency.evenly_spaced(len(self.group.sample_id), min(samples, len(self.group.sample_id))))
        try:
            with ExitStack() as sessions:
                surrogates = open_surrogates(self.plan, {}, sessions)
                run_shard(make_setting(self.plan, self.source, self.model, stage, clock, surrogates), group)
        except _TimeOver:
            pass
        except (MemoryShortError, ModelError):  # the run itself reports this, with the sample
            return None
        return clock.pace


class _Clock:
    """Counts passes over time until `moment` seconds have passed."""

    def __init__(self, moment: float) -> None:
        self._moment, self._calls, self._passes, self._first, self._last = moment, 0, 0, 0.0, 0.0

    def __call__(self, forwards: int, backwards: int) -> None:
        self._calls += 1
        self._last = clock()
        if self._calls <= WARM:
            self._first = self._last
            return
        self._passes += forwards + backwards
        if self._last - self._first > self._moment:
            raise _TimeOver

    @property
    def pace(self) -> float | None:
        """Seconds per pass; None if none was timed."""
        return (self._last - self._first) / self._passes if self._passes else None


def _extrapolate(plan: Plan, model: Model, pilot: _Pilot, until: float) -> tuple[tuple[StageEstimate, ...], Array]:
    """Estimates of all stages that can run, and the seconds (m,) of the full run that each sample of the pilot represents."""
    stages = [stage_ for stage_ in plan.stages if stage_.name not in pilot.source.skipped]
    passes = {stage_.name: pilot.forwards_backwards(stage_) for stage_ in stages}
    total = {name: float(forwards.sum() + backwards.sum()) for name, (forwards, backwards) in passes.items()}
    expected = [stage_ for stage_ in stages if total[stage_.name] and not pilot.waits(stage_)]
    scale, m = len(plan.ids) / len(pilot.plan.ids), len(pilot.plan.ids)
    moment = max(MOMENT / 4, (until - clock()) / max(1, len(expected)))
    paces = _Paces(plan, pilot.source, model, moment)
    paces_by_plugin: dict[str, float] = {}
    estimates, sample_seconds = [], np.zeros(m)
    for stage in stages:
        forwards, backwards = passes[stage.name]
        attacked = int(np.ceil(scale * (forwards + backwards > 0).sum()))
        size = min(attacked, plan.group_size)
        measured = paces.measure(stage, size) if stage in expected else None
        pace = (
            measured
            or paces_by_plugin.get(stage.plugin)
            or (max(paces_by_plugin.values()) if paces_by_plugin else pilot.clean_pace)
        )
        paces_by_plugin[stage.plugin] = pace
        # The overhead of a small group beyond the pace of a full one is the same for each group.
        extra = max(0.0, float(pilot.by_sample(stage.name, "seconds").sum()) - pace * total[stage.name]) * np.ceil(
            attacked / plan.group_size
        )
        if stage in expected:
            sample_seconds += scale * pace * (forwards + backwards)
        estimates.append(
            StageEstimate(
                name=stage.name,
                forwards=scale * float(forwards.sum()),
                backwards=scale * float(backwards.sum()),
                seconds=scale * pace * total[stage.name] + extra,
                expected=not pilot.waits(stage),
            )
        )
    return tuple(estimates), sample_seconds
