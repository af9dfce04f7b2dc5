"""Paired timing: works that run in turns, step by step, so that a slow minute of the machine is
slow for all of them.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn


@dataclass
class Timing:
    """Seconds of one work on two clocks: the wall's, and the processor's for its own thread."""

    wall: float = 0.0
    cpu: float = 0.0


class Work(NamedTuple):
    """Something to time, and the module whose forward passes mark its steps."""

    module: nn.Module
    run: Callable[[], object]


def in_turns(works: dict[str, Work], threads: int) -> dict[str, Timing]:
    """Run all works together, one step of each in turn, and time each by itself.

    A step ends where the work's module is called again. Only one work runs at a time and only its
    clock runs with it, so a machine that is slow for a while is slow for all of them alike.
    """
    turns = _Turns(list(works))
    runners = [
        threading.Thread(target=turns.take_part, args=(name, work, threads))
        for name, work in works.items()
    ]
    for runner in runners:
        runner.start()
    turns.start()
    for runner in runners:
        runner.join()
    if turns.errors:
        raise turns.errors[0]
    return turns.timings


class _Turns:
    """State of turns: the work whose turn it is, and the seconds of each.

    Only the current work may change it.
    """

    def __init__(self, names: list[str]) -> None:
        self.timings = {name: Timing() for name in names}
        self.errors: list[BaseException] = []
        self._waiting = list(names)
        self._signals = {name: threading.Semaphore(0) for name in names}
        self._began = (0.0, 0.0)

    def start(self) -> None:
        self._signals[self._waiting[0]].release()

    def take_part(self, name: str, work: Work, threads: int) -> None:
        torch.set_num_threads(threads)
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            # All on one core: two cores of a shared machine need not be equally fast.
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        handle = work.module.register_forward_pre_hook(lambda *_: self._hand_on(name))
        self._wait(name)
        try:
            work.run()
        except BaseException as error:
            self.errors.append(error)
        self._stop(name)
        handle.remove()
        following = self._after(name)
        self._waiting.remove(name)
        if following != name:
            self._signals[following].release()

    def _hand_on(self, name: str) -> None:
        following = self._after(name)
        if following == name:
            return
        self._stop(name)
        self._signals[following].release()
        self._wait(name)

    def _after(self, name: str) -> str:
        return self._waiting[(self._waiting.index(name) + 1) % len(self._waiting)]

    def _wait(self, name: str) -> None:
        self._signals[name].acquire()
        self._began = (time.perf_counter(), time.thread_time())

    def _stop(self, name: str) -> None:
        self.timings[name].wall += time.perf_counter() - self._began[0]
        self.timings[name].cpu += time.thread_time() - self._began[1]


def repeated(works: dict[str, Work], repetitions: int, threads: int) -> dict[str, list[Timing]]:
    """All works in turns, `repetitions` times, each time another one first."""
    times: dict[str, list[Timing]] = {name: [] for name in works}
    for repetition in range(repetitions):
        names = list(works)
        first = repetition % len(names)
        timings = in_turns({name: works[name] for name in names[first:] + names[:first]}, threads)
        for name in names:
            times[name].append(timings[name])
    return times


def ratios(above: Sequence[Timing], below: Sequence[Timing], clock: str = "wall") -> list[float]:
    """The one over the other, repetition by repetition."""
    return [getattr(a, clock) / getattr(b, clock) for a, b in zip(above, below, strict=True)]
