"""Any number of workers, in any order of answers and with deaths, make the same rows; a killed
driver resumes.
"""

import random
from functools import partial

import numpy as np
import pytest

from _helpers import Recorder, audits, plan_of, rows_of, threshold
from _workers import Workers, audit_command, retried
from brinell.core.errors import StoppedError
from brinell.core.record import CLEAN
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


def run(folder, pool, resume=False):
    return audits.run_audit(
        make_plan(), folder, SilentProgress(), command="a test", resume=resume, pool=pool
    )


def pool_of(folder, count, seed, deaths=0.0):
    return Workers(audit_command(make_plan, folder / "worker"), count, random.Random(seed), deaths)


def arrays_of(finished):
    stages = [stage["name"] for stage in finished.manifest["stages"]]
    ids = finished.records().sample_id
    name = finished.manifest["models"][0]["name"]
    return {
        (stage, sample): x.tobytes()
        for stage in stages
        for sample, x in finished.adversarial(name, stage, ids).items()
    }


@pytest.fixture(scope="module")
def by_one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    return run(folder / "run", pool_of(folder, 1, 0))


def test_rows_and_inputs_are_those_of_one_worker(by_one, tmp_path):
    expected, attacked = (
        rows_of(by_one.records(), without=("seconds",)),
        set(by_one.records().attack) - {CLEAN},
    )
    assert len(attacked) == 2 and arrays_of(by_one)
    for count in (2, 5):
        pool = pool_of(tmp_path, count, count)
        finished = run(tmp_path / f"run-{count}", pool)
        assert rows_of(finished.records(), without=("seconds",)) == expected and arrays_of(
            finished
        ) == arrays_of(by_one)
        assert pool.most_running == count


def test_deaths_of_workers_and_drivers_lose_nothing(by_one, tmp_path):
    expected = rows_of(by_one.records(), without=("seconds",))
    pools = []

    def pool(number):
        pools.append(pool_of(tmp_path, 3, number, deaths=0.4))
        return pools[-1]

    finished = retried(pool, partial(run, tmp_path / "run"))
    assert rows_of(finished.records(), without=("seconds",)) == expected and arrays_of(
        finished
    ) == arrays_of(by_one)
    assert sum(pool.killed for pool in pools) > 3


class Counted(Pool):
    """Workers that square numbers; tasks above 100 kill them, and negative ones are errors."""

    def open_workers(self, shared):
        return ["a", "b"]

    def send(self, worker, task):
        return worker, task

    def wait(self, handles):
        return handles[-1]

    def result(self, handle):
        if handle[1] > 100:
            raise WorkerDiedError("out of memory")
        if handle[1] < 0:
            raise ValueError(handle[1])
        return handle[1] ** 2


def test_each_task_is_answered_once():
    pool = Counted()
    pool.start({})
    for task in range(7):
        pool.submit(str(task), task)
    assert sorted(pool.next() for _ in range(7)) == [(str(task), task**2) for task in range(7)]


@pytest.mark.parametrize(("task", "error"), [(101, StoppedError), (-1, ValueError)])
def test_a_task_that_kills_its_workers_and_one_with_an_error(task, error):
    pool = Counted()
    pool.start({})
    pool.submit("key", task)
    with pytest.raises(error):
        pool.next()


def test_a_command_that_ends_before_it_serves():
    def refuse(channel):
        raise KeyError(channel.shared["name"])

    with pytest.raises(KeyError, match="x"):
        Worker(refuse, {"name": "x"}).answer(1)
