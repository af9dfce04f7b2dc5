"""One stage of one model's audit: groups of samples are pieces, from the samples that are open to
the file that holds the rows of all.

Groups are cut by what came of the groups before, in one order. A resumed run forms the same groups,
and those with an answer in the run folder are not attacked again (design/0002-run-folder.md,
design/0003-sweep.md).
"""

import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from brinell.core.contracts import Extras, learns_across
from brinell.core.data import Remark
from brinell.core.errors import TimeUpError
from brinell.core.model import Model
from brinell.core.record import Array, Outcome, Records, has_broken
from brinell.engine.audited_model import AuditedModel, facts_of, merge_facts
from brinell.engine.cascade import Stage
from brinell.engine.group_attack import AttackSetting, GroupTask, make_rows, run_attack
from brinell.engine.piece import Piece, PieceAnswer
from brinell.engine.portions import FAILURES, Portions
from brinell.engine.provenance import content_hash
from brinell.engine.state import State
from brinell.store import rows
from brinell.store.parts import PieceResult
from brinell.store.run import merge_attacks, save_arrays

SMALLEST = 8
"""Samples of the smallest group that is cut while others are under way: tasks of fewer cost more
than they save."""


@dataclass
class OpenGroup:
    """A group that waits for its attack, or for those of the groups before it."""

    index: Array
    """(n,): positions of its samples in the run."""
    level: Array
    """(n,) number of the level at which each sample is attacked."""
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
    fill a group wait until fewer than `min_under_way` groups are under way (1 for one process): counted
    when answers are taken in, and so the same whoever is faster. `broken` holds the smallest level
    at which each sample of the run was broken before.
    """

    def __init__(self, samples: Array, broken: Array, size: int, min_under_way: int = 1) -> None:
        self.broken = broken.copy()
        self.groups: deque[OpenGroup] = deque()
        """Groups that are cut and whose answers are not taken in, in order."""
        self._queue = np.asarray(samples)
        self._size, self._min_under_way = size, min_under_way

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
                index = self._queue[: self._size]
                self._queue = self._queue[self._size :]
                # The next level below the one broken, or the largest for a sample not yet broken.
                new.append(OpenGroup(index, self.broken[index] - 1))
                self.groups.append(new[-1])

            # Answers count in the order of the groups, whichever came first.
            if not self.groups or (answer := self.groups[0].answer) is None:
                return new
            first = self.groups.popleft()
            broken, closed = answer
            self.broken[first.index] = np.minimum(self.broken[first.index], broken)
            self._queue = np.concatenate([self._queue, first.index[~closed]])

    def _is_due(self) -> bool:
        """True if the next group is cut now."""
        waiting = len(self._queue)
        under_way = len(self.groups)
        return (
            waiting >= self._size
            or (waiting >= SMALLEST and under_way < self._min_under_way)
            or bool(waiting and not under_way)
        )


def attack_group(setting: AttackSetting, task: GroupTask) -> PieceResult:
    """Attack a group, in smaller portions where memory is short or the model fails."""
    audited, plan = setting.audited, setting.plan
    records = list[Records]()
    arrays: dict[str, Array] = {}
    remarks = list[Remark]()
    legend: dict[str, Any] = {}
    failed: dict[str, str] = {}
    is_cut = False
    portions = Portions(
        np.arange(len(task.index)),
        audited.sizer,
        setting.model,
        plan.device,
        whole=learns_across(setting.stage.attack),
    )

    for portion in portions:
        part = task.select(portion)
        try:
            part_rows, part_arrays, extras = run_attack(setting, part)
        except FAILURES as error:
            # A portion that was too large comes again in smaller ones, and costs no sample its row.
            if portions.comes_again(portion, error):
                continue
            # A failure of one sample is recorded with it, and the others go on.
            failed[str(plan.ids[part.index[0]])] = str(error)
            attacked = plan.levels[part.level]
            part_rows = make_rows(setting, part, str(Outcome.FAILED), attacked=attacked)
            part_arrays, extras = {}, Extras()
        records.append(part_rows)
        arrays |= part_arrays
        # Without extras the time was up: what came before stays.
        is_cut = extras is None
        if extras is None:
            break
        remarks += extras.remarks
        legend = legend or dict(extras.legend)

    facts = facts_of(
        setting.model,
        audited.shortages,
        task.stage,
        remarks=remarks,
        failed=failed,
        legend=legend,
        cut=is_cut,
    )
    return PieceResult(rows=rows.concatenate(records), arrays=arrays, facts=facts)


class StageRun:
    """The run of a stage, in which each sample descends through the budgets.

    Groups are cut by what came of the ones before (`GroupQueue`), so a resumed run cuts the same
    ones. With another batch size it cuts others, and attacks them all. It attacks no sample of
    `spared` (n,) and asks the model `followed`.

    Args:
        audited: the model under audit.
        stage: the stage.
        state: the state of its samples.
        spared: (n,) bool, samples that are not attacked.
        followed: the model whose gradients the attack follows.
        spread: number of groups over which the work is spread at least; above 1, workers may
            attack them.
        prefix: what the keys of its pieces begin with.
    """

    def __init__(
        self,
        audited: AuditedModel,
        stage: Stage,
        state: State,
        spared: Array,
        followed: Model,
        *,
        spread: int = 1,
        prefix: str = "",
    ) -> None:
        plan = audited.plan
        self.audited, self.plan, self.name = audited, plan, stage.name
        self.samples = np.flatnonzero(state.correct & ~spared & (state.broken > 0))
        """Positions of the samples that the stage begins on."""
        self._stage, self._state, self._spared = stage, state, spared
        self._setting = AttackSetting(audited=audited, stage=stage, model=followed)
        self._is_shared = spread > 1
        self.key = prefix + audited.file(stage.name)
        """The key of what comes of the stage, with which those of its groups begin."""
        self._answers: dict[str, PieceResult] = {}
        """The answers of the groups, by key, in the order in which they came."""
        self.is_cut = False
        """True if its time was up before it was done."""

        self._spread = spread
        self.queue = GroupQueue(self.samples, state.broken, plan.group_size)

    def pieces(self) -> Generator[Sequence[Piece], PieceAnswer, PieceResult]:
        """Have the waves attacked, one after another, and write the arrays of the stage; returns
        its rows.
        """
        for positions in self.plan.wave_positions:
            samples = self.samples[np.isin(self.samples, positions)]
            size = self.plan.group_size
            # An attack that learns across samples sees all of a wave at once.
            if learns_across(self._stage.attack):
                size = max(1, len(samples))
            elif self._is_shared:
                # Smaller groups, so that every worker has one.
                size = min(size, max(SMALLEST, math.ceil(len(samples) / self._spread)))
            # With workers a group that is not full is cut while fewer than two are under way, so
            # that none is idle.
            self.queue = GroupQueue(samples, self.queue.broken, size, min(2, self._spread))
            yield from self._attack_wave()
            if self.is_cut:
                break

        groups = {key: answer.rows for key, answer in self._answers.items()}
        files = {key: self.audited.parts.arrays_file(key) for key in groups}
        size = 4 * math.prod(self.plan.dataset.domain.shape)  # bytes of an input in float32
        save_arrays(self.audited.folder, self.audited.file(self.name), groups, files, size)
        facts = merge_facts(answer.facts for answer in self._answers.values())
        return PieceResult(rows=self._rows(), facts=facts | ({"cut": True} if self.is_cut else {}))

    def _attack_wave(self) -> Generator[Sequence[Piece], PieceAnswer, None]:
        """Have group after group attacked until no sample of the wave is open."""
        under_way: dict[str, OpenGroup] = {}
        while True:
            new = {self._key(group): group for group in self.queue.advance()}
            under_way |= new

            # A sample that no level broke has the number of levels.
            robust = self._state.correct & (self.queue.broken == len(self.plan.levels))
            self.audited.progress.update_open(self.queue.open_samples, int(robust.sum()))
            if not self.queue.groups:
                break
            try:
                piece, answer = yield [self._piece(key, group) for key, group in new.items()]
            except TimeUpError:
                self.is_cut = True
                break
            self._take(under_way.pop(piece.key), piece, answer)
            self.is_cut = "cut" in answer.facts
            if self.is_cut:
                break

    def _key(self, group: OpenGroup) -> str:
        """The key of a group: that of its samples and their budgets."""
        ids = self.plan.ids[group.index].tolist()
        is_own = self._setting.model is self.audited.model  # else a check may build another
        return f"{self.key}~{content_hash(columns=[ids, group.level.tolist()], own=is_own)}"

    def _piece(self, key: str, group: OpenGroup) -> Piece:
        """The attack on a group; a task for a worker names the samples by id."""
        task = self._task(group)
        return Piece(
            name=self.name,
            key=key,
            make=partial(attack_group, self._setting, task),
            rows=Records,
            task=vars(task) | {"index": self.plan.ids[group.index]} if self._is_shared else None,
        )

    def _task(self, group: OpenGroup) -> GroupTask:
        """The group as a worker is told of it."""
        state, index = self._state, group.index
        return GroupTask(
            model=self.audited.source.name,
            stage=self.name,
            index=index,
            level=group.level,
            target=None if state.target is None else state.target[index],
            clean_pred=state.clean_pred[index],
            clean_confidence=state.clean_confidence[index],
            answers=self.audited.entries["answers"],
        )

    def _take(self, group: OpenGroup, piece: Piece, answer: PieceResult) -> None:
        """Take in what came of a group."""
        records, levels = answer.rows, self.plan.levels
        self._answers[piece.key] = answer
        self.audited.take(self.name, answer.facts)
        # A worker counts its passes where nobody sees them.
        if piece.task is not None:
            forwards = int(records.forwards.sum())
            self.audited.progress.count_passes(forwards, int(records.backwards.sum()))

        if "cut" in answer.facts:
            return
        smallest = np.searchsorted(levels, np.ma.getdata(records.broken))
        broken = np.where(has_broken(records), smallest, len(levels))
        # Below level 0 there is no budget; an attack that failed is not repeated at a smaller
        # budget; and a minimal attack finds the smallest at once.
        is_minimal = self._stage.attack.family == "minimal"
        group.answer = broken, (broken == 0) | (broken == len(levels)) | is_minimal

    def _rows(self) -> Records:
        """One row for each sample that the stage attacked or, if it attacked any, spared."""
        state = self._state
        merged = merge_attacks([answer.rows for answer in self._answers.values()])
        is_spared = state.correct & self._spared & (state.broken > 0)
        index = np.flatnonzero(is_spared & bool(self._answers))
        task = self._task(OpenGroup(index, state.broken[index]))
        spared_rows = make_rows(self._setting, task, str(Outcome.SPARED))

        records = rows.concatenate([merged, spared_rows])
        return rows.take(records, np.argsort(records.sample_id, kind="stable"))
