"""Folders of studies that are written at once: a manifest and one table of rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from brinell.core.errors import RequestError
from brinell.core.record import Array
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

    @property
    def models(self) -> list[str]:
        """The names of the models."""
        return [model["name"] for model in self.manifest["models"]]

    def head(self) -> dict[str, Any]:
        """The fields that all results have."""
        return {
            "folder": str(self.path),
            "data": self.manifest["data"]["name"],
            "classes": list(self.manifest["data"]["classes"]),
            "models": [{"name": name} for name in self.models],
            "seconds": float(self.manifest["seconds"]),
            "request": self.request,
            **({} if self.facts is None else {"facts": self.facts}),
        }


class Violation(NamedTuple):
    """A rule that rows break."""

    location: str
    """The subject of the rows, such as a model and a stage."""
    description: str
    samples: Array
    """Ids of the samples of these rows, ascending, without repetition."""

    def __str__(self) -> str:
        ids = ", ".join(map(str, self.samples[:5].tolist()))
        ending = " ..." if len(self.samples) > 5 else ""
        listing = f" (samples {ids}{ending})" if ids else ""
        return f"{self.location}: {self.description}{listing}"


@dataclass(frozen=True)
class FolderTable(Generic[Rows]):
    """The folders of one verb."""

    layout: Layout
    """The format of the folders."""
    of: type[Rows]
    """The dataclass of the rows."""
    rules: Callable[[Mapping[str, Any], Rows], Iterator[Violation]] = lambda manifest, rows: iter(
        ()
    )
    """The rules that the rows of a manifest break, whatever its models and data are."""

    def write(self, path: Path, manifest: Mapping[str, Any], rows: Rows) -> Folder[Rows]:
        """Write the rows and then the manifest, so that a folder with a manifest is complete;
        returns what `read` would.

        Write other files before.
        """
        table = parquet.to_table(rows)
        parquet.write_table(path / ROWS, table)
        content = self.layout.save(path, manifest)
        return Folder(path=path, manifest=content, rows=parquet.from_table(self.of, table))

    def read(self, path: Path | str) -> Folder[Rows]:
        """The manifest and the rows of a folder; refuses rows that break a rule."""
        path = user_path(path)
        manifest = self.layout.open(path)
        rows = self.read_rows(path)
        for violation in self.rules(manifest, rows):  # the first one is enough
            raise RequestError(f"{path} was forged or damaged: {violation}: make it again")
        return Folder(path=path, manifest=manifest, rows=rows)

    def read_rows(self, path: Path) -> Rows:
        """The rows of a folder, whatever its manifest says."""
        return parquet.load_rows(self.of, path / ROWS)
