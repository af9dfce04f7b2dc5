"""Benchmark sets that were stopped or killed lose no result and count no query twice."""

import pytest

from _helpers import run_in_process
from _sets import assert_same_set, benchmark_arguments
from brinell.cli import run as cli
from brinell.studies.benchmark import run
from brinell.studies.benchmark.search import BenchmarkSearch


def test_another_batch_size(work, benchmark_set, tmp_path):
    assert cli(benchmark_arguments(work, tmp_path / "set", "--batch-size", "3")) == 0
    assert_same_set(benchmark_set, tmp_path / "set")


def test_what_is_done_is_kept(work, benchmark_set, tmp_path, monkeypatch):
    """A resumed run makes the missing pieces and the same set."""
    spans: list[slice] = []

    class Stopped(BenchmarkSearch):
        def __init__(self, plan, span, progress):
            if len(spans) == stop:
                raise KeyboardInterrupt
            spans.append(span)
            super().__init__(plan, span, progress)

    monkeypatch.setattr(run, "BenchmarkSearch", Stopped)
    out = tmp_path / "set"
    for stop in (1, 2, None):
        code = (
            cli(benchmark_arguments(work, out))
            if stop == 1
            else cli(["benchmark", "--resume", "--out", str(out)])
        )
        assert code == (0 if stop is None else 130), stop
    assert [span.start for span in spans] == [0, 5, 10], "a piece was made twice"
    assert_same_set(benchmark_set, out)
    assert cli(benchmark_arguments(work, out, "--resume")) == 0, "a complete set must not change"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.slow
def test_sigkill(work, benchmark_set, tmp_path):
    out = tmp_path / "set"
    assert run_in_process(benchmark_arguments(work, out), TEST_KILL_AT="85", TEST_CALLS="0") == -9
    times = {path: path.stat().st_mtime_ns for path in (out / "data").glob("*")}
    assert times and not (out / "README.md").exists()
    assert cli(["benchmark", "--resume", "--out", str(out)]) == 0
    assert_same_set(benchmark_set, out)
    assert all(path.stat().st_mtime_ns == time for path, time in times.items()), (
        "a piece was made twice"
    )
