"""Pieces of work, and the driver that has them made in a folder which can be resumed after any.

The pieces of a study are a generator. It yields pieces that can be done now, and is sent a piece
that is done, with its answer. So pieces may depend on answers, as the stages of a
cascade do; those of a fixed list are a generator, too (`in_turn`). The driver owns the folder: it
takes answers that an interrupted run left (`store.parts`), hands the other pieces to workers or
makes them in this process, and keeps what comes back.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from brinell.core.errors import StoppedError, TimeUpError
from brinell.engine.executor import Channel, Pool
from brinell.engine.piece import Piece, PieceAnswer, Pieces
from brinell.engine.time_limit import TimeLimit
from brinell.reports.live_progress import duration
from brinell.store.files import write_atomically
from brinell.store.parts import ONCE, Parts, PieceResult


class Driver:
    """Has pieces made in a folder, except those that an interrupted run finished.

    Args:
        folder: the folder.
        pool: the workers; None to make all pieces in this process.
        limit: the time after which pieces are refused by TimeUpError, which the generator may catch
            and go on; None for no limit.
    """

    def __init__(
        self, folder: Path, pool: Pool | None = None, limit: TimeLimit | None = None
    ) -> None:
        self.folder, self.parts = folder, Parts(folder)
        self._pool, self._limit = pool, limit or TimeLimit()
        self._shared: dict[str, Any] = {}
        self._ready = deque[PieceAnswer]()
        """Pieces that are done and were not sent."""
        self._own = deque[Piece]()
        """Pieces that this process will make."""

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """JSON values that are made once for all pieces, in the driver."""
        key = f"{ONCE}{name}"
        answer = self.parts.read(key) or self.parts.write(key, PieceResult(facts=make()))
        values = dict(answer.facts)
        self._shared[name] = values
        return values

    def carry_out(self, pieces: Pieces) -> Any:
        """Have all pieces of a generator made; returns what it returns."""
        with closing(pieces):  # it ends what it began where a piece fails
            try:
                new = next(pieces)
                while True:
                    for piece in new:
                        self._begin(piece)

                    try:
                        answer = self._next()
                    except TimeUpError as error:
                        self._cancel()
                        new = pieces.throw(error)
                    else:
                        new = pieces.send(answer)
            except StopIteration as end:
                return end.value

    def _next(self) -> PieceAnswer:
        """The next piece that is done, with its answer."""
        if self._ready:
            return self._ready.popleft()

        self._limit.check()
        if self._pool is not None and not self._own:
            return self._receive(self._pool)
        start = time.perf_counter()
        piece = self._own.popleft()
        content = piece.make()
        return piece, self._keep(piece, content, time.perf_counter() - start)

    def _cancel(self) -> None:
        """Let go of the pieces that are not done; those under way are kept for a resumed run."""
        self._own.clear()
        if self._pool is not None:
            for _ in range(self._pool.cancel()):
                self._receive(self._pool)

    def _begin(self, piece: Piece) -> None:
        """Take a piece as done, submit it to the workers, or put it among those of this process."""
        stored = self.parts.read(piece.key, piece.rows)
        # A piece that the end of the time cut is made again.
        if stored is not None and "cut" not in stored.facts:
            self._ready.append((piece, stored))
        elif self._pool is not None and piece.task is not None:
            present = [file for file in piece.reads if (self.folder / file).exists()]
            needed = {file: (self.folder / file).read_bytes() for file in present}
            self._pool.start(self._shared)
            self._pool.submit(piece, {"key": piece.key, "task": piece.task, "files": needed})
        else:
            self._own.append(piece)

    def _receive(self, pool: Pool) -> PieceAnswer:
        """The next piece that a worker has made, whose files take their places in the folder."""
        piece, files = pool.next()
        for file in (*piece.files, *self.parts.files(piece.key)):
            if file in files:
                write = partial(Path.write_bytes, data=files[file])
                write_atomically(self.folder / file, write, durable=file in piece.files)

        answer = self.parts.read(piece.key, piece.rows)
        if answer is None:
            raise StoppedError(f"a worker's answer to {piece.name} was damaged on its way")
        return piece, answer

    def _keep(self, piece: Piece, content: Any, seconds: float) -> PieceResult:
        """Keep what a piece made: an answer, rows or nothing."""
        answer = content if isinstance(content, PieceResult) else PieceResult(rows=content)
        return self.parts.write(piece.key, replace(answer, seconds=seconds))


class ServedDriver(Driver):
    """The driver of a worker: it makes the pieces that the driver of the folder asks for, in
    another folder.
    """

    def __init__(self, folder: Path, channel: Channel) -> None:
        super().__init__(folder)
        self._channel = channel

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The values that the driver made."""
        return dict(self._channel.shared[name])

    def serve(self, piece_of: Callable[[Any], Piece]) -> NoReturn:
        """Make the pieces of tasks until the process ends."""

        def answer(sent: Mapping[str, Any]) -> dict[str, bytes]:
            for file, data in sent["files"].items():
                (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / file).write_bytes(data)

            piece = replace(piece_of(sent["task"]), key=sent["key"])
            start = time.perf_counter()
            content = piece.make()
            self._keep(piece, content, time.perf_counter() - start)

            places = (*piece.files, *self.parts.files(piece.key))
            written = [file for file in places if (self.folder / file).exists()]
            files = {file: (self.folder / file).read_bytes() for file in written}
            self.parts.drop(piece.key)
            return files

        self._channel.serve(answer)


def as_cut(
    pieces: Pieces | list[Piece], rows: type[Any], note: Callable[[str], None]
) -> Generator[Sequence[Piece], PieceAnswer, list[PieceResult]]:
    """The pieces of a study, known by the order in which they are cut or listed; returns their
    answers in that order. Those that depend on answers are made by this process.

    Args:
        pieces: a list; or yields pieces that can be done now, and is sent one that is done.
        rows: the dataclass of the rows of all.
        note: told the name of each piece that begins in this process.
    """
    total = len(pieces) if isinstance(pieces, list) else 0
    # Pieces that need others differ from them, so that the time of one says nothing of the next.
    is_alike = isinstance(pieces, list) and not any(piece.needs for piece in pieces)
    answers: dict[str, PieceResult] = {}
    count = 0

    def make_noted(number: int, piece: Piece) -> Any:
        forecast = ""
        if is_alike and answers:
            mean = sum(answer.seconds for answer in answers.values()) / len(answers)
            forecast = f", about {duration(mean * (total - len(answers)))} left"
        note(f"{number + 1}{f'/{total}' if total else ''} {piece.name}{forecast}")
        return piece.make()

    with closing(in_turn(pieces) if isinstance(pieces, list) else pieces) as source:
        try:
            new = next(source)
            while True:
                ready: list[Piece] = []
                for piece in new:
                    number = count if piece.task is None else piece.task
                    make, key = partial(make_noted, number, piece), f"piece-{number:05d}"
                    ready.append(replace(piece, key=key, rows=rows, make=make))
                    count += 1
                answer = yield ready
                answers[answer[0].key] = answer[1]
                new = source.send(answer)
        except StopIteration:
            # By number, also where it has more than five digits.
            return [answers[key] for key in sorted(answers, key=lambda key: (len(key), key))]


def in_turn(pieces: Sequence[Piece]) -> Pieces:
    """The pieces of a fixed list, each once those that it needs are done; a worker knows one by its
    place in the list.
    """
    by_name = {piece.name: piece for piece in pieces}
    waiting = []
    for number, piece in enumerate(pieces):
        reads = tuple(file for need in piece.needs for file in by_name[need].files)
        waiting.append(replace(piece, task=number, reads=reads))

    names: set[str] = set()
    """Those of the pieces that are done."""
    for _ in pieces:
        ready = [piece for piece in waiting if names.issuperset(piece.needs)]
        waiting = [piece for piece in waiting if piece not in ready]
        answer = yield ready
        names.add(answer[0].name)
