"""Folders of studies that are written at once: a manifest and one table of rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from brinell.core.user_files import user_path
from brinell.store import parquet
from brinell.store.folder import Layout

Rows = TypeVar("Rows")
ROWS = "rows.parquet"
"""The file of the rows."""


@dataclass(frozen=True, kw_only=True)
class Folder(Generic[Rows]):
    """The content of a folder."""

    path: Path
    manifest: Mapping[str, Any]
    rows: Rows
    request: Any = None
    """An instance of the study's request, where the study opens the folder."""
    facts: Any = None
    """An instance of the study's facts; None for a study without facts."""

    def head(self) -> dict[str, Any]:
        """The fields that all results have."""
        return {
            "folder": str(self.path),
            "data": self.manifest["data"]["name"],
            "classes": list(self.manifest["data"]["classes"]),
            "models": [model["name"] for model in self.manifest["models"]],
            "seconds": float(self.manifest["seconds"]),
            "request": self.request,
            **({} if self.facts is None else {"facts": self.facts}),
        }


@dataclass(frozen=True)
class Table(Generic[Rows]):
    """The folders of one verb."""

    layout: Layout
    """The format of the folders."""
    of: type[Rows]
    """The dataclass of the rows."""

    def write(self, path: Path, manifest: Mapping[str, Any], rows: Rows) -> Folder[Rows]:
        """Write the rows and then the manifest, so that a folder with a manifest is complete.

        Write other files before.
        """
        parquet.write_table(path / ROWS, parquet.to_table(rows))
        self.layout.save(path, manifest)
        return Folder(path=path, manifest=manifest, rows=rows)

    def read(self, path: Path | str) -> Folder[Rows]:
        """The manifest and the rows of a folder."""
        path = user_path(path)
        return Folder(
            path=path, manifest=self.layout.open(path), rows=parquet.load_rows(self.of, path / ROWS)
        )
