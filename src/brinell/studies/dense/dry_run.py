"""A dry run of a study of dense outputs: the plan, its passes at most, and from a short calibration what it will cost."""

import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.engine.answers import with_logits
from brinell.engine.estimate import peak_memory
from brinell.engine.group_attack import session
from brinell.studies import work
from brinell.studies.audit.dry_run import PlannedCell, PlannedCost, PlanResult
from brinell.studies.audit.request import CALIBRATION
from brinell.studies.dense.records import Answers
from brinell.studies.dense.run import TASKS, make_plan
from brinell.studies.dense.stages import DensePlan
from brinell.studies.kit import Call

MOST_PICTURES = 64
"""Pictures of a calibration at most."""
PATIENCE = 3
"""Multiple of the time of a calibration after which it ends although not even one picture is done."""


class _TimeOver(Exception):
    """The time of the calibration is over."""


def carry_out(call: Call) -> Any:
    """Run the study of a call; with `dry_run`, estimate its cost instead.

    Raises:
        RequestError: the request cannot be carried out.
        StoppedError: the folder cannot be written, or the model no longer answers.
    """
    calibrate = call.options.calibrate
    if not call.options.dry_run:
        if calibrate is not None:
            raise RequestError(f"{option('calibrate')} is for {option('dry_run')}, which tells what a run costs: leave it out")
        return work.carry_out(call)
    return estimate_plan(make_plan(call), call, CALIBRATION if calibrate is None else calibrate)


def estimate_plan(plan: DensePlan, call: Call, seconds: float) -> PlanResult:
    """The plan and its estimate, from a calibration of about so many seconds; 0 makes none."""
    task, n = TASKS[plan.about["task"]], len(plan.ids)
    names = {name: stage for stage in plan.setting.stages for name in task.row_names(stage, call.request)}
    limit = call.request.queries or np.inf
    levels = len(plan.setting.levels)
    most = {name: [round(n * levels * min(passes, limit)) for passes in stage.attack.cost(2)] for name, stage in names.items()}
    if seconds:
        call.progress.note(f"calibrating for about {seconds:.0f} s; {option('calibrate', '0')} leaves it out")
    start = time.perf_counter()
    pilot, times = _attack_some(plan, call, task, seconds) if seconds else ([], np.zeros(0))
    cost = _cost(plan, times, pilot, time.perf_counter() - start)
    return PlanResult(
        data=plan.dataset.name,
        attacks=", ".join(stage.name for stage in plan.setting.stages),
        n=n,
        total=len(plan.dataset),
        norm=call.request.norm,
        eps=plan.setting.texts,
        group_size=call.request.batch_size,
        cells=tuple(_cell(plan, name, passes, pilot) for name, passes in most.items()),
        estimates=() if cost is None else (cost,),
    )


def _attack_some(plan: DensePlan, call: Call, task: Any, seconds: float) -> tuple[list[Answers], Array]:
    """The rows of pictures that are attacked one by one until the time is over, and the seconds of each."""
    pilot: list[Answers] = []
    times: list[float] = []
    start = time.perf_counter()

    def count_passes(forwards: int, backwards: int) -> None:
        """End the calibration after its time."""
        if time.perf_counter() - start > seconds * (1 if pilot else PATIENCE):
            raise _TimeOver

    with ExitStack() as stack, suppress(_TimeOver):
        for model in plan.models.values():
            stack.enter_context(session(model, plan.device))
        models = {name: with_logits(model, plan.dataset, {}, plan.device, name=name) for name, model in plan.models.items()}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="brinell-")))
        ready = replace(plan, models=models, folder=folder, on_pass=count_passes)
        for number in range(min(len(plan.ids), MOST_PICTURES)):
            begin = time.perf_counter()
            if begin - start > seconds:
                break
            pilot.append(task.attack(ready, call.request, slice(number, number + 1), "pilot.safetensors"))
            times.append(time.perf_counter() - begin)
    return pilot, np.array(times)


def _cell(plan: DensePlan, name: str, most: list[int], pilot: list[Answers]) -> PlannedCell:
    """Planned cost of one attack."""
    (model,) = plan.models
    scale = len(plan.ids) / max(1, len(pilot))
    rows = [(part, part.attack == name) for part in pilot]
    passes = sum(int(part.forwards[index].sum() + part.backwards[index].sum()) for part, index in rows)
    return PlannedCell(
        model=model,
        stage=name,
        title=name,
        short=name,
        forwards_at_most=most[0],
        backwards_at_most=most[1],
        waits=False,
        passes=round(scale * passes) if pilot else None,
        seconds=scale * sum(float(part.seconds[index].sum()) for part, index in rows) if pilot else None,
        skipped=None,
    )


def _cost(plan: DensePlan, times: Array, pilot: list[Answers], calibration: float) -> PlannedCost | None:
    """Planned cost of the whole study; None without a picture."""
    if not pilot:
        return None
    n, k = len(plan.ids), len(times)
    passes = sum(int(part.forwards.sum() + part.backwards.sum()) for part in pilot)
    (model,) = plan.models
    return PlannedCost(
        model=model,
        passes=round(n * passes / k),
        seconds=n * float(times.mean()),
        memory=peak_memory(plan.device),
        samples=k,
        calibration_seconds=calibration,
    )
