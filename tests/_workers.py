"""Workers in this process, which answer out of order and die, as those on other machines may."""

from functools import partial

import numpy as np

from _helpers import Recorder, audits, plan_of, threshold
from brinell.core.errors import StoppedError
from brinell.engine.executor import Pool, Worker, WorkerDiedError
from brinell.engine.progress import SilentProgress

RNG = np.random.default_rng(5)
X = RNG.uniform(0.2, 0.55, (60, 2)).astype(np.float32)
Y = np.zeros(len(X), dtype=int)


def make_plan():
    model = Recorder(threshold(0.5))
    return plan_of(
        model,
        X,
        Y,
        attack=("pgd?steps=4&restarts=2", "square?steps=20"),
        eps="0:0.3:5",
        batch_size=8,
    )


def run_plan(folder, pool, resume=False):
    return audits.run_audit(
        make_plan(), folder, SilentProgress(), command="a test", resume=resume, pool=pool
    )


def arrays_of(finished):
    stages = [stage["name"] for stage in finished.manifest["stages"]]
    ids = finished.rows.sample_id
    name = finished.manifest["models"][0]["name"]
    return {
        (stage, sample): x.tobytes()
        for stage in stages
        for sample, x in finished.adversarial(name, stage, ids).items()
    }


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
    audits.run_audit(make_plan(), folder, SilentProgress(), command="a worker", pool=channel)
