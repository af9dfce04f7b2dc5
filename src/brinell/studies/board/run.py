"""Carries out `brinell board`: finds folders, verifies those that are new, and brings the site up to date."""

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError, option
from brinell.core.user_files import user_path
from brinell.core.version import VERSION
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, REQUEST, verb_of
from brinell.studies import register
from brinell.studies.board import page
from brinell.studies.board.analysis import BoardResult, Figures, Refusal, key_of
from brinell.studies.board.examination import examine
from brinell.studies.board.request import BoardRequest
from brinell.studies.kit import Call

CACHE = ".cache"
"""Folder of a site that keeps what was found of each folder, so that an unchanged one is not verified again."""
SIDE_BY_SIDE = 8
"""With fewer new folders, no further process is worth its start."""
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
        raise RequestError(f"{missing[0][0]}: {missing[0][1]}")
    site = call.folder("board")
    _check_site(site)
    outcomes = _examine_all(call, site, paths)
    rejections = [Refusal(run=str(path), why=why) for path, why in missing]
    rejections += [Refusal(run=str(path), why=outcome["why"]) for path, outcome in outcomes.items() if "why" in outcome]
    figures = [Figures.model_validate(entry) for outcome in outcomes.values() for entry in outcome.get("figures", ())]
    return page.write(
        site, figures, sorted(rejections, key=lambda refusal: refusal.run), request.title or page.TITLE, call.command
    )


def _check_site(site: Path) -> None:
    """Refuse a folder that is there and no site.

    Raises:
        RequestError: it holds something else.
    """
    if site.is_dir() and any(site.iterdir()) and not (site / CACHE).is_dir():
        raise RequestError(f"{site} is not empty and no board made it: choose another {option('out')}")


def find_folders(folders: Sequence[Path]) -> tuple[list[Path], list[tuple[Path, str]]]:
    """All folders with a manifest or a request in or below some folders, and those that hold none, each with the reason."""
    paths: dict[Path, Path] = {}
    missing = []
    for folder in folders:
        if not folder.is_dir():
            missing.append((folder, "there is no such folder" if not folder.exists() else "it is a file, and no folder of a run"))
            continue
        below = list(_walk(folder))
        if not below:
            missing.append((folder, "it holds no run: brinell audit makes one"))
        paths |= {path.resolve(): path for path in below if path.resolve() not in paths}
    return list(paths.values()), missing


def _walk(folder: Path) -> Iterator[Path]:
    """Folders of runs and studies below a folder; a study that gives no rates is left out where it was not named."""
    for parent, names, files in os.walk(folder):
        path = Path(parent)
        names[:] = sorted(name for name in names if name not in RUN_FOLDERS and not name.startswith("."))
        if not {MANIFEST, REQUEST} & set(files) and not (path / "records").is_dir():
            continue
        if path == folder or _is_shown(path):
            yield path


def _is_shown(path: Path) -> bool:
    """True unless a folder was made by a study that has no rates."""
    verb = verb_of(path)
    if verb is None or verb in ("audit", "claim") or verb not in register.entries():
        return True
    return register.load(verb).has_rates()


def _examine_all(call: Call, site: Path, paths: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """The verification of each folder, from the cache where neither the folder nor the question has changed."""
    request: BoardRequest = call.request
    trust = None if call.trust is None else str(call.trust)
    keys = {path: key_of([VERSION, request.level, trust, str(path), _stamp(path)]) for path in paths}
    outcomes = {path: outcome for path in paths if (outcome := _cached(site, keys[path])) is not None}
    new = [path for path in paths if path not in outcomes]
    if new:
        call.progress.note(f"folders that are new or changed, and are verified: {len(new)} of {len(paths)}")
    for number, (path, outcome) in enumerate(_examine_new(new, request, trust), 1):
        write_text(site / CACHE / f"{keys[path]}.json", json.dumps(outcome))
        outcomes[path] = outcome
        if number % 50 == 0:
            call.progress.note(f"{number} of {len(new)} folders verified")
    _forget(site, set(keys.values()))
    return {path: outcomes[path] for path in paths}


def _examine_new(paths: Sequence[Path], request: BoardRequest, trust: str | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Verify folders, side by side if they are many."""
    workers = min(request.workers or len(os.sched_getaffinity(0)), len(paths))
    arguments = [str(path) for path in paths], [request.level] * len(paths), [trust] * len(paths)
    if workers < 2 or len(paths) < SIDE_BY_SIDE:
        yield from zip(paths, map(examine, *arguments), strict=True)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from zip(paths, pool.map(examine, *arguments, chunksize=4), strict=True)


def _stamp(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of each file of a folder, without those of folders in it that have their own manifest."""
    entries = []
    for parent, names, files in os.walk(path):
        place = Path(parent)
        if place != path and MANIFEST in files:
            names[:] = []
            continue
        for name in files:
            status = (place / name).lstat()
            entries.append(((place / name).relative_to(path).as_posix(), status.st_size, status.st_mtime_ns))
    return sorted(entries)


def _cached(site: Path, key: str) -> dict[str, Any] | None:
    """What was found of a folder before; None if nothing was, or it cannot be read."""
    try:
        content = json.loads((site / CACHE / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.keys() & {"figures", "why"} else None


def _forget(site: Path, keys: set[str]) -> None:
    """Delete what the cache keeps of folders that are not asked for."""
    for file in (site / CACHE).glob("*.json"):
        if file.stem not in keys and file.stem != page.PAGES:
            file.unlink()
