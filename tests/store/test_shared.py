"""Stores that several processes write to: one creates a key, nobody reads half of one, and a short failure is sat out."""

import errno
import os
import threading
from pathlib import Path

import pytest

from brinell.core.errors import RequestError, StoppedError
from brinell.store.shared import AddressStore, FolderStore, Patient, address_of, check_exclusive, open_store


@pytest.fixture(params=["folder", "memory"])
def store(request, tmp_path):
    return FolderStore(tmp_path / "store") if request.param == "folder" else AddressStore(f"memory://{tmp_path.name}")


def test_what_a_store_does(store):
    assert store.read("a/b") is None and store.names("a") == []
    assert store.create("a/b", b"one") and not store.create("a/b", b"two")
    assert store.read("a/b") == b"one"
    store.write("a/b", b"three")
    store.write("a/c", b"")
    store.write("a/below/d", b"4")
    assert store.read("a/b") == b"three" and store.read("a/c") == b"" and store.names("a") == ["b", "c"]
    store.delete("a/b")
    store.delete("a/b")
    assert store.names("a") == ["c"]
    store.drop("a")
    store.drop("a")
    assert store.names("a") == [] and store.read("a/below/d") is None
    check_exclusive(store, "a", "it")
    assert store.names("a") == []


def test_of_many_at_once_one_creates(tmp_path):
    store, winners = FolderStore(tmp_path), []
    start = threading.Barrier(8)

    def create(me):
        start.wait()
        if store.create("key", str(me).encode() * 1000):
            winners.append(me)

    threads = [threading.Thread(target=create, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1 and store.read("key") == str(winners[0]).encode() * 1000
    assert [path.name for path in tmp_path.iterdir()] == ["key"], "nothing half written is left"


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoppedError, match="is full: make room, then go on with --resume"):
        Patient(FolderStore(tmp_path), "it").create("key", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_hard_links_is_refused(tmp_path, monkeypatch):
    def none(source, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    with pytest.raises(RequestError, match="a disk without hard links .*: name a folder on another disk"):
        FolderStore(tmp_path).create("key", b"")


class Flaky(FolderStore):
    """Fails at some requests, before or after it has carried them out."""

    def __init__(self, root, fails, *, after=False):
        super().__init__(root)
        self.fails, self.after, self.asked = set(fails), after, 0

    def create(self, key, content):
        self.asked += 1
        if self.asked in self.fails and not self.after:
            raise ConnectionError("reset")
        created = super().create(key, content)
        if self.asked in self.fails:
            raise ConnectionError("reset after it was done")
        return created


def test_a_short_failure_is_sat_out(tmp_path):
    waited = []
    store = Patient(Flaky(tmp_path, [1, 2, 3]), "it", sleep=waited.append)
    assert store.create("key", b"mine")
    assert waited == [0.1, 0.2, 0.4]


def test_a_creation_whose_answer_was_lost_is_ours(tmp_path):
    store = Patient(Flaky(tmp_path, [1], after=True), "it", sleep=lambda seconds: None)
    assert store.create("key", b"mine")
    assert not store.create("key", b"another's")
    assert store.read("key") == b"mine"


def test_a_creation_that_failed_and_then_lost_is_not_ours(tmp_path):
    flaky = Flaky(tmp_path, [1])
    store = Patient(flaky, "it", sleep=lambda seconds: FolderStore(tmp_path).create("key", b"another's"))
    assert not store.create("key", b"mine")


def test_a_store_that_stays_away_stops_the_run(tmp_path):
    store = Patient(Flaky(tmp_path, range(1000)), "s3://bucket/run", patience=0.05)
    with pytest.raises(StoppedError, match=r"s3://bucket/run has not answered for 0.05 s \(reset\): when it does, go on with"):
        store.create("key", b"")


def test_a_folder_that_goes_while_it_is_made_is_made_again(tmp_path, monkeypatch):
    original_mkdir, calls = Path.mkdir, []

    def mkdir(self, *arguments, **settings):
        calls.append(self)
        if len(calls) == 1:  # there at first, gone when mkdir looks whether it is a folder
            raise FileExistsError(errno.EEXIST, "File exists", str(self))
        original_mkdir(self, *arguments, **settings)

    store = open_store(tmp_path / "run")
    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert store.create("shards/claims/a.0", b"me") and store.read("shards/claims/a.0") == b"me"
    assert len(calls) > 1


def test_a_file_in_place_of_a_folder_is_told_at_once(tmp_path):
    store = open_store(tmp_path, patience=60)
    (tmp_path / "shards").write_bytes(b"")
    with pytest.raises(RequestError, match="cannot be used as a store"):
        store.create("shards/a", b"")


def test_what_does_not_pass_is_not_waited_for(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="cannot be used as a store: .*File exists"):
        Patient(FolderStore(tmp_path / "file"), "it", patience=1.0).write("key", b"")


class Forgetful(FolderStore):
    """Lets everybody create everything."""

    def create(self, key, content):
        self.write(key, content)
        return True


def test_a_store_that_creates_twice_is_refused(tmp_path):
    with pytest.raises(RequestError, match="it lets two processes create one key"):
        check_exclusive(Forgetful(tmp_path), "shards", "it")


def test_addresses(subtests):
    for out, address in [
        ("runs/mine", None),
        ("/runs/mine:2", None),
        ("file:///data/run", None),
        ("s3://bucket/run", "s3://bucket/run"),
        (Path("s3://bucket/run"), "s3://bucket/run"),
        (Path("memory://x"), "memory://x"),
    ]:
        with subtests.test(str((out, address))):
            assert address_of(out) == address


def test_a_folder_named_by_its_address(tmp_path):
    open_store(f"file://{tmp_path}").write("key", b"1")
    assert (tmp_path / "key").read_bytes() == b"1"


@pytest.mark.parametrize(("out", "message"), [("nosuch://x", "is no address of a store"), ("hdfs-nowhere://x", "is no address")])
def test_an_address_that_nobody_knows(out, message):
    with pytest.raises(RequestError, match=message):
        open_store(out)
