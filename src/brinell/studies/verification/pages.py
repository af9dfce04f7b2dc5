"""Compares the tables and the page of a run with those that its records produce, byte for byte."""

from pathlib import Path

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.core.version import VERSION
from brinell.pages import html
from brinell.store.folder import PAGE
from brinell.store.inventory import DERIVED_FOLDER
from brinell.store.run import Run
from brinell.studies.verification.result import Notes

REMEDY = "brinell report writes it again"


def check_pages(run: Run, notes: Notes) -> str | None:
    """Compare tables and page with those that the records produce; returns why that is impossible, or None."""
    if run.manifest.get("brinell") != VERSION:
        return f"brinell {run.manifest.get('brinell')} wrote them, and this is {VERSION}"
    try:
        page, tables = html.render_all(run.path)
    except RequestError as error:
        notes.note(PAGE, str(error))
        return None
    files = {PAGE: page} | {f"{DERIVED_FOLDER}/{name}": text for name, text in tables.items()}
    found = {f"{DERIVED_FOLDER}/{path.name}" for path in (run.path / DERIVED_FOLDER).glob("*.csv")}
    for name in sorted(found - files.keys()):
        notes.note(name, "the records produce no such table: take it away")
    missing = [name for name, text in files.items() if not _compare(run.path / name, name, text, notes)]
    return f"{len(missing)} of them are missing; {REMEDY}" if missing else None


def _compare(path: Path, name: str, expected: str, notes: Notes) -> bool:
    """Compare a file with its expected text; returns False if it is missing."""
    if not path.is_file():
        return False
    if bounded.read(path, bounded.MOST_TEXT) != expected.encode():
        notes.note(name, f"the file differs from the one that the records produce; {REMEDY}")
    return True
