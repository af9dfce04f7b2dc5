"""Folders made of independent parts of a few files each, by one process or by several that share a store.

A study defines its parts and how they are assembled. A single process makes them in the folder itself, one after another, and
records finished parts, so that it can resume:

    .parts/plan.json             the plan
    .parts/NAME.json             the record of a finished part, or values made once for all parts

Several processes share a store (`runners.shard_worker`). Each has its own folder, into which it copies only those parts of others
that its own parts need:

    shards/files/NAME-BY-...     the files of a part, named after the process that made it
    shards/done/part/NAME.json   its record: which files count, and its values

The process that assembles the folder copies the files of all parts into it.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from brinell.core.errors import RequestError, option
from brinell.core.version import VERSION
from brinell.runners.loop import Job, refuse_request, request_text
from brinell.runners.shard_worker import Shard, ShardWorker, choose_shard, run_worker
from brinell.store.claims import LEASE
from brinell.store.files import write_atomically, write_text
from brinell.store.folder import LOCAL_PLAN, REQUEST, SHARDS, with_article

Answer = TypeVar("Answer")
PARTS = Path(LOCAL_PLAN).parent.name
"""Folder of the records of a single process and of temporary files, until the folder is complete."""
KIND = "part"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a folder."""

    name: str
    """Unique name of letters, digits and hyphens."""
    files: tuple[str, ...]
    """Paths of its files in the folder."""
    make: Callable[[], dict[str, Any]]
    """Writes the files and returns JSON values for the record of the part."""
    needs: tuple[str, ...] = ()
    """Names of parts whose files must be in the folder first."""


PartHandler = Callable[[Mapping[str, Any]], None]
"""Called with the values of each finished part, from this process or another."""


class PartMaker(Protocol):
    """Makes parts, in this process alone or in several."""

    folder: Path
    """Folder in which this process writes files."""

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return JSON values that are made once for all parts."""

    def make(self, parts: Sequence[Part], on_part: PartHandler = lambda record: None) -> dict[str, dict[str, Any]]:
        """Make all parts, prerequisites first; return their values by name."""


class LocalMaker:
    """Makes parts in a single process, which skips finished parts when it resumes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """See `PartMaker`."""
        return self._read_or_make(f"once-{name}", make)

    def make(self, parts: Sequence[Part], on_part: PartHandler = lambda record: None) -> dict[str, dict[str, Any]]:
        """See `PartMaker`."""
        records = {}
        for part in parts:
            records[part.name] = self._read_or_make(part.name, part.make)
            on_part(records[part.name])
        return records

    def _read_or_make(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The record of a part, made if its file is missing."""
        file = self.folder / PARTS / f"{name}.json"
        if file.exists():
            return _read(file)
        record = make()
        write_text(file, json.dumps(record))
        return record


class SharedMaker:
    """Makes parts in one of several processes that share a store."""

    def __init__(self, worker: ShardWorker, folder: Path) -> None:
        self.folder = folder
        self._worker = worker
        self._records: dict[str, dict[str, Any]] = {}
        """Records of the finished parts, by name."""

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """See `PartMaker`."""
        return self._worker.make_once(name, make)

    def make(self, parts: Sequence[Part], on_part: PartHandler = lambda record_: None) -> dict[str, dict[str, Any]]:
        """See `PartMaker`."""
        by, prerequisites = {part.name: part for part in parts}, {name for part in parts for name in part.needs}
        while True:
            for key in self._worker.done_keys(KIND):
                if (name := Path(key).stem) not in self._records and (record := self._worker.read_record(key)) is not None:
                    self._records[name] = record
                    on_part(record["told"])
            missing = [part for part in parts if part.name not in self._records]
            if not missing:
                return {name: self._records[name]["told"] for name in by}
            ready = [part.name for part in missing if all(name in self._records for name in part.needs)]
            with self._worker.claim(KIND, ready) as claimed:
                if claimed is not None:
                    self._make_part(by[claimed], keep=claimed in prerequisites)

    def _make_part(self, part: Part, *, keep: bool) -> None:
        """Make and publish a part; its files stay in the folder if they count and other parts need them."""
        for name in part.needs:
            self._fetch(name, self.folder)
        values = part.make()
        keys = {file: f"{SHARDS}/files/{part.name}-{self._worker.name}-{Path(file).name}" for file in part.files}
        files = {keys[file]: self.folder / file for file in part.files}
        first = self._worker.publish(KIND, part.name, files, {"files": keys, "told": values})
        if not (first and keep):
            for path in files.values():
                path.unlink()

    def _fetch(self, name: str, folder: Path) -> None:
        """Copy the missing files of a finished part into a folder."""
        record = self._records[name]
        for file, key in record["files"].items():
            if not (folder / file).exists():
                content = self._worker.read_file(key, record["digests"], f"{SHARDS}/done/{KIND}/{name}.json")
                _write(folder / file, content)

    def gather(self, folder: Path) -> None:
        """Copy the files of all parts into a folder."""
        for name in self._records:
            self._fetch(name, folder)


Work = Callable[[PartMaker], Callable[[Path], None]]
"""Makes the parts of a study, and returns the function that assembles its folder, the manifest last."""


def make_in_shards(
    job: Job,
    shard: Shard,
    work: Work,
    *,
    needed_files: Sequence[str],
    answer: Callable[[Path, str], Answer],
    message: Callable[[str], None],
    lease: float = LEASE,
) -> Answer:
    """Make a folder together with other processes; arguments and errors as in `runners.shard_worker.run_worker`."""

    def share(worker: ShardWorker, folder: Path, plan_values: Mapping[str, Any]) -> Callable[[Path], None]:
        """Make the parts of one process; returns how the folder is finished."""
        makers = SharedMaker(worker, folder)
        end = work(makers)

        def finish(target: Path) -> None:
            """Gather the parts and finish the folder."""
            makers.gather(target)
            end(target)
            shutil.rmtree(target / PARTS, ignore_errors=True)

        return finish

    return run_worker(
        job, shard, plan_values={}, needed_files=needed_files, work=share, answer=answer, message=message, lease=lease
    )


def make_locally(job: Job, work: Work, *, resume: bool) -> None:
    """Make a folder in this process; with `resume`, only the missing parts. Errors as in `loop.manifest_session`."""
    layout, path = job.layout, job.path
    previous, plan = layout.begin(path, resume=resume), path / LOCAL_PLAN
    with layout.lock(path):
        identity = json.loads(json.dumps(job.identity(job.about)))
        if not any(re.fullmatch(r"(?!plan|once-).+\.json", file.name) for file in plan.parent.glob("*")):
            shutil.rmtree(plan.parent, ignore_errors=True)  # it stopped before the first part was finished
        if previous or plan.exists():
            record = previous or _read(plan)
            if (job.identity(previous) if previous else record["cells"]) != identity:
                refuse_request(layout, path, record["request"], job.request, job.ignored, job.inputs)
            if not resume:
                raise RequestError(
                    f"{path} holds {with_article(layout.noun)} that is not whole: add {option('resume')} to go on "
                    "with it, or choose another "
                    f"{option('out')}"
                )
        if not previous:
            request = job.request.model_dump(mode="json")
            write_text(path / REQUEST, request_text(job, path))
            write_text(plan, json.dumps({"brinell": VERSION, "cells": identity, "request": request}))
            work(LocalMaker(path))(path)
        shutil.rmtree(path / PARTS, ignore_errors=True)


def make_folder(
    job: Job,
    shard: Shard | None,
    work: Work,
    *,
    resume: bool,
    needed_files: Sequence[str],
    answer: Callable[[Path, str], Answer],
    message: Callable[[str], None],
) -> Answer:
    """Make a folder; with a shard or a store, together with other processes. Arguments as in `make_in_shards`."""
    if (shard := choose_shard(job.path, shard, resume=resume, noun=job.layout.noun)) is not None:
        return make_in_shards(job, shard, work, needed_files=needed_files, answer=answer, message=message)
    make_locally(job, work, resume=resume)
    return answer(job.path, str(job.path))


def _write(file: Path, content: bytes) -> None:
    write_atomically(file, lambda temporary: temporary.write_bytes(content))


def _read(file: Path) -> dict[str, Any]:
    """Read the record of a part."""
    try:
        record = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise RequestError(f"{file} is damaged ({error}): delete it and go on with {option('resume')}") from None
    if not isinstance(record, dict):
        raise RequestError(f"{file} is damaged: delete it and go on with {option('resume')}")
    return record
