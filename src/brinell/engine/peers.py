"""What an audit asks of other processes that work on the same run, and the answers where there are none.

Every process makes the same run from the same plan, group after group. Before it attacks a group it asks whether that is taken;
what others have finished it takes in as if it had made it. Groups are cut by what came of the groups before, in one order, so all
processes cut the same ones, and the rows are those of one process (design/0025-shards.md).
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from brinell.core.contracts import Remark
from brinell.core.record import Array, Records
from brinell.engine.cells import cell
from brinell.store.run import Run

Known = dict[tuple[int, int], tuple[int, bool]]
"""(sample, level attacked) to (smallest level broken, whether the stage is done with the sample); samples by position."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What is to be said of a shard beside its rows and arrays."""

    remarks: tuple[Remark, ...] = ()
    legend: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    """Samples that could not be judged, each with the reason."""
    seconds: float = 0.0
    """What it took the process that made it."""
    traffic: Mapping[str, int] = field(default_factory=dict)
    """What a model on another machine was asked for it, by kind."""


class Peers(Protocol):
    """Other processes that work on the same run."""

    whole: bool
    """Whether this process keeps the arrays of all shards, and not only of its own."""

    def size(self, most: int, samples: int) -> int:
        """Samples in a group of a stage that begins on so many; `most` is the size where there is one process."""

    def collect(self, cell: str) -> dict[str, Told]:
        """Put into the run folder what others have finished of a cell since the last call: by the name of its shard."""

    def take(self, cell: str, keys: Sequence[str]) -> AbstractContextManager[str | None]:
        """Claim one of some shards of a cell for the time of the block; None, after a pause, where others hold all of them."""

    def finish(self, cell: str, key: str, told: Told) -> bool:
        """Hand on a shard that the run folder holds now; False where another process was first, whose shard counts instead."""

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What one of the processes makes for all: JSON values."""

    def seconds(self, cells: Sequence[str]) -> float:
        """What it took others to make the shards of some cells."""


class Alone:
    """There is no other process."""

    whole = True

    def size(self, most: int, samples: int) -> int:
        """The one that memory allows."""
        return most

    def collect(self, cell: str) -> dict[str, Told]:
        """Nothing."""
        return {}

    @contextmanager
    def take(self, cell: str, keys: Sequence[str]) -> Iterator[str | None]:
        """The first."""
        yield keys[0]

    def finish(self, cell: str, key: str, told: Told) -> bool:
        """Nobody waits for it."""
        return True

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Made here."""
        return make()

    def seconds(self, cells: Sequence[str]) -> float:
        """None."""
        return 0.0


@dataclass(frozen=True)
class Cut:
    """A group: positions of samples (n,), and the level (n,) at which each is attacked."""

    at: Array
    level: Array

    def missing(self, known: Known) -> "Cut":
        """Those of it that nothing is known of."""
        new = np.array([one not in known for one in zip(self.at.tolist(), self.level.tolist(), strict=True)], dtype=bool)
        return Cut(self.at[new], self.level[new])


class Descent:
    """The groups of a stage, cut one after another by what came of the ones before.

    Samples wait in a queue; those of a group that are not done with go to its end, at the next level below the one broken. One
    process alone takes as many from the front as fit, attacks them, and does it again. The same groups come of it when a group is
    cut as soon as the queue holds a full one, and answers are taken in in the order of the groups: what is put to the end of a
    queue changes nothing at its front. So several processes can attack groups at once.

    Args:
        samples: positions of the samples that the stage begins on.
        broken: (samples of the run,): the smallest level at which each was broken before.
        size: samples in a group.
    """

    def __init__(self, samples: Array, broken: Array, size: int) -> None:
        self.broken = broken.copy()
        self.cuts: deque[Cut] = deque()
        """Groups that are cut and not all known, in order; the first answers that are missing are those of the first."""
        self._queue = deque(samples.tolist())
        self._size = size

    @property
    def left(self) -> int:
        """Samples that the stage is not done with."""
        return len(self._queue) + sum(len(one.at) for one in self.cuts)

    def advance(self, known: Known) -> list[Cut]:
        """Take in what is known, and cut what can be cut. Returns the groups that this ended, in order."""
        ended: list[Cut] = []
        while True:
            while len(self._queue) >= self._size or (self._queue and not self.cuts):
                at = np.array([self._queue.popleft() for _ in range(min(self._size, len(self._queue)))])
                self.cuts.append(Cut(at, self.broken[at] - 1))
            if not self.cuts or len(self.cuts[0].missing(known).at):
                return ended
            first = self.cuts.popleft()
            answers = [known[one] for one in zip(first.at.tolist(), first.level.tolist(), strict=True)]
            self.broken[first.at] = np.minimum(self.broken[first.at], [reached for reached, _ in answers])
            self._queue.extend(first.at[[not closed for _, closed in answers]].tolist())
            ended.append(first)


@dataclass(frozen=True)
class Work:
    """The groups of a stage, and what becomes of them."""

    cell: str
    descent: Descent
    shards: dict[str, Records]
    """Those that are there, by the names of their files; the others are added."""
    known_of: Callable[[Mapping[str, Records]], Known]
    """What shards say of their samples."""
    make: Callable[[Cut, str], Told]
    """Makes the shard of a group, by the name that it is to have, and adds it to the others."""
    take_in: Callable[[Told], None]
    """Keeps what another process says of a shard."""
    open_: Callable[[int], None]
    """Told how many samples are left."""


def make_all(peers: Peers, run: Run, ids: Array, work: Work) -> None:
    """Have every group of a stage made, here or by another process.

    Args:
        peers: the other processes.
        run: the folder of this one.
        ids: (n,) the samples of the run.
        work: what is to be made.
    """

    def name_of(cut: Cut) -> str:
        return cell(columns=[ids[cut.at].tolist(), cut.level.tolist()])

    known, told = work.known_of(work.shards), dict[str, Told]()
    while True:
        others = peers.collect(work.cell)
        told |= others
        found = {f"shard-{work.cell}-{name}": run.shard(work.cell, name) for name in others}
        work.shards.update(found)
        known |= work.known_of(found)
        for ended in work.descent.advance(known):
            if (said := told.pop(name_of(ended), None)) is not None:
                work.take_in(said)
        work.open_(work.descent.left)
        missing = {name_of(cut): cut for one in work.descent.cuts if len((cut := one.missing(known)).at)}
        if not missing:
            return
        with peers.take(work.cell, list(missing)) as name:
            if name is not None and peers.finish(work.cell, name, work.make(missing[name], name)):
                made = f"shard-{work.cell}-{name}"
                known |= work.known_of({made: work.shards[made]})
