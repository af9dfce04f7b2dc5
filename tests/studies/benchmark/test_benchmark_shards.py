"""Several processes make the same benchmark set as a single process, also after interruptions."""

import threading

import pytest

from _helpers import run_in_process
from _sets import assert_same_set, benchmark_arguments
from brinell.cli import run as cli
from brinell.engine.progress import SilentProgress
from brinell.engine.toml import parse_request
from brinell.runners import parts
from brinell.runners.shard_worker import Shard
from brinell.store.shared import AddressStore, FolderStore
from brinell.studies.benchmark.part import BenchmarkPart
from brinell.studies.benchmark.plan import make_plan
from brinell.studies.benchmark.records import BenchmarkSet
from brinell.studies.benchmark.request import BenchmarkRequest
from brinell.studies.benchmark.run import make_set

BENCH = "brinell.studies.benchmark.run"


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch):
    monkeypatch.setitem(parts.make_in_shards.__kwdefaults__, "lease", 0.2)


def plan_of(work):
    arguments = benchmark_arguments(work, "nowhere")[1:]
    pairs = {
        name.removeprefix("--").replace("-", "_"): value for name, value in zip(arguments[::2], arguments[1::2], strict=True)
    }
    numbers = {name: int(pairs.pop(name)) for name in ("steps", "refine")}
    del pairs["out"]
    return make_plan(parse_request(BenchmarkRequest, pairs | numbers))


@pytest.mark.parametrize("address", [False, True])
@pytest.mark.slow
def test_the_set_is_that_of_one_process(work, benchmark_set, tmp_path, monkeypatch, address):
    starts, answers, errors = [], [], []
    monkeypatch.setattr(
        f"{BENCH}.BenchmarkPart", lambda plan, span, progress: starts.append(span.start) or BenchmarkPart(plan, span, progress)
    )
    out = f"memory://{tmp_path.name}" if address else tmp_path / "set"
    plans = [plan_of(work) for _ in range(2)]

    def make_shard(number, plan):
        try:
            shard = Shard(number, 2)
            answers.append(make_set(plan, out, SilentProgress(), command="a test", resume=False, shard=shard))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make_shard, args=pair) for pair in enumerate(plans, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and sorted(starts) == [0, 5, 10], "a part was made twice"
    assert answers[0] == answers[1] and answers[0].folder == str(out) and answers[0].samples == 12
    if not address:
        assert not [path for path in out.rglob("*") if path.name in ("shards", ".blocks", ".parts")]
        benchmark = BenchmarkSet(out, 3, plans[0].form, {})
        assert "".join(f"{value}  {name}\n" for name, value in benchmark.checksums().items()) == (out / "SHA256SUMS").read_text()
        assert_same_set(benchmark_set, out)
        return
    store, files = (
        AddressStore(out),
        [path.relative_to(benchmark_set) for path in benchmark_set.rglob("*.*") if path.name[0] != "."],
    )
    for path in files:
        copy = tmp_path / "copy" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(store.read(path.as_posix()))
    assert_same_set(benchmark_set, tmp_path / "copy")
    assert not store.names("shards") and not store.names("shards/claims") and not store.names("shards/files")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("calls", [2, 60])
@pytest.mark.slow
def test_one_that_is_killed_leaves_its_work_to_the_next(work, benchmark_set, tmp_path, calls):
    out = tmp_path / "set"
    assert run_in_process(benchmark_arguments(work, out, "--shard", "2/2"), TEST_KILL_AT=str(calls), TEST_CALLS="0") == -9
    assert FolderStore(out).names("shards/claims"), "a killed process keeps its claims"
    times = {path: path.stat().st_mtime_ns for path in (out / "shards/done/part").glob("*")}
    assert bool(times) == (calls > 2) and not (out / "manifest.json").exists()
    assert cli(["benchmark", "--resume", "--quiet", "--out", str(out)]) == 0
    assert_same_set(benchmark_set, out)
    assert not (out / "shards").exists()


@pytest.mark.slow
def test_blocks_of_a_part_are_shared(work, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{BENCH}.BLOCK_SECONDS", 0.0)
    small = ["--samples", "6"]
    assert cli(benchmark_arguments(work, tmp_path / "alone", *small)) == 0
    calls = []
    monkeypatch.setattr(
        f"{BENCH}.BenchmarkPart",
        lambda plan, span, progress: calls.append((span.start, span.stop)) or BenchmarkPart(plan, span, progress),
    )
    assert cli(benchmark_arguments(work, tmp_path / "set", *small, "--shard", "3/4")) == 0
    assert sorted(calls) == [(0, 4), (4, 5), (5, 6)]
    assert calls[0] == (4, 5), "a process begins with its own shard"
    assert_same_set(tmp_path / "alone", tmp_path / "set")


def refusal(arguments, capsys):
    assert cli(list(arguments)) == 2
    return capsys.readouterr().err


@pytest.mark.slow
def test_what_does_not_fit_is_refused_in_a_line(work, benchmark_set, tmp_path, monkeypatch, capsys):
    out = tmp_path / "set"

    def refuse(*arguments):
        return refusal(arguments, capsys)

    assert "--shard needs --out" in refuse(*benchmark_arguments(work, out)[:-2], "--shard", "1/2")
    assert "give a number from 1 and how many there are" in refuse(*benchmark_arguments(work, out, "--shard", "0/4"))
    with monkeypatch.context() as patch:
        patch.setenv("TEST_INTERRUPT_AT", "40")
        assert cli(benchmark_arguments(work, out, "--shard", "1/2")) == 130
    assert f"go on with brinell benchmark --shard 1/2 --resume --out {out}" in capsys.readouterr().err
    assert "was begun in 2 shards: give --shard 2/2" in refuse(*benchmark_arguments(work, out, "--shard", "3/4"))
    assert "holds another benchmark set (levels was '1,2,40' and is '1,2')" in refuse(
        *benchmark_arguments(work, out, "--shard", "1/2", levels="1,2")
    )
    assert "holds a benchmark set in 2 shards that is not whole: work on it with --shard 1/2" in refuse(
        *benchmark_arguments(work, out)
    )
    assert cli(["benchmark", "--shard", "1/2", "--resume", "--out", str(out)]) == 0
    assert_same_set(benchmark_set, out)
    figures = capsys.readouterr().out
    assert cli(["benchmark", "--shard", "2/2", "--resume", "--out", str(out)]) == 0
    assert capsys.readouterr().out == figures, "a late process prints the figures"


def test_other_folders_are_left_alone(work, tmp_path, monkeypatch, capsys):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    assert "is not empty, and a benchmark set needs an empty folder" in refusal(
        benchmark_arguments(work, tmp_path / "other", "--shard", "1/2"), capsys
    )
    with monkeypatch.context() as patch:
        patch.setenv("TEST_CALLS", "0")
        patch.setenv("TEST_INTERRUPT_AT", "40")
        assert cli(benchmark_arguments(work, tmp_path / "plain")) == 130
    message = "holds a benchmark set that was begun without --shard: go on with it by --resume, without --shard"
    assert message in refusal(benchmark_arguments(work, tmp_path / "plain", "--shard", "1/2"), capsys)
