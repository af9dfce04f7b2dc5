"""Who answers the tasks of a command: this process, or workers that answer at once
(design/0025-executor.md).

The driver owns the folder. It cuts tasks in one order, submits each that is ready, and takes
answers as they come. A worker runs the same command up to the point where tasks are answered, and
serves there. So workers share nothing but tasks and answers, and a task whose worker dies is
answered by another.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, NoReturn

from brinell.core.errors import StoppedError

MOST_DEATHS = 3
"""Workers that may die over one task; a task that kills more would kill all."""


class WorkerDiedError(Exception):
    """The worker of a task died, or its machine was lost."""

    gave_back = False
    """True if a scheduler ended it, which says nothing about its task."""


class ServingEnded(BaseException):
    """Ends the command of a worker that is needed no more."""


class Pool(ABC):
    """Workers that answer tasks at once, each one task at a time; a subclass says how they are
    reached.
    """

    spread = 8
    """Number of groups over which the work is spread at least, whatever the number of workers: each
    group costs a small network almost as much as a full batch."""

    def __init__(self) -> None:
        self._idle = deque[Any]()
        self._waiting = deque[tuple[Any, Any, int]]()
        """Tasks, each with its key and the number of workers that died over it."""
        self._running: dict[Any, tuple[Any, tuple[Any, Any, int]]] = {}
        """By handle, the worker and its task."""

    @abstractmethod
    def open_workers(self, shared: Mapping[str, Any]) -> Sequence[Any]:
        """Start the workers."""

    @abstractmethod
    def send(self, worker: Any, task: Any) -> Any:
        """Let a worker answer a task; returns a handle."""

    @abstractmethod
    def wait(self, handles: Sequence[Any]) -> Any:
        """Wait until one of these tasks ends; returns its handle."""

    @abstractmethod
    def result(self, handle: Any) -> Any:
        """The answer of a task that ended; raises WorkerDiedError, or the error of the task itself."""

    def start(self, shared: Mapping[str, Any]) -> None:
        """Start the workers, unless they run, with the values that the driver found out before."""
        if not self._idle and not self._running:
            self._idle.extend(self.open_workers(shared))

    def more_workers(self) -> Sequence[Any]:
        """Start the workers that have become possible since; none where their number is fixed."""
        return ()

    def successors(self, worker: Any) -> Sequence[Any]:
        """The workers in the place of one that died: itself, where it is started again."""
        return (worker,)

    def submit(self, key: Any, task: Any) -> None:
        """Add a task; its key stays with the driver."""
        self._waiting.append((key, task, 0))

    def cancel(self) -> int:
        """Drop the tasks that no worker has begun; returns the number of the others."""
        self._waiting.clear()
        return len(self._running)

    def next(self) -> tuple[Any, Any]:
        """The key and the answer of a task that was not returned yet; waits for one."""
        while True:
            if self._waiting and not self._idle:
                self._idle.extend(self.more_workers())
            while self._waiting and self._idle:
                worker = self._idle.popleft()
                key, task, deaths = self._waiting.popleft()
                self._running[self.send(worker, task)] = worker, (key, task, deaths)

            handle = self.wait(list(self._running))
            worker, (key, task, deaths) = self._running.pop(handle)
            try:
                answer = self.result(handle)
            except WorkerDiedError as error:
                deaths += not error.gave_back
                if deaths == MOST_DEATHS:
                    raise StoppedError(
                        f"{MOST_DEATHS} workers died over one task ({error}): they may lack memory"
                    ) from error
                # The task goes to the next worker before all others, with the deaths over it.
                self._idle.extend(self.successors(worker))
                self._waiting.appendleft((key, task, deaths))
            else:
                self._idle.append(worker)
                return key, answer


class Channel:
    """The worker's side: tasks from the driver, and the answers to them."""

    def __init__(self, shared: Mapping[str, Any]) -> None:
        self.shared = shared
        self._tasks = SimpleQueue[Any]()
        self._answers = SimpleQueue[tuple[Any, BaseException | None]]()

    def serve(self, answer: Callable[[Any], Any]) -> NoReturn:
        """Answer tasks until the process ends; an error goes to the driver, like an answer."""
        while True:
            task = self._tasks.get()
            if task is ServingEnded:
                raise ServingEnded
            try:
                self._answers.put((answer(task), None))
            except Exception as error:
                self._answers.put((None, error))


class Worker:
    """A worker: a thread that runs the command until it serves the channel, and the tasks that go
    to it.
    """

    def __init__(self, command: Callable[[Channel], object], shared: Mapping[str, Any]) -> None:
        self._channel = Channel(shared)
        Thread(target=self._run, args=(command,), daemon=True).start()

    def answer(self, task: Any) -> Any:
        """Have the command answer a task, and wait; raises the error that it raised."""
        self._channel._tasks.put(task)
        answer, error = self._channel._answers.get()
        if error is not None:
            raise error
        return answer

    def close(self) -> None:
        """End the command once it has answered its task."""
        self._channel._tasks.put(ServingEnded)

    def _run(self, command: Callable[[Channel], object]) -> None:
        try:
            command(self._channel)
        except BaseException as error:
            # It ended before it served, so this answers the first task.
            self._channel._answers.put((None, error))
