"""The tables and the page of a run against what its records make of them."""

import re
from pathlib import Path

from brinell.core import bounded
from brinell.core.version import VERSION
from brinell.pages import html
from brinell.store.run import Run
from brinell.studies.verification.result import Notes

FOLDER = re.compile(r"<dt>Run</dt><dd>(.*?)</dd>", re.DOTALL)
"""Where the page says which folder it was made in."""


def derived(run: Run, notes: Notes) -> str | None:
    """Hold tables and page against the records; returns why this cannot be done, None where it was."""
    if run.manifest.get("brinell") != VERSION:
        return f"they were written by brinell {run.manifest.get('brinell')}, and this is {VERSION}"
    page, tables = html.made(run.path)
    for name in sorted({*tables, *(path.name for path in (run.path / "tables").glob("*.csv"))}):
        _compare(run.path / "tables" / name, tables.get(name), notes)
    _compare(run.path / "report.html", page, notes)
    gone = [name for name in (*(f"tables/{name}" for name in tables), "report.html") if not (run.path / name).is_file()]
    return f"{len(gone)} of them are not there; brinell report makes them" if gone else None


def _compare(path: Path, made: str | None, notes: Notes) -> None:
    where = path.name if made is None or path.suffix == ".html" else f"tables/{path.name}"
    if made is None:
        notes.note(where, "no such table is made of the records")
    elif path.is_file() and _anywhere(bounded.read(path, bounded.MOST_TEXT).decode("utf-8", errors="replace")) != _anywhere(made):
        notes.note(where, "the file is not what the records make: brinell report writes it anew")


def _anywhere(text: str) -> str:
    return FOLDER.sub("", text)
