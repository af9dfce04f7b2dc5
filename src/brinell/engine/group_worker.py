"""Attacks groups of samples: in the driver's process, and in workers that serve it."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from brinell.core.contracts import Remark
from brinell.core.errors import ModelError
from brinell.core.model import Model
from brinell.core.record import Array, Outcome
from brinell.engine.answers import with_logits
from brinell.engine.batch_sizer import BatchSizer
from brinell.engine.group_attack import AttackSetting, Group, Result, make_rows, make_setting, merge_results, run_attack, session
from brinell.engine.plan import BATCHES, ModelSource, Plan
from brinell.engine.retry import run_in_halves


@dataclass(frozen=True, kw_only=True)
class GroupTask:
    """A group of samples to attack; arrays (m,) are aligned."""

    model: str
    stage: str
    index: Array
    """Positions of the samples in the run."""
    level: Array
    """The level at which each is attacked."""
    target: Array | None
    clean_pred: Array
    clean_confidence: Array
    answers: Mapping[str, Any]
    """The kinds of the models' answers, as the driver found them."""


@dataclass(frozen=True, kw_only=True)
class GroupAnswer:
    """The result of a group."""

    result: Result
    failed: Mapping[int, str]
    """Reasons of the samples that could not be judged, by id."""
    traffic: Mapping[str, int]
    """Requests to a remote model since the last group, by kind."""
    shortages: tuple[Remark, ...] = ()
    """Remarks on memory that was short."""


@dataclass
class GroupWorker:
    """Attacks groups in one process, with the batch size that fits its memory."""

    plan: Plan
    setting: AttackSetting
    sizer: BatchSizer
    shortages: list[Remark] = field(default_factory=list)

    def answer(self, task: GroupTask) -> GroupAnswer:
        """Attack a group, in smaller batches where memory is short."""
        plan, index, failed = self.plan, task.index, dict[int, str]()
        group = Group(
            sample_id=plan.ids[index],
            label=plan.labels[index],
            target=task.target,
            clean_pred=task.clean_pred,
            clean_confidence=task.clean_confidence,
            level=task.level,
            x=plan.dataset.load(plan.ids[index].tolist()).to(plan.device),
            unit=plan.units[index],
        )
        result = self.sizer.fit(lambda: self._attack_parts(group, failed))
        server = self.setting.model.info.server
        shortages, self.shortages[:] = tuple(self.shortages), []
        traffic = {} if server is None else dict(server.traffic())
        return GroupAnswer(result=result, failed=failed, traffic=traffic, shortages=shortages)

    def _attack_parts(self, group: Group, failed: dict[int, str]) -> Result:
        """Attack a group in parts of the size that fits the current batch size."""
        size = self.sizer.size
        setting = replace(self.setting, batch_size=size)
        parts = np.split(np.arange(len(group.x)), range(BATCHES * size, len(group.x), BATCHES * size))

        def fail_row(row: int, error: ModelError) -> Result:
            failed[int(group.sample_id[row])] = str(error)
            records = make_rows(setting, group, np.array([row]), str(Outcome.FAILED))
            return Result(records=records, arrays={}, remarks=())

        def attack(index: Array) -> Result:
            return run_attack(setting, group if len(index) == len(group.x) else group.select(index))

        device = group.x.device
        return merge_results(
            [result for index in parts for result in run_in_halves(attack, index, fail_row, setting.model, device)]
        )


class AuditWorker:
    """Answers the groups of an audit in a process that serves the driver; holds one model at a time."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._sessions = plan, ExitStack()
        self._source: ModelSource | None = None
        self._workers: dict[str, GroupWorker] = {}
        """By stage."""

    def answer(self, task: GroupTask) -> GroupAnswer:
        """Attack a group of the model that the task names."""
        plan = self._plan
        if self._source is None or self._source.name != task.model:
            self._sessions.close()
            self._workers.clear()
            self._source = next(source for source in plan.models if source.name == task.model)
            manifest = {"answers": dict(task.answers), "probes": {}}
            self._model, self._surrogates = open_models(plan, self._source, manifest, self._sessions)
            self._shortages: list[Remark] = []
            self._sizer = BatchSizer(plan.request.batch_size, self._shortages.append)
        if task.stage not in self._workers:
            stage = next(stage for stage in plan.stages if stage.name == task.stage)
            setting = make_setting(plan, self._source, self._model, stage, None, self._surrogates)
            self._workers[task.stage] = GroupWorker(plan, setting, self._sizer, self._shortages)
        return self._workers[task.stage].answer(task)


def open_models(
    plan: Plan, source: ModelSource, manifest: dict[str, Any], sessions: ExitStack
) -> tuple[Model, tuple[Model, ...]]:
    """A model and the surrogates of a plan, each prepared for calls until `sessions` end; the manifest keeps their kinds."""
    model = source.open()
    sessions.enter_context(session(model, plan.device))
    model = with_logits(model, plan.dataset, manifest, plan.device)
    return model, open_surrogates(plan, manifest, sessions)


def open_surrogates(plan: Plan, manifest: dict[str, Any], sessions: ExitStack) -> tuple[Model, ...]:
    """The surrogates of a plan, each prepared for calls until `sessions` end; the manifest keeps the kinds of their answers."""
    surrogates = [(source.name, source.open()) for source in plan.surrogates]
    for _, surrogate in surrogates:
        sessions.enter_context(session(surrogate, plan.device))
    return tuple(
        with_logits(surrogate, plan.dataset, manifest, plan.device, name=f"surrogate {name}") for name, surrogate in surrogates
    )
