"""Makes the pieces of a study in its folder, which can be resumed after any piece.

Until the folder is complete, its `.parts` holds the rows and the record of each finished piece, and
values that are made once for all pieces.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from brinell.engine.executor import Channel, Pool
from brinell.engine.job import read_record
from brinell.engine.live_progress import duration
from brinell.store import parquet
from brinell.store.files import write_atomically, write_text
from brinell.store.folder import PARTS
from brinell.studies.kit import Piece


class PieceMaker:
    """Makes pieces in a folder, except those that an interrupted run finished; with a pool, its
    workers do.

    Args:
        folder: the folder.
        note: told the name of each piece that begins.
        pool: the workers.
    """

    def __init__(self, folder: Path, note: Callable[[str], None], pool: Pool | None = None) -> None:
        self.folder, self._note, self._pool = folder, note, pool
        self._once: dict[str, Any] = {}

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """JSON values that are made once for all pieces."""
        self._once[name] = self._read_or_make(f"once-{name}", make)
        return dict(self._once[name])

    def make(self, pieces: Sequence[Piece]) -> float:
        """Make all pieces, those with `needs` after what they need; returns the seconds that they
        took.
        """
        if self._pool is not None:
            self._make_by_workers(self._pool, pieces)
        records = [
            self._read_or_make(_name(number), partial(self._make, pieces, number))
            for number in range(len(pieces))
        ]
        return float(sum(record["seconds"] for record in records))

    def rows(self, pieces: Sequence[Piece], of: type[Any]) -> list[Any]:
        """The rows of all pieces, in order."""
        files = [self.folder / _rows_file(number) for number in range(len(pieces))]
        return [parquet.load_rows(of, file) for file in files if file.exists()]

    def _make(self, pieces: Sequence[Piece], number: int) -> dict[str, Any]:
        self._note(f"{number + 1}/{len(pieces)} {pieces[number].name}{self._left(pieces, number)}")
        start = time.perf_counter()
        if (content := pieces[number].make()) is not None:
            parquet.write_table(self.folder / _rows_file(number), parquet.to_table(content))
        return {"seconds": time.perf_counter() - start}

    def _left(self, pieces: Sequence[Piece], number: int) -> str:
        """How long the pieces from this one on will take, where they are alike and some were made
        before.
        """
        files = [self._record_file(_name(earlier)) for earlier in range(number)]
        made = [read_record(file)["seconds"] for file in files if file.exists()]
        alike = made and not any(piece.needs for piece in pieces)
        return (
            f", about {duration(sum(made) / len(made) * (len(pieces) - number))} left"
            if alike
            else ""
        )

    def _make_by_workers(self, pool: Pool, pieces: Sequence[Piece]) -> None:
        """Submit each missing piece once what it needs is there, and write the files that come
        back.
        """
        pool.start(self._once)
        numbers = {piece.name: number for number, piece in enumerate(pieces)}
        finished = {
            number for number in numbers.values() if self._record_file(_name(number)).exists()
        }
        submitted = set(finished)
        while len(finished) < len(pieces):
            for number, piece in enumerate(pieces):
                needs = [numbers[need] for need in piece.needs]
                if number not in submitted and finished.issuperset(needs):
                    needed = [
                        file
                        for need in needs
                        for file in _files(pieces[need], need)
                        if (self.folder / file).exists()
                    ]
                    pool.submit(
                        number,
                        (number, {file: (self.folder / file).read_bytes() for file in needed}),
                    )
                    submitted.add(number)
            number, (record, files) = pool.next()
            for file, content in files.items():
                write_atomically(self.folder / file, partial(Path.write_bytes, data=content))
            write_text(self._record_file(_name(number)), json.dumps(record))
            finished.add(number)

    def _record_file(self, name: str) -> Path:
        return self.folder / PARTS / f"{name}.json"

    def _read_or_make(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        file = self._record_file(name)
        if not file.exists():
            write_text(file, json.dumps(make()))
        return read_record(file)


class ServedMaker(PieceMaker):
    """Makes the pieces that a driver asks for, in a folder of the worker's own."""

    def __init__(self, folder: Path, note: Callable[[str], None], channel: Channel) -> None:
        super().__init__(folder, note)
        self._channel = channel

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The values that the driver made."""
        return dict(self._channel.shared[name])

    def make(self, pieces: Sequence[Piece]) -> float:
        """Serve the driver until the process ends."""

        def answer(
            task: tuple[int, Mapping[str, bytes]],
        ) -> tuple[dict[str, Any], dict[str, bytes]]:
            number, needed = task
            for file, content in needed.items():
                (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / file).write_bytes(content)
            record = self._make(pieces, number)
            written = [
                file for file in _files(pieces[number], number) if (self.folder / file).exists()
            ]
            return record, {file: (self.folder / file).read_bytes() for file in written}

        self._channel.serve(answer)


def _name(number: int) -> str:
    return f"piece-{number:05d}"


def _rows_file(number: int) -> str:
    return f"{PARTS}/{_name(number)}.parquet"


def _files(piece: Piece, number: int) -> tuple[str, ...]:
    return (_rows_file(number), *piece.files)
