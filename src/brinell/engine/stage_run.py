"""One stage of one model's audit, group after group, from the samples that are open to the part that holds its rows.

Groups are cut by what came of the groups before, in one order. A resumed run forms the same groups, and those with rows in the
run folder are not attacked again (design/0002-run-folder.md, design/0003-sweep.md).
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from brinell.core import losses
from brinell.core.errors import ModelError
from brinell.core.model import Model
from brinell.core.record import CLEAN, Array, Outcome, Records, has_broken
from brinell.core.streams import Streams
from brinell.engine import retry
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell, content_hash, stage_cell
from brinell.engine.checks import check_answers
from brinell.engine.executor import Executor, Local, Pool
from brinell.engine.group_attack import column_or_null, make_criterion, make_setting, predict
from brinell.engine.group_worker import GroupAnswer, GroupTask, GroupWorker
from brinell.engine.state import State, is_open
from brinell.store import rows
from brinell.store.run import NO_ROWS, merge_attacks

SMALLEST = 8
"""Samples of the smallest group that is cut while others are under way: tasks of fewer cost more than they save."""


class Answers:
    """Results of a stage's groups: per sample and level attacked, the smallest level broken and whether the stage is finished."""

    def __init__(self, samples: int, levels: int) -> None:
        self._codes = np.zeros((samples, levels), np.min_scalar_type(2 * levels + 2))
        """Code 0 for unknown; else 1 + 2 * (smallest level broken), plus 1 if the stage is finished with the sample."""

    def add(self, index: Array, level: Array, broken: Array, closed: Array) -> None:
        """Add results; arrays (n,) are aligned.

        Args:
            index: positions of the samples.
            level: the level at which each was attacked.
            broken: the smallest level broken; the number of levels for none.
            closed: true if the stage is finished with the sample.
        """
        self._codes[index, level] = 1 + 2 * np.asarray(broken) + closed

    def is_unknown(self, index: Array, level: Array) -> Array:
        """(n,) bool: samples without a result at these levels."""
        return np.asarray(self._codes[index, level] == 0)

    def look_up(self, index: Array, level: Array) -> tuple[Array, Array]:
        """(n,) smallest level broken, and (n,) bool whether the stage is finished, for samples with a result."""
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
        """The part of the group without results."""
        new = answers.is_unknown(self.index, self.level)
        return self if new.all() else OpenGroup(self.index[new], self.level[new])


class GroupQueue:
    """The groups of a stage, cut one after another by what came of the ones before.

    Samples wait in a queue; those of a group that are not done with go to its end, at the next level below the one broken. One
    process alone takes as many from the front as fit, attacks them, and does it again. The same groups come of it when a group is
    cut as soon as the queue holds a full one, and answers are taken in in the order of the groups: what is put to the end of a
    queue changes nothing at its front. So several groups can be attacked at once. Samples that do not fill a group wait until
    fewer than `spare` groups are under way: counted when answers are taken in, and so the same whoever is faster.

    Args:
        samples: positions of the samples that the stage begins on.
        broken: (samples of the run,): the smallest level at which each was broken before.
        size: samples in a group.
        spare: 1 for one process.
    """

    def __init__(self, samples: Array, broken: Array, size: int, spare: int = 1) -> None:
        self.broken = broken.copy()
        self.groups: deque[OpenGroup] = deque()
        """Groups that are cut and not all known, in order; the first answers that are missing are those of the first."""
        self._queue = np.asarray(samples)
        self._size, self._spare = size, spare

    @property
    def open_samples(self) -> int:
        """Number of samples that the stage is not finished with."""
        return len(self._queue) + sum(len(group.index) for group in self.groups)

    def advance(self, answers: Answers) -> list[OpenGroup]:
        """Add the answers of groups, and cut budgets that they decide. Returns the groups that are new."""
        new = list[OpenGroup]()
        while True:
            while self._is_due():
                new.append(self._append_group())
            if not self.groups or len(self.groups[0].missing(answers).index):
                return new
            first = self.groups.popleft()
            broken, closed = answers.look_up(first.index, first.level)
            self.broken[first.index] = np.minimum(self.broken[first.index], broken)
            self._queue = np.concatenate([self._queue, first.index[~closed]])

    def _is_due(self) -> bool:
        """True if the next group is to be cut, full or not."""
        waiting, under_way = len(self._queue), len(self.groups)
        return waiting >= self._size or (waiting >= SMALLEST and under_way < self._spare) or bool(waiting and not under_way)

    def _append_group(self) -> OpenGroup:
        """Move the next samples of the queue into a group."""
        index, self._queue = self._queue[: self._size], self._queue[self._size :]
        self.groups.append(OpenGroup(index, self.broken[index] - 1))
        return self.groups[-1]


class StageRun(ABC):
    """Runs a stage group by group.

    Groups are cut by what came of the ones before (`GroupQueue`), so a resumed run cuts the same ones: a group in the
    folder is looked up, and the floats of all others are computed in the same company. Another batch size cuts other groups;
    then the samples of a group that are known already are left out of it.

    Args:
        audited: the model.
        name: of the stage.
        cell: under which its rows lie in the run folder.
        samples: positions of the samples that the stage begins on.
        broken: (samples of the run,): the smallest level at which each was broken before.
        levels: how many budgets.
        executor: attacks the groups.
    """

    def __init__(
        self, audited: AuditedModel, name: str, cell: str, samples: Array, broken: Array, levels: int, executor: Executor
    ) -> None:
        self.audited, self.plan, self.run = audited, audited.plan, audited.run
        self.name, self.cell = name, cell
        self.executor = executor
        size = min(self.plan.group_size, max(SMALLEST, -(-len(samples) // executor.spread)))
        self.queue = GroupQueue(samples, broken, size if executor.spread > 1 else self.plan.group_size, min(2, executor.spread))
        self._answers = Answers(len(self.plan.ids), levels)
        self.groups: list[Records] = []
        """The rows of the groups that were attacked."""

    @abstractmethod
    def task(self, group: OpenGroup) -> Any:
        """The task of a group, for the executor."""

    @abstractmethod
    def keep(self, group: OpenGroup, answer: Any) -> Records:
        """Save the answer to a group's task in the run folder; returns its rows."""

    @abstractmethod
    def read(self, records: Records) -> tuple[Array, Array, Array, Array]:
        """Convert the rows of a group to the arguments of `Answers.add`."""

    @abstractmethod
    def robust(self) -> int:
        """Number of the model's samples that are robust at the largest budget so far."""

    @abstractmethod
    def rows(self) -> Records:
        """The rows of the stage, samples ascending, from those of its groups."""

    def __call__(self) -> Records:
        """Attack group after group until no sample is open, and save the rows of the stage; returns them."""
        for _, records in self.run.groups(self.cell):
            self._add_answers(records)
        while True:
            for group in self.queue.advance(self._answers):
                if len((missing := group.missing(self._answers)).index):
                    self.executor.start({})
                    self.executor.submit(missing, self.task(missing))
            self.audited.progress.update_open(self.queue.open_samples, self.robust())
            if not self.queue.groups:
                break
            group, answer = self.executor.next()
            self._add_answers(self.keep(group, answer))
        records = self.rows()
        if self.groups:
            self.run.save_part(self.cell, records)
        return records

    def key(self, group: OpenGroup) -> str:
        """The name of a group within the stage."""
        return content_hash(columns=[self.plan.ids[group.index].tolist(), group.level.tolist()])

    def _add_answers(self, records: Records) -> None:
        self.groups.append(records)
        self._answers.add(*self.read(records))


class AttackRun(StageRun):
    """The run of an attack, in which each sample descends through the budgets.

    Args:
        audited: the model.
        stage: the attack.
        state: what is known of each sample before it.
        spared: (n,) bool: samples that it does not attack.
        followed: the model whose gradients it follows.
        pool: workers that attack its groups; none leaves them to this process.
    """

    def __init__(
        self, audited: AuditedModel, stage: Stage, state: State, spared: Array, followed: Model, pool: Pool | None = None
    ) -> None:
        plan = audited.plan
        self.samples = np.flatnonzero(state.correct & ~spared & (state.broken > 0))
        key = stage_cell(plan, audited.source, stage)
        setting = make_setting(plan, audited.source, followed, stage, audited.progress.count_passes, audited.surrogates)
        executor = pool or Local(GroupWorker(plan, setting, audited.sizer).answer)
        super().__init__(audited, stage.name, key, self.samples, state.broken, len(plan.levels), executor)
        self._stage, self._state, self._spared, self._pool = stage, state, spared, pool

    def task(self, group: OpenGroup) -> GroupTask:
        """The samples of a group with their clean answers."""
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

    def keep(self, group: OpenGroup, answer: GroupAnswer) -> Records:
        """Save rows and arrays, and what the worker remarked."""
        result = answer.result
        for sample, reason in answer.failed.items():
            self.audited.fail(self.name, sample, reason)
        self.audited.note("memory", answer.shortages)
        self.audited.note(self.name, result.remarks, result.legend)
        self.audited.add_traffic(answer.traffic)
        if self._pool is not None:
            self.audited.progress.count_passes(int(result.records.forwards.sum()), int(result.records.backwards.sum()))
        self.run.save_group(self.cell, self.key(group), result.records, result.arrays, result.extras)
        return result.records

    def read(self, records: Records) -> tuple[Array, Array, Array, Array]:
        """Results at the level of the attack."""
        levels = self.plan.levels
        index, attacked = np.searchsorted(self.plan.ids, records.sample_id), np.searchsorted(levels, records.attacked)
        broken = np.where(has_broken(records), np.searchsorted(levels, np.ma.getdata(records.broken)), len(levels))
        closed = (broken == 0) | (broken == len(levels)) | (self._stage.attack.family == "minimal")
        return index, attacked, broken, closed

    def robust(self) -> int:
        """Number of correct samples that no attack has broken at any budget."""
        return int((self._state.correct & (self.queue.broken == len(self.plan.levels))).sum())

    def rows(self) -> Records:
        """One row for each sample that the stage attacked or, if it attacked any, spared."""
        merged = merge_attacks(self.groups)
        spared = (
            np.flatnonzero(self._state.correct & self._spared & (self._state.broken > 0)) if self.groups else np.zeros(0, int)
        )
        state, plan = self._state, self.plan
        records = rows.build(
            Records,
            len(spared),
            model=self.audited.source.name,
            sample_id=plan.ids[spared],
            label=plan.labels[spared],
            target=column_or_null(state.target, spared),
            clean_pred=state.clean_pred[spared],
            clean_confidence=state.clean_confidence[spared],
            attack=self.name,
            distance=plan.distance.name,
            unit=plan.units[spared],
            outcome=str(Outcome.SPARED),
        )
        records = rows.concatenate([merged, records])
        return rows.take(records, np.argsort(records.sample_id, kind="stable"))


class CleanRun(StageRun):
    """The clean check: the model's answers to the clean inputs."""

    def __init__(self, audited: AuditedModel) -> None:
        index = np.arange(len(audited.plan.ids))
        cell = clean_cell(audited.plan, audited.source)
        super().__init__(audited, CLEAN, cell, index, np.ones_like(index), 1, Local(self._predict))
        self._correct = np.zeros(len(index), bool)

    def task(self, group: OpenGroup) -> OpenGroup:
        """The group itself."""
        return group

    def _predict(self, group: OpenGroup) -> Records:
        """Predict the clean inputs of a group, down to single inputs if the model fails on some."""

        def fail_row(index: int, error: ModelError) -> Records:
            """Row of a sample that the model cannot answer."""
            self.audited.fail(CLEAN, int(self.plan.ids[index]), str(error))
            return self._failed_rows(np.array([index]))

        return rows.concatenate(
            retry.run_in_halves(self._predict_rows, group.index, fail_row, self.audited.model, self.plan.device)
        )

    def keep(self, group: OpenGroup, answer: Records) -> Records:
        """Save the rows."""
        self.run.save_group(self.cell, self.key(group), answer, {}, {})
        self.audited.count_traffic()
        return answer

    def _predict_rows(self, index: Array) -> Records:
        """Clean predictions of some samples as rows."""
        start = time.perf_counter()
        plan, model, room = self.plan, self.audited.model, self.audited.sizer
        x = self.audited.load(plan.ids[index])
        logits = room.fit(lambda: predict(model, x, room.size, plan.eot))
        check_answers(logits, model)
        self.audited.progress.count_passes(len(index) * plan.eot, 0)
        confidence, pred = (column.cpu().numpy() for column in losses.decision(logits))
        labels, targets = torch.as_tensor(plan.labels[index], device=logits.device), None
        if plan.targeting is not None:
            streams = Streams.of(plan.request.seed, torch.as_tensor(plan.ids[index], device=logits.device))
            targets = np.asarray(plan.targeting.classes(logits, labels, streams).cpu().numpy())
        criterion = make_criterion(targets, logits.device, self.audited.source.reject, plan.threshold)
        margin = criterion.margin(logits, labels, logits)
        outcome = np.where(pred == plan.labels[index], str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED))
        if plan.threshold is not None:
            outcome = np.where(margin.cpu().numpy() > 0, str(Outcome.MET), str(Outcome.UNMET))
        return self._rows(
            index,
            target=column_or_null(targets, np.arange(len(index))),
            clean_pred=pred,
            clean_confidence=confidence,
            outcome=outcome,
            margin=margin.cpu().numpy(),
            forwards=plan.eot,
            seconds=(time.perf_counter() - start) / len(index),
        )

    def _failed_rows(self, index: Array) -> Records:
        """Rows of samples that failed on their clean input."""
        return self._rows(index, clean_pred=-1, clean_confidence=0.0, outcome=str(Outcome.FAILED))

    def _rows(self, index: Array, **columns: Any) -> Records:
        """Rows of the first check."""
        return rows.build(
            Records,
            len(index),
            model=self.audited.source.name,
            sample_id=self.plan.ids[index],
            label=self.plan.labels[index],
            attack=CLEAN,
            distance=self.plan.distance.name,
            unit=self.plan.units[index],
            **columns,
        )

    def read(self, records: Records) -> tuple[Array, Array, Array, Array]:
        """Results of the clean check: a sample with a row is finished."""
        index = np.searchsorted(self.plan.ids, records.sample_id)
        self._correct[index] = is_open(records.outcome)
        return index, np.zeros_like(index), np.ones_like(index), np.ones(len(index), bool)

    def robust(self) -> int:
        """Number of samples that attacks may break."""
        return int(self._correct.sum())

    def rows(self) -> Records:
        """The rows of all samples."""
        records = rows.concatenate([NO_ROWS, *self.groups])
        return rows.take(records, np.argsort(records.sample_id, kind="stable"))
