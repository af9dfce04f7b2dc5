"""Transfers that several processes share, and resumed transfers: the rows equal those of one uninterrupted process."""

import threading

import numpy as np
import pytest

import brinell
from _helpers import Recorder, assert_resume_rules, run_in_process, threshold, workspace
from _refusals import refused
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.runners import parts
from brinell.store.files import digest
from brinell.store.parquet import to_table
from brinell.store.shared import AddressStore, FolderStore
from brinell.studies.transfer import run as transfer_run
from brinell.studies.transfer.records import TABLE

RNG = np.random.default_rng(3)
N = 14
X = RNG.uniform(0.2, 0.6, (N, 2)).astype(np.float32)
Y = np.zeros(N, dtype=int)


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch):
    monkeypatch.setitem(parts.make_in_shards.__kwdefaults__, "lease", 0.2)


def table(folder):
    return to_table(TABLE.read(folder).rows)


def run_transfer(out, limits=(0.5, 0.6), **options):
    """Run a transfer of four slices with up to four samples each; returns the result and the models."""
    models = [Recorder(threshold(limit), name=f"at{limit:g}") for limit in limits]
    return brinell.transfer(model=models, data=(X, Y), **({"eps": 0.15, "batch_size": 1, "out": out} | options)), models


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return run_transfer(tmp_path_factory.mktemp("reference") / "t")


def check_equal(folder, reference):
    transfer, expected = TABLE.read(folder), TABLE.read(reference[0].folder)
    assert table(folder) == table(reference[0].folder)
    assert [digest(folder / f"examples/{number:03d}.safetensors") for number in (0, 1)] == [
        digest(expected.path / f"examples/{number:03d}.safetensors") for number in (0, 1)
    ]
    for key in ("passes", "sources", "models", "cell", "request"):
        values = [run.manifest[key] for run in (transfer, expected)]
        if key == "sources":
            values = [
                [{name: value for name, value in source.items() if name != "seconds"} for source in sources] for sources in values
            ]
        assert values[0] == values[1], key
    assert (folder / "report.html").exists() and not [path for path in folder.iterdir() if path.name in (".parts", "shards")]


@pytest.mark.parametrize("address", [False, True])
def test_the_rows_are_those_of_one_process(reference, tmp_path, address):
    out, answers, errors = f"memory://{tmp_path.name}" if address else tmp_path / "t", [], []

    def work(number):
        try:
            answers.append(run_transfer(out, shard=f"{number}/2"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and [answer.folder for answer, _ in answers] == [str(out)] * 2
    passes, expected = (sum(model.queries for _, models in runs for model in models) for runs in (answers, [reference]))
    assert expected <= passes <= 1.1 * expected, "no part is computed twice"
    assert answers[0][0] == answers[1][0] and answers[0][0].cells == reference[0].cells
    if address:
        store = AddressStore(out)
        assert store.names("shards") == store.names(".parts") == []
        assert {"manifest.json", "run.toml", "report.html", "rows.parquet"} <= set(store.names("")) and store.names("examples")
    else:
        check_equal(out, reference)


class Stopped(Exception):
    """Interrupts a process in the middle of its work."""


@pytest.mark.parametrize("shard", [None, "2/3"])
def test_what_is_done_is_not_made_again(reference, tmp_path, monkeypatch, shard):
    out, calls, make = tmp_path / "t", [], transfer_run.make_slice

    def stop_after_five(plan, source, models, rows):
        if len(calls) == 5:
            raise Stopped
        calls.append((source.name, rows.start))
        return make(plan, source, models, rows)

    with monkeypatch.context() as patch:
        patch.setattr(transfer_run, "make_slice", stop_after_five)
        with pytest.raises(Stopped):
            run_transfer(out, shard=shard)
    assert not (out / "manifest.json").exists()
    assert_resume_rules(run_transfer, out, shard, "a transfer")
    with pytest.raises(RequestError, check=refused("runners.loop.refuse_request")):
        run_transfer(out, eps=0.1, resume=True)
    with pytest.raises(RequestError, check=refused("runners.loop.refuse_request")):
        run_transfer(out, limits=(0.5, 0.55), resume=True)
    monkeypatch.setattr(
        transfer_run, "make_slice", lambda plan, source, *arguments: calls.append(source.name) or make(plan, source, *arguments)
    )
    run_transfer(out, resume=True, batch_size=2)
    assert len(calls) == 8, "four slices of two sources, as in the first process"
    check_equal_rows(out, reference)
    _, models = run_transfer(out, resume=True)
    assert sum(model.queries for model in models) == 0, "a finished transfer is not computed again"


def check_equal_rows(folder, reference):
    assert table(folder) == table(reference[0].folder)
    assert not [path for path in folder.iterdir() if path.name in (".parts", "shards")]


def test_bad_shards_are_refused_in_a_line(tmp_path):
    with pytest.raises(RequestError, check=refused("runners.shard_worker.Shard.from_options")):
        run_transfer(None, shard="1/2")
    with pytest.raises(RequestError, check=refused("runners.shard_worker.Shard.parse")):
        run_transfer(tmp_path / "t", shard="0/4")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("shard", [("--shard", "1/2"), pytest.param((), marks=pytest.mark.slow)])
def test_one_that_is_killed_loses_what_it_worked_on_and_no_more(tmp_path, monkeypatch, shard):
    work = workspace(tmp_path, n=12)
    monkeypatch.setenv("TEST_CALLS", "0")
    model = f"torch:{work / 'model.py'}:parabola"
    arguments = ["transfer", "--data", f"npz:{work / 'data.npz'}", "--model", model, "--model", f"{model}?name=other&args=at=0.6"]
    arguments += ["--eps", "0.1", "--attack", "pgd?steps=3", "--batch-size", "1", "--quiet", "--out"]
    assert run_in_process([*arguments, str(work / "killed"), *shard], TEST_KILL_AT="60", TEST_CALLS="0") == -9
    assert bool(FolderStore(work / "killed").names("shards/claims")) == bool(shard)
    assert cli(["transfer", "--resume", "--quiet", "--out", str(work / "killed")]) == 0
    assert cli([*arguments, str(work / "reference")]) == 0
    assert table(work / "killed") == table(work / "reference")
    assert cli(["report", str(work / "killed")]) == 0
