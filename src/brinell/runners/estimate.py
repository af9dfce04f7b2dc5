"""What an audit will cost: its own course on a few samples, at the pace of full batches.

Attacks stop at what they have broken, stages wait for conditions, and an attack costs more than the passes that it asks for. So
nothing is taken from a table: a pilot runs the plan on a few samples for some seconds, which tells how many samples each stage
will find and how much it asks on each; then each stage that is expected runs for a moment on as many samples as it will have at
once, which tells its pace. Stages that the pilot did not come to are taken to break nothing.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from brinell.core.errors import MemoryShortError, ModelError
from brinell.core.model import Model
from brinell.core.record import CLEAN, Array, Outcome
from brinell.core.streams import Streams
from brinell.engine import consistency
from brinell.engine.answers import settled
from brinell.engine.cascade import Stage
from brinell.engine.cells import stage_cell
from brinell.engine.checks import SAMPLES
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Silent
from brinell.engine.shard import Group, predict, run_shard, session, setting_of
from brinell.runners import local
from brinell.store.run import Run

LEAST, MOST = 8, 128
"""Samples of a pilot."""
MOMENT = 0.6
"""Seconds for which each stage runs to show its pace, where there is time for all."""
WARM = 2
"""Calls of the model by a stage before its clock starts."""
PILOT = 0.6
"""Share of the time that the pilot may take."""
NORMAL = 1.96
ROW = 60
"""Bytes that a row takes in memory where a page is made of all, which stay in their files."""


class _Enough(Exception):
    """The time of a calibration is over."""


@dataclass(frozen=True, kw_only=True)
class StageEstimate:
    """A stage on one model, in the mean."""

    name: str
    forwards: float
    backwards: float
    seconds: float
    expected: bool
    """Whether it will run as far as is known; the figures of one that waits for an alarm are what it costs after one."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a plan costs on one model."""

    model: str
    stages: tuple[StageEstimate, ...]
    seconds: float
    low: float
    """Lower end of the 95 % interval of the seconds: what another pilot of as many samples may say."""
    high: float
    alarmed: float
    """Seconds that the stages which wait for an alarm cost besides, if one is raised."""
    memory: int
    """Bytes that a process had at most until the end of the calibration, and those of the run's rows."""
    samples: int
    """Samples of the pilot."""
    spent: float
    """Seconds that the calibration took."""

    @property
    def passes(self) -> float:
        """Forwards and backwards of the stages that are expected."""
        return sum(one.forwards + one.backwards for one in self.stages if one.expected)


def estimate(plan: Plan, source: ModelSource, seconds: float) -> Estimate | None:
    """What the plan will cost on one of its models; None for one on another machine, which is not asked for an estimate.

    Args:
        plan: the plan.
        source: one of its models.
        seconds: about how long this may take; most of it is for the pilot.
    """
    started = time.perf_counter()
    model = source.open()
    if model.info.server is not None or not len(plan.ids) or not len(plan.levels):
        return None
    with session(model, plan.device), tempfile.TemporaryDirectory(prefix="brinell-") as folder:
        model = settled(model, plan.dataset, {"answers": {}, "probes": {}}, plan.device)
        small = replace(source, open=lambda: model)
        size = _pilot_size(plan, source, model, seconds)
        while True:
            begun = time.perf_counter()
            at = _drawn(plan, min(len(plan.ids), size))
            part = replace(plan, ids=plan.ids[at], labels=plan.labels[at], units=plan.units[at], models=(small,))
            watch = _Watch(PILOT * seconds - (begun - started))
            try:
                run = local.run(part, Path(folder) / str(size), watch, command="a calibration")
            except _Enough:
                run = Run.open(Path(folder) / str(size))
            left = PILOT * seconds - (time.perf_counter() - started)
            more = int(size * left / (time.perf_counter() - begun))
            if size >= min(MOST, len(plan.ids)) or more < 2 * size:
                break
            size = min(more, MOST)
        pilot = _Pilot(part, small, run, watch)
        stages, each = _extrapolated(plan, model, pilot, started + seconds)
    n, m = len(plan.ids), len(at)
    fixed = watch.before * min(SAMPLES, n) / min(SAMPLES, m) + n * pilot.clean_pace
    total = fixed + sum(one.seconds for one in stages if one.expected)
    spread = NORMAL * float(each.std(ddof=1)) * np.sqrt(m * (1 - m / n)) if m > 1 else total
    masked = {one.name for one in plan.stages if one.turn.when == "masked"}
    return Estimate(
        model=source.name,
        stages=stages,
        seconds=total,
        low=max(fixed, total - spread),
        high=total + spread,
        alarmed=sum(one.seconds for one in stages if one.name in masked and not one.expected),
        memory=_peak(plan.device) + ROW * n * len(plan.budgets.values) * (1 + len(plan.stages)),
        samples=m,
        spent=time.perf_counter() - started,
    )


def _peak(device: torch.device) -> int:
    """Bytes that this process had at most: of its device where that is no processor, else of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _pilot_size(plan: Plan, source: ModelSource, model: Model, seconds: float) -> int:
    """As many samples as there is time for if a third of the passes that could be spent are."""
    x = plan.dataset.load(plan.ids[consistency.evenly(len(plan.ids), min(16, len(plan.ids)))].tolist()).to(plan.device)
    predict(model, x, plan.request.batch_size)
    started = time.perf_counter()
    predict(model, x, plan.request.batch_size)
    pace = (time.perf_counter() - started) / len(x)
    once = sum(
        sum(plan.cost_once(source, stage)) for stage in plan.stages if not stage.waits and stage.name not in source.skipped
    )
    return int(np.clip(3 * PILOT * seconds / max(1e-9, 1.5 * pace * once), LEAST, MOST))


def _drawn(plan: Plan, count: int) -> Array:
    """(count,) positions of samples drawn at random, in order: a step through them may fall in with an order of the data."""
    draw = Streams.of(plan.request.seed, torch.as_tensor(plan.ids)).fold("pilot").uniform().numpy()
    return np.sort(np.argsort(draw)[:count])


class _Watch(Silent):
    """Progress of a pilot: it notes what is expected, and ends the pilot when its time is over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started = time.perf_counter()
        self.before = 0.0
        """Seconds until the first attack began."""
        self.expected: dict[str, int] = {}
        """The stage that began last and those after it, with the passes that they are expected to cost on the pilot's samples."""

    def ahead(self, stages: Mapping[str, int], models: int) -> None:
        if not self.expected:
            self.before = time.perf_counter() - self._started
        self.expected = dict(stages)

    def passes(self, forwards: int, backwards: int) -> None:
        # The checks are always made, and attacks have half of the time at least.
        if self.expected and time.perf_counter() - self._started > max(self._seconds, self.before + self._seconds / 2):
            raise _Enough


class _Pilot:
    """What a pilot of m samples tells of each stage, in rows of m numbers."""

    def __init__(self, plan: Plan, source: ModelSource, run: Run, watch: _Watch) -> None:
        self.plan, self.source, self.run, self.watch = plan, source, run, watch
        self.records = run.records()
        self.clean_pace = float(self.by_sample(CLEAN, "seconds").mean())

    def by_sample(self, attack: str, column: str) -> Array:
        """(m,): what a stage spent on each sample of the pilot."""
        mine = self.records.attack == attack
        values = np.ma.getdata(getattr(self.records, column))[mine]
        at = np.searchsorted(self.plan.ids, self.records.sample_id[mine])
        return np.bincount(at, values, minlength=len(self.plan.ids))

    def done(self, stage: Stage) -> bool:
        """Whether the pilot came to the end of a stage."""
        return self.run.has_part(stage_cell(self.plan, self.source, stage))

    def waits(self, stage: Stage) -> bool:
        """Whether a stage waits for an alarm that the pilot did not raise."""
        return stage.waits and not self.watch.expected.get(stage.name) and not self.by_sample(stage.name, "forwards").any()

    def forwards_backwards(self, stage: Stage) -> tuple[Array, Array]:
        """(m,) forwards and (m,) backwards of a stage, as they were, or where the pilot did not come to it as expected."""
        if self.done(stage) and not self.waits(stage):
            return self.by_sample(stage.name, "forwards"), self.by_sample(stage.name, "backwards")
        once = np.array(self.plan.cost_once(self.source, stage), dtype=float)
        if self.waits(stage):
            each = stage.turn.share * self.open.astype(float)
        else:
            attacked = round(self.watch.expected.get(stage.name, 0) / max(1.0, once.sum()))
            each = (np.arange(len(self.plan.ids)) < attacked).astype(float)
        return each * once[0], each * once[1]

    @property
    def open(self) -> Array:
        """(m,) bool: samples that are robust at some budget, and so would be attacked by another stage."""
        rows_ = self.records
        broken = (rows_.outcome == Outcome.FOOLED) & np.isclose(rows_.eps, self.plan.levels[0])
        wrong = (rows_.attack == CLEAN) & (rows_.outcome != Outcome.CORRECT)
        return ~np.isin(self.plan.ids, rows_.sample_id[broken | wrong])


class _Paces:
    """Seconds that a pass costs in a stage when it works on as many samples as in the whole run."""

    def __init__(self, plan: Plan, source: ModelSource, model: Model, moment: float) -> None:
        self.plan, self.source, self.model, self.moment = plan, source, model, moment
        ids = plan.ids[consistency.evenly(len(plan.ids), min(len(plan.ids), plan.group_size))]
        at = np.searchsorted(plan.ids, ids)
        x = plan.dataset.load(ids.tolist()).to(plan.device)
        logits = predict(model, x, plan.request.batch_size)
        confidence, pred = (column.cpu().numpy() for column in logits.softmax(1).max(1))
        labels = torch.as_tensor(plan.labels[at], device=logits.device)
        streams = Streams.of(plan.request.seed, torch.as_tensor(ids, device=logits.device))
        group = Group(
            sample_id=ids,
            label=plan.labels[at],
            target=None if plan.targeting is None else plan.targeting.classes(logits, labels, streams).cpu().numpy(),
            clean_pred=pred,
            clean_confidence=confidence,
            level=np.zeros(len(ids), dtype=np.int64),
            x=x,
            unit=plan.units[at],
        )
        self.group = group.select(np.flatnonzero(pred == group.label))

    def of(self, stage: Stage, samples: int) -> float | None:
        """The pace on so many samples; None where the stage ends before it shows one.

        They are attacked at the smallest budget, within which most are robust, as those are on which a stage spends its time.
        """
        clock = _Clock(self.moment)
        setting = setting_of(self.plan, self.source, self.model, stage, clock)
        group = self.group.select(consistency.evenly(len(self.group.sample_id), min(samples, len(self.group.sample_id))))
        try:
            run_shard(setting, group)
        except _Enough:
            pass
        except (MemoryShortError, ModelError):  # said by the run itself, with the sample that is to blame
            return None
        return clock.pace


class _Clock:
    """Counts passes against time, for a moment."""

    def __init__(self, moment: float) -> None:
        self._moment, self._calls, self._passes, self._first, self._last = moment, 0, 0, 0.0, 0.0

    def __call__(self, forwards: int, backwards: int) -> None:
        self._calls += 1
        self._last = time.perf_counter()
        if self._calls <= WARM:
            self._first = self._last
            return
        self._passes += forwards + backwards
        if self._last - self._first > self._moment:
            raise _Enough

    @property
    def pace(self) -> float | None:
        """Seconds a pass."""
        return (self._last - self._first) / self._passes if self._passes else None


def _extrapolated(plan: Plan, model: Model, pilot: _Pilot, until: float) -> tuple[tuple[StageEstimate, ...], Array]:
    """Every stage that can run, and (m,) the seconds that each sample of the pilot stands for in the whole run."""
    stages = [one for one in plan.stages if one.name not in pilot.source.skipped]
    spent = {one.name: pilot.forwards_backwards(one) for one in stages}
    total = {name: float(forwards.sum() + backwards.sum()) for name, (forwards, backwards) in spent.items()}
    asked = [one for one in stages if total[one.name] and not pilot.waits(one)]
    scale, m = len(plan.ids) / len(pilot.plan.ids), len(pilot.plan.ids)
    moment = max(MOMENT / 4, (until - time.perf_counter()) / max(1, len(asked)))
    paces = _Paces(plan, pilot.source, model, moment)
    known: dict[str, float] = {}
    found, each = [], np.zeros(m)
    for stage in stages:
        forwards, backwards = spent[stage.name]
        attacked = int(np.ceil(scale * (forwards + backwards > 0).sum()))
        size = min(attacked, plan.group_size)
        shown = paces.of(stage, size) if stage in asked else None
        pace = shown or known.get(stage.plugin) or (max(known.values()) if known else pilot.clean_pace)
        known[stage.plugin] = pace
        # What a small company costs beyond the pace of a full one is the same for each group.
        extra = max(0.0, float(pilot.by_sample(stage.name, "seconds").sum()) - pace * total[stage.name]) * np.ceil(
            attacked / plan.group_size
        )
        if stage in asked:
            each += scale * pace * (forwards + backwards)
        found.append(
            StageEstimate(
                name=stage.name,
                forwards=scale * float(forwards.sum()),
                backwards=scale * float(backwards.sum()),
                seconds=scale * pace * total[stage.name] + extra,
                expected=not pilot.waits(stage),
            )
        )
    return tuple(found), each
