"""Several processes, or a resumed one, make the same explanations as one uninterrupted process."""

import threading

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import brinell
from _helpers import COUNT, assert_resume_rules, run_in_process
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
    monkeypatch.setitem(parts.make_in_shards.__kwdefaults__, "lease", 0.2)


class Halves(nn.Module):
    """Class 0 is bright on the left, class 1 on the right."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1, bias=False)
        self.conv.weight.data.fill_(1.0)
        self.inputs = 0

    def forward(self, x):
        self.inputs += len(x)
        return 8 * torch.relu(self.conv(x)).mean((1, 2)).unflatten(1, (2, -1)).mean(2)


def explain_samples(out, model=None, **settings):
    data = {"x": X, "y": Y}
    return brinell.explain(model or Halves(), data, **({"method": METHODS, "steps": 3, "cascade": 1, "out": out} | settings))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "GROUP", 4)
        return explain_samples(tmp_path_factory.mktemp("alone") / "e")


def assert_equal(folder, expected):
    a, b = TABLE.read(folder), TABLE.read(expected)
    assert to_table(a.rows).drop_columns(["seconds"]) == to_table(b.rows).drop_columns(["seconds"])
    for name in ("maps", "inputs", "cascade"):
        first, second = (load_file(run.path / f"{name}.safetensors") for run in (a, b))
        assert first.keys() == second.keys() and all(first[key].tobytes() == second[key].tobytes() for key in first)
    changing = ("created", "finished", "command", "versions", "hardware", "seal", "request", "made_here", "files")
    assert all(a.manifest[key] == b.manifest[key] for key in a.manifest if key not in changing)
    assert (folder / "report.html").exists() and not (folder / ".parts").exists() and not (folder / SHARDS).exists()


@pytest.mark.parametrize("address", [False, True])
@pytest.mark.slow
def test_the_maps_are_those_of_one_process(reference, tmp_path, address):
    out, answers, errors = f"memory://{tmp_path.name}" if address else tmp_path / "e", [], []
    models = [Halves(), Halves()]

    def run_shard(number):
        try:
            answers.append(explain_samples(out, models[number - 1], shard=f"{number}/2"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run_shard, args=(number,)) for number in (1, 2)]
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
        assert_equal(out, reference.folder)
        single = Halves()
        explain_samples(tmp_path / "counted", single)
        assert single.inputs <= sum(model.inputs for model in models) <= 1.1 * single.inputs, "no part runs twice"


class Interruption(Exception):
    """Stops a study in the middle of its work."""


@pytest.mark.parametrize("shard", ["2/3"])
@pytest.mark.slow
def test_finished_parts_do_not_run_again(reference, tmp_path, monkeypatch, shard):
    out, calls, explain = tmp_path / "e", [], group.ExplainTask.explain

    def count_call(self, samples, method):
        if len(calls) == stop:
            raise Interruption
        calls.append((samples.ids.tolist(), method.name))
        return explain(self, samples, method)

    monkeypatch.setattr(group.ExplainTask, "explain", count_call)
    stop = 3
    with pytest.raises(Interruption):
        explain_samples(out, shard=shard)
    assert not (out / "manifest.json").exists()
    assert_resume_rules(explain_samples, out, shard, "an explanation")
    with pytest.raises(RequestError, match="holds another explanation .*steps was 3 and is 4"):
        explain_samples(out, steps=4, resume=True)
    with pytest.raises(RequestError, match="holds another explanation .*method was"):
        explain_samples(out, method=METHODS[:2], resume=True)
    stop = None
    explain_samples(out, resume=True, batch_size=64)
    assert len(calls) == 8, "each of four methods runs once on each of two groups"
    assert_equal(out, reference.folder)
    explain_samples(out, resume=True)
    assert len(calls) == 8, "a finished study stays unchanged"


def test_a_damaged_part_is_named(tmp_path, monkeypatch):
    def interrupt(self, samples, method):
        raise Interruption

    with monkeypatch.context() as patch:
        patch.setattr(group.ExplainTask, "explain", interrupt)
        with pytest.raises(Interruption):
            explain_samples(tmp_path / "e")
    file = tmp_path / "e" / ".parts" / "once-groups.json"
    file.write_text(file.read_text()[:-3])
    with pytest.raises(RequestError, match="once-groups.json is damaged .*: delete it and go on with resume=True"):
        explain_samples(tmp_path / "e", resume=True)
    file.unlink()
    explain_samples(tmp_path / "e", resume=True)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("shard", [("--shard", "1/2")])
@pytest.mark.slow
def test_a_killed_process_loses_only_its_current_part(tmp_path, monkeypatch, capsys, shard):
    monkeypatch.setenv("TEST_CALLS", "0")
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    (tmp_path / "net.py").write_text(NETWORK)
    data, model = f"npz:{tmp_path / 'data.npz'}", f"torch:{tmp_path / 'net.py'}:make"
    command = ["explain", "--data", data, "--model", model, "--steps", "2"]
    command += [argument for name in METHODS for argument in ("--method", name)] + ["--copies", "0", "--quiet", "--out"]
    killed = tmp_path / "killed"
    assert run_in_process([*command, str(killed), *shard], TEST_KILL_AT="15", TEST_CALLS="0") == -9
    assert bool(FolderStore(killed).names("shards/claims")) == bool(shard)
    assert cli(["explain", "--resume", "--quiet", "--out", str(killed)]) == 0
    assert f"page: {killed}/report.html" in capsys.readouterr().out
    assert cli([*command, str(tmp_path / "alone")]) == 0
    first, second = (to_table(TABLE.read(tmp_path / name).rows).drop_columns(["seconds"]) for name in ("killed", "alone"))
    assert first == second
    assert cli(["report", str(killed)]) == 0
