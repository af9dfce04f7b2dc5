"""Workers in this process, which answer out of order and die, as those on other machines may."""

from functools import partial

from brinell.core.errors import StoppedError
from brinell.engine.executor import Pool, Worker, WorkerDiedError


class Workers(Pool):
    """Logical workers: whichever the random number generator picks answers first; at some tasks a
    worker dies.

    Args:
        command: what each worker runs until it serves.
        count: their number.
        rng: a `random.Random`.
        deaths: share of the tasks over which a worker dies, before or after it did the work.
    """

    def __init__(self, command, count, rng, deaths=0.0):
        super().__init__()
        self.command, self.count, self.rng, self.deaths = command, count, rng, deaths
        self.killed = self.most_running = 0
        self.tasks = {}

    def open_workers(self, shared):
        self.shared = dict(shared)
        return [[Worker(self.command, self.shared)] for _ in range(self.count)]

    def send(self, worker, task):
        handle = object()
        self.tasks[handle] = worker, task
        self.most_running = max(self.most_running, len(self.tasks))
        return handle

    def wait(self, handles):
        return self.rng.choice(handles)

    def result(self, handle):
        worker, task = self.tasks.pop(handle)
        if self.rng.random() < self.deaths:
            if self.rng.random() < 0.5:
                worker[0].answer(task)
            self.killed += 1
            worker[0] = Worker(self.command, self.shared)  # as Ray starts an actor again
            raise WorkerDiedError("killed by a test")
        return worker[0].answer(task)


def retried(pool_of, run):
    """Carry out `run(pool, resume)`, and resume it whenever three deaths over one task stopped it."""
    resume = False
    for number in range(20):
        try:
            return run(pool_of(number), resume)
        except StoppedError:
            resume = True
    raise AssertionError("it never ended")


def audit_command(make_plan, folder):
    """The command of workers of an audit over a plan that each makes anew."""
    return partial(_serve_audit, make_plan, folder)


def _serve_audit(make_plan, folder, channel):
    from brinell.engine.progress import SilentProgress
    from brinell.studies.audits import run_audit

    run_audit(make_plan(), folder, SilentProgress(), command="a worker", pool=channel)
