"""What an audit asks of other processes that work on the same run, and the answers where there are none.

Every process makes the same run from the same plan, group after group (`engine.stage_run`). Peers only decide who attacks a
group: a process asks first whether the group is taken, and what others have finished it takes in as if it had made it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from brinell.core.contracts import Remark


@dataclass(frozen=True, kw_only=True)
class ShardReport:
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

    def collect(self, cell: str) -> dict[str, ShardReport]:
        """Put into the run folder what others have finished of a cell since the last call: by the name of its shard."""

    def take(self, cell: str, keys: Sequence[str]) -> AbstractContextManager[str | None]:
        """Claim one of some shards of a cell for the time of the block; None, after a pause, where others hold all of them."""

    def finish(self, cell: str, key: str, report: ShardReport) -> bool:
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

    def collect(self, cell: str) -> dict[str, ShardReport]:
        """Nothing."""
        return {}

    @contextmanager
    def take(self, cell: str, keys: Sequence[str]) -> Iterator[str | None]:
        """The first."""
        yield keys[0]

    def finish(self, cell: str, key: str, report: ShardReport) -> bool:
        """Nobody waits for it."""
        return True

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Made here."""
        return make()

    def seconds(self, cells: Sequence[str]) -> float:
        """None."""
        return 0.0
