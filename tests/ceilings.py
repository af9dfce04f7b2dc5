"""Ceilings of tests, enforced: processor seconds of a test and of a file, cases of a function.

A test without the mark `slow` or `nightly` takes at most one second of the processor, with its
children; a file eight. It fails above five times that, since processor time differs threefold from
run to run; those between are named at the end. A test with such a mark takes at most ten minutes of
the processor. What a session shares does not count: fixtures of tests/conftest.py and tests/runs.py
with the scope of a session, and imports.
"""

import collections
import importlib.machinery
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

TEST_SECONDS = 1.0
FILE_SECONDS = 8.0
MARKED_SECONDS = 600.0
"""Most processor seconds of a test with the mark `slow` or `nightly`."""
NOISE = 5
"""How much more than usual a run may take. What is between a ceiling and that is named, and does
not fail."""
CASES = 12
"""Cases of one test function; further rows go into a loop."""
LOOP_SECONDS = 0.0065
"""Processor seconds of `slowness`'s loop on an idle machine of the kind that the ceilings are
meant for."""


def processor_seconds() -> float:
    """Processor time of this process and its finished children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def slowness() -> float:
    """How many times slower than the reference the machine is right now; 1 for a faster one.

    Processes that wait for a core take the caches of those that run, which a loop does not see:
    twice as slow at most.
    """
    start = time.process_time()
    sum(number * number for number in range(200_000))
    crowding = min(2.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    return max(1.0, crowding, (time.process_time() - start) / LOOP_SECONDS)


class Meter:
    """Processor seconds since its creation, less what is exempt."""

    def __init__(self) -> None:
        self.exempt = 0.0
        self._depth = 0

    def seconds(self) -> float:
        """Processor seconds that count."""
        return processor_seconds() - self.exempt

    @contextmanager
    def exemption(self) -> Iterator[None]:
        """Time within does not count."""
        start, self._depth = processor_seconds(), self._depth + 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.exempt += processor_seconds() - start


METER = Meter()
SPENT = pytest.StashKey[float]()
"""Seconds of a test's setup that count for its file, and not for the test: fixtures that several
tests share."""
FILES: collections.Counter[str] = collections.Counter()
DEAR: collections.Counter[str] = collections.Counter()
"""Seconds of the tests above the ceiling, with the setup that others share."""


def _exempt_imports(loader: type) -> None:
    """First imports do not count: whichever test runs first would pay for them."""
    execute: Callable[..., None] = loader.exec_module

    def exec_module(self: Any, module: Any) -> None:
        with METER.exemption():
            execute(self, module)

    loader.exec_module = exec_module  # type: ignore[attr-defined]


for _loader in (
    importlib.machinery.SourceFileLoader,
    importlib.machinery.ExtensionFileLoader,
    AssertionRewritingHook,
):
    _exempt_imports(_loader)


def is_limited(item: pytest.Item) -> bool:
    """True if the ceilings hold for a test."""
    return not any(item.get_closest_marker(name) for name in ("slow", "nightly"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse functions with too many cases."""
    cases = collections.Counter(item.nodeid.split("[")[0] for item in items)
    excess = [f"{name}: {number} cases" for name, number in cases.items() if number > CASES]
    if excess:
        raise pytest.UsageError(
            f"at most {CASES} cases a function, further rows in a loop: " + "; ".join(excess)
        )


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Any:
    """Fixtures of the session count nowhere, those of a module or class for the file alone."""
    if fixturedef.scope == "session" and fixturedef.baseid in ("", "tests"):
        with METER.exemption():
            return (yield)
    start = METER.seconds()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            stash = request.config.stash
            stash[SPENT] = stash.get(SPENT, 0.0) + METER.seconds() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Measure the test with setup and teardown."""
    item.config.stash[SPENT] = 0.0
    item.stash[SPENT] = METER.seconds()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Fail a test above the ceiling."""
    outcome = yield
    seconds = METER.seconds() - item.stash[SPENT] - item.config.stash[SPENT]
    if not is_limited(item):
        if seconds > MARKED_SECONDS * slowness():
            pytest.fail(f"{seconds:.0f} s of the processor: {MARKED_SECONDS:g} s is the most")
        return outcome
    if seconds > TEST_SECONDS and seconds > NOISE * TEST_SECONDS * (slow := slowness()):
        pytest.fail(
            f"{seconds / slow:.1f} s of the processor: make it cheaper, share a "
            "finished run (tests/runs.py), or mark it slow"
        )
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Hand the seconds of a test to whoever adds them up."""
    if call.when == "teardown" and is_limited(item):
        item.user_properties.append(("seconds", METER.seconds() - item.stash[SPENT]))
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the seconds of a file."""
    if report.when == "teardown":
        seconds = dict(report.user_properties).get("seconds", 0.0)
        FILES[report.location[0]] += seconds
        if seconds > TEST_SECONDS:
            DEAR[report.nodeid] = seconds


def _files_above() -> list[str]:
    allowed = NOISE * FILE_SECONDS * slowness()
    return [
        f"{path}: {seconds:.1f} s" for path, seconds in FILES.most_common() if seconds > allowed
    ]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session in which a file is above its ceiling."""
    if not hasattr(session.config, "workerinput") and _files_above() and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the files above their ceiling, and the sum."""
    for line in _files_above():
        terminalreporter.line(
            f"above the ceiling of {FILE_SECONDS:g} s of the processor a file: {line}", red=True
        )
    for name, seconds in DEAR.most_common(5):
        terminalreporter.line(f"{seconds:.1f} s: {name}")
    terminalreporter.line(f"{sum(FILES.values()):.0f} s of the processor in tests")
