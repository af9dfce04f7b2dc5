"""Several processes on one run: the rows of one process, whatever happens to any of them. Processes are threads here.

tests/runners/test_shards_killed.py has processes that are killed.
"""

import json
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest

from _helpers import Recorder, audit_command, plan_of, rows_of, run_audit, run_plan, workspace
from brinell.cli import run as cli
from brinell.core.errors import RequestError, SampleError, StoppedError
from brinell.core.model import Access, ModelInfo
from brinell.engine.progress import SilentProgress
from brinell.runners import local, shards
from brinell.runners.shard_worker import Shard, ShardWorker, choose_shard
from brinell.store.run import Run
from brinell.store.shared import AddressStore, FolderStore

ATTACKS = ("pgd?steps=2", "square?steps=6")
RNG = np.random.default_rng(1)
N = 14
X = np.stack([RNG.uniform(0.2, 0.55, N), RNG.uniform(0.3, 0.7, N)], 1).astype(np.float32)
Y = np.zeros(N, dtype=int)
EPS = "0.05:0.2:3"


def parabola(x):
    import torch

    z = 10 * (x[:, 0] + (x[:, 1] - 0.5) ** 2 - 0.5)
    return torch.stack([-z, z], 1)


def small_plan(model=None, **settings):
    # Groups of four samples, as many with any number of shards up to six.
    return plan_of(model or Recorder(parabola), X, Y, **({"eps": EPS, "attack": ATTACKS, "batch_size": 1} | settings))


def work(plan, out, shard="1/4", lease=60.0):
    """One process until the run is whole; returns its manifest, rows and name."""

    def answer(run, name):
        return run.manifest, run.records(), name

    arguments = {"command": "from a test", "page": lambda folder: (folder / "report.html").write_text("page"), "lease": lease}
    return shards.run(plan, out, Shard.parse(shard), SilentProgress(), answer=answer, **arguments)


def run_all(plans, out):
    """Several at once, each from its own shard; returns what they answer, and what they raised."""
    answers, errors = [], []

    def run_shard(number, plan):
        try:
            answers.append(work(plan, out, f"{number}/{len(plans)}"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run_shard, args=(number, plan), daemon=True) for number, plan in enumerate(plans, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not any(thread.is_alive() for thread in threads), "a worker waits for what nobody does"
    return answers, errors


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    return run_plan(small_plan(), tmp_path_factory.mktemp("whole") / "run")


def equal(first, second):
    """The same rows in every bit but seconds, the same inputs, the same remarks and files."""
    assert rows_of(first.records()) == rows_of(second.records())
    assert sorted(first.digests()) == sorted(second.digests())
    ids = range(N)
    for stage in first.manifest["stages"]:
        a, b = (run.adversarial("recorder", stage["name"], ids) for run in (first, second))
        assert a.keys() == b.keys() and all(a[sample].tobytes() == b[sample].tobytes() for sample in a)
    for key in ("checks", "remarks", "failed", "warnings", "probes", "answers", "cells", "eps", "state"):
        assert first.manifest.get(key) == second.manifest.get(key), key


@pytest.mark.slow
def test_the_run_is_that_of_one_process(tmp_path, full_run):
    workers = 3
    out = tmp_path / "run"
    answers, errors = run_all([small_plan() for _ in range(workers)], out)
    assert not errors and len(answers) == workers
    equal(Run.open(out), full_run)
    assert not (out / "shards").exists() and (out / "report.html").exists()
    assert all(rows_of(records) == rows_of(full_run.records()) for _, records, _ in answers)
    assert Run.open(out).manifest["seconds"]["recorder"] > 0


@pytest.mark.slow
def test_in_a_store_that_is_no_folder(tmp_path, full_run):
    address = f"memory://{tmp_path.name}"
    answers, errors = run_all([small_plan(), small_plan()], address)
    assert not errors and [name for *_, name in answers] == [address] * 2
    store = AddressStore(address)
    for name in ("manifest.json", "report.html", "run.toml", *(f"{file}" for file in full_run.digests())):
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read(name))
    equal(Run.open(tmp_path / "copy"), full_run)
    assert store.names("shards") == [] and store.names("shards/claims") == []


@pytest.mark.slow
def test_the_work_is_shared_and_none_of_it_is_done_twice(tmp_path):
    single_model, models = Recorder(parabola), [Recorder(parabola) for _ in range(2)]
    run_plan(small_plan(single_model), tmp_path / "alone")
    _, errors = run_all([small_plan(model) for model in models], tmp_path / "run")
    assert not errors
    queries = [model.queries for model in models]
    # Beside its groups each asks for the kind of answers and for the looks at the end, and one of them makes the checks.
    assert sum(queries) < 1.4 * single_model.queries, "more than one of them made the same groups"


class Dies(Recorder):
    """Raises at a call, as a process that ends with a traceback."""

    def __init__(self, change):
        super().__init__(parabola)
        self.change = change

    def predict(self, x):
        if len(self.calls) >= self.change:
            raise KeyboardInterrupt
        return super().predict(x)


@pytest.mark.slow
def test_one_that_is_interrupted_leaves_its_work_to_the_next(tmp_path_factory, full_run, subtests):
    for interruption in [0, 3, 20, 150]:
        with subtests.test(str((interruption,))):
            tmp_path = tmp_path_factory.mktemp("row")
            out = tmp_path / "run"
            with pytest.raises(KeyboardInterrupt):
                work(small_plan(Dies(interruption)), out, "3/4")
            assert (out / "shards" / "plan.json").exists() and FolderStore(out).names("shards/claims") == []
            model = Recorder(parabola)
            work(small_plan(model), out, "1/4")
            equal(Run.open(out), full_run)


@pytest.mark.slow
def test_what_is_there_is_not_computed_again(tmp_path):
    out, single_model, second = tmp_path / "run", Recorder(parabola), Recorder(parabola)
    run_plan(small_plan(single_model), tmp_path / "alone")
    first = Dies(int(0.9 * len(single_model.calls)))
    with pytest.raises(KeyboardInterrupt):
        work(small_plan(first), out)
    work(small_plan(second), out)
    assert second.queries < 0.5 * single_model.queries


class Killed(BaseException):
    """Like kill -9: the process cleans nothing up."""


def killed(out, change, monkeypatch):
    """Work until the change of the store with this number, which never comes about, nor any after it; the number of changes."""
    count = 0

    def stop(original):
        def instead(self, key, *args):
            nonlocal count
            working = threading.current_thread() is threading.main_thread()
            count += working  # signs of life come by the clock, and are not counted
            if count < change:
                return original(self, key, *args)
            raise Killed if working else StoppedError("dead")

        return instead

    with monkeypatch.context() as patch:
        for name in ("create", "write", "delete", "drop"):
            patch.setattr(FolderStore, name, stop(getattr(FolderStore, name)))
        try:
            work(small_plan(samples=6), out, lease=0.2)
        except Killed:
            assert count >= change
    return count


@pytest.mark.nightly
def test_killed_before_a_change_of_the_store(tmp_path, monkeypatch):
    """At claims, rows, what is done, the assembly and the clearing away: after each kill a new process ends the run."""
    full_run = run_plan(small_plan(samples=6), tmp_path / "whole")
    changes = killed(tmp_path / "counted", 10**6, monkeypatch)
    assert changes > 30, "claims, rows, arrays, what is done, of every shard, and the assembly"
    for change in sorted({1, 2, 3, 4, *range(5, changes - 4, 13), *range(changes - 4, changes + 1)}):
        out = tmp_path / str(change)
        killed(out, change, monkeypatch)
        work(small_plan(samples=6), out, "2/4", lease=0.2)
        equal(Run.open(out), full_run)
        assert not [path for path in out.rglob("*") if "shard" in path.name or ".tmp" in path.name]


def test_of_two_that_finish_one_shard_the_first_counts(tmp_path):
    """The rows and inputs that count are of one process, also where the two do not agree in every bit."""
    store = FolderStore(tmp_path / "store")
    peers_by_name = {}
    for me, outcome in (("first", 1.0), ("second", 2.0)):
        folder = tmp_path / me
        run = run_audit(folder, Recorder(parabola), X[:4], Y[:4], eps="0.1", attack=("pgd?steps=2",))
        records = replace(run.records(), seconds=np.full(len(run.records()), outcome, np.float32))
        run.save_shard("cell", "key", records, {0: np.full(2, outcome, np.float32)})
        peers_by_name[me] = shards.ShardPeers(ShardWorker(store, Shard(1, 2), me), folder, 8)
        assert peers_by_name[me].finish("cell", "key", shards.ShardReport(seconds=outcome)) == (me == "first")
    assert len(store.names("shards/rows")) == len(store.names("shards/arrays")) == 1, "what does not count is not kept"
    reports = peers_by_name["second"].assembler(tmp_path / "second").collect("cell")
    assert reports["key"].seconds == 1.0
    run = Run(tmp_path / "second", run.manifest | {"state": "running"})
    assert set(run.shard("cell", "key").seconds.tolist()) == {1.0}
    stored = run._read_arrays([run.path / "arrays" / "shard-cell-key.safetensors"], [0])
    assert stored[0].tolist() == [1.0, 1.0]


def test_a_damaged_shard_is_named_and_made_again(tmp_path, full_run):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        work(small_plan(Dies(150)), out)
    rows = sorted((out / "shards" / "rows").iterdir())[-1]
    rows.write_bytes(rows.read_bytes()[:-9])
    cell, key = rows.name.split("-")[:2]
    with pytest.raises(RequestError, match=f"rows/{rows.name} in the store is damaged .*delete shards/done/{cell}/{key}.json"):
        work(small_plan(), out)
    (out / "shards" / "done" / cell / f"{key}.json").unlink()
    work(small_plan(), out)
    equal(Run.open(out), full_run)


class Fails(Recorder):
    """Cannot judge one sample."""

    def predict(self, x):
        if (abs(x[:, 0] - float(X[7, 0])) < 1e-6).any() and len(x) and not bool((x == 0).all()):
            raise SampleError("this one cannot be read")
        return super().predict(x)


@pytest.mark.slow
def test_samples_that_cannot_be_judged_are_told_of_once(tmp_path):
    single_run = run_plan(small_plan(Fails(parabola), samples=9), tmp_path / "alone")
    _, errors = run_all([small_plan(Fails(parabola), samples=9) for _ in range(2)], tmp_path / "run")
    assert not errors and single_run.manifest["failed"]["recorder"]["clean"] == {"7": "this one cannot be read"}
    equal(Run.open(tmp_path / "run"), single_run)


def test_another_run_is_refused(tmp_path_factory, subtests):
    for changed, reason in [
        ({"eps": "0.1:0.2:2"}, "eps was '0.05:0.2:3' and is '0.1:0.2:2'"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"samples": 5}, "samples was None and is 5"),
    ]:
        with subtests.test(str((changed, reason))):
            tmp_path = tmp_path_factory.mktemp("row")
            with pytest.raises(KeyboardInterrupt):
                work(small_plan(Dies(20)), tmp_path / "run")
            with pytest.raises(RequestError, match=f"holds another run .*{reason}"):
                work(small_plan(**changed), tmp_path / "run")


def test_another_number_of_shards_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        work(small_plan(Dies(20)), tmp_path / "run", "3/4")
    with pytest.raises(RequestError, match="was begun in 4 shards: give --shard 4/4"):
        work(small_plan(), tmp_path / "run", "7/8")


def test_a_run_without_shards_is_left_alone(tmp_path, full_run):
    out = tmp_path / "run"
    shutil.copytree(full_run.path, out)
    manifest = full_run.manifest | {"state": "running"}
    local.LAYOUT.save(out, manifest)
    with pytest.raises(RequestError, match="was begun without --shard: go on with it by --resume, without --shard"):
        work(small_plan(), out)


def test_who_comes_late_gets_the_figures(tmp_path, full_run):
    shutil.copytree(full_run.path, tmp_path / "run")
    content = (tmp_path / "run" / "manifest.json").read_bytes()
    model = Recorder(parabola)
    manifest, records, _ = work(small_plan(model), tmp_path / "run")
    assert rows_of(records) == rows_of(full_run.records()) and model.queries == 0
    assert (tmp_path / "run" / "manifest.json").read_bytes() == content and manifest["state"] == "finished"
    with pytest.raises(RequestError, match="holds another run"):
        work(small_plan(seed=3), tmp_path / "run")


def test_more_shards_than_samples_cut_no_group_to_pieces(tmp_path, full_run):
    work(small_plan(batch_size=64), tmp_path / "run", "1/1000")
    plan = json.dumps(Run.open(tmp_path / "run").manifest["request"]["batch_size"])
    assert plan == "64"

    def peers(of, group):
        return shards.ShardPeers(ShardWorker(FolderStore(tmp_path), Shard(1, of), "me"), tmp_path, group)

    assert [peers(1000, 256).group_size(256, n) for n in (0, 14, 16, 100)] == [1, 14, 8, 8]
    assert [peers(4, 256).group_size(256, n) for n in (100, 101, 2000)] == [25, 25, 250]
    assert [peers(1, 256).group_size(256, n) for n in (14, 2000)] == [256, 256], "as one process alone cuts them"
    assert peers(4, 16).group_size(256, 100) == 12, "eight groups, since four would be too large"
    assert [peers(of, 256).last_group_size(100, 0) for of in (1, 2, 3, 1000)] == [100, 50, 34, 25]
    assert [peers(4, 256).last_group_size(waiting, 0) for waiting in (1, 8, 15, 16, 17)] == [1, 8, 15, 8, 9]
    assert [peers(4, 256).last_group_size(waiting, 1) for waiting in (1, 7, 8, 30)] == [0, 0, 8, 10]
    assert [peers(2, 256).last_group_size(waiting, 1) for waiting in (7, 8, 30)] == [0, 8, 30]
    assert [peers(16, 256).last_group_size(30, under_way) for under_way in (0, 1, 2, 9)] == [10, 10, 0, 0]


def test_shards_are_two_numbers(subtests):
    for text in ["", "3", "0/4", "5/4", "a/b", "1/0", "-1/4", "1/1000000", "1/4/2"]:
        with subtests.test(str((text,))):
            with pytest.raises(RequestError, match="give a number from 1 and how many there are, such as 3/16"):
                Shard.parse(text)


def test_a_run_in_shards_is_not_begun_without(tmp_path):
    out = tmp_path / "run"
    assert choose_shard(out, None, resume=False) is None and choose_shard(out, Shard(2, 3), resume=False) == Shard(2, 3)
    with pytest.raises(KeyboardInterrupt):
        work(small_plan(Dies(20)), out, "3/4")
    with pytest.raises(RequestError, match="holds a run in 4 shards that is not whole: work on it with --shard 1/4, go on with"):
        choose_shard(out, None, resume=False)
    assert choose_shard(out, None, resume=True) == Shard(1, 4)
    assert choose_shard("memory://nothing", None, resume=False) == Shard(1, 1)


class Served(Recorder):
    """A model on another machine, which counts what it is asked."""

    access, served = Access.SCORES, {}

    def __init__(self):
        super().__init__(parabola)
        self.info, self.reported = ModelInfo(server=self), 0

    def remarks(self):
        return ()

    def traffic(self):
        new, self.reported = self.queries - self.reported, self.queries
        return {"inputs": new} if new else {}


@pytest.mark.slow
def test_what_a_server_was_asked_by_all_is_counted(tmp_path):
    settings = {"attack": ("square?steps=6",), "samples": 9}
    single_model, models = Served(), [Served(), Served()]
    single_run = run_plan(small_plan(single_model, **settings), tmp_path / "alone")
    _, errors = run_all([small_plan(model, **settings) for model in models], tmp_path / "run")
    assert not errors
    inputs = Run.open(tmp_path / "run").manifest["traffic"]["recorder"]["inputs"]
    assert single_run.manifest["traffic"]["recorder"]["inputs"] == single_model.queries
    queries = sum(model.queries for model in models)
    # Beside the shards each process looks at clean inputs at its end, and one of the two counts none of its own checks.
    assert 0.5 * single_model.queries < inputs <= queries


@pytest.mark.slow
def test_a_model_of_labels_alone(tmp_path):
    class Labels(Recorder):
        access = Access.LABELS

    settings = {"attack": ("hop-skip-jump?steps=1",), "eps": "0.1, 0.2", "samples": 6, "queries": 40}
    single_run = run_plan(small_plan(Labels(parabola), **settings), tmp_path / "alone")
    _, errors = run_all([small_plan(Labels(parabola), **settings) for _ in range(2)], tmp_path / "run")
    assert not errors
    equal(Run.open(tmp_path / "run"), single_run)


@pytest.mark.slow
def test_the_command_line_goes_on_with_nothing_but_an_address(tmp_path, monkeypatch, capsys):
    """The command that an interrupted run prints resumes it, and a late process sees the same figures."""
    work, out = workspace(tmp_path), f"memory://{tmp_path.name}"
    words = audit_command(work)
    words += ["--attack", "pgd?steps=2", "--batch-size", "2"]
    monkeypatch.setenv("TEST_CALLS", "0")
    assert cli([*words, "--out", str(tmp_path / "alone")]) == 0
    figures = capsys.readouterr().out.partition("report:")[0]
    monkeypatch.setenv("TEST_CALLS", "0")
    monkeypatch.setenv("TEST_INTERRUPT_AT", "20")
    assert cli([*words, "--out", out, "--shard", "2/3"]) == 130
    assert f"go on with brinell audit --shard 2/3 --resume --out {out}" in capsys.readouterr().err
    assert cli([*words, "--out", out]) == 2
    assert f"{out} holds a run in 3 shards that is not whole: work on it with --shard 1/3" in capsys.readouterr().err
    assert cli(["audit", "--shard", "2/3", "--resume", "--out", out]) == 0
    output = capsys.readouterr().out
    assert output == f"{figures}report: {out}/report.html\n"
    assert cli(["audit", "--shard", "1/3", "--resume", "--out", out]) == 0
    assert capsys.readouterr().out == output
    assert cli([*words, "--shard", "1/3"]) == 2
    assert "--shard needs --out" in capsys.readouterr().err
