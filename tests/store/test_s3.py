"""S3 by fsspec, against a server on loopback: what a store promises, and a whole run in it."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from _helpers import Recorder, plan_of, rows_of, run_plan, threshold
from brinell.engine.progress import SilentProgress
from brinell.runners import shards
from brinell.store.run import Run
from brinell.store.shared import check_exclusive, open_store

SKIP_REASON = "is not installed, which S3 is tested with: pip install s3fs moto[server]"
s3fs = pytest.importorskip("s3fs", reason=f"s3fs {SKIP_REASON}")
moto = pytest.importorskip("moto.server", reason=f"moto {SKIP_REASON}")
# What the two and their kin warn of by themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def bucket():
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("brinell")
        yield "s3://brinell"
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_what_a_store_promises(bucket):
    store = open_store(Path(f"{bucket}/promises"))
    check_exclusive(store, "shards", "it")
    creations = [store.create("a/key", str(me).encode()) for me in range(3)]
    assert creations == [True, False, False] and store.read("a/key") == b"0"
    store.write("a/other", b"1")
    store.write("a/b/below", b"2")
    assert store.names("a") == ["key", "other"] and store.names("nothing") == [] and store.read("a/nothing") is None
    store.delete("a/key")
    store.delete("a/key")
    assert store.names("a") == ["other"]
    store.drop("a")
    store.drop("a")
    assert store.names("a") == store.names("a/b") == []


def test_a_large_part_is_created_once(bucket):
    store, large = open_store(f"{bucket}/large"), bytes(11 * 2**20)
    assert store.create("key", large) and not store.create("key", large + b"1")
    assert store.read("key") == large


def test_of_many_at_once_one_creates(bucket):
    store, winners, start = open_store(f"{bucket}/race"), [], threading.Barrier(6)

    def create(me):
        start.wait()
        if store.create("key", str(me).encode()):
            winners.append(me)

    threads = [threading.Thread(target=create, args=(me,)) for me in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1 and store.read("key") == str(winners[0]).encode()


def test_a_run_in_s3_is_that_in_a_folder(bucket, tmp_path):
    x = np.random.default_rng(0).uniform(0.1, 0.45, (16, 2)).astype(np.float32)
    plan = plan_of(
        Recorder(threshold(0.5)), x, np.zeros(16, int), eps="0.1, 0.2", attack=("pgd?steps=2", "square?steps=3"), batch_size=1
    )
    local_run = run_plan(plan, tmp_path / "alone")
    settings = {"command": "from a test", "page": lambda folder: (folder / "report.html").write_text("page")}
    name, rows = shards.run(
        plan,
        Path(f"{bucket}/run"),
        shards.Shard(1, 2),
        SilentProgress(),
        answer=lambda run, name: (name, run.records()),
        **settings,
    )
    assert name == f"{bucket}/run" and rows_of(rows) == rows_of(local_run.records())
    s3fs.S3FileSystem(use_listings_cache=False).get(f"{bucket}/run/", f"{tmp_path}/copy/", recursive=True)
    copy = Run.open(tmp_path / "copy")
    assert sorted(copy.digests()) == sorted(local_run.digests()) and (tmp_path / "copy" / "report.html").exists()
    assert json.loads(open_store(f"{bucket}/run").read("manifest.json"))["state"] == "finished"
    assert not (tmp_path / "copy" / "shards").exists()
