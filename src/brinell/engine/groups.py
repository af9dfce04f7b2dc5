"""The groups of a stage: how they are cut, and what is known of their samples.

Groups are cut by what came of the groups before, in one order, so that all processes that work on a run cut the same ones
(design/0025-shards.md).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from brinell.core.record import Array


class Answers:
    """What a stage's shards say: at each level at which a sample was attacked, the smallest one broken, and whether that is all.

    Args:
        samples: how many the run has.
        levels: how many budgets.
    """

    def __init__(self, samples: int, levels: int) -> None:
        self._codes = np.zeros((samples, levels), np.min_scalar_type(2 * levels + 2))
        """0 for nothing known; otherwise 1 more than twice the level broken, and 1 more where the stage is done."""

    def note(self, index: Array, level: Array, reached: Array, closed: Array) -> None:
        """Take in answers; arrays (n,) are aligned.

        Args:
            index: positions of the samples.
            level: the level at which each was attacked.
            reached: the smallest level broken; the number of levels for none.
            closed: whether the stage is done with the sample.
        """
        self._codes[index, level] = 1 + 2 * np.asarray(reached) + closed

    def lacks(self, index: Array, level: Array) -> Array:
        """(n,) bool: of which samples nothing is known at these levels."""
        return np.asarray(self._codes[index, level] == 0)

    def look_up(self, index: Array, level: Array) -> tuple[Array, Array]:
        """(n,) the smallest level broken, and (n,) bool, whether the stage is done, for samples of which that is known."""
        codes = self._codes[index, level].astype(np.int64) - 1
        return codes // 2, codes % 2 == 1


@dataclass(frozen=True)
class OpenGroup:
    """A group that waits for its attack."""

    index: Array
    """(n,): positions of its samples in the run."""
    level: Array
    """(n,): the level at which each is attacked."""

    def missing(self, answers: Answers) -> "OpenGroup":
        """Those of it that nothing is known of."""
        new = answers.lacks(self.index, self.level)
        return self if new.all() else OpenGroup(self.index[new], self.level[new])


class GroupQueue:
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
        self.groups: deque[OpenGroup] = deque()
        """Groups that are cut and not all known, in order; the first answers that are missing are those of the first."""
        self.made = 0
        """Groups that were cut so far."""
        self._queue = np.asarray(samples)
        self._size, self._last = size, last

    @property
    def left(self) -> int:
        """Samples that the stage is not done with."""
        return len(self._queue) + sum(len(group.index) for group in self.groups)

    def advance(self, answers: Answers) -> list[OpenGroup]:
        """Take in what is known, and cut what can be cut. Returns the groups that this ended, in order."""
        ended: list[OpenGroup] = []
        while True:
            while len(self._queue) >= self._size:
                self._cut(self._size)
            size = self._last(len(self._queue), len(self.groups)) if len(self._queue) else 0
            while size and len(self._queue):
                self._cut(size)
            if not self.groups or len(self.groups[0].missing(answers).index):
                return ended
            first = self.groups.popleft()
            reached, closed = answers.look_up(first.index, first.level)
            self.broken[first.index] = np.minimum(self.broken[first.index], reached)
            self._queue = np.concatenate([self._queue, first.index[~closed]])
            ended.append(first)

    def _cut(self, size: int) -> None:
        index, self._queue = self._queue[:size], self._queue[size:]
        self.groups.append(OpenGroup(index, self.broken[index] - 1))
        self.made += 1
