"""A folder that is made of independent parts, each a few files: by one process, or by several that meet in a store.

A study says what its parts are and how the folder is put together of them. One process makes them in the folder itself, one after
another, and keeps what is done, so that it can go on:

    .parts/plan.json             what is made
    .parts/NAME.json             that a part is whole, and what is told of it; or what was made once for all parts

Several meet in the store (`runners.meeting`), each with a folder of its own, into which it copies no more of the parts of others
than its own need:

    shards/files/NAME-BY-...     the files of a part, named after the process that made it
    shards/done/part/NAME.json   that it is whole, whose files count, and what is told of it

Who puts the folder together copies the files of all parts into it.
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
from brinell.engine import trust
from brinell.runners.loop import Job, refuse, request_text
from brinell.runners.meeting import ALONE, Meeting, Shard, article, chosen, meet
from brinell.store.claims import LEASE
from brinell.store.files import write_atomically, write_text
from brinell.store.folder import REQUEST, SHARDS

Answer = TypeVar("Answer")
KEPT = Path(ALONE).parent.name
"""The folder of what one process keeps until all is whole, and of files that are wanted no longer than that."""
KIND = "part"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a folder."""

    name: str
    """Letters, digits and hyphens; no other part has it."""
    files: tuple[str, ...]
    """Its files, by their paths in the folder."""
    make: Callable[[], dict[str, Any]]
    """Writes them, and says what is to be told of the part: JSON values."""
    needs: tuple[str, ...] = ()
    """Parts whose files must be in the folder before."""


Each = Callable[[Mapping[str, Any]], None]
"""Given what is told of each part that is done, here or elsewhere."""


class Makers(Protocol):
    """Whoever makes the parts: this process alone, or several."""

    folder: Path
    """Where this process writes files."""

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What is made once for all parts: JSON values."""

    def make(self, parts: Sequence[Part], each: Each = lambda told: None) -> dict[str, dict[str, Any]]:
        """Have all parts made, those that others need before these; returns what is told of them, by their names."""


class Alone:
    """One process, which finds what is done where it left it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """As of `Makers`."""
        return self._kept(f"once-{name}", make)

    def make(self, parts: Sequence[Part], each: Each = lambda told: None) -> dict[str, dict[str, Any]]:
        """As of `Makers`."""
        found = {}
        for part in parts:
            found[part.name] = self._kept(part.name, part.make)
            each(found[part.name])
        return found

    def _kept(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        file = self.folder / KEPT / f"{name}.json"
        if file.exists():
            return _read(file)
        told = make()
        write_text(file, json.dumps(told))
        return told


class Together:
    """This process among those that meet in a store."""

    def __init__(self, meeting: Meeting, folder: Path) -> None:
        self.folder = folder
        self._meeting = meeting
        self._said: dict[str, dict[str, Any]] = {}
        """What the store says of each part that is done."""

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """As of `Makers`."""
        return self._meeting.once(name, make)

    def make(self, parts: Sequence[Part], each: Each = lambda told: None) -> dict[str, dict[str, Any]]:
        """As of `Makers`."""
        by, wanted = {part.name: part for part in parts}, {name for part in parts for name in part.needs}
        while True:
            for key in self._meeting.done(KIND):
                if (name := Path(key).stem) not in self._said and (said := self._meeting.told(key)) is not None:
                    self._said[name] = said
                    each(said["told"])
            left = [part for part in parts if part.name not in self._said]
            if not left:
                return {name: self._said[name]["told"] for name in by}
            ready = [part.name for part in left if all(name in self._said for name in part.needs)]
            with self._meeting.take(KIND, ready) as mine:
                if mine is not None:
                    self._made(by[mine], keep=mine in wanted)

    def _made(self, part: Part, *, keep: bool) -> None:
        """Make a part and hand it on; its files stay where other parts may need them, if they are those that count."""
        for name in part.needs:
            self._fetch(name, self.folder)
        told = part.make()
        keys = {file: f"{SHARDS}/files/{part.name}-{self._meeting.me}-{Path(file).name}" for file in part.files}
        files = {keys[file]: self.folder / file for file in part.files}
        first = self._meeting.offer(KIND, part.name, files, {"files": keys, "told": told})
        if not (first and keep):
            for path in files.values():
                path.unlink()

    def _fetch(self, name: str, folder: Path) -> None:
        """Copy the files of a part that is done into a folder, those that are not there yet."""
        said = self._said[name]
        for file, key in said["files"].items():
            if not (folder / file).exists():
                content = self._meeting.content(key, said["digests"], f"{SHARDS}/done/{KIND}/{name}.json")
                _write(folder / file, content)

    def gather(self, folder: Path) -> None:
        """Copy the files of all parts into a folder."""
        for name in self._said:
            self._fetch(name, folder)


Work = Callable[[Makers], Callable[[Path], None]]
"""Has the parts of a study made, and returns what puts its folder together when their files are there; the manifest last."""


def together(
    job: Job,
    shard: Shard,
    work: Work,
    *,
    needed: Sequence[str],
    answer: Callable[[Path, str], Answer],
    message: Callable[[str], None],
    lease: float = LEASE,
) -> Answer:
    """Make a folder with other processes; arguments and errors as of `runners.meeting.meet`."""

    def share(meeting: Meeting, folder: Path, settled: Mapping[str, Any]) -> Callable[[Path], None]:
        makers = Together(meeting, folder)
        end = work(makers)

        def finish(whole: Path) -> None:
            makers.gather(whole)
            end(whole)
            shutil.rmtree(whole / KEPT, ignore_errors=True)

        return finish

    return meet(job, shard, settled={}, needed=needed, work=share, answer=answer, message=message, lease=lease)


def alone(job: Job, work: Work, *, resume: bool) -> None:
    """Make a folder in this process, or with `resume` what is missing of it; errors as of `loop.carry_out`."""
    layout, path = job.layout, job.path
    before, plan = layout.begin(path, resume=resume), path / ALONE
    with layout.lock(path):
        identity = json.loads(json.dumps(job.identity(job.about)))
        if not any(re.fullmatch(r"(?!plan|once-).+\.json", one.name) for one in plan.parent.glob("*")):
            shutil.rmtree(plan.parent, ignore_errors=True)  # it stopped before any part was whole
        if before or plan.exists():
            held = before or _read(plan)
            if (job.identity(before) if before else held["cells"]) != identity:
                refuse(layout, path, held["request"], job.request, job.ignored, job.inputs)
            if not resume:
                raise RequestError(
                    f"{path} holds {article(layout.what)} that is not whole: add {option('resume')} to go on "
                    "with it, or choose another "
                    f"{option('out')}"
                )
        if not before:
            request = job.request.model_dump(mode="json")
            write_text(path / REQUEST, request_text(job, trust.mark(request, type(job.request))))
            write_text(plan, json.dumps({"brinell": VERSION, "cells": identity, "request": request}))
            work(Alone(path))(path)
        shutil.rmtree(path / KEPT, ignore_errors=True)


def run(
    job: Job,
    shard: Shard | None,
    work: Work,
    *,
    resume: bool,
    needed: Sequence[str],
    answer: Callable[[Path, str], Answer],
    message: Callable[[str], None],
) -> Answer:
    """Make a folder, together with other processes where there is a shard or a store; arguments as of `together` and `alone`."""
    if (shard := chosen(job.path, shard, resume=resume, what=job.layout.what)) is not None:
        return together(job, shard, work, needed=needed, answer=answer, message=message)
    alone(job, work, resume=resume)
    return answer(job.path, str(job.path))


def _write(file: Path, content: bytes) -> None:
    write_atomically(file, lambda temporary: temporary.write_bytes(content))


def _read(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise RequestError(f"{file} is damaged ({error}): delete it and go on with {option('resume')}") from None
    if not isinstance(told, dict):
        raise RequestError(f"{file} is damaged: delete it and go on with {option('resume')}")
    return told
