"""The shards of a stage become its part, block of samples after block, so that no stage is ever in memory whole."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from brinell.core.record import Array, Records
from brinell.store import in_place, parquet, rows

Holders = Callable[[Mapping[str, Records]], dict[int, str]]
"""For each sample of some shards the one that holds its arrays."""
Rest = Callable[[Array, Mapping[str, Records]], Records]
"""The rows of some samples, by position, that no shard has, told what the shards say of them."""


BLOCK_ROWS = 1 << 13
"""About how many rows are put in order at a time."""


class Block(NamedTuple):
    """Some samples of a part: their rows, sorted, and for those of which an array is kept the shard that holds it."""

    records: Records
    holders: Mapping[int, str]


def nobody(shards: Mapping[str, Records]) -> dict[int, str]:
    """Of no sample an array is kept."""
    return {}


def blocks(shards: Sequence[Path], ids: Array, budgets: int, rest: Rest, holders: Holders = nobody) -> Iterator[Block]:
    """All rows of a stage: those of its shards and the `rest`; samples (n,) ascend, each with a row for each budget.

    `holders` says which shard holds the arrays of a sample.
    """
    ends = np.array([_ends(path) for path in shards], dtype=np.int64).reshape(-1, 2)
    size = max(1, BLOCK_ROWS // max(1, budgets))
    for start in range(0, len(ids), size):
        at = np.arange(start, min(start + size, len(ids)))
        low, high = ids[at[0]], ids[at[-1]]
        near = np.flatnonzero((ends[:, 0] <= high) & (ends[:, 1] >= low))
        read = ((shards[number].stem, _between(shards[number], low, high)) for number in near.tolist())
        found = {name: some for name, some in read if len(some)}
        block = rows.concatenate([*found.values(), rest(at, found)])
        yield Block(rows.take(block, np.lexsort((block.eps, block.sample_id))), holders(found))


def _ends(path: Path) -> tuple[int, int]:
    """The first and the last sample of a shard; none has neither."""
    ids = in_place.records([path]).sample_id
    return (int(ids.min()), int(ids.max())) if len(ids) else (1, 0)


def _between(path: Path, low: int, high: int) -> Records:
    records = parquet.read([path])
    return rows.take(records, (records.sample_id >= low) & (records.sample_id <= high))
