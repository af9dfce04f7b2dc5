"""Folders of studies that are written in one go: a manifest, and one table of rows beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from brinell.store import parquet
from brinell.store.folder import Layout

Rows = TypeVar("Rows")
ROWS = "rows.parquet"
"""The file of the rows."""


@dataclass(frozen=True, kw_only=True)
class Folder(Generic[Rows]):
    """A folder: what its manifest says, and its rows."""

    path: Path
    manifest: Mapping[str, Any]
    rows: Rows


@dataclass(frozen=True)
class Table(Generic[Rows]):
    """The folders of one verb."""

    layout: Layout
    """What they look like."""
    of: type[Rows]
    """The dataclass of records that the rows are of."""

    def write(self, path: Path, about: Mapping[str, Any], rows: Rows) -> Folder[Rows]:
        """Write the rows and then the manifest, so that a folder with a manifest is whole; other files are written before."""
        parquet.write_table(path / ROWS, parquet.to_table(rows))
        self.layout.save(path, about)
        return Folder(path=path, manifest=about, rows=rows)

    def read(self, path: Path | str) -> Folder[Rows]:
        """The manifest and the rows of a folder.

        Raises:
            RequestError: there is none, or a damaged file in it.
        """
        path = Path(path)
        return Folder(path=path, manifest=self.layout.open(path), rows=parquet.load_rows(self.of, path / ROWS))
