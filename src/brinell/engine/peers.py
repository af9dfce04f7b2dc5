"""The interface of an audit to other processes that work on the same run.

Every process makes the same run from the same plan, group after group (`engine.stage_run`). Peers only decide which process
attacks a group: a process claims a group before it attacks it, and uses the results of others as its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from brinell.core.contracts import Remark


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """Report on a shard, besides its rows and arrays."""

    remarks: tuple[Remark, ...] = ()
    legend: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    """Reasons of the samples that could not be judged, by sample."""
    seconds: float = 0.0
    """Seconds that the shard took."""
    traffic: Mapping[str, int] = field(default_factory=dict)
    """Numbers of requests to a remote model, by kind."""


class Peers(Protocol):
    """Other processes that work on the same run."""

    keeps_all: bool
    """True if this process keeps the arrays of all shards, not only its own."""

    def group_size(self, limit: int, samples: int) -> int:
        """Group size for a stage with this many samples; `limit` is the size for a single process."""

    def last_group_size(self, waiting: int, under_way: int) -> int:
        """Size of a smaller group when too few samples for a full one wait and `under_way` groups are unfinished.

        0 means that the samples wait; it is never 0 if no group is under way.
        """

    def collect(self, cell: str) -> dict[str, ShardReport]:
        """Copy shards that others finished since the last call into the run folder; return their reports by name."""

    def claim(self, cell: str, keys: Sequence[str]) -> AbstractContextManager[str | None]:
        """Claim one of these shards within a `with` block; yields None, after a pause, if others hold all of them."""

    def finish(self, cell: str, key: str, report: ShardReport) -> bool:
        """Publish a shard of the run folder; False if another process was first, whose shard then counts."""

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return JSON values that one of the processes makes for all."""

    def seconds(self, cells: Sequence[str]) -> float:
        """Seconds that others spent on the shards of these cells."""


class NoPeers:
    """Peers of a single process."""

    keeps_all = True

    def group_size(self, limit: int, samples: int) -> int:
        """The limit itself."""
        return limit

    def last_group_size(self, waiting: int, under_way: int) -> int:
        """All waiting samples if no group is under way, else 0."""
        return 0 if under_way else waiting

    def collect(self, cell: str) -> dict[str, ShardReport]:
        """An empty dictionary."""
        return {}

    @contextmanager
    def claim(self, cell: str, keys: Sequence[str]) -> Iterator[str | None]:
        """Yield the first shard."""
        yield keys[0]

    def finish(self, cell: str, key: str, report: ShardReport) -> bool:
        """True: the shard counts."""
        return True

    def make_once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make the values in this process."""
        return make()

    def seconds(self, cells: Sequence[str]) -> float:
        """Zero."""
        return 0.0
