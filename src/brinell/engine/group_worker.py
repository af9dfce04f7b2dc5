"""Attacks groups of samples: in the driver's process, and in workers that serve it."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from brinell.core.contracts import Remark
from brinell.core.errors import ModelError
from brinell.core.model import Model
from brinell.core.record import Array, Outcome
from brinell.engine.answers import with_logits
from brinell.engine.batch_sizer import BatchSizer
from brinell.engine.group_attack import (
    AttackSetting,
    GroupTask,
    Result,
    make_rows,
    merge_results,
    run_attack,
)
from brinell.engine.plan import BATCHES, ModelSource, Plan
from brinell.engine.retry import run_in_halves


@dataclass(frozen=True, kw_only=True)
class GroupAnswer:
    """The result of a group."""

    result: Result
    failed: Mapping[int, str]
    """Reasons of the samples that could not be judged, by id."""
    traffic: Mapping[str, int]
    """Requests to a remote model since the last group, by kind."""
    shortages: tuple[Remark, ...] = ()


@dataclass
class GroupWorker:
    """Attacks groups in one process, with the batch size that fits its memory."""

    setting: AttackSetting
    sizer: BatchSizer
    shortages: list[Remark] = field(default_factory=list)

    def answer(self, task: GroupTask) -> GroupAnswer:
        """Attack a group, in smaller batches where memory is short."""
        failed = dict[int, str]()
        result = self.sizer.fit(lambda: self._attack_parts(task, failed))
        server = self.setting.model.info.server
        shortages, self.shortages[:] = tuple(self.shortages), []
        traffic = {} if server is None else dict(server.traffic())
        return GroupAnswer(result=result, failed=failed, traffic=traffic, shortages=shortages)

    def _attack_parts(self, task: GroupTask, failed: dict[int, str]) -> Result:
        setting, size, n = self.setting, self.sizer.size, len(task.index)

        def fail_row(row: int, error: ModelError) -> Result:
            single = task.select(np.array([row]))
            failed[int(setting.plan.ids[single.index[0]])] = str(error)
            attacked = setting.plan.levels[single.level]
            return Result(
                records=make_rows(setting, single, str(Outcome.FAILED), attacked=attacked),
                arrays={},
                remarks=(),
            )

        def attack(rows: Array) -> Result:
            return run_attack(setting, task.select(rows), size)

        parts = np.split(np.arange(n), range(BATCHES * size, n, BATCHES * size))
        device = setting.plan.device
        return merge_results(
            [
                result
                for rows in parts
                for result in run_in_halves(attack, rows, fail_row, setting.model, device)
            ]
        )


class AuditWorker:
    """Answers the groups of an audit in a process that serves the driver; holds one model at a
    time.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._sessions = plan, ExitStack()
        self._source: ModelSource | None = None

    def answer(self, task: GroupTask) -> GroupAnswer:
        """Attack a group of the model that the task names."""
        plan = self._plan
        if self._source is None or self._source.name != task.model:
            self._sessions.close()
            self._source = next(source for source in plan.models if source.name == task.model)
            manifest = {"answers": dict(task.answers), "probes": {}}
            self._model, self._surrogates = open_models(
                plan, self._source, manifest, self._sessions
            )
            self._shortages: list[Remark] = []
            self._sizer = BatchSizer(plan.request.batch_size, self._shortages.append)
        stage = next(stage for stage in plan.stages if stage.name == task.stage)
        setting = AttackSetting(
            plan=plan,
            source=self._source,
            model=self._model,
            stage=stage,
            surrogates=self._surrogates,
        )
        return GroupWorker(setting, self._sizer, self._shortages).answer(task)


def open_models(
    plan: Plan, source: ModelSource, manifest: dict[str, Any], sessions: ExitStack
) -> tuple[Model, tuple[Model, ...]]:
    """A model and the surrogates of a plan, each prepared for calls until `sessions` end; the
    manifest keeps their kinds.
    """
    model, networks = source.open(), [surrogate.open() for surrogate in plan.surrogates]
    for network in (model, *networks):
        sessions.enter_context(network.info.session(plan.device))
    surrogates = tuple(
        with_logits(other, plan.dataset, manifest, plan.device, name=f"surrogate {surrogate.name}")
        for surrogate, other in zip(plan.surrogates, networks, strict=True)
    )
    return with_logits(model, plan.dataset, manifest, plan.device), surrogates
