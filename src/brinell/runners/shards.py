"""An audit by any number of processes on any number of machines that share nothing but a store, with no coordinator.

Each process makes the same run in a folder of its own, and shares the work through `shards/` in the store:

    shards/plan.json             what is run, and in how many shards; created by the first process, compared by the others
    shards/claims/TASK.NUMBER    who works on what (`store.claims`)
    shards/rows/...-BY.parquet   rows of a shard, and under shards/arrays its inputs, named after the process that made them
    shards/done/CELL/KEY.json    that a shard is whole, and whose rows and arrays count: created, so that the first one counts
    shards/done/once/NAME.json   what one process made for all, such as the checks

When all is done one process claims the assembly: it puts all shards into the run folder and resumes the run there, which finds
nothing left to compute and ends as any run does. Then plan.json is deleted, and after it the rest of `shards/`
(design/0025-shards.md).
"""

import hashlib
import json
import math
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from brinell.core.contracts import Remark
from brinell.core.errors import RequestError
from brinell.core.version import VERSION
from brinell.engine import toml, trust
from brinell.engine.peers import Told
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress, Silent
from brinell.runners import local
from brinell.runners.loop import refuse
from brinell.store.claims import LEASE, Claims
from brinell.store.files import write_atomically
from brinell.store.run import LAYOUT, Run
from brinell.store.shared import Store, address_of, check_exclusive, open_store

Answer = TypeVar("Answer")
FOLDER = "shards"
PLAN = f"{FOLDER}/plan.json"
MOST = 100_000
"""Shards that a run may be cut into."""
LEAST_GROUP = 8
"""Samples that a group holds at least, however many shards there are: below, claims and files cost more than they save."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two looks at what others do; each pause is half as long again as the one before."""


@dataclass(frozen=True)
class Shard:
    """Which of how many shards a process begins with; where others have nothing left to claim, it goes on with the rest."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """`3/16`.

        Raises:
            RequestError: no two numbers, the first from 1 to the second.
        """
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if found is None or not 1 <= int(found[1]) <= int(found[2]) <= MOST:
            raise RequestError(f"shard is {text!r}: give a number from 1 and how many there are, such as 3/16")
        return cls(int(found[1]), int(found[2]))


class _AssembledError(Exception):
    """The run is whole, so that this process is no longer needed."""


class Shards:
    """Other processes, as an audit asks them (`engine.peers.Peers`).

    Args:
        store: where they meet.
        folder: the run folder of this process.
        shard: where it begins, and into how many groups the samples of a stage are cut.
        me: what tells it from all others.
        group: samples in a group at most, as the first process said.
        whole: whether the folder is to hold the arrays of all shards.
        lease: seconds after which a process that gives no sign of life loses its claims.
    """

    def __init__(
        self, store: Store, folder: Path, shard: Shard, me: str, group: int, *, whole: bool = False, lease: float = LEASE
    ) -> None:
        self.whole = whole
        self._store, self._folder, self._shard, self._me, self._group, self._lease = store, folder, shard, me, group, lease
        self._claims = Claims(store, f"{FOLDER}/claims", me, lease)
        self._had: set[str] = set()
        """Keys of what is done and in the folder."""
        self._pause = FIRST_PAUSE

    def assembler(self, folder: Path) -> "Shards":
        """The same process when it puts all shards into the run folder."""
        return Shards(self._store, folder, self._shard, self._me, self._group, whole=True, lease=self._lease)

    def size(self, most: int, samples: int) -> int:
        """As of `group_size`; the most is what the first process said."""
        return group_size(self._group, samples, self._shard.of)

    def collect(self, cell: str) -> dict[str, Told]:
        """As of `Peers`.

        Raises:
            RequestError: a shard in the store is damaged.
        """
        found = {}
        for name in self._store.names(f"{FOLDER}/done/{cell}"):
            key = f"{FOLDER}/done/{cell}/{name}"
            if key in self._had or (told := self._done(key)) is None:
                continue
            shard = name.removesuffix(".json")
            if self.whole and told["arrays"]:
                self._fetch(told["arrays"], told["digests"], "arrays", f"shard-{cell}-{shard}.safetensors", key)
            self._fetch(told["rows"], told["digests"], "records", f"shard-{cell}-{shard}.parquet", key)
            self._had.add(key)
            self._pause = FIRST_PAUSE
            remarks = tuple(Remark(code, text) for code, text in told["remarks"])
            rest = {name: told[name] for name in ("legend", "failed", "seconds", "traffic")}
            found[shard] = Told(remarks=remarks, **rest)
        return found

    def _done(self, key: str) -> dict[str, Any] | None:
        content = self._store.read(key)
        if content is None:
            return None
        told: dict[str, Any] = json.loads(content)
        return told

    def _fetch(self, source: str, digests: Mapping[str, str], folder: str, name: str, done: str) -> None:
        """Copy a file of a shard into the run folder.

        Raises:
            RequestError: it is not what its maker wrote.
        """
        content = self._store.read(source)
        if content is None or _digest(content) != digests[source]:
            self._check_under_way()
            raise RequestError(f"{source} in the store is damaged or missing: delete {done} there and go on with --resume")
        write_atomically(self._folder / folder / name, lambda temporary: temporary.write_bytes(content))

    @contextmanager
    def take(self, cell: str, keys: Sequence[str]) -> Iterator[str | None]:
        """As of `Peers`; the first that is tried is as far along as this shard among all shards."""
        begin = len(keys) * (self._shard.number - 1) // self._shard.of
        tasks = {f"{cell}-{key}": key for key in [*keys[begin:], *keys[:begin]]}
        with self._task(list(tasks)) as task:
            done = task is not None and self._store.read(f"{FOLDER}/done/{cell}/{tasks[task]}.json") is not None
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
        if self._store.read(PLAN) is None:
            raise _AssembledError

    def finish(self, cell: str, key: str, told: Told) -> bool:
        """As of `Peers`: rows and arrays first, then in one step that they count."""
        name, digests = f"shard-{cell}-{key}", {}
        for folder, ending in (("arrays", "safetensors"), ("records", "parquet")):
            file = self._folder / folder / f"{name}.{ending}"
            if file.exists():
                to = f"{FOLDER}/{'rows' if folder == 'records' else folder}/{cell}-{key}-{self._me}.{ending}"
                content = file.read_bytes()
                digests[to] = _digest(content)
                self._store.write(to, content)
                if folder == "arrays" and not self.whole:
                    file.unlink()
        said = {
            "by": self._me,
            "rows": next(one for one in digests if one.endswith(".parquet")),
            "arrays": next((one for one in digests if one.endswith(".safetensors")), None),
            "digests": digests,
            "remarks": [[one.code, one.text] for one in told.remarks],
            "legend": dict(told.legend),
            "failed": dict(told.failed),
            "seconds": told.seconds,
            "traffic": dict(told.traffic),
        }
        done = f"{FOLDER}/done/{cell}/{key}.json"
        if self._store.create(done, json.dumps(said).encode()):
            self._had.add(done)
            return True
        for one in digests:  # another process was first
            self._store.delete(one)
        return False

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """As of `Peers`."""
        key = f"{FOLDER}/done/once/{name}.json"
        while (told := self._done(key)) is None:
            with self.take("once", [name]) as mine:
                if mine is not None:
                    self._store.create(key, json.dumps({"by": self._me, "value": make()}).encode())
        value: dict[str, Any] = told["value"]
        return value

    def seconds(self, cells: Sequence[str]) -> float:
        """As of `Peers`; asked when the run is put together, and 0 before."""
        if not self.whole:
            return 0.0
        keys = [f"{FOLDER}/done/{cell}/{name}" for cell in cells for name in self._store.names(f"{FOLDER}/done/{cell}")]
        return sum(float(told["seconds"]) for told in map(self._done, keys) if told is not None)

    def assembly(self, assemble: Callable[[], None]) -> None:
        """Put the run together, here or in another process, which is waited for; a process that dies at it is taken over from.

        Raises:
            _AssembledError: it is.
        """
        while True:
            with self._task(["assemble"]) as task:
                if task is not None:
                    assemble()
                    self._store.delete(PLAN)
                    raise _AssembledError


def group_size(most: int, samples: int, shards: int) -> int:
    """Samples in a group of a stage: as many groups as there are shards, where that leaves enough samples in each.

    Args:
        most: samples in a group where there is one process.
        samples: those that the stage begins on.
        shards: into how many the run is cut.
    """
    return min(most, max(LEAST_GROUP, math.ceil(samples / shards)))


def run(
    plan: Plan,
    out: Path,
    shard: Shard,
    progress: Progress,
    *,
    command: str,
    page: Callable[[Path], object],
    answer: Callable[[Run, str], Answer],
    lease: float = LEASE,
) -> Answer:
    """Work on a plan until the run in the store is whole.

    Args:
        plan: what to do; the same in all processes.
        out: the run folder on a disk that all processes see, or the address of one (`store.shared`).
        shard: where this process begins, and how many shards there are.
        progress: told what goes on, over all processes.
        command: the command line that repeats the run, for the manifest.
        page: writes the page of a whole run into its folder.
        answer: what is made of the whole run and the name of its folder; where the store is no folder, the run holds no arrays.
        lease: seconds after which a process that gives no sign of life loses what it works on.

    Raises:
        RequestError: the store holds another run, or one that is not in shards, or cannot be used.
        StoppedError: the store does not answer, or is full.
    """
    store, address, me = open_store(out), address_of(out), uuid.uuid4().hex[:12]
    name = address or str(out)
    with tempfile.TemporaryDirectory(prefix="brinell-") as held:
        work = Path(held)
        if (group := _join(plan, store, out, name, shard, work)) is not None:
            peers = Shards(store, work / "run", shard, me, group, lease=lease)

            def assemble() -> None:
                folder = out if address is None else work / "whole"
                local.run(plan, folder, Silent(), command=command, resume=LAYOUT.has(folder), peers=peers.assembler(folder))
                page(folder)
                if address is not None:
                    _put(store, folder)

            try:
                local.run(plan, work / "run", progress, command=command, peers=peers)
                peers.assembly(assemble)
            except _AssembledError:
                progress.message(f"note: {name} is whole")
        store.drop(FOLDER)  # each that ends does it, because another may have left a claim there meanwhile
        return answer(Run.open(out) if address is None else _fetched(store, work / "fetched"), name)


def chosen(out: Path, shard: Shard | None, *, resume: bool) -> Shard | None:
    """The shard of a process: the one that was asked for, or that of a run in shards that is to be resumed; None works alone.

    A store that is no folder is always worked on in shards, if only in one.

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
            f"{address_of(out) or out} holds a run in {of} shards that is not whole: work on it with --shard 1/{of}, go on with "
            "--resume, or choose another --out"
        )
    return Shard(1, of)


def _join(plan: Plan, store: Store, out: Path, name: str, shard: Shard, work: Path) -> int | None:
    """Begin the run in a store, or find that others have. Returns the samples of a group at most; None where the run is whole.

    Raises:
        RequestError: the store holds another run.
    """
    cells = json.loads(json.dumps(local.identity(local.about(plan))))
    content = store.read(PLAN)
    if content is None and store.read(LAYOUT.manifest) is not None:
        manifest = LAYOUT.open(out) if address_of(out) is None else _fetched(store, work / "before").manifest
        if local.identity(manifest) != cells:
            refuse(LAYOUT, Path(name), manifest["request"], plan.request, ("batch_size", "device", "isolate"))
        if manifest["state"] != "finished":
            raise RequestError(f"{name} holds a run that was begun without --shard: go on with it by --resume, without --shard")
        return None
    if content is None:
        check_exclusive(store, FOLDER, name)
        own = trust.mark(plan.request.model_dump(mode="json"))
        text = trust.marked(toml.dump(plan.request, f"{LAYOUT.verb} {LAYOUT.request}"), own)
        store.create(LAYOUT.request, text.encode())
        request = plan.request.model_dump(mode="json")
        begun = {"brinell": VERSION, "cells": cells, "of": shard.of, "group": plan.group_size, "request": request}
        store.create(PLAN, json.dumps(begun).encode())
        content = store.read(PLAN)
    told = json.loads(content or b"{}")
    if told.get("cells") != cells:
        refuse(LAYOUT, Path(name), told.get("request", {}), plan.request, ("batch_size", "device", "isolate"))
    if told["of"] != shard.of:
        raise RequestError(f"{name} was begun in {told['of']} shards: give --shard {min(shard.number, told['of'])}/{told['of']}")
    return int(told["group"])


def _put(store: Store, folder: Path) -> None:
    """Copy a whole run into a store, the manifest last."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    for path in sorted(files, key=lambda one: one.name == LAYOUT.manifest):
        store.write(path.relative_to(folder).as_posix(), path.read_bytes())


def _fetched(store: Store, folder: Path) -> Run:
    """The manifest and the rows of a whole run in a store, copied to a folder."""
    for key in (LAYOUT.manifest, *(f"records/{name}" for name in store.names("records"))):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read(key) or b"")
    return Run.open(folder)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
