"""Environment of every test: a separate cache, one thread, and the real data if it is present."""

import itertools
import os
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

pytest_plugins = ("ceilings", "runs")
ROOT = Path(__file__).resolve().parent.parent
HANG = 3600
"""Seconds on the clock after which a slow test hangs; what it may take of the processor stands in
tests/ceilings.py, since a shared core makes a test long and not dear."""
SHARED = Path(os.environ.get("BRINELL_SHARED", ROOT.parent / "shared" / "data")).resolve()

# No deadline: a loaded machine is not a bug. In CI the examples are the same on every run.
hypothesis.settings.register_profile(
    "brinell",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("brinell")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle",
        metavar="SEED",
        help="files, and the tests of each, in an order drawn with a number, or 'reversed'",
    )


def pytest_configure() -> None:
    # Workers of pytest-xdist share the cores; more threads each would only make them wait for one
    # another.
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _weights(request: pytest.FixtureRequest) -> None:
    """Seeds the weights of layers by test, so that failures repeat independent of earlier tests."""
    torch.default_generator.manual_seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout that is being tested."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and weights; a test that asks for it is skipped where it is not
    there.
    """
    if not (SHARED / "SHA256SUMS.txt").is_file():
        pytest.skip(
            f"no real data in {SHARED}: set BRINELL_SHARED to the folder that "
            "holds mnist/ and cifar10/"
        )
    return SHARED


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for the session, one for all workers: the built-in model is trained once, never at
    home. And where the data lie.
    """
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    cache.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BRINELL_CACHE", str(cache))
        patch.setenv("COLUMNS", "80")  # whatever the terminal of whoever runs the tests
        patch.setenv(
            "BRINELL_SHARED", str(SHARED)
        )  # an example that a test copies elsewhere finds the data too
        yield cache


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "shared" in getattr(item, "fixturenames", ()):
            item.add_marker("shared")
        if any(
            item.get_closest_marker(name) for name in ("slow", "nightly")
        ) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(HANG))
    if seed := config.getoption("--shuffle"):
        items[:] = shuffled(items, seed)


def shuffled(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """The tests in another order, in which those of a file stay together: what a file makes once is
    still made once.
    """
    if seed == "reversed":
        return items[::-1]
    files = [list(tests) for _, tests in itertools.groupby(items, key=lambda item: item.path)]
    rng = random.Random(int(seed))
    rng.shuffle(files)
    return [item for tests in files for item in rng.sample(tests, len(tests))]
