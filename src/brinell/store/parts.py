"""What is made so far of a folder that is not finished: the answer of each piece, in `.parts`.

An answer is a file of rows, one of arrays, and last a record of JSON values, each of which takes
its place at once. So a piece with a record is done, and a kill of the process loses none of it. The
files are not flushed to the disk, since those of the finished folder will be.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.core.record import Array
from brinell.store import parquet
from brinell.store.files import write_arrays, write_text
from brinell.store.folder import PARTS

ONCE = "once-"
"""The beginning of the keys of answers that are made once for all pieces, before any."""


@dataclass(frozen=True, kw_only=True)
class PieceResult:
    """The result of a piece."""

    rows: Any = None
    """A dataclass of records; None for a piece without rows."""
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Arrays by name, which stay in the file of the piece until they are asked for."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON values."""
    seconds: float = 0.0
    """Wall time."""


class Parts:
    """The answers of the pieces of a folder, by key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / PARTS

    def read(self, key: str, rows: type[Any] | None = None) -> PieceResult | None:
        """The answer of a piece without its arrays; None for one that is not done or is damaged.

        Args:
            key: what the piece is known by.
            rows: the dataclass of its rows.
        """
        record = self._file(key, ".json")
        table = self._file(key, ".parquet")
        if not record.exists():
            return None

        try:
            content = bounded.json_of(record)
            content_rows = (
                parquet.load_rows(rows, table) if rows is not None and table.exists() else None
            )
            return PieceResult(
                rows=content_rows, facts=content["facts"], seconds=float(content["seconds"])
            )
        # A piece that was cut off while it was written counts as not done: it is made again.
        except (OSError, RequestError, LookupError, TypeError, ValueError):
            self.drop(key)
            return None

    def write(self, key: str, answer: PieceResult) -> PieceResult:
        """Keep an answer; returns it as `read` would."""
        # Through JSON, so that an answer that was kept and one that was just made are alike.
        facts = json.loads(json.dumps(answer.facts))

        if answer.arrays:
            write_arrays(self.arrays_file(key), answer.arrays, durable=False)
        if answer.rows is not None:
            table = parquet.to_table(answer.rows)
            parquet.write_table(self._file(key, ".parquet"), table, durable=False)
        # The record is written last: as long as it is missing, the piece is not done.
        record = json.dumps({"seconds": answer.seconds, "facts": facts})
        write_text(self._file(key, ".json"), record, durable=False)
        return replace(answer, arrays={}, facts=facts)

    def files(self, key: str) -> list[str]:
        """The paths in the folder of the files of a piece, its record last; some may not exist."""
        suffixes = (".safetensors", ".parquet", ".json")
        return [f"{PARTS}/{key}{suffix}" for suffix in suffixes]

    def arrays_file(self, key: str) -> Path:
        """The file of the arrays of a piece, which exists if it has any."""
        return self._file(key, ".safetensors")

    def drop(self, prefix: str) -> None:
        """Delete the answers of all pieces whose keys begin with a text, their records first."""
        files = self.folder.glob(f"{prefix}*")
        for file in sorted(files, key=lambda file: file.suffix != ".json"):
            file.unlink(missing_ok=True)

    def _file(self, key: str, suffix: str) -> Path:
        return self.folder / f"{key}{suffix}"
