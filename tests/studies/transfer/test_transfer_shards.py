"""A transfer that several processes make, or one that was stopped goes on with: the rows of one that was left alone."""

import threading

import numpy as np
import pytest

import brinell
from _helpers import Recorder, in_a_process_of_its_own, refused_otherwise, threshold, workspace
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
    monkeypatch.setitem(parts.together.__kwdefaults__, "lease", 0.2)


def table(folder):
    return to_table(TABLE.read(folder).rows)


def made(out, limits=(0.5, 0.6), **more):
    """Four slices of up to four samples; returns the answer and the models."""
    models = [Recorder(threshold(limit), name=f"at{limit:g}") for limit in limits]
    return brinell.transfer(
        model=models, data=(X, Y), **({"eps": 0.15, "draws": 100, "batch_size": 1, "out": out} | more)
    ), models


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return made(tmp_path_factory.mktemp("alone") / "t")


def equal(folder, alone):
    one, other = TABLE.read(folder), TABLE.read(alone[0].folder)
    assert table(folder) == table(alone[0].folder)
    assert [digest(folder / f"examples/{number:03d}.safetensors") for number in (0, 1)] == [
        digest(other.path / f"examples/{number:03d}.safetensors") for number in (0, 1)
    ]
    for key in ("passes", "sources", "models", "cell", "request"):
        told = [run.manifest[key] for run in (one, other)]
        if key == "sources":
            told = [[{name: value for name, value in source.items() if name != "seconds"} for source in of] for of in told]
        assert told[0] == told[1], key
    assert (folder / "report.html").exists() and not [path for path in folder.iterdir() if path.name in (".parts", "shards")]


@pytest.mark.parametrize("address", [False, True])
def test_the_rows_are_those_of_one_process(alone, tmp_path, address):
    out, answers, errors = f"memory://{tmp_path.name}" if address else tmp_path / "t", [], []

    def one(number):
        try:
            answers.append(made(out, shard=f"{number}/2"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and [answer.folder for answer, _ in answers] == [str(out)] * 2
    shown, least = (sum(model.seen for _, models in of for model in models) for of in (answers, [alone]))
    assert least <= shown <= 1.1 * least, "nothing is made twice"
    assert answers[0][0] == answers[1][0] and answers[0][0].cells == alone[0].cells
    if address:
        store = AddressStore(out)
        assert store.names("shards") == store.names(".parts") == []
        assert {"manifest.json", "run.toml", "report.html", "rows.parquet"} <= set(store.names("")) and store.names("examples")
    else:
        equal(out, alone)


class Stopped(Exception):
    """Ends a process in the middle of its work."""


@pytest.mark.parametrize("shard", [None, "2/3"])
def test_what_is_done_is_not_made_again(alone, tmp_path, monkeypatch, shard):
    out, calls, make = tmp_path / "t", [], transfer_run.make_slice

    def counted(plan, source, models, at):
        if len(calls) == 5:
            raise Stopped
        calls.append((source.name, at.start))
        return make(plan, source, models, at)

    with monkeypatch.context() as patch:
        patch.setattr(transfer_run, "make_slice", counted)
        with pytest.raises(Stopped):
            made(out, shard=shard)
    assert not (out / "manifest.json").exists()
    refused_otherwise(made, out, shard, "a transfer")
    with pytest.raises(RequestError, match="holds another transfer .*eps was '0.15' and is '0.1'"):
        made(out, eps=0.1, resume=True)
    with pytest.raises(RequestError, match="holds another transfer .*model was"):
        made(out, limits=(0.5, 0.55), resume=True)
    monkeypatch.setattr(
        transfer_run, "make_slice", lambda plan, source, *more: calls.append(source.name) or make(plan, source, *more)
    )
    made(out, resume=True, batch_size=2)
    assert len(calls) == 8, "four slices of two sources, as the first process cut them"
    equal_but_request(out, alone)
    _, models = made(out, resume=True)
    assert sum(model.seen for model in models) == 0, "what is whole is left as it is"


def equal_but_request(folder, alone):
    assert table(folder) == table(alone[0].folder)
    assert not [path for path in folder.iterdir() if path.name in (".parts", "shards")]


def test_bad_shards_are_refused_in_a_line(tmp_path):
    with pytest.raises(RequestError, match="shard= needs out=: the folder or address where the processes meet"):
        made(None, shard="1/2")
    with pytest.raises(RequestError, match="give a number from 1 and how many there are"):
        made(tmp_path / "t", shard="0/4")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("shard", [("--shard", "1/2"), pytest.param((), marks=pytest.mark.slow)])
def test_one_that_is_killed_loses_what_it_worked_on_and_no_more(tmp_path, monkeypatch, shard):
    work = workspace(tmp_path, n=12)
    monkeypatch.setenv("TEST_CALLS", "0")
    model = f"torch:{work / 'model.py'}:parabola"
    words = ["transfer", "--data", f"npz:{work / 'data.npz'}", "--model", model, "--model", f"{model}?name=other&args=at=0.6"]
    words += ["--eps", "0.1", "--draws", "100", "--attack", "pgd?steps=3", "--batch-size", "1", "--quiet", "--out"]
    assert in_a_process_of_its_own([*words, str(work / "killed"), *shard], TEST_KILL_AT="60", TEST_CALLS="0") == -9
    assert bool(FolderStore(work / "killed").names("shards/claims")) == bool(shard)
    assert cli(["transfer", "--resume", "--quiet", "--out", str(work / "killed")]) == 0
    assert cli([*words, str(work / "alone")]) == 0
    assert table(work / "killed") == table(work / "alone")
    assert cli(["report", str(work / "killed")]) == 0
