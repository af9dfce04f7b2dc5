"""Carries out `brinell board`: finds folders, verifies those that are new, and brings the site up to date."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError, option
from brinell.core.user_files import user_path
from brinell.core.version import VERSION
from brinell.reports.csv import csv_files
from brinell.reports.html import page
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, REQUEST, verb_of
from brinell.studies import register
from brinell.studies.board import BoardRequest
from brinell.studies.board.arrangement import Figures, arrange
from brinell.studies.board.examination import PLACED, examine
from brinell.studies.board.result import BoardResult, Refusal, site_reports
from brinell.studies.kit import Call

CACHE = ".cache"
"""Folder of a site that keeps what was found of each folder, so that an unchanged one is not verified again."""
RUN_FOLDERS = frozenset({"records", "arrays", "tables"})
"""Folders of a run that hold no run."""


def carry_out(call: Call) -> BoardResult:
    """Verify the folders of a call, and write the site.

    Raises:
        RequestError: no folder holds a run, or --out holds something else than a site.
        StoppedError: the site cannot be written.
    """
    request: BoardRequest = call.request
    paths, missing = find_folders([user_path(folder) for folder in request.folder])
    if not paths:
        raise RequestError(f"{missing[0].run}: {missing[0].why}")
    site = call.folder("board")
    if site.is_dir() and any(site.iterdir()) and not (site / CACHE).is_dir():
        raise RequestError(f"{site} is not empty and no board made it: choose another {option('out')}")
    outcomes = _examine_all(call, site, paths)
    refusals = [*missing, *(Refusal(run=str(path), why=outcome["why"]) for path, outcome in outcomes.items() if "why" in outcome)]
    figures = [Figures.model_validate(entry) for outcome in outcomes.values() for entry in outcome.get("figures", ())]
    return write_site(site, request.title, figures, refusals)


def write_site(site: Path, title: str, figures: Sequence[Figures], refusals: Sequence[Refusal]) -> BoardResult:
    """Write the pages and tables of a site that say something new, and delete those of what is no longer there."""
    tasks = arrange(figures)
    models: dict[tuple[str, ...], list[Figures]] = {}
    for folder in sorted(figures, key=lambda folder: (folder.identity, folder.run)):
        models.setdefault(folder.identity, []).append(folder)
    result = BoardResult(
        folder=str(site),
        title=title,
        models=len({folder.digest for folder in figures}),
        tasks=len(tasks),
        folders=len({folder.run for folder in figures}),
        verified=len({folder.run for folder in figures if folder.verified}),
        refused=sorted(refusals, key=lambda refusal: refusal.run),
        written=0,
    )
    files = {".nojekyll": ""}
    for name, report in site_reports(result, tasks, models).items():
        place = Path(name).parent
        files[f"{name}.html"] = page(report)
        files |= {(place / table).as_posix(): text for table, text in csv_files(report).items()}
    written = sum(_write_changed(site / name, text) for name, text in files.items())
    for file in [*site.glob("tasks/*"), *site.glob("models/*")]:
        if file.relative_to(site).as_posix() not in files:
            file.unlink()
    return result.model_copy(update={"written": written})


def _write_changed(path: Path, text: str) -> bool:
    """Write a file unless it has this content already; True if it was written."""
    with suppress(OSError, UnicodeDecodeError):
        if path.read_text(encoding="utf-8") == text:
            return False
    write_text(path, text)
    return True


def find_folders(folders: Sequence[Path]) -> tuple[list[Path], list[Refusal]]:
    """All folders with a manifest or a request in or below some folders, and those that hold none, each with the reason."""
    paths: dict[Path, Path] = {}
    missing = []
    for folder in folders:
        below = list(_walk(folder)) if folder.is_dir() else []
        if not below:
            reason = "it holds no run: brinell audit makes one" if folder.is_dir() else "there is no such folder"
            missing.append(Refusal(run=str(folder), why="it is a file, and no folder of a run" if folder.is_file() else reason))
        for path in below:
            paths.setdefault(path.resolve(), path)
    return list(paths.values()), missing


def _walk(folder: Path) -> Iterator[Path]:
    """Folders of runs and studies below a folder; a study without a place is left out where it was not named."""
    for parent, names, files in os.walk(folder):
        path = Path(parent)
        names[:] = sorted(name for name in names if name not in RUN_FOLDERS and not name.startswith("."))
        if not {MANIFEST, REQUEST} & set(files) and not (path / "records").is_dir():
            continue
        verb = verb_of(path)
        if path == folder or verb is None or verb in PLACED or verb not in register.entries():
            yield path


def _examine_all(call: Call, site: Path, paths: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """The verification of each folder, from the cache where neither the folder nor the question has changed."""
    level, trust = call.request.level, None if call.trust is None else str(call.trust)
    keys = {path: _key([VERSION, level, trust, str(path), _stamp(path)]) for path in paths}
    outcomes = {path: outcome for path in paths if (outcome := _cached(site, keys[path])) is not None}
    new = [path for path in paths if path not in outcomes]
    if new:
        call.progress.note(f"folders that are new or changed, and are verified: {len(new)} of {len(paths)}")
    for number, path in enumerate(new, 1):
        outcomes[path] = examine(path, level, call.trust)
        write_text(site / CACHE / f"{keys[path]}.json", json.dumps(outcomes[path]))
        if number % 50 == 0:
            call.progress.note(f"{number} of {len(new)} folders verified")
    for file in (site / CACHE).glob("*.json"):
        if file.stem not in keys.values():
            file.unlink()
    return {path: outcomes[path] for path in paths}


def _key(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def _stamp(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of each file of a folder, and of the folders in it, which a replay verifies too."""
    files = (Path(parent) / name for parent, _, names in os.walk(path) for name in names)
    return sorted((file.relative_to(path).as_posix(), file.lstat().st_size, file.lstat().st_mtime_ns) for file in files)


def _cached(site: Path, key: str) -> dict[str, Any] | None:
    """What was found of a folder before; None if nothing was, or it cannot be read."""
    try:
        content = json.loads((site / CACHE / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.keys() & {"figures", "why"} else None
