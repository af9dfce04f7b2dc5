"""What can be seen of a run from outside: what is done, who works on it, and how long it takes."""

import json
import os

import numpy as np
import pytest

from _helpers import Recorder, plan_of
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.engine.progress import SilentProgress
from brinell.runners import local, shards
from brinell.runners.shard_worker import PLAN, Shard
from brinell.runners.shared_progress import STAGE_INTERVAL, WRITE_INTERVAL, SharedProgress
from brinell.store.claims import claim_content
from brinell.store.shared import AddressStore, FolderStore, open_store
from brinell.studies.progress.run import look

N = 14
RNG = np.random.default_rng(1)
X, Y = RNG.uniform(0.2, 0.55, (N, 2)).astype(np.float32), np.zeros(N, dtype=int)
CELLS = [["m", {"clean": "c0"}], ["fgsm", {"m": "c1"}], ["pgd", {"m": "c2"}]]


def line(x):
    import torch

    z = 10 * (x[:, 0] - 0.5)
    return torch.stack([-z, z], 1)


def small_plan():
    return plan_of(Recorder(line), X, Y, eps="0.1:0.2:2", attack=("fgsm", "pgd?steps=2"), batch_size=1)


def standing(by, **fields):
    status = {"by": by, "host": f"host-{by}:7", "model": "m", "stage": "2/2 PGD", "samples": 90, "open_samples": 40, "robust": 70}
    return json.dumps(status | {"forwards": 5, "backwards": 5, "rate": 10.0, "passes_left": 600.0} | fields).encode()


@pytest.fixture
def store(tmp_path):
    """Two processes in the second stage, one of which has been silent for long, and a third that has said nothing yet."""
    folder_store = FolderStore(tmp_path)
    folder_store.write(
        PLAN, json.dumps({"brinell": "0", "cells": CELLS, "of": 4, "group": 8, "samples": 100, "request": {}}).encode()
    )
    for key in ("c0/a", "c0/b", "c1/a", "c1/b", "c1/d", "c2/a"):
        folder_store.write(f"shards/done/{key}.json", b"{}")
    folder_store.write("shards/claims/c2-b.0", claim_content("one", 60.0, 3))
    folder_store.write("shards/claims/c2-d.1", claim_content("three", 60.0, 0))
    folder_store.write("shards/progress/one.json", standing("one"))
    folder_store.write("shards/progress/two.json", standing("two", rate=30.0, robust=65, open_samples=35, passes_left=500.0))
    folder_store.write("shards/progress/gone.json", standing("gone", rate=50.0, robust=60))
    file = tmp_path / "shards/progress/gone.json"
    os.utime(file, (file.stat().st_mtime - 3600,) * 2)
    return folder_store


def test_a_run_in_shards_by_hand(store):
    progress = look(store.root)
    assert (progress.state, progress.shards, progress.samples) == ("in shards", 4, 100)
    assert [(worker.model, worker.stage, worker.complete, worker.claimed, worker.state) for worker in progress.stages] == [
        ("m", "clean", 2, 0, "ended"),
        ("m", "fgsm", 3, 0, "ended"),
        ("m", "pgd", 1, 2, "under way"),
    ]
    by = {worker.by: worker for worker in progress.workers}
    assert {name for name, worker in by.items() if worker.alive} == {"one", "two", "three"}
    assert by["gone"].age == pytest.approx(3600, abs=60) and by["one"].age < 60
    assert (by["one"].claims, by["one"].host, by["three"].claims, by["three"].host) == (("c2-b",), "host-one:7", ("c2-d",), None)
    assert (progress.position, progress.robust, progress.open_samples) == ("m 2/2 PGD", 65, 35), (
        "of the one that has taken in most"
    )
    assert progress.rate == 40 and progress.seconds_left == pytest.approx(600 / 40), "the lost one adds nothing"


def test_what_is_shown(store, capsys):
    assert cli(["progress", str(store.root)]) == 0
    out = capsys.readouterr().out
    assert "the run of 100 samples goes on in 4 shards" in out and "  m pgd: under way, 1 shard done, 2 claimed\n" in out
    assert "  process host-gone:7: m 2/2 PGD, 50 passes/s, last sign of life 1 h 00 min ago, taken for lost\n" in out
    assert out.count("taken for lost") == 1
    assert out.splitlines()[-1] == "m 2/2 PGD: 65 robust so far, 35 open in this stage, 40 passes/s, about 15.0 s left"
    assert cli(["progress", str(store.root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) | {"workers": []} == look(store.root).model_dump(mode="json") | {"workers": []}


def test_parts_of_a_study(tmp_path, capsys):
    store = FolderStore(tmp_path)
    store.write(PLAN, json.dumps({"brinell": "0", "cells": "f00", "of": 2, "request": {}}).encode())
    store.write("shards/done/part/block-0.json", b"{}")
    store.write("shards/claims/part-block-1.0", claim_content("one", 60.0, 3))
    (only,) = look(tmp_path).stages
    assert (only.model, only.stage, only.complete, only.claimed, only.state) == (None, "part", 1, 1, "under way")
    assert cli(["progress", str(tmp_path)]) == 0 and "  part: under way, 1 part done, 1 claimed\n" in capsys.readouterr().out


def test_parts_that_one_process_makes(tmp_path, capsys):
    store = FolderStore(tmp_path)
    for name in ("plan", "once-model", "block-0", "block-1"):
        store.write(f".parts/{name}.json", b"{}")
    assert [(worker.stage, worker.complete) for worker in look(tmp_path).stages] == [("part", 2)]
    assert cli(["progress", str(tmp_path)]) == 0 and "  part: under way, 2 parts done\n" in capsys.readouterr().out


class Looking(SilentProgress):
    """Looks from outside whenever a group has ended."""

    def __init__(self, out):
        self.out, self.seen = out, []

    def update_open(self, samples, robust):
        self.seen.append((look(self.out), samples, robust))


@pytest.mark.parametrize("address", [False, True], ids=["folder", "memory"])
def test_a_run_is_seen_going_on_and_ending(tmp_path, address):
    out = f"memory://watched-{tmp_path.name}" if address else tmp_path / "run"
    looking = Looking(out)
    keywords = {"command": "from a test", "page": lambda folder: None, "answer": lambda run, name: len(run.records())}
    shards.run(small_plan(), out, Shard(1, 2), looking, **keywords)
    completed = [sum(stage_progress.complete for stage_progress in view.stages) for view, _, _ in looking.seen]
    assert completed == sorted(completed) and completed[0] == 0 and completed[-1] > 4
    assert all(view.state == "in shards" and view.samples == N for view, _, _ in looking.seen)
    last, _, robust = looking.seen[-1]
    assert [one.state for one in last.stages] == ["ended", "ended", "under way"]
    (worker,) = last.workers
    assert worker.alive and worker.age < 60 and str(os.getpid()) in worker.host
    final = look(out)
    assert (final.state, final.seconds_left, final.workers) == ("ended", 0, ())
    assert {one.state for one in final.stages} == {"ended"} and [one.stage for one in final.stages] == [
        "clean",
        "fgsm",
        "pgd?steps=2",
    ]


def test_a_run_by_one_process_tells_its_stages(tmp_path):
    """It is looked at while it goes on, and nothing is known of whoever makes it."""
    looking = Looking(tmp_path / "run")
    local.run(small_plan(), tmp_path / "run", looking, command="from a test")
    states = [[stage_progress.state for stage_progress in view.stages] for view, _, _ in looking.seen]
    assert states[0] == ["under way", "ahead", "ahead"] and states[-1] == ["ended", "ended", "under way"]
    assert all((view.state, view.workers, view.samples) == ("by one process", (), N) for view, _, _ in looking.seen)
    assert look(tmp_path / "run").state == "ended"


def test_no_run_is_refused(tmp_path):
    with pytest.raises(RequestError, match="holds no run"):
        look(tmp_path)


def test_a_process_writes_a_few_times_a_minute_and_hands_everything_on(tmp_path):
    """Ten passes a second for a minute and a half: a write at the beginning of the stage and one each fifteen seconds."""
    clock, store, told_on = [100.0], FolderStore(tmp_path), []

    class Counting(FolderStore):
        writes = 0

        def write(self, key, content):
            Counting.writes += 1
            super().write(key, content)

    class Inner(SilentProgress):
        def count_passes(self, *arguments):
            told_on.append(arguments)

    progress = SharedProgress(Counting(tmp_path), "me", Inner(), clock=lambda: clock[0])
    progress.stage("m", "pgd", 50, 900)
    progress.forecast({"pgd": 900}, 0)
    for _ in range(90):
        clock[0] += 1
        progress.count_passes(6, 4)
        progress.update_open(49, 48)
    assert Counting.writes == 1 + 90 // WRITE_INTERVAL and told_on == [(6, 4)] * 90
    reported = json.loads(store.read("shards/progress/me.json"))
    assert (reported["forwards"], reported["rate"], reported["robust"], reported["open_samples"]) == (540, 10.0, 48, 49)
    for wait, writes in ((STAGE_INTERVAL / 2, 0), (STAGE_INTERVAL, 1)):
        before = Counting.writes
        clock[0] += wait
        progress.stage("m", "square", 48, 900)
        assert Counting.writes == before + writes


def test_when_a_key_was_written(tmp_path):
    for store in (FolderStore(tmp_path), AddressStore(f"memory://changed-{tmp_path.name}"), open_store(tmp_path)):
        assert store.changed("shards/none") is None
        store.write("shards/one", b"1")
        (tmp_path / "now").touch()
        assert store.changed("shards/one") == pytest.approx((tmp_path / "now").stat().st_mtime, abs=5)
