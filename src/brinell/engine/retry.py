"""The attack on a group where the model may fail on samples, or is on another machine."""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from copy import deepcopy
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from brinell.core.errors import BatchError, ModelError, SampleError
from brinell.core.model import Model
from brinell.core.record import Array, Outcome
from brinell.engine.shard import Group, Result, Setting, joined, predict, rows_of, run_shard

Work = TypeVar("Work")
Fail = Callable[[int, str], None]
"""Told of a sample that could not be judged, by its id, and why."""


def divided(
    work: Callable[[Array], Work], index: Array, fail: Callable[[int, ModelError], Work], model: Model, device: torch.device
) -> list[Work]:
    """What `work` makes of the positions `index` (n,), in halves where the model fails on some, down to those it fails on alone.

    A sample's results do not depend on its company, so those of the others are what they would be without the failed ones.
    A model that raises on a sample alone is asked about another input: where it raises on that too, it is the model that fails.

    Raises:
        BatchError: the model fails on every input.
    """
    try:
        return [work(index)]
    except (SampleError, BatchError) as error:
        if len(index) == 1:
            if isinstance(error, BatchError) and not _answers_somewhere(model, device):
                raise
            return [fail(int(index[0]), error)]
        return [part for half in np.split(index, [len(index) // 2]) for part in divided(work, half, fail, model, device)]


def _answers_somewhere(model: Model, device: torch.device) -> bool:
    """Whether the model answers an input of zeros, or of the bounds nearest to them, with finite numbers."""
    x = model.domain.clamp(torch.zeros(1, *model.domain.shape, device=device))
    try:
        return bool(torch.isfinite(predict(model, x, 1)).all())
    except ModelError:
        return False


def attack(setting: Setting, group: Group, fail: Fail) -> Result:
    """`run_shard` on a group, in two halves at once where the model is on another machine: one thinks while the other is asked.

    A sample that the model fails on gets a row that says so.
    """
    if setting.model.info.server is None or len(group.x) < 2:
        return _attack(setting, group, fail)
    lock, off = threading.Lock(), threading.Event()

    def count(forwards: int, backwards: int) -> None:
        if off.is_set():
            raise _CalledOffError
        if setting.on_pass is not None:
            with lock:
                setting.on_pass(forwards, backwards)

    def fail_locked(sample: int, why: str) -> None:
        with lock:
            fail(sample, why)

    def attack_half(index: Array) -> Result:
        own = deepcopy(setting.stage.attack)  # one that keeps something of its work must not meet itself
        stage = replace(setting.stage, attack=own)
        return _attack(replace(setting, stage=stage, on_pass=count), group.select(index), fail_locked)

    pool = ThreadPoolExecutor(2, thread_name_prefix="brinell-half")
    try:
        futures = [pool.submit(attack_half, index) for index in np.array_split(np.arange(len(group.x)), 2)]
        if wait(futures, return_when=FIRST_EXCEPTION).not_done:
            off.set()
            wait(futures)
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        for error in errors:
            if not isinstance(error, _CalledOffError):
                raise error
        return joined([future.result() for future in futures])
    finally:
        off.set()
        pool.shutdown(wait=False, cancel_futures=True)


class _CalledOffError(Exception):
    """The other half has failed."""


def _attack(setting: Setting, group: Group, fail: Fail) -> Result:
    def fail_row(row: int, error: ModelError) -> Result:
        fail(int(group.sample_id[row]), str(error))
        index = np.array([row])
        return Result(records=rows_of(setting, group, index, group.level[index], Outcome.FAILED), arrays={}, remarks=())

    def work(index: Array) -> Result:
        return run_shard(setting, group.select(index))

    return joined(divided(work, np.arange(len(group.x)), fail_row, setting.model, group.x.device))
