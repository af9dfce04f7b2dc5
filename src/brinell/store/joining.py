"""Joins the shards of a stage into its part, block by block, so that a stage never has to fit into memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from brinell.core.record import Array, Records
from brinell.store import in_place, parquet, rows

Holders = Callable[[Mapping[str, Records]], dict[int, str]]
"""Maps the records of shards, by shard, to the shard that holds the arrays of each sample."""
MissingRows = Callable[[Array, Mapping[str, Records]], Records]
"""Builds the rows that no shard holds, from sample positions and the records of the shards."""
BLOCK_ROWS = 1 << 13
"""Approximate number of rows that are sorted at a time."""


class Block(NamedTuple):
    """Consecutive samples of a part: their sorted rows, and for samples with stored arrays the shard that holds them."""

    records: Records
    holders: Mapping[int, str]


def nobody(shards: Mapping[str, Records]) -> dict[int, str]:
    """No holders, for stages without stored arrays."""
    return {}


def blocks(
    shards: Sequence[Path], ids: Array, budgets: int, missing_rows: MissingRows, holders: Holders = nobody
) -> Iterator[Block]:
    """All rows of a stage in blocks, with samples ascending and one row per sample and budget.

    Args:
        shards: the files of the stage's shards.
        ids: (n,) all samples of the stage, ascending.
        budgets: the number of budgets.
        missing_rows: builds the rows that no shard holds.
        holders: finds the shard that holds the arrays of each sample.
    """
    ends = np.array([_ends(path) for path in shards], dtype=np.int64).reshape(-1, 2)
    size = max(1, BLOCK_ROWS // max(1, budgets))
    for start in range(0, len(ids), size):
        positions = np.arange(start, min(start + size, len(ids)))
        low, high = ids[positions[0]], ids[positions[-1]]
        overlapping = np.flatnonzero((ends[:, 0] <= high) & (ends[:, 1] >= low))
        records_by_shard = ((shards[number].stem, _read_between(shards[number], low, high)) for number in overlapping.tolist())
        records_of = {name: records for name, records in records_by_shard if len(records)}
        block = rows.concatenate([*records_of.values(), missing_rows(positions, records_of)])
        yield Block(rows.take(block, np.lexsort((block.eps, block.sample_id))), holders(records_of))


def _ends(path: Path) -> tuple[int, int]:
    """The first and the last sample of a shard; (1, 0) for an empty shard."""
    ids = in_place.records([path]).sample_id
    return (int(ids.min()), int(ids.max())) if len(ids) else (1, 0)


def _read_between(path: Path, low: int, high: int) -> Records:
    """Rows of samples in a range."""
    records = parquet.read([path])
    return rows.take(records, (records.sample_id >= low) & (records.sample_id <= high))
