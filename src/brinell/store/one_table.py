"""Folders of studies that are written in one go: a manifest, and one table of rows beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from brinell.core.record import columns_of
from brinell.store import tables
from brinell.store.folder import Layout

Rows = TypeVar("Rows")
TABLE = "rows.parquet"


def write(layout: Layout, path: Path, about: Mapping[str, Any], rows: Any, *, file: str = TABLE) -> dict[str, Any]:
    """Write the rows and then the manifest, so that a folder with a manifest is whole; other files are written before.

    Returns:
        What the manifest says.

    Raises:
        StoppedError: it cannot be written.
    """
    tables.write_table(path / file, tables.to_table(rows))
    layout.save(path, about)
    return dict(about)


def read(layout: Layout, path: Path, of: type[Rows], *, file: str = TABLE) -> tuple[dict[str, Any], Rows]:
    """The manifest and the rows of a folder.

    Raises:
        RequestError: none there, or a damaged file.
    """
    manifest = layout.open(path)
    table = tables.read_table(path / file, schema=tables.schema_of(columns_of(of)))
    return manifest, tables.from_table(of, table)
