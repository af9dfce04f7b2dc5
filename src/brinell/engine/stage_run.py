"""One stage of one model's audit, group after group, from the samples that are open to the part that holds its rows.

Nothing here is remembered but what the run folder holds: on every start the same groups are cut, and what a shard already answers
is not computed again (design/0002-run-folder.md, design/0003-sweep.md). Groups are cut by what came of the groups before, in one
order, so that all processes that work on a run cut the same ones (design/0025-shards.md).
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from brinell.core.errors import ModelError
from brinell.core.model import Model
from brinell.core.record import CLEAN, Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.engine import retry
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.cells import cell, clean_cell, stage_cell
from brinell.engine.checks import check_answers
from brinell.engine.peers import ShardReport
from brinell.engine.plan import BATCHES
from brinell.engine.shard import Group, Result, Setting, criterion_of, joined, null_or, predict, setting_of
from brinell.engine.state import State, implied
from brinell.store import rows
from brinell.store.joining import blocks, nobody
from brinell.store.run import closest_shards, telling_shards

ENDED = [str(Outcome.SURVIVED), str(Outcome.FAILED)]
"""After these an attack has nothing more to try on a sample at smaller budgets."""


class Answers:
    """What a stage's shards say: at each level at which a sample was attacked, the smallest one broken, and if that is all."""

    def __init__(self, samples: int, levels: int) -> None:
        self._codes = np.zeros((samples, levels), np.min_scalar_type(2 * levels + 2))
        """0 for nothing known; otherwise 1 more than twice the level broken, and 1 more where the stage is done."""

    def note(self, index: Array, level: Array, reached: Array, closed: Array) -> None:
        """Take in answers; arrays (n,) are aligned.

        Args:
            index: positions of the samples.
            level: the level at which each was attacked.
            reached: the smallest level broken; the number of levels for none.
            closed: whether the stage is done with the sample.
        """
        self._codes[index, level] = 1 + 2 * np.asarray(reached) + closed

    def lacks(self, index: Array, level: Array) -> Array:
        """(n,) bool: of which samples nothing is known at these levels."""
        return np.asarray(self._codes[index, level] == 0)

    def look_up(self, index: Array, level: Array) -> tuple[Array, Array]:
        """(n,) the smallest level broken, and (n,) bool, whether the stage is done, for samples of which that is known."""
        codes = self._codes[index, level].astype(np.int64) - 1
        return codes // 2, codes % 2 == 1


@dataclass(frozen=True)
class OpenGroup:
    """A group that waits for its attack."""

    index: Array
    """(n,): positions of its samples in the run."""
    level: Array
    """(n,): the level at which each is attacked."""

    def missing(self, answers: Answers) -> "OpenGroup":
        """Those of it that nothing is known of."""
        new = answers.lacks(self.index, self.level)
        return self if new.all() else OpenGroup(self.index[new], self.level[new])


class GroupQueue:
    """The groups of a stage, cut one after another by what came of the ones before.

    Samples wait in a queue; those of a group that are not done with go to its end, at the next level below the one broken. One
    process alone takes as many from the front as fit, attacks them, and does it again. The same groups come of it when a group is
    cut as soon as the queue holds a full one, and answers are taken in in the order of the groups: what is put to the end of a
    queue changes nothing at its front. So several processes can attack groups at once. When samples wait that do not fill a
    group, and too few groups are under way for all processes, smaller ones are cut. How many are under way is counted when
    answers are taken in, and so is the same whoever is faster.

    Args:
        samples: positions of the samples that the stage begins on.
        broken: (samples of the run,): the smallest level at which each was broken before.
        size: samples in a group.
        last: as `Peers.last`.
    """

    def __init__(self, samples: Array, broken: Array, size: int, last: Callable[[int, int], int]) -> None:
        self.broken = broken.copy()
        self.groups: deque[OpenGroup] = deque()
        """Groups that are cut and not all known, in order; the first answers that are missing are those of the first."""
        self.made = 0
        """Groups that were cut so far."""
        self._queue = np.asarray(samples)
        self._size, self._last = size, last

    @property
    def left(self) -> int:
        """Samples that the stage is not done with."""
        return len(self._queue) + sum(len(group.index) for group in self.groups)

    def advance(self, answers: Answers) -> list[OpenGroup]:
        """Take in what is known, and cut what can be cut. Returns the groups that this ended, in order."""
        ended: list[OpenGroup] = []
        while True:
            while len(self._queue) >= self._size:
                self._cut(self._size)
            size = self._last(len(self._queue), len(self.groups)) if len(self._queue) else 0
            while size and len(self._queue):
                self._cut(size)
            if not self.groups or len(self.groups[0].missing(answers).index):
                return ended
            first = self.groups.popleft()
            reached, closed = answers.look_up(first.index, first.level)
            self.broken[first.index] = np.minimum(self.broken[first.index], reached)
            self._queue = np.concatenate([self._queue, first.index[~closed]])
            ended.append(first)

    def _cut(self, size: int) -> None:
        index, self._queue = self._queue[:size], self._queue[size:]
        self.groups.append(OpenGroup(index, self.broken[index] - 1))
        self.made += 1


@dataclass(frozen=True)
class Shard:
    """What this process made of a group; its rows and arrays are in the run folder."""

    name: str
    records: Records
    report: ShardReport


class StageRun(ABC):
    """Has every group of a stage made, here or by another process.

    Groups are cut by what came of the ones before (`GroupQueue`), so a resumed run cuts the same ones: a group that a shard
    answers is looked up, and the floats of all others are computed in the same company. Another batch size cuts other groups;
    then the samples of a group that are known already are left out of it.

    Args:
        audited: the model.
        name: of the stage.
        cell: under which its shards lie in the run folder.
        samples: positions of the samples that the stage begins on.
        broken: (samples of the run,): the smallest level at which each was broken before.
        levels: how many budgets.
    """

    def __init__(self, audited: AuditedModel, name: str, cell: str, samples: Array, broken: Array, levels: int) -> None:
        self.audited, self.plan, self.run, self.peers = audited, audited.plan, audited.run, audited.peers
        self.name, self.cell = name, cell
        self.queue = GroupQueue(samples, broken, self.peers.size(self.plan.group_size, len(samples)), self.peers.last)
        self._answers = Answers(len(self.plan.ids), levels)
        self._waiting: dict[str, OpenGroup] = {}
        """Groups of which something is not known yet, by the names of the shards that say it, in order."""
        self._cut = 0
        """Groups that were cut when `_waiting` was last brought up."""
        self._reports: dict[str, ShardReport] = {}
        """What other processes say of shards whose groups have not ended, by name."""

    @abstractmethod
    def attack(self, group: OpenGroup) -> Shard:
        """Make the shard of a group, in the run folder."""

    @abstractmethod
    def read(self, records: Records) -> tuple[Array, Array, Array, Array]:
        """What the rows of a shard answer, as the arguments of `Answers.note`."""

    @abstractmethod
    def robust(self) -> int:
        """How many of the model's samples are robust at the largest budget, as far as is known."""

    @abstractmethod
    def save(self) -> None:
        """Join the shards into the part of the stage."""

    def __call__(self) -> None:
        """Attack group after group until no sample is open, and save the part."""
        for path in self.run.shard_files(self.cell):
            self._learn(self.run.shard(self.cell, path.stem.removeprefix(f"shard-{self.cell}-")))
        while self.is_open():
            with self.next_group() as group:
                if group is not None:
                    self.take(self.attack(group))
        self.save()

    def is_open(self) -> bool:
        """Take in what other processes have finished, and cut what can be cut. Whether a group still waits."""
        reports = self.peers.collect(self.cell)
        self._reports |= reports
        for name in reports:
            self._learn(self.run.shard(self.cell, name))
        for group in self.queue.advance(self._answers):
            if self._reports and (report := self._reports.pop(self.name_of(group), None)) is not None:
                self.audited.take_report(self.name, report)
        self._update(reports)
        self.audited.progress.open(self.queue.left, self.robust())
        return bool(self._waiting)

    @contextmanager
    def next_group(self) -> Iterator[OpenGroup | None]:
        """A group that no other process attacks, for the time of the block; None where others hold all that wait."""
        with self.peers.take(self.cell, list(self._waiting)) as name:
            yield None if name is None else self._waiting[name]

    def take(self, shard: Shard) -> None:
        """Take in what this process made, unless another one was first, whose shard counts instead."""
        if self.peers.finish(self.cell, shard.name, shard.report):
            self._learn(shard.records)
            self._update([shard.name])

    def name_of(self, group: OpenGroup) -> str:
        """The name of the shard of a group."""
        return cell(columns=[self.plan.ids[group.index].tolist(), group.level.tolist()])

    def _learn(self, records: Records) -> None:
        self._answers.note(*self.read(records))

    def _update(self, done: Iterable[str]) -> None:
        """Let the groups of finished shards no longer wait, but those that were cut since the last call."""
        new = min(len(self.queue.groups), self.queue.made - self._cut)
        if not self._waiting.keys() >= set(done):  # of whose samples some were known here, so that they are in other company
            self._waiting, new = {}, len(self.queue.groups)
        for name in done if self._waiting else ():
            del self._waiting[name]
        for group in islice(self.queue.groups, len(self.queue.groups) - new, None):
            if len((missing := group.missing(self._answers)).index):
                self._waiting[self.name_of(missing)] = missing
        self._cut = self.queue.made


class AttackRun(StageRun):
    """The run of an attack, in which each sample descends through the budgets.

    Args:
        audited: the model.
        stage: the attack.
        state: what is known of each sample before it.
        spared: (n,) bool: samples that it leaves alone.
        followed: the model whose gradients it follows.
    """

    def __init__(self, audited: AuditedModel, stage: Stage, state: State, spared: Array, followed: Model) -> None:
        plan = audited.plan
        self.samples = np.flatnonzero(state.correct & ~spared & (state.broken > 0))
        key = stage_cell(plan, audited.source, stage)
        super().__init__(audited, stage.name, key, self.samples, state.broken, len(plan.levels))
        self._stage, self._state, self._spared = stage, state, spared
        self._setting = setting_of(plan, audited.source, followed, stage, audited.progress.passes)

    def attack(self, group: OpenGroup) -> Shard:
        """Attack a group, in smaller batches where memory is short."""
        started = time.perf_counter()
        failed, fail = self.audited.failures(self.name)
        samples = self._samples_of(group)
        result = self.audited.room.fit(lambda: self._attack_parts(samples, fail))
        self.audited.note(self.name, result.remarks, result.legend)
        name = self.name_of(group)
        self.run.save_shard(self.cell, name, result.records, result.arrays, result.extras)
        report = ShardReport(
            remarks=result.remarks,
            legend=result.legend,
            failed=failed,
            seconds=time.perf_counter() - started,
            traffic=self.audited.count_traffic(),
        )
        return Shard(name, result.records, report)

    def _attack_parts(self, group: Group, fail: retry.Fail) -> Result:
        """What the attack finds, in as many parts as a group that was cut for batches of this size would be."""
        size = self.audited.room.size
        setting: Setting = replace(self._setting, batch_size=size)
        parts = np.split(np.arange(len(group.x)), range(BATCHES * size, len(group.x), BATCHES * size))
        return joined([retry.attack(setting, group if len(parts) == 1 else group.select(index), fail) for index in parts])

    def _samples_of(self, group: OpenGroup) -> Group:
        plan, state, index = self.plan, self._state, group.index
        return Group(
            sample_id=plan.ids[index],
            label=plan.labels[index],
            target=None if state.target is None else state.target[index],
            clean_pred=state.clean_pred[index],
            clean_confidence=state.clean_confidence[index],
            level=group.level,
            x=self.audited.load(plan.ids[index]),
            unit=plan.units[index],
        )

    def read(self, records: Records) -> tuple[Array, Array, Array, Array]:
        """Each sample at the highest level that it has a row of, where it was attacked."""
        level = np.searchsorted(self.plan.levels, records.eps)
        index, each = np.unique(np.searchsorted(self.plan.ids, records.sample_id), return_inverse=True)
        attacked, reached = np.zeros(len(index), np.int64), np.full(len(index), len(self.plan.levels))
        np.maximum.at(attacked, each, level)
        fooled, ended = records.outcome == Outcome.FOOLED, np.isin(records.outcome.astype(str), ENDED)
        reached[each[fooled]] = level[fooled]
        closed = reached == 0
        closed[each[ended]] = True
        return index, attacked, reached, closed

    def robust(self) -> int:
        """Those that no attack has broken at any budget."""
        return int((self._state.correct & (self.queue.broken == len(self.plan.levels))).sum())

    def save(self) -> None:
        """With the rows that follow from others, and the arrays of the closest inputs."""
        holders = nobody
        if self.peers.whole:
            holders = telling_shards if self.run.legend(self.audited.source.name, self.name) else closest_shards
        shards = self.run.shard_files(self.cell)
        self.run.save_part(self.cell, blocks(shards, self.plan.ids, len(self.plan.levels), self._implied, holders))

    def _implied(self, index: Array, shards: Mapping[str, Records]) -> Records:
        failed = np.zeros(len(self.plan.ids), np.int64)
        for records in shards.values():
            lost = records.outcome == Outcome.FAILED
            samples = np.searchsorted(self.plan.ids, records.sample_id[lost])
            failed[samples] = np.searchsorted(self.plan.levels, records.eps[lost])
        source, broken = self.audited.source, self.queue.broken
        return implied(self.plan, source, self._stage, self._state, broken, self._spared, failed, index)


class CleanRun(StageRun):
    """The first check: what the model answers to the clean inputs."""

    def __init__(self, audited: AuditedModel) -> None:
        every = np.arange(len(audited.plan.ids))
        super().__init__(audited, CLEAN, clean_cell(audited.plan, audited.source), every, np.ones_like(every), 1)
        self._correct = np.zeros(len(every), bool)

    def attack(self, group: OpenGroup) -> Shard:
        """Ask about the clean inputs of a group, one by one where the model fails on some."""
        started = time.perf_counter()
        failed, fail = self.audited.failures(CLEAN)

        def unchecked(index: int, error: ModelError) -> Records:
            fail(int(self.plan.ids[index]), str(error))
            return self._failed_rows(np.array([index]))

        records = rows.concatenate(retry.divided(self._check, group.index, unchecked, self.audited.model, self.plan.device))
        name = self.name_of(group)
        self.run.save_shard(self.cell, name, records, {})
        seconds = time.perf_counter() - started
        return Shard(name, records, ShardReport(failed=failed, seconds=seconds, traffic=self.audited.count_traffic()))

    def _check(self, index: Array) -> Records:
        started = time.perf_counter()
        plan, model, room = self.plan, self.audited.model, self.audited.room
        x = self.audited.load(plan.ids[index])
        logits = room.fit(lambda: predict(model, x, room.size, plan.eot))
        check_answers(logits, model)
        self.audited.progress.passes(len(index) * plan.eot, 0)
        confidence, pred = (column.cpu().numpy() for column in logits.softmax(1).max(1))
        labels, targets = torch.as_tensor(plan.labels[index], device=logits.device), None
        if plan.targeting is not None:
            streams = Streams.of(plan.request.seed, torch.as_tensor(plan.ids[index], device=logits.device))
            targets = np.asarray(plan.targeting.classes(logits, labels, streams).cpu().numpy())
        margin = criterion_of(targets, logits.device, self.audited.source.reject).margin(logits, labels, logits)
        return self._rows(
            index,
            target=null_or(targets, np.arange(len(index))),
            clean_pred=pred,
            clean_confidence=confidence,
            outcome=np.where(pred == plan.labels[index], str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED)),
            best_margin=margin.cpu().numpy(),
            forwards=plan.eot,
            seconds=(time.perf_counter() - started) / len(index),
        )

    def _failed_rows(self, index: Array) -> Records:
        return self._rows(index, clean_pred=-1, clean_confidence=0.0, outcome=str(Outcome.FAILED))

    def _rows(self, index: Array, **columns: Any) -> Records:
        return rows.build(
            Records,
            len(index),
            model=self.audited.source.name,
            sample_id=self.plan.ids[index],
            label=self.plan.labels[index],
            attack=CLEAN,
            distance=self.plan.distance.name,
            eps=0.0,
            radius=0.0,
            **columns,
        )

    def read(self, records: Records) -> tuple[Array, Array, Array, Array]:
        """Nothing is left to be asked about a sample that has a row."""
        index = np.searchsorted(self.plan.ids, records.sample_id)
        self._correct[index] = records.outcome == Outcome.CORRECT
        return index, np.zeros_like(index), np.ones_like(index), np.ones(len(index), bool)

    def robust(self) -> int:
        """Those that are classified correctly."""
        return int(self._correct.sum())

    def save(self) -> None:
        """Rows alone."""
        none = self._failed_rows(np.arange(0))
        self.run.save_part(self.cell, blocks(self.run.shard_files(self.cell), self.plan.ids, 1, lambda index, shards: none))
