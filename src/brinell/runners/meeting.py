"""Processes on any number of machines that make one folder together, share nothing but a store, and have no coordinator.

They meet in `shards/` in the store:

    shards/plan.json             what is made, and in how many shards; created by the first process, compared by the others
    shards/claims/TASK.NUMBER    who works on what (`store.claims`)
    shards/done/KIND/NAME.json   that something is whole, and whose files of it count: created, so that the first one counts
    shards/done/once/NAME.json   what one process made for all, such as the checks of an audit

Each process makes the same, in a folder of its own, and asks here before it makes anything. When all is done one process claims
the assembly and puts the folder together. Then plan.json is deleted, and after it the rest of `shards/` (design/0025-shards.md).
What an audit shares is in `runners.shards`, what studies share in `runners.parts`.
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
from brinell.engine import trust
from brinell.runners.loop import Job, refuse, request_text
from brinell.store.claims import LEASE, Claims
from brinell.store.folder import MANIFEST, REQUEST, SHARDS, Layout
from brinell.store.shared import Store, address_of, check_exclusive, open_store

Answer = TypeVar("Answer")
PLAN = f"{SHARDS}/plan.json"
ALONE = ".parts/plan.json"
"""The same of a process that makes parts by itself."""
MOST = 100_000
"""Shards that a run may be cut into."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two looks at what others do; each pause is half as long again as the one before."""


@dataclass(frozen=True)
class Shard:
    """Which of how many shards a process begins with; where others have nothing left to claim, it goes on with the rest."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """`3/16`: two numbers, the first from 1 to the second."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if found is None or not 1 <= int(found[1]) <= int(found[2]) <= MOST:
            raise RequestError(f"shard is {text!r}: give a number from 1 and how many there are, such as 3/16")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def asked(cls, text: str | None, out: Path | str | None) -> "Shard | None":
        """The shard that was asked for, if any, for work in `out`, without which there is no place to meet."""
        if text is not None and out is None:
            raise RequestError(f"{option('shard')} needs {option('out')}: the folder or address where the processes meet")
        return None if text is None else cls.parse(text)


class AssembledError(Exception):
    """All is whole, so that this process is no longer needed."""


class Meeting:
    """One process, `me`, among those that meet in a store; after `lease` seconds without a sign of life it loses its claims."""

    def __init__(self, store: Store, shard: Shard, me: str, lease: float = LEASE) -> None:
        self.store, self.shard, self.me = store, shard, me
        self._claims = Claims(store, f"{SHARDS}/claims", me, lease)
        self._pause = FIRST_PAUSE

    def done(self, kind: str) -> list[str]:
        """Keys of what is done of a kind."""
        return [f"{SHARDS}/done/{kind}/{name}" for name in self.store.names(f"{SHARDS}/done/{kind}")]

    def told(self, key: str) -> dict[str, Any] | None:
        """What is said of something that is done; None where it is not."""
        content = self.store.read(key)
        if content is None:
            return None
        told: dict[str, Any] = json.loads(content)
        return told

    def content(self, source: str, digests: Mapping[str, str], done: str) -> bytes:
        """A file of what is done.

        Args:
            source: its key.
            digests: of the files, by their keys.
            done: the key of what says that it is done, for the line that says what to do.

        Raises:
            RequestError: it is not what its maker wrote.
        """
        self._pause = FIRST_PAUSE
        content = self.store.read(source)
        if content is None or _digest(content) != digests[source]:
            self._check_under_way()
            raise RequestError(
                f"{source} in the store is damaged or missing: delete {done} there and go on with {option('resume')}"
            )
        return content

    @contextmanager
    def take(self, kind: str, names: Sequence[str]) -> Iterator[str | None]:
        """Claim one of some names of a kind for the time of the block; None, after a pause, where others hold all of them.

        The first that is tried is as far along as this shard among all shards.
        """
        begin = len(names) * (self.shard.number - 1) // self.shard.of
        tasks = {f"{kind}-{name}": name for name in [*names[begin:], *names[:begin]]}
        with self._task(list(tasks)) as task:
            done = task is not None and self.store.read(f"{SHARDS}/done/{kind}/{tasks[task]}.json") is not None
            yield None if task is None or done else tasks[task]

    @contextmanager
    def _task(self, tasks: Sequence[str]) -> Iterator[str | None]:
        """Claim one of some tasks for the time of the block; None, after a pause, where all are held."""
        held = self._claims.first(tasks)
        if held is None:
            self._check_under_way()
            time.sleep(self._pause)
            self._pause = min(1.5 * self._pause, LONGEST_PAUSE)
            yield None
        else:
            self._pause = FIRST_PAUSE
            claim, task = held
            with claim:
                self._check_under_way()
                yield task

    def _check_under_way(self) -> None:
        if self.store.read(PLAN) is None:
            raise AssembledError

    def offer(self, kind: str, name: str, files: Mapping[str, Path], said: Mapping[str, Any]) -> bool:
        """Hand on something that is whole: its files first, then in one step that they count.

        Args:
            kind: of what.
            name: which of them.
            files: by their keys in the store, which name this process.
            said: what else is to be said of it, as JSON values.

        Returns:
            False where another process was first, whose files count instead; then these are not kept.
        """
        digests = {}
        for key, path in files.items():
            content = path.read_bytes()
            digests[key] = _digest(content)
            self.store.write(key, content)
        told = {"by": self.me, "digests": digests, **said}
        if self.store.create(f"{SHARDS}/done/{kind}/{name}.json", json.dumps(told).encode()):
            return True
        for key in files:
            self.store.delete(key)
        return False

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What one of the processes makes for all: JSON values."""
        key = f"{SHARDS}/done/once/{name}.json"
        while (told := self.told(key)) is None:
            with self.take("once", [name]) as mine:
                if mine is not None:
                    self.store.create(key, json.dumps({"by": self.me, "value": make()}).encode())
        value: dict[str, Any] = told["value"]
        return value

    def assembly(self, assemble: Callable[[], None]) -> None:
        """Put the folder together, here or in another process, which is waited for; one that dies at it is taken over from.

        It ends by `AssembledError` in any case.
        """
        while True:
            with self._task(["assemble"]) as task:
                if task is not None:
                    assemble()
                    self.store.delete(PLAN)
                    raise AssembledError


def meet(
    job: Job,
    shard: Shard,
    *,
    settled: Mapping[str, Any],
    needed: Sequence[str],
    work: Callable[[Meeting, Path, Mapping[str, Any]], Callable[[Path], None]],
    answer: Callable[[Path, str], Answer],
    message: Callable[[str], None],
    lease: float = LEASE,
) -> Answer:
    """Work until the folder in the store is whole.

    Args:
        job: what is made, the same in all processes; its path is a folder on a disk that all processes see, or the address of one
            (`store.shared`).
        shard: where this process begins, and how many shards there are.
        settled: what the first process settles for all.
        needed: the files of a whole folder of which an answer is made, beside its manifest; all those of a folder as `records/`.
        work: does this process's share, in a folder of its own, by what was settled; returns what puts the folder together.
        answer: what is made of the whole folder and of its name; where the store is no folder, it holds what is needed alone.
        message: told what is worth a line.
        lease: seconds after which a process that gives no sign of life loses what it works on.

    Raises:
        RequestError: the store holds something else, or what is not in shards, or cannot be used.
        StoppedError: the store does not answer, or is full.
    """
    out, store, address = job.path, open_store(job.path), address_of(job.path)
    name = address or str(out)
    with tempfile.TemporaryDirectory(prefix="brinell-") as held:
        mine = Path(held)
        told = _join(job, store, name, shard, settled, lambda: _fetched(store, job.layout, (), mine / "before"))
        if told is not None:
            meeting = Meeting(store, shard, uuid.uuid4().hex[:12], lease)
            try:
                end = work(meeting, mine / "run", told)

                def assemble() -> None:
                    folder = out if address is None else mine / "whole"
                    end(folder)
                    if address is not None:
                        _put(store, job.layout, folder)

                meeting.assembly(assemble)
            except AssembledError:
                message(f"note: {name} is whole")
        store.drop(SHARDS)  # each that ends does it, because another may have left a claim there meanwhile
        return answer(out if address is None else _fetched(store, job.layout, needed, mine / "fetched"), name)


def chosen(out: Path, shard: Shard | None, *, resume: bool, what: str = "run") -> Shard | None:
    """The shard of a process: the one that was asked for, or that of a run in shards that is to be resumed; None works alone.

    A store that is no folder is always worked on in shards, if only in one.

    Args:
        out: the folder or the address.
        shard: what was asked for.
        resume: whether it is to be gone on with what is there.
        what: what is made, in the singular.

    Raises:
        RequestError: the store holds a run in shards that is not whole, and nobody asked to go on with it.
    """
    if shard is not None:
        return shard
    content = open_store(out).read(PLAN)
    if content is None:
        return None if address_of(out) is None else Shard(1, 1)
    of = int(json.loads(content)["of"])
    if not resume:
        raise RequestError(
            f"{address_of(out) or out} holds {article(what)} in {of} shards that is not whole: work on it with "
            f"{option('shard', f'1/{of}')}, "
            f"go on with {option('resume')}, or choose another {option('out')}"
        )
    return Shard(1, of)


def _join(
    job: Job, store: Store, name: str, shard: Shard, settled: Mapping[str, Any], fetched: Callable[[], Path]
) -> Mapping[str, Any] | None:
    """Begin in a store, or find that others have. Returns what the first process settled; None where the folder is whole."""
    layout, request = job.layout, job.request
    cells = json.loads(json.dumps(job.identity(job.about)))
    content = store.read(PLAN)
    if content is None and store.read(MANIFEST) is not None:
        manifest = layout.open(job.path if address_of(job.path) is None else fetched())
        if job.identity(manifest) != cells:
            refuse(layout, Path(name), manifest["request"], request, job.ignored, job.inputs)
        if manifest.get("state", "finished") != "finished":
            refuse_begun(layout, name)
        return None
    if content is None:
        if store.read(ALONE) is not None:
            refuse_begun(layout, name)
        if address_of(job.path) is None:
            layout.check_free(job.path, SHARDS, REQUEST)
        check_exclusive(store, SHARDS, name)
        own = trust.mark(request.model_dump(mode="json"), type(request))
        store.create(REQUEST, request_text(job, own).encode())
        begun = {"brinell": VERSION, "cells": cells, "of": shard.of, **settled, "request": request.model_dump(mode="json")}
        store.create(PLAN, json.dumps(begun).encode())
        content = store.read(PLAN)
    told: dict[str, Any] = json.loads(content or b"{}")
    if told.get("cells") != cells:
        refuse(layout, Path(name), told.get("request", {}), request, job.ignored, job.inputs)
    if told["of"] != shard.of:
        fitting = f"{min(shard.number, told['of'])}/{told['of']}"
        raise RequestError(f"{name} was begun in {told['of']} shards: give {option('shard', fitting)}")
    return told


def refuse_begun(layout: Layout, name: str) -> NoReturn:
    """Refuse shards of what was begun without."""
    raise RequestError(
        f"{name} holds {article(layout.what)} that was begun without {option('shard')}: go on with it by "
        f"{option('resume')}, without {option('shard')}"
    )


def article(what: str) -> str:
    """`a run`, `an explanation`."""
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"


def _put(store: Store, layout: Layout, folder: Path) -> None:
    """Copy what is whole into a store, the manifest last."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    for path in sorted(files, key=lambda one: one.name == MANIFEST):
        store.write(path.relative_to(folder).as_posix(), path.read_bytes())


def _fetched(store: Store, layout: Layout, needed: Sequence[str], folder: Path) -> Path:
    """The manifest and the files needed of what is whole in a store, copied to a folder."""
    keys = [one + name for one in needed for name in (store.names(one[:-1]) if one.endswith("/") else [""])]
    for key in (MANIFEST, *keys):
        if (content := store.read(key)) is not None:
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
