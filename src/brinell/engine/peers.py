"""What an audit asks of other processes that work on the same run, and the answers where there are none.

Every process makes the same run from the same plan, group after group. Before it attacks a group it asks whether that is taken;
what others have finished it takes in as if it had made it. Groups are cut by what came of the groups before, in one order, so all
processes cut the same ones, and the rows are those of one process (design/0025-shards.md).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np

from brinell.core.contracts import Remark
from brinell.core.record import Array, Records
from brinell.engine.cells import cell
from brinell.store.run import Run


class Known:
    """What a stage's shards say: at each level at which a sample was attacked, the smallest one broken, and whether that is all.

    Args:
        samples: how many the run has.
        levels: how many budgets.
    """

    def __init__(self, samples: int, levels: int) -> None:
        self._codes = np.zeros((samples, levels), np.min_scalar_type(2 * levels + 2))
        """0 for nothing known; otherwise 1 more than twice the level broken, and 1 more where the stage is done."""

    def note(self, at: Array, level: Array, reached: Array, closed: Array) -> None:
        """Take in answers; arrays (n,) are aligned.

        Args:
            at: positions of the samples.
            level: the level at which each was attacked.
            reached: the smallest level broken; the number of levels for none.
            closed: whether the stage is done with the sample.
        """
        self._codes[at, level] = 1 + 2 * np.asarray(reached) + closed

    def lacks(self, at: Array, level: Array) -> Array:
        """(n,) bool: of which samples nothing is known at these levels."""
        return np.asarray(self._codes[at, level] == 0)

    def answers(self, at: Array, level: Array) -> tuple[Array, Array]:
        """(n,) the smallest level broken, and (n,) bool, whether the stage is done, for samples of which that is known."""
        codes = self._codes[at, level].astype(np.int64) - 1
        return codes // 2, codes % 2 == 1


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

    def last(self, left: int, under_way: int) -> int:
        """Samples in a group when so many wait, too few for a usual one, while so many groups are under way; 0: they wait on.

        Where no group is under way it is not 0.
        """

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

    def last(self, left: int, under_way: int) -> int:
        """All of them, when nothing is under way."""
        return 0 if under_way else left

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
        new = known.lacks(self.at, self.level)
        return self if new.all() else Cut(self.at[new], self.level[new])


class Descent:
    """The groups of a stage, cut one after another by what came of the ones before.

    Samples wait in a queue; those of a group that are not done with go to its end, at the next level below the one broken. One
    process alone takes as many from the front as fit, attacks them, and does it again. The same groups come of it when a group is
    cut as soon as the queue holds a full one, and answers are taken in in the order of the groups: what is put to the end of a
    queue changes nothing at its front. So several processes can attack groups at once. When samples wait that do not fill a
    group, and too few groups are under way for all processes, smaller ones are cut. How many are under way is counted when
    answers are taken in, and so is the same whoever is faster.

    Args:
        samples: positions of the samples that the stage begins on.
        broken: (samples of the run,): the smallest level at which each was broken before.
        size: samples in a group.
        last: as `Peers.last`.
    """

    def __init__(self, samples: Array, broken: Array, size: int, last: Callable[[int, int], int]) -> None:
        self.broken = broken.copy()
        self.cuts: deque[Cut] = deque()
        """Groups that are cut and not all known, in order; the first answers that are missing are those of the first."""
        self.made = 0
        """Groups that were cut so far."""
        self._queue = np.asarray(samples)
        self._size, self._last = size, last

    @property
    def left(self) -> int:
        """Samples that the stage is not done with."""
        return len(self._queue) + sum(len(one.at) for one in self.cuts)

    def advance(self, known: Known) -> list[Cut]:
        """Take in what is known, and cut what can be cut. Returns the groups that this ended, in order."""
        ended: list[Cut] = []
        while True:
            while len(self._queue) >= self._size:
                self._cut(self._size)
            size = self._last(len(self._queue), len(self.cuts)) if len(self._queue) else 0
            while size and len(self._queue):
                self._cut(size)
            if not self.cuts or len(self.cuts[0].missing(known).at):
                return ended
            first = self.cuts.popleft()
            reached, closed = known.answers(first.at, first.level)
            self.broken[first.at] = np.minimum(self.broken[first.at], reached)
            self._queue = np.concatenate([self._queue, first.at[~closed]])
            ended.append(first)

    def _cut(self, size: int) -> None:
        at, self._queue = self._queue[:size], self._queue[size:]
        self.cuts.append(Cut(at, self.broken[at] - 1))
        self.made += 1


@dataclass(frozen=True)
class Work:
    """The groups of a stage, and what becomes of them."""

    cell: str
    descent: Descent
    known: Known
    """What is known of its samples; nothing at first."""
    note: Callable[[Records], None]
    """Takes in what a shard says of them."""
    make: Callable[[Cut, str], tuple[Told, Records]]
    """Makes the shard of a group, by the name that it is to have, in the run folder."""
    take_in: Callable[[Told], None]
    """Keeps what another process says of a shard."""
    open_: Callable[[int], None]
    """Told how many samples are left."""


class _Missing:
    """The groups of a stage of which something is not known yet, by the names of the shards that say it, in order."""

    def __init__(self, work: Work, ids: Array) -> None:
        self._work, self._ids, self._seen = work, ids, 0
        self.cuts: dict[str, Cut] = {}

    def name_of(self, cut: Cut) -> str:
        """The name of the shard of a group."""
        return cell(columns=[self._ids[cut.at].tolist(), cut.level.tolist()])

    def update(self, done: Iterable[str]) -> None:
        """Take away the shards that are there now, and add those of groups that were cut since the last call."""
        descent, known = self._work.descent, self._work.known
        new = min(len(descent.cuts), descent.made - self._seen)
        if not self.cuts.keys() >= set(done):  # of whose samples some were known here, so that they are in other company
            self.cuts, new = {}, len(descent.cuts)
        for name in done if self.cuts else ():
            del self.cuts[name]
        for one in islice(descent.cuts, len(descent.cuts) - new, None):
            if len((left := one.missing(known)).at):
                self.cuts[self.name_of(left)] = left
        self._seen = descent.made


def make_all(peers: Peers, run: Run, ids: Array, work: Work) -> None:
    """Have every group of a stage made, here or by another process. Their rows are in the run folder then, and not in memory.

    Args:
        peers: the other processes.
        run: the folder of this one.
        ids: (n,) the samples of the run.
        work: what is to be made.
    """
    told, missing = dict[str, Told](), _Missing(work, ids)
    for path in run.shard_files(work.cell):
        work.note(run.shard(work.cell, path.stem.removeprefix(f"shard-{work.cell}-")))
    while True:
        others = peers.collect(work.cell)
        told |= others
        for name in others:
            work.note(run.shard(work.cell, name))
        for ended in work.descent.advance(work.known):
            if told and (said := told.pop(missing.name_of(ended), None)) is not None:
                work.take_in(said)
        missing.update(others)
        work.open_(work.descent.left)
        if not missing.cuts:
            return
        with peers.take(work.cell, list(missing.cuts)) as taken:
            if taken is not None:
                said, records = work.make(missing.cuts[taken], taken)
                if peers.finish(work.cell, taken, said):
                    work.note(records)
                    missing.update([taken])
