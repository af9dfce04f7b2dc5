"""Explanations that several processes make, or one that was stopped goes on with: those of one that was left alone."""

import threading

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import brinell
from _helpers import COUNT, in_a_process_of_its_own, refused_otherwise
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.runners import parts
from brinell.store.folder import SHARDS
from brinell.store.parquet import to_table
from brinell.store.shared import AddressStore, FolderStore
from brinell.studies.explain import group
from brinell.studies.explain.records import TABLE

N, SIDE = 6, 8
RNG = np.random.default_rng(0)
X = RNG.random((N, 1, SIDE, SIDE)).astype(np.float32)
Y = np.arange(N) % 2
METHODS = ("rlab?questions=16", "gradient", "centre", "random")
NETWORK = (
    COUNT
    + """

class Halves(nn.Module):
    '''Class 0 is bright on the left, class 1 on the right.'''

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)

    def forward(self, x):
        count()
        return torch.relu(self.conv(x)).mean((1, 2)).unflatten(1, (2, -1)).mean(2)


def make():
    torch.manual_seed(0)
    return Halves()
"""
)


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch):
    monkeypatch.setattr(group, "GROUP", 4)
    monkeypatch.setitem(parts.together.__kwdefaults__, "lease", 0.2)


class Halves(nn.Module):
    """Class 0 is bright on the left, class 1 on the right."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1, bias=False)
        self.conv.weight.data.fill_(1.0)
        self.shown = 0

    def forward(self, x):
        self.shown += len(x)
        return 8 * torch.relu(self.conv(x)).mean((1, 2)).unflatten(1, (2, -1)).mean(2)


def made(out, model=None, **more):
    data = {"x": X, "y": Y}
    return brinell.explain(model or Halves(), data, **({"method": METHODS, "steps": 3, "cascade": 1, "out": out} | more))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "GROUP", 4)
        return made(tmp_path_factory.mktemp("alone") / "e")


def equal(folder, other):
    a, b = TABLE.read(folder), TABLE.read(other)
    assert to_table(a.rows).drop_columns(["seconds"]) == to_table(b.rows).drop_columns(["seconds"])
    for name in ("maps", "inputs", "cascade"):
        one, two = (load_file(run.path / f"{name}.safetensors") for run in (a, b))
        assert one.keys() == two.keys() and all(one[key].tobytes() == two[key].tobytes() for key in one)
    changing = ("created", "finished", "command", "versions", "hardware", "seal", "request", "made_here")
    assert all(a.manifest[key] == b.manifest[key] for key in a.manifest if key not in changing)
    assert (folder / "report.html").exists() and not (folder / ".parts").exists() and not (folder / SHARDS).exists()


@pytest.mark.parametrize("address", [False, True])
def test_the_maps_are_those_of_one_process(alone, tmp_path, address):
    out, answers, errors = f"memory://{tmp_path.name}" if address else tmp_path / "e", [], []
    models = [Halves(), Halves()]

    def one(number):
        try:
            answers.append(made(out, models[number - 1], shard=f"{number}/2"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and [answer.folder for answer in answers] == [str(out)] * 2
    assert answers[0] == answers[1]
    if address:
        store = AddressStore(out)
        assert store.names("shards") == store.names(".parts") == []
        assert {"manifest.json", "run.toml", "report.html", "maps.safetensors", "inputs.safetensors"} <= set(store.names(""))
    else:
        equal(out, alone.folder)
        whole = Halves()
        made(tmp_path / "counted", whole)
        assert whole.shown <= sum(model.shown for model in models) <= 1.1 * whole.shown, "nothing is made twice"


class Stopped(Exception):
    """Ends a process in the middle of its work."""


@pytest.mark.parametrize("shard", [None, "2/3"])
def test_what_is_done_is_not_made_again(alone, tmp_path, monkeypatch, shard):
    out, calls, explain = tmp_path / "e", [], group.Explaining.explain

    def counted(self, of, method):
        if len(calls) == stop:
            raise Stopped
        calls.append((of.ids.tolist(), method.name))
        return explain(self, of, method)

    monkeypatch.setattr(group.Explaining, "explain", counted)
    stop = 3
    with pytest.raises(Stopped):
        made(out, shard=shard)
    assert not (out / "manifest.json").exists()
    refused_otherwise(made, out, shard, "an explanation")
    with pytest.raises(RequestError, match="holds another explanation .*steps was 3 and is 4"):
        made(out, steps=4, resume=True)
    with pytest.raises(RequestError, match="holds another explanation .*method was"):
        made(out, method=METHODS[:2], resume=True)
    stop = None
    made(out, resume=True, batch_size=64)
    assert len(calls) == 8, "each method once on each of two groups"
    equal(out, alone.folder)
    made(out, resume=True)
    assert len(calls) == 8, "what is whole is left as it is"


def test_a_damaged_part_is_named(tmp_path, monkeypatch):
    def stopped(self, of, method):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(group.Explaining, "explain", stopped)
        with pytest.raises(Stopped):
            made(tmp_path / "e")
    file = tmp_path / "e" / ".parts" / "once-groups.json"
    file.write_text(file.read_text()[:-3])
    with pytest.raises(RequestError, match="once-groups.json is damaged .*: delete it and go on with resume=True"):
        made(tmp_path / "e", resume=True)
    file.unlink()
    made(tmp_path / "e", resume=True)


def test_bad_shards_are_refused_in_a_line(tmp_path):
    with pytest.raises(RequestError, match="shard= needs out=: the folder or address where the processes meet"):
        made(None, shard="1/2")
    with pytest.raises(RequestError, match="give a number from 1 and how many there are"):
        made(tmp_path / "e", shard="0/4")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("shard", [("--shard", "1/2"), pytest.param((), marks=pytest.mark.slow)])
def test_one_that_is_killed_loses_what_it_worked_on_and_no_more(tmp_path, monkeypatch, capsys, shard):
    monkeypatch.setenv("TEST_CALLS", "0")
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    (tmp_path / "net.py").write_text(NETWORK)
    words = ["explain", "--data", f"npz:{tmp_path / 'data.npz'}", "--model", f"torch:{tmp_path / 'net.py'}:make", "--steps", "2"]
    words += [word for name in METHODS for word in ("--method", name)] + ["--copies", "0", "--quiet", "--out"]
    killed = tmp_path / "killed"
    assert in_a_process_of_its_own([*words, str(killed), *shard], TEST_KILL_AT="15", TEST_CALLS="0") == -9
    assert bool(FolderStore(killed).names("shards/claims")) == bool(shard)
    assert cli(["explain", "--resume", "--quiet", "--out", str(killed)]) == 0
    assert f"page: {killed}/report.html" in capsys.readouterr().out
    assert cli([*words, str(tmp_path / "alone")]) == 0
    one, two = (to_table(TABLE.read(tmp_path / name).rows).drop_columns(["seconds"]) for name in ("killed", "alone"))
    assert one == two
    assert cli(["report", str(killed)]) == 0
