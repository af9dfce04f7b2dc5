"""Folders made of independent parts of a few files each, which can be resumed after any part.

A study defines its parts and how they are assembled. Until the folder is complete, it holds

    .parts/plan.json      the plan
    .parts/NAME.json      the record of a finished part, or values made once for all parts
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from brinell.engine.executor import Channel, Pool
from brinell.engine.job import read_record
from brinell.store.files import write_atomically, write_text
from brinell.store.folder import PARTS


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a folder."""

    name: str
    """Unique name of letters, digits and hyphens."""
    files: tuple[str, ...]
    """Paths of the files in the folder that it may write."""
    make: Callable[[], dict[str, Any]]
    """Writes the files and returns JSON values for the record of the part."""
    needs: tuple[str, ...] = ()
    """Names of parts whose files must be in the folder first."""


class PartMaker:
    """Makes the parts of the folder `folder`, except those that an interrupted run finished; with a pool, its workers do."""

    def __init__(self, folder: Path, pool: Pool | None = None) -> None:
        self.folder, self._pool = folder, pool
        self._once: dict[str, Any] = {}

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return JSON values that are made once for all parts."""
        record = self._read_or_make(f"once-{name}", make)
        self._once[name] = record
        return record

    def make(self, parts: Sequence[Part]) -> dict[str, dict[str, Any]]:
        """Make all parts, prerequisites first; return their values by name."""
        if self._pool is not None:
            self._make_by_workers(self._pool, {part.name: part for part in parts})
        return {part.name: self._read_or_make(part.name, part.make) for part in parts}

    def _make_by_workers(self, pool: Pool, parts: Mapping[str, Part]) -> None:
        """Submit each missing part once its prerequisites are there, and write the files that come back."""
        pool.start(self._once)
        finished = {name for name in parts if self._record_file(name).exists()}
        submitted = set(finished)
        while len(finished) < len(parts):
            for part in parts.values():
                if part.name not in submitted and finished.issuperset(part.needs):
                    needed = [file for name in part.needs for file in parts[name].files if (self.folder / file).exists()]
                    pool.submit(part, (part.name, {file: (self.folder / file).read_bytes() for file in needed}))
                    submitted.add(part.name)
            part, (record, files) = pool.next()
            for file, content in files.items():
                write_atomically(self.folder / file, partial(Path.write_bytes, data=content))
            write_text(self._record_file(part.name), json.dumps(record))
            finished.add(part.name)

    def _record_file(self, name: str) -> Path:
        return self.folder / PARTS / f"{name}.json"

    def _read_or_make(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        file = self._record_file(name)
        if file.exists():
            return read_record(file)
        record = make()
        write_text(file, json.dumps(record))
        return record


class ServedMaker(PartMaker):
    """Makes the parts that a driver asks for, in a folder of the worker's own."""

    def __init__(self, folder: Path, channel: Channel) -> None:
        super().__init__(folder)
        self._channel = channel

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The values that the driver made."""
        return dict(self._channel.shared[name])

    def make(self, parts: Sequence[Part]) -> NoReturn:
        """Serve the driver until the process ends."""
        by_name = {part.name: part for part in parts}

        def answer(task: tuple[str, Mapping[str, bytes]]) -> tuple[dict[str, Any], dict[str, bytes]]:
            name, needed = task
            for file, content in needed.items():
                (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / file).write_bytes(content)
            record = by_name[name].make()
            written = [file for file in by_name[name].files if (self.folder / file).exists()]
            return record, {file: (self.folder / file).read_bytes() for file in written}

        self._channel.serve(answer)
