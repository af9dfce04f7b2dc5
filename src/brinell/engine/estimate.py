"""Estimate of the cost of an audit, from a pilot: the plan on a few samples, for some seconds.

The cost depends on the model: attacks stop on broken samples, stages wait for conditions, and an attack costs more than its
passes. Stages that the pilot did not finish are assumed to break nothing, at the pace of the slowest stage.
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
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.engine.answers import with_logits
from brinell.engine.audit import run_audit
from brinell.engine.checks import SAMPLES
from brinell.engine.consistency import evenly_spaced
from brinell.engine.group_attack import predict, session
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import SilentProgress

MIN_SAMPLES, MAX_SAMPLES = 8, 128
"""Smallest and largest number of samples of a pilot."""
PILOT = 0.8
"""Share of the time that the pilot is sized for."""
ROW = 200
"""Bytes of memory for the row of a sample in a stage."""
clock = time.perf_counter
"""The clock of all calibrations."""


class _TimeOver(Exception):
    """The time of the calibration is over."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Expected cost of a plan on one model."""

    model: str
    stages: Mapping[str, tuple[int, float]]
    """Forwards plus backwards, and seconds, of each stage that is expected to run, by name."""
    seconds: float
    """Seconds of the checks and of these stages."""
    memory: int
    """Peak bytes of the process until the end of the calibration, plus those of the run's rows."""
    samples: int
    """Number of samples of the pilot."""
    calibration_seconds: float
    """Seconds that the calibration took."""


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
        index = _draw_samples(plan, min(len(plan.ids), _pilot_size(plan, source, model, seconds)))
        small = (replace(source, open=lambda: model),)
        part = replace(plan, ids=plan.ids[index], labels=plan.labels[index], units=plan.units[index], models=small)
        watch = _PilotProgress(seconds)
        try:
            run_audit(part, Path(folder), watch, command="a calibration")
        except _TimeOver:
            pass
    n, m = len(plan.ids), len(index)
    expected = watch.expected_passes()
    stages = {
        name: (round(n / m * expected[name]), n / m * expected[name] * watch.pace(name))
        for name in (stage.name for stage in plan.stages if expected.get(stage.name) or not stage.waits)
        if name in expected
    }
    return Estimate(
        model=source.name,
        stages=stages,
        seconds=watch.check_seconds * min(SAMPLES, n) / min(SAMPLES, m) + sum(seconds for _, seconds in stages.values()),
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
        self._passes, self._stage_seconds = defaultdict[str, int](int), defaultdict[str, float](float)
        """Of the attacks of each stage so far, by its name."""
        self._forecast: dict[str, int] = {}
        """Expected passes of the current and later stages on the pilot's samples, by stage."""
        self.check_seconds = 0.0
        """Seconds until the first attack began."""

    def forecast(self, stages: Mapping[str, int], models: int) -> None:
        """Note the stages that are expected to run, of which the first begins."""
        self._stage_start, self._current = clock(), next(iter(stages))
        if not self._forecast:
            self.check_seconds = self._stage_start - self._start
        self._forecast = dict(stages)

    def update_open(self, samples: int, robust: int) -> None:
        """Note the end of a stage, after which checks may ask the model."""
        if not samples and self._current:
            self._forecast[self._current], self._current = self._passes[self._current], ""

    def count_passes(self, forwards: int, backwards: int) -> None:
        """Count passes of the current stage, and end the pilot after its time; attacks get at least half of it."""
        if not self._current:
            return
        self._passes[self._current] += forwards + backwards
        self._stage_seconds[self._current] = clock() - self._stage_start
        if clock() - self._start > max(self._seconds, self.check_seconds + self._seconds / 2):
            raise _TimeOver

    def expected_passes(self) -> dict[str, int]:
        """Passes of each stage on the pilot's samples, measured or, if the pilot did not finish it, forecast."""
        return dict(self._passes) | self._forecast

    def pace(self, stage: str) -> float:
        """Seconds per pass of a stage, or of the slowest one if the pilot did not reach it."""
        paces = {name: self._stage_seconds[name] / passes for name, passes in self._passes.items() if passes}
        return paces.get(stage, max(paces.values(), default=0.0))
