"""Processes on any number of machines that make one folder together through a store, without a coordinator.

They use `shards/` in the store:

    shards/plan.json             the plan and the number of shards; the first process creates it, the others compare it
    shards/claims/TASK.NUMBER    the process that works on a task (`store.claims`)
    shards/done/KIND/NAME.json   the record of a finished task and its files; only the first creation counts
    shards/done/once/NAME.json   values that one process made for all, such as the checks of an audit

Each process follows the same plan in its own folder, and claims each task here before it begins. When all tasks are finished, one
process claims the assembly. Then plan.json is deleted, and after it the rest of `shards/` (design/0025-shards.md).
`runners.shards` defines the tasks of an audit, `runners.parts` those of studies.
"""

import hashlib
import json
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from brinell.core.errors import RequestError, option
from brinell.core.version import VERSION
from brinell.runners.loop import Job, refuse_request, request_text
from brinell.store.claims import LEASE, Claims
from brinell.store.folder import LOCAL_PLAN, MANIFEST, REQUEST, SHARDS, Layout, is_running, with_article
from brinell.store.inventory import FILES, check_digests
from brinell.store.shared import Store, address_of, check_exclusive, open_store

Answer = TypeVar("Answer")
PLAN = f"{SHARDS}/plan.json"
MAX_SHARDS = 100_000
"""Largest number of shards of a run."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two polls of the store; each pause is 1.5 times the previous one."""


@dataclass(frozen=True)
class Shard:
    """The shard with which a process begins, and their total number; afterwards it claims any unclaimed task."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """`3/16`: two numbers, the first from 1 to the second."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= MAX_SHARDS:
            raise RequestError(f"shard is {text!r}: give a number from 1 and how many there are, such as 3/16")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def from_options(cls, text: str | None, out: Path | str | None) -> "Shard | None":
        """Parse the option `shard`, if given; it needs `out`, the folder or address that the processes share."""
        if text is not None and out is None:
            raise RequestError(f"{option('shard')} needs {option('out')}: the folder or address where the processes meet")
        return None if text is None else cls.parse(text)


class CompleteError(Exception):
    """The folder is complete, so this process can stop."""


class ShardWorker:
    """One process, called `name`, of those that share a store; it loses its claims after `lease` seconds of silence."""

    def __init__(self, store: Store, shard: Shard, name: str, lease: float = LEASE) -> None:
        self.store, self.shard, self.name = store, shard, name
        self._claims = Claims(store, f"{SHARDS}/claims", name, lease)
        self._pause = FIRST_PAUSE

    def done_keys(self, kind: str) -> list[str]:
        """Keys of the records of finished tasks of a kind."""
        return [f"{SHARDS}/done/{kind}/{name}" for name in self.store.names(f"{SHARDS}/done/{kind}")]

    def read_record(self, key: str) -> dict[str, Any] | None:
        """Read the record of a task; None if it is not finished."""
        content = self.store.read(key)
        if content is None:
            return None
        record: dict[str, Any] = json.loads(content)
        return record

    def read_file(self, source: str, digests: Mapping[str, str], record_key: str) -> bytes:
        """Read a file of a finished task.

        Args:
            source: key of the file.
            digests: digests of the files, by key.
            record_key: key of the record that says that the file is complete, for the error message.

        Raises:
            RequestError: the file is missing or differs from its digest.
        """
        self._pause = FIRST_PAUSE
        content = self.store.read(source)
        if content is None or _digest(content) != digests[source]:
            self._check_under_way()
            raise RequestError(
                f"{source} in the store is damaged or missing: delete {record_key} there and go on with {option('resume')}"
            )
        return content

    @contextmanager
    def claim(self, kind: str, names: Sequence[str]) -> Iterator[str | None]:
        """Claim one of these names of a kind within a `with` block; yields None, after a pause, if others hold all.

        The search begins at the position of this shard among all shards.
        """
        begin = len(names) * (self.shard.number - 1) // self.shard.total
        tasks = {f"{kind}-{name}": name for name in [*names[begin:], *names[:begin]]}
        with self._task(list(tasks)) as task:
            is_done = task is not None and self.store.read(f"{SHARDS}/done/{kind}/{tasks[task]}.json") is not None
            yield None if task is None or is_done else tasks[task]

    @contextmanager
    def _task(self, tasks: Sequence[str]) -> Iterator[str | None]:
        """Claim one of these tasks within a `with` block; yields None, after a pause, if all are claimed."""
        claimed = self._claims.first(tasks)
        if claimed is None:
            self._check_under_way()
            time.sleep(self._pause)
            self._pause = min(1.5 * self._pause, LONGEST_PAUSE)
            yield None
        else:
            self._pause = FIRST_PAUSE
            claim, task = claimed
            with claim:
                self._check_under_way()
                yield task

    def _check_under_way(self) -> None:
        """Raise if the run is complete."""
        if self.store.read(PLAN) is None:
            raise CompleteError

    def publish(self, kind: str, name: str, files: Mapping[str, Path], values: Mapping[str, Any]) -> bool:
        """Publish a finished task: its files first, then, atomically, its record.

        Args:
            kind: kind of the task.
            name: name of the task.
            files: paths by keys in the store, which contain the name of this process.
            values: further entries of its record, as JSON values.

        Returns:
            False if another process was first; its files count, and these are deleted.
        """
        digests = {}
        for key, path in files.items():
            content = path.read_bytes()
            digests[key] = _digest(content)
            self.store.write(key, content)
        record = {"by": self.name, "digests": digests, **values}
        if self.store.create(f"{SHARDS}/done/{kind}/{name}.json", json.dumps(record).encode()):
            return True
        for key in files:
            self.store.delete(key)
        return False

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return JSON values that one of the processes makes for all."""
        key = f"{SHARDS}/done/once/{name}.json"
        while (record := self.read_record(key)) is None:
            with self.claim("once", [name]) as claimed:
                if claimed is not None:
                    self.store.create(key, json.dumps({"by": self.name, "value": make()}).encode())
        value: dict[str, Any] = record["value"]
        return value

    def assemble(self, assemble: Callable[[], None]) -> None:
        """Assemble the folder, or wait for the process that does; take over if that process dies.

        Raises:
            CompleteError: always, when the folder is complete.
        """
        while True:
            with self._task(["assemble"]) as task:
                if task is not None:
                    assemble()
                    self.store.delete(PLAN)
                    raise CompleteError


def run_worker(
    job: Job,
    shard: Shard,
    *,
    plan_values: Mapping[str, Any],
    needed_files: Sequence[str],
    work: Callable[[ShardWorker, Path, Mapping[str, Any]], Callable[[Path], None]],
    answer: Callable[[Path, str], Answer],
    message: Callable[[str], None],
    lease: float = LEASE,
) -> Answer:
    """Work until the folder in the store is complete.

    Args:
        job: the work, the same in all processes; its path is a folder on a shared disk, or an address
            (`store.shared`).
        shard: the shard with which this process begins, and the number of shards.
        plan_values: values that the first process decides for all.
        needed_files: files of the finished folder, besides its manifest, that the answer needs; `records/` means all files
            of that folder.
        work: does this process's share in its own folder, with the plan values; returns the function that assembles the folder.
        answer: makes the result from the folder and its name; for an address, the folder holds the needed files only.
        message: receives messages to the user.
        lease: seconds of silence after which a process loses its claims.

    Raises:
        RequestError: the store holds something else or an unsharded run, or cannot be used.
        StoppedError: the store does not answer, or is full.
    """
    out, store, address = job.path, open_store(job.path), address_of(job.path)
    name = address or str(out)
    with tempfile.TemporaryDirectory(prefix="brinell-") as temporary:
        workspace = Path(temporary)
        shared_plan = _join(job, store, name, shard, plan_values, lambda: _download(store, job.layout, (), workspace / "before"))
        if shared_plan is not None:
            worker = ShardWorker(store, shard, uuid.uuid4().hex[:12], lease)
            try:
                finish = work(worker, workspace / "run", shared_plan)

                def assemble() -> None:
                    """Finish the folder."""
                    folder = out if address is None else workspace / "whole"
                    finish(folder)
                    if address is not None:
                        _upload(store, job.layout, folder)

                worker.assemble(assemble)
            except CompleteError:
                message(f"note: {name} is whole")
        store.drop(SHARDS)  # every process does this, because another may have left a claim meanwhile
        return answer(out if address is None else _download(store, job.layout, needed_files, workspace / "fetched"), name)


def choose_shard(out: Path, shard: Shard | None, *, resume: bool, noun: str = "run") -> Shard | None:
    """Choose the shard of a process: the requested one, or one of a sharded run to be resumed; None means a single process.

    An address always uses shards, if only one.

    Args:
        out: the folder or the address.
        shard: the requested shard.
        resume: true to resume the content of the folder.
        noun: what is made, in the singular.

    Raises:
        RequestError: the store holds an incomplete sharded run, and `resume` is false.
    """
    if shard is not None:
        return shard
    content = open_store(out).read(PLAN)
    if content is None:
        return None if address_of(out) is None else Shard(1, 1)
    of = int(json.loads(content)["of"])
    if not resume:
        raise RequestError(
            f"{address_of(out) or out} holds {with_article(noun)} in {of} shards that is not whole: work on it with "
            f"{option('shard', f'1/{of}')}, "
            f"go on with {option('resume')}, or choose another {option('out')}"
        )
    return Shard(1, of)


def _join(
    job: Job, store: Store, name: str, shard: Shard, plan_values: Mapping[str, Any], download: Callable[[], Path]
) -> Mapping[str, Any] | None:
    layout, request = job.layout, job.request
    cells = json.loads(json.dumps(job.identity(job.about)))
    content = store.read(PLAN)
    if content is None and store.read(MANIFEST) is not None:
        manifest = layout.open(job.path) if address_of(job.path) is None else layout.read(download())
        if job.identity(manifest) != cells:
            refuse_request(layout, Path(name), manifest["request"], request, job.ignored, job.inputs)
        if manifest.get("state", "finished") != "finished":
            refuse_unsharded(layout, name)
        return None
    if content is None:
        if store.read(LOCAL_PLAN) is not None:
            refuse_unsharded(layout, name)
        if address_of(job.path) is None:
            layout.check_free(job.path, SHARDS, REQUEST)
        check_exclusive(store, SHARDS, name)
        store.create(REQUEST, request_text(job, job.path).encode())
        new_plan = {
            "brinell": VERSION,
            "cells": cells,
            "of": shard.total,
            **plan_values,
            "request": request.model_dump(mode="json"),
        }
        store.create(PLAN, json.dumps(new_plan).encode())
        content = store.read(PLAN)
    shared_plan: dict[str, Any] = json.loads(content or b"{}")
    if shared_plan.get("cells") != cells:
        refuse_request(layout, Path(name), shared_plan.get("request", {}), request, job.ignored, job.inputs)
    if shared_plan["of"] != shard.total:
        fitting = f"{min(shard.number, shared_plan['of'])}/{shared_plan['of']}"
        raise RequestError(f"{name} was begun in {shared_plan['of']} shards: give {option('shard', fitting)}")
    return shared_plan


def refuse_unsharded(layout: Layout, name: str) -> NoReturn:
    """Raise RequestError for shards of a folder that was begun without."""
    raise RequestError(
        f"{name} holds {with_article(layout.noun)} that was begun without {option('shard')}: go on with it by "
        f"{option('resume')}, without {option('shard')}"
    )


def _upload(store: Store, layout: Layout, folder: Path) -> None:
    """Copy a complete folder into a store, the manifest last."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    for path in sorted(files, key=lambda file: file.name == MANIFEST):
        store.write(path.relative_to(folder).as_posix(), path.read_bytes())


def _download(store: Store, layout: Layout, needed_files: Sequence[str], folder: Path) -> Path:
    """Copy the needed files of a complete folder from a store, with a manifest that lists them alone.

    Raises:
        RequestError: a file is not the one that the manifest in the store lists.
    """
    keys = [pattern + name for pattern in needed_files for name in (store.names(pattern[:-1]) if pattern.endswith("/") else [""])]
    for key in (MANIFEST, *keys):
        if (content := store.read(key)) is not None:
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    manifest = layout.read(folder)
    if keys and not is_running(manifest):
        check_digests(folder, {FILES: {name: manifest[FILES].get(name) for name in keys if (folder / name).exists()}})
        layout.save(folder, manifest)
    return folder


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
