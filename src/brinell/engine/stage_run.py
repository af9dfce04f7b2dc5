"""One stage of one model's audit, group after group, from the samples that are open to the part
that holds its rows.

Groups are cut by what came of the groups before, in one order. A resumed run forms the same groups,
and those with rows in the run folder are not attacked again (design/0002-run-folder.md,
design/0003-sweep.md).
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from brinell.core.model import Model
from brinell.core.record import Array, Outcome, Records, has_broken
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.cells import content_hash
from brinell.engine.executor import Executor, Local, Pool
from brinell.engine.group_attack import AttackSetting, GroupTask, make_rows
from brinell.engine.group_worker import GroupAnswer, GroupWorker
from brinell.engine.state import State
from brinell.store import rows
from brinell.store.run import merge_attacks

SMALLEST = 8
"""Samples of the smallest group that is cut while others are under way: tasks of fewer cost more
than they save."""


@dataclass
class OpenGroup:
    """A group that waits for its attack, or for those of the groups before it."""

    index: Array
    """(n,): positions of its samples in the run."""
    level: Array
    answer: tuple[Array, Array] | None = None
    """(n,) the smallest level broken, the number of levels for none; (n,) bool: true if the
    stage is finished with the sample."""


class GroupQueue:
    """The groups of a stage, cut one after another by what came of the ones before.

    Samples wait in a queue; those of a group that are not done with go to its end, at the next
    level below the one broken. One process alone takes as many from the front as fit, attacks them,
    and does it again. The same groups come of it when a group is cut as soon as the queue holds a
    full one, and answers are taken in in the order of the groups: what is put to the end of a queue
    changes nothing at its front. So several groups can be attacked at once. Samples that do not
    fill a group wait until fewer than `spare` groups are under way (1 for one process): counted
    when answers are taken in, and so the same whoever is faster. `broken` holds the smallest level
    at which each sample of the run was broken before.
    """

    def __init__(self, samples: Array, broken: Array, size: int, spare: int = 1) -> None:
        self.broken = broken.copy()
        self.groups: deque[OpenGroup] = deque()
        """Groups that are cut and whose answers are not taken in, in order."""
        self._queue = np.asarray(samples)
        self._size, self._spare = size, spare

    @property
    def open_samples(self) -> int:
        """Number of samples that the stage is not finished with."""
        return len(self._queue) + sum(len(group.index) for group in self.groups)

    def advance(self) -> list[OpenGroup]:
        """Take in the answers of groups, and cut the groups that they decide.

        Returns those that are new.
        """
        new = list[OpenGroup]()
        while True:
            while self._is_due():
                index, self._queue = self._queue[: self._size], self._queue[self._size :]
                new.append(OpenGroup(index, self.broken[index] - 1))
                self.groups.append(new[-1])
            if not self.groups or (answer := self.groups[0].answer) is None:
                return new
            first, (broken, closed) = self.groups.popleft(), answer
            self.broken[first.index] = np.minimum(self.broken[first.index], broken)
            self._queue = np.concatenate([self._queue, first.index[~closed]])

    def _is_due(self) -> bool:
        waiting, under_way = len(self._queue), len(self.groups)
        return (
            waiting >= self._size
            or (waiting >= SMALLEST and under_way < self._spare)
            or bool(waiting and not under_way)
        )


class AttackRun:
    """The run of a stage, in which each sample descends through the budgets.

    Groups are cut by what came of the ones before (`GroupQueue`), so a resumed run cuts the same
    ones, and takes the rows of those in the folder. With another batch size it cuts others, and
    attacks them all. It attacks no sample of `spared` (n,) and asks the model `followed`; without a
    `pool` this process attacks the groups.
    """

    def __init__(
        self,
        audited: AuditedModel,
        stage: Stage,
        state: State,
        spared: Array,
        followed: Model,
        pool: Pool | None = None,
    ) -> None:
        plan = audited.plan
        self.audited, self.plan, self.run, self.name = audited, plan, audited.run, stage.name
        self._place = audited.source.name, stage.name
        self.samples = np.flatnonzero(state.correct & ~spared & (state.broken > 0))
        """Positions of the samples that the stage begins on."""
        self._setting = AttackSetting(
            plan=plan,
            source=audited.source,
            model=followed,
            stage=stage,
            surrogates=audited.surrogates,
            on_pass=audited.progress.count_passes,
        )
        self._executor: Executor = pool or Local(GroupWorker(self._setting, audited.sizer).answer)
        size, spread = plan.group_size, self._executor.spread
        size = size if spread == 1 else min(size, max(SMALLEST, -(-len(self.samples) // spread)))
        self.queue = GroupQueue(self.samples, state.broken, size, min(2, spread))
        self._groups: list[Records] = []
        self._stage, self._state, self._spared, self._pool = stage, state, spared, pool

    def __call__(self) -> Records:
        """Attack group after group until no sample is open, and save the rows of the stage; returns
        them.
        """
        stored = dict(self.run.groups(*self._place))
        while True:
            for group in self.queue.advance():
                if (records := stored.pop(self._key(group), None)) is not None:
                    self._add_answers(group, records)
                else:
                    self._executor.start({})
                    self._executor.submit(group, self._task(group))
            if self.queue.groups and self.queue.groups[0].answer is not None:
                continue
            robust = self._state.correct & (self.queue.broken == len(self.plan.levels))
            self.audited.progress.update_open(self.queue.open_samples, int(robust.sum()))
            if not self.queue.groups:
                break
            group, answer = self._executor.next()
            self._keep(group, answer)
        records = self._rows()
        if self._groups:
            self.run.drop_groups(*self._place, stored)
            self.run.save_part(*self._place, records)
        return records

    def _key(self, group: OpenGroup) -> str:
        return content_hash(columns=[self.plan.ids[group.index].tolist(), group.level.tolist()])

    def _task(self, group: OpenGroup) -> GroupTask:
        state, index = self._state, group.index
        return GroupTask(
            model=self.audited.source.name,
            stage=self.name,
            index=index,
            level=group.level,
            target=None if state.target is None else state.target[index],
            clean_pred=state.clean_pred[index],
            clean_confidence=state.clean_confidence[index],
            answers=self.run.manifest.get("answers", {}),
        )

    def _keep(self, group: OpenGroup, answer: GroupAnswer) -> None:
        result = answer.result
        for sample, reason in answer.failed.items():
            self.audited.fail(self.name, sample, reason)
        self.audited.note("memory", answer.shortages)
        self.audited.note(self.name, result.remarks, result.legend)
        self.audited.add_traffic(answer.traffic)
        if self._pool is not None:
            self.audited.progress.count_passes(
                int(result.records.forwards.sum()), int(result.records.backwards.sum())
            )
        self.run.save_group(
            *self._place, self._key(group), result.records, result.arrays, result.extras
        )
        self._add_answers(group, result.records)

    def _add_answers(self, group: OpenGroup, records: Records) -> None:
        levels = self.plan.levels
        broken = np.where(
            has_broken(records), np.searchsorted(levels, np.ma.getdata(records.broken)), len(levels)
        )
        group.answer = (
            broken,
            (broken == 0) | (broken == len(levels)) | (self._stage.attack.family == "minimal"),
        )
        self._groups.append(records)

    def _rows(self) -> Records:
        """One row for each sample that the stage attacked or, if it attacked any, spared."""
        state = self._state
        merged, is_spared = (
            merge_attacks(self._groups),
            state.correct & self._spared & (state.broken > 0),
        )
        index = np.flatnonzero(is_spared & bool(self._groups))
        spared_rows = make_rows(
            self._setting, self._task(OpenGroup(index, state.broken[index])), str(Outcome.SPARED)
        )
        records = rows.concatenate([merged, spared_rows])
        return rows.take(records, np.argsort(records.sample_id, kind="stable"))
