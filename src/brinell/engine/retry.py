"""The attack on a group, with handling of samples on which the model fails and of remote models."""

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
from brinell.engine.group_attack import AttackSetting, Group, Result, make_rows, merge_results, predict, run_attack

Answer = TypeVar("Answer")
FailHandler = Callable[[int, str], None]
"""Called with the id of a sample that could not be judged, and the reason."""


def run_in_halves(
    work: Callable[[Array], Answer], index: Array, fail: Callable[[int, ModelError], Answer], model: Model, device: torch.device
) -> list[Answer]:
    """Call `work` on the positions `index` (n,); split into halves on failure, down to single samples, which `fail` handles.

    A sample's results do not depend on the other samples, so failed samples do not affect them. If the model fails on a single
    sample, it is asked about another input; if it fails on that too, the error is raised.

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
        return [part for half in np.split(index, [len(index) // 2]) for part in run_in_halves(work, half, fail, model, device)]


def _answers_somewhere(model: Model, device: torch.device) -> bool:
    """True if the model returns finite logits for an input of zeros (clamped to the domain)."""
    x = model.domain.clamp(torch.zeros(1, *model.domain.shape, device=device))
    try:
        return bool(torch.isfinite(predict(model, x, 1)).all())
    except ModelError:
        return False


def attack_group(setting: AttackSetting, group: Group, fail: FailHandler) -> Result:
    """Run `run_attack` on a group; for a remote model, on two halves in parallel, so that one computes while the other waits.

    A sample on which the model fails gets a row with that outcome.
    """
    if setting.model.info.server is None or len(group.x) < 2:
        return _attack(setting, group, fail)
    lock, cancelled = threading.Lock(), threading.Event()

    def count(forwards: int, backwards: int) -> None:
        """Count passes of both halves under one lock; ends a cancelled half."""
        if cancelled.is_set():
            raise _CancelledError
        if setting.on_pass is not None:
            with lock:
                setting.on_pass(forwards, backwards)

    def fail_locked(sample: int, reason: str) -> None:
        """Record a failed sample under the lock."""
        with lock:
            fail(sample, reason)

    def attack_half(index: Array) -> Result:
        """Attack one half of a group with its own copy of the attack."""
        attack = deepcopy(setting.stage.attack)  # an attack with state must not be shared by two threads
        stage = replace(setting.stage, attack=attack)
        return _attack(replace(setting, stage=stage, on_pass=count), group.select(index), fail_locked)

    pool = ThreadPoolExecutor(2, thread_name_prefix="brinell-half")
    try:
        futures = [pool.submit(attack_half, index) for index in np.array_split(np.arange(len(group.x)), 2)]
        if wait(futures, return_when=FIRST_EXCEPTION).not_done:
            cancelled.set()
            wait(futures)
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        for error in errors:
            if not isinstance(error, _CancelledError):
                raise error
        return merge_results([future.result() for future in futures])
    finally:
        cancelled.set()
        pool.shutdown(wait=False, cancel_futures=True)


class _CancelledError(Exception):
    """The other half failed."""


def _attack(setting: AttackSetting, group: Group, fail: FailHandler) -> Result:
    def fail_row(row: int, error: ModelError) -> Result:
        """Result of a sample that the model cannot answer."""
        fail(int(group.sample_id[row]), str(error))
        index = np.array([row])
        return Result(records=make_rows(setting, group, index, str(Outcome.FAILED)), arrays={}, remarks=())

    def work(index: Array) -> Result:
        """Attack some samples of the group."""
        return run_attack(setting, group.select(index))

    return merge_results(run_in_halves(work, np.arange(len(group.x)), fail_row, setting.model, group.x.device))
