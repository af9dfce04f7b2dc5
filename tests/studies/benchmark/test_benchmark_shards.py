"""A benchmark set that several processes make together: the set of one process, whatever happens to any of them."""

import threading

import pytest

from _helpers import in_a_process_of_its_own
from _sets import same_set, words
from brinell.cli import run as cli
from brinell.engine.progress import Silent
from brinell.engine.toml import checked
from brinell.runners import parts
from brinell.runners.meeting import Shard
from brinell.store.shared import AddressStore, FolderStore
from brinell.studies.benchmark.part import Part
from brinell.studies.benchmark.plan import make_plan
from brinell.studies.benchmark.records import BenchmarkSet
from brinell.studies.benchmark.request import BenchmarkRequest
from brinell.studies.benchmark.run import make_set

BENCH = "brinell.studies.benchmark.run"


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch):
    monkeypatch.setitem(parts.together.__kwdefaults__, "lease", 0.2)


def plan_of(work):
    given = words(work, "nowhere")[1:]
    pairs = {name.removeprefix("--").replace("-", "_"): value for name, value in zip(given[::2], given[1::2], strict=True)}
    numbers = {name: int(pairs.pop(name)) for name in ("steps", "refine")}
    del pairs["out"]
    return make_plan(checked(BenchmarkRequest, pairs | numbers))


@pytest.mark.parametrize("address", [False, True])
def test_the_set_is_that_of_one_process(work, made, tmp_path, monkeypatch, address):
    asked, answers, errors = [], [], []
    monkeypatch.setattr(f"{BENCH}.Part", lambda plan, at, progress: asked.append(at.start) or Part(plan, at, progress))
    out = f"memory://{tmp_path.name}" if address else tmp_path / "set"
    plans = [plan_of(work) for _ in range(2)]

    def one(number, plan):
        try:
            shard = Shard(number, 2)
            answers.append(make_set(plan, out, Silent(), command="a test", resume=False, shard=shard))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=pair) for pair in enumerate(plans, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and sorted(asked) == [0, 5, 10], "each part once, and by one of them"
    assert answers[0] == answers[1] and answers[0].folder == str(out) and answers[0].samples == 12
    if not address:
        assert not [path for path in out.rglob("*") if path.name in ("shards", ".blocks", ".parts")]
        whole = BenchmarkSet(out, 3, plans[0].form, {})
        assert "".join(f"{value}  {name}\n" for name, value in whole.sums().items()) == (out / "SHA256SUMS").read_text()
        same_set(made, out)
        return
    store, files = AddressStore(out), [path.relative_to(made) for path in made.rglob("*.*") if path.name[0] != "."]
    for path in files:
        copy = tmp_path / "copy" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(store.read(path.as_posix()))
    same_set(made, tmp_path / "copy")
    assert not store.names("shards") and not store.names("shards/claims") and not store.names("shards/files")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("at", [60, pytest.param(2, marks=pytest.mark.slow), pytest.param(75, marks=pytest.mark.slow)])
def test_one_that_is_killed_leaves_its_work_to_the_next(work, made, tmp_path, at):
    out = tmp_path / "set"
    assert in_a_process_of_its_own(words(work, out, "--shard", "2/2"), TEST_KILL_AT=str(at), TEST_CALLS="0") == -9
    assert FolderStore(out).names("shards/claims"), "a process that was killed gives nothing back"
    done = {path: path.stat().st_mtime_ns for path in (out / "shards/done/part").glob("*")}
    assert bool(done) == (at > 2) and not (out / "manifest.json").exists()
    assert cli(["benchmark", "--resume", "--quiet", "--out", str(out)]) == 0
    same_set(made, out)
    assert not (out / "shards").exists()


def test_blocks_of_a_part_are_shared(work, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{BENCH}.BLOCK_SECONDS", 0.0)
    small = ["--samples", "6"]
    assert cli(words(work, tmp_path / "alone", *small)) == 0
    calls = []
    monkeypatch.setattr(f"{BENCH}.Part", lambda plan, at, progress: calls.append((at.start, at.stop)) or Part(plan, at, progress))
    assert cli(words(work, tmp_path / "set", *small, "--shard", "3/4")) == 0
    assert sorted(calls) == [(0, 4), (4, 5), (5, 6)]
    assert calls[0] == (4, 5), "where its shard begins"
    same_set(tmp_path / "alone", tmp_path / "set")


def refusal(given, capsys):
    assert cli(list(given)) == 2
    return capsys.readouterr().err


def test_what_does_not_fit_is_refused_in_a_line(work, made, tmp_path, monkeypatch, capsys):
    out = tmp_path / "set"

    def refused(*given):
        return refusal(given, capsys)

    assert "--shard needs --out" in refused(*words(work, out)[:-2], "--shard", "1/2")
    assert "give a number from 1 and how many there are" in refused(*words(work, out, "--shard", "0/4"))
    with monkeypatch.context() as patch:
        patch.setenv("TEST_INTERRUPT_AT", "40")
        assert cli(words(work, out, "--shard", "1/2")) == 130
    assert f"go on with brinell benchmark --shard 1/2 --resume --out {out}" in capsys.readouterr().err
    assert "was begun in 2 shards: give --shard 2/2" in refused(*words(work, out, "--shard", "3/4"))
    assert "holds another benchmark set (levels was '1,2,40' and is '1,2')" in refused(
        *words(work, out, "--shard", "1/2", levels="1,2")
    )
    assert "holds a benchmark set in 2 shards that is not whole: work on it with --shard 1/2" in refused(*words(work, out))
    assert cli(["benchmark", "--shard", "1/2", "--resume", "--out", str(out)]) == 0
    same_set(made, out)
    figures = capsys.readouterr().out
    assert cli(["benchmark", "--shard", "2/2", "--resume", "--out", str(out)]) == 0
    assert capsys.readouterr().out == figures, "who comes late gets the figures"


def test_other_folders_are_left_alone(work, tmp_path, monkeypatch, capsys):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    assert "is not empty, and a benchmark set needs a folder" in refusal(
        words(work, tmp_path / "other", "--shard", "1/2"), capsys
    )
    with monkeypatch.context() as patch:
        patch.setenv("TEST_CALLS", "0")
        patch.setenv("TEST_INTERRUPT_AT", "40")
        assert cli(words(work, tmp_path / "plain")) == 130
    told = "holds a benchmark set that was begun without --shard: go on with it by --resume, without --shard"
    assert told in refusal(words(work, tmp_path / "plain", "--shard", "1/2"), capsys)
