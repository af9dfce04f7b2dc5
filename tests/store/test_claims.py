"""Claims: one process has a task, a dead one loses it, and no clock of another machine is asked."""

import json
import threading

import pytest

from brinell.core.errors import StoppedError
from brinell.store.claims import Claims, claim_content
from brinell.store.shared import FolderStore

LEASE = 60.0


class Clock:
    """A clock that is set by hand."""

    def __init__(self, start=0.0):
        self.now = start

    def __call__(self):
        return self.now


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path)


def claims(store, me, clock=None, lease=LEASE):
    return Claims(store, "claims", me, lease, clock or Clock())


def test_one_has_it_until_it_gives_it_back(store):
    a, b = claims(store, "a"), claims(store, "b")
    claim, task = a.first(["one"])
    assert task == "one" and b.first(["one"]) is None
    with claim:
        assert b.first(["one"]) is None
    assert store.names("claims") == []
    assert b.first(["one"])[1] == "one"


def test_the_first_free_one_is_taken(store):
    claims(store, "a").first(["one"])
    assert claims(store, "b").first(["one", "two"])[1] == "two"


def test_it_is_given_back_where_the_work_fails(store):
    with pytest.raises(ZeroDivisionError), claims(store, "a").first(["one"])[0]:
        1 / 0  # noqa: B018
    assert claims(store, "b").first(["one"]) is not None


def test_a_dead_holder_loses_it_after_a_lease_by_the_lookers_own_clock(store):
    claims(store, "dead", Clock(1e9)).first(["one"])
    clock = Clock(-5.0)
    looker = claims(store, "looker", clock)
    assert looker.first(["one"]) is None
    clock.now += LEASE
    assert looker.first(["one"]) is None, "a whole lease has not passed since it was first seen"
    clock.now += 0.1
    assert looker.first(["one"])[1] == "one"
    assert store.names("claims") == ["one.1"]
    assert json.loads(store.read("claims/one.1"))["by"] == "looker"


def test_a_sign_of_life_keeps_it(store):
    holder, _ = claims(store, "holder").first(["one"])
    clock = Clock()
    looker = claims(store, "looker", clock)
    for _ in range(5):
        assert looker.first(["one"]) is None
        clock.now += 0.9 * LEASE
        assert holder.renew()
    assert looker.first(["one"]) is None


def test_the_holders_lease_counts_and_not_the_lookers(store):
    claims(store, "slow", lease=600.0).first(["one"])
    clock = Clock()
    looker = claims(store, "looker", clock, lease=1.0)
    looker.first(["one"])
    clock.now = 599.0
    assert looker.first(["one"]) is None
    clock.now = 601.0
    assert looker.first(["one"]) is not None


def test_one_of_several_that_steal_has_it(store):
    claims(store, "dead").first(["one"])
    clocks = [Clock() for _ in range(4)]
    lookers = [claims(store, f"looker-{index}", clock) for index, clock in enumerate(clocks)]
    for looker, clock in zip(lookers, clocks, strict=True):
        looker.first(["one"])
        clock.now = 2 * LEASE
    assert sum(looker.first(["one"]) is not None for looker in lookers) == 1


def test_who_was_stolen_from_knows_it_and_takes_nothing_away(store):
    slow, _ = claims(store, "slow").first(["one"])
    clock = Clock()
    thief = claims(store, "thief", clock)
    thief.first(["one"])
    clock.now = 2 * LEASE
    thief.first(["one"])
    assert not slow.renew()
    with slow:
        pass
    assert store.names("claims") == ["one.1"], "the claim of the other is as it was"


def watched(store, monkeypatch, write, times):
    """An event that is set once a claim was written so many times, each time by `write`."""
    event, calls = threading.Event(), []

    def count(key, content):
        try:
            write(key, content)
        finally:
            calls.append(key)
            if len(calls) == times:
                event.set()

    monkeypatch.setattr(store, "write", count)
    return event


def test_a_claim_is_renewed_while_its_work_goes_on(store, monkeypatch):
    claim, _ = claims(store, "a", lease=0.2).first(["one"])
    renewed = watched(store, monkeypatch, store.write, times=2)
    with claim:
        assert renewed.wait(30) and json.loads(store.read("claims/one.0"))["beat"] >= 2
    assert store.read("claims/one.0") is None and not any(thread.name == "brinell-claim" for thread in threading.enumerate())


def test_a_store_that_is_gone_does_not_end_the_work(store, monkeypatch):
    claim, _ = claims(store, "a", lease=0.05).first(["one"])

    def fail_to_write(key, content):
        raise StoppedError("gone")

    failed = watched(store, monkeypatch, fail_to_write, times=1)
    with claim:
        assert failed.wait(30)
    assert store.names("claims") == []


def test_what_a_claim_says():
    assert json.loads(claim_content("me", 60.0, 3)) == {"by": "me", "lease": 60.0, "beat": 3}
