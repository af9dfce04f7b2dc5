"""Any number of workers, in any order of answers and with deaths, make the same rows; a killed
driver resumes.
"""

import random
from functools import partial

import pytest

from _helpers import rows_of
from _workers import Workers, arrays_of, audit_command, make_plan, retried, run_plan
from brinell.core.errors import StoppedError
from brinell.core.record import CLEAN
from brinell.engine.executor import Pool, Worker, WorkerDiedError


def pool_of(folder, count, seed, deaths=0.0):
    return Workers(audit_command(make_plan, folder / "worker"), count, random.Random(seed), deaths)


@pytest.fixture(scope="module")
def by_one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    return run_plan(folder / "run", pool_of(folder, 1, 0))


def test_rows_and_inputs_are_those_of_one_worker(by_one, tmp_path):
    expected, attacked = (
        rows_of(by_one.rows, without=("seconds",)),
        set(by_one.rows.attack) - {CLEAN},
    )
    assert len(attacked) == 2 and arrays_of(by_one)
    for count in (2, 5):
        pool = pool_of(tmp_path, count, count)
        finished = run_plan(tmp_path / f"run-{count}", pool)
        assert rows_of(finished.rows, without=("seconds",)) == expected and arrays_of(
            finished
        ) == arrays_of(by_one)
        assert pool.most_running == count


def test_deaths_of_workers_and_drivers_lose_nothing(by_one, tmp_path):
    expected = rows_of(by_one.rows, without=("seconds",))
    pools = []

    def pool(number):
        pools.append(pool_of(tmp_path, 3, number, deaths=0.4))
        return pools[-1]

    finished = retried(pool, partial(run_plan, tmp_path / "run"))
    assert rows_of(finished.rows, without=("seconds",)) == expected and arrays_of(
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
