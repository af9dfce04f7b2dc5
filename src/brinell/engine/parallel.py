"""A group in two halves side by side: while one half thinks, the inputs of the other are with a model on another machine.

Nothing depends on it but the time: a sample's results do not depend on its company.
"""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from copy import deepcopy
from dataclasses import replace

import numpy as np

from brinell.engine import retry
from brinell.engine.shard import Group, Result, Setting, joined

__all__ = ["attack"]


class _CalledOffError(Exception):
    """The other half has failed."""


def attack(setting: Setting, group: Group, note: Callable[[int, str], None]) -> Result:
    """`retry.attack`, in two halves at once where the model is on another machine."""
    if setting.model.info.server is None or len(group.x) < 2:
        return retry.attack(setting, group, note)
    lock, off = threading.Lock(), threading.Event()

    def passed(forwards: int, backwards: int) -> None:
        if off.is_set():
            raise _CalledOffError
        if setting.on_pass is not None:
            with lock:
                setting.on_pass(forwards, backwards)

    def noted(sample: int, why: str) -> None:
        with lock:
            note(sample, why)

    def half(at: np.ndarray) -> Result:
        own = deepcopy(setting.stage.attack)  # one that keeps something of its work must not meet itself
        stage = replace(setting.stage, attack=own)
        return retry.attack(replace(setting, stage=stage, on_pass=passed), group.select(at), noted)

    pool = ThreadPoolExecutor(2, thread_name_prefix="brinell-half")
    try:
        futures = [pool.submit(half, at) for at in np.array_split(np.arange(len(group.x)), 2)]
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
