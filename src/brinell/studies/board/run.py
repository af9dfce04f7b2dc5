"""Carries out `brinell board`: finds folders, verifies those that are new, and writes the site."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from brinell.core.errors import BrinellError, RequestError, one_line, option
from brinell.core.user_files import user_path
from brinell.reports.csv import csv_files
from brinell.reports.html import page
from brinell.reports.values import Note, Report
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, REQUEST, fitting, verb_of
from brinell.store.table import ROWS
from brinell.studies import register
from brinell.studies.board import BoardRequest
from brinell.studies.board.arrangement import BoardFigures, arrange, told_apart
from brinell.studies.board.examination import PLACED, examine
from brinell.studies.board.result import BoardResult, Refusal, model_address, site_reports
from brinell.studies.dossier import dossier, find_sources
from brinell.studies.kit import Call

SITE = ".board"
"""File that says that a folder is a site."""
RUN_FOLDERS = frozenset({"arrays", "tables"})
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
    if site.is_dir() and any(site.iterdir()) and not (site / SITE).is_file():
        raise RequestError(
            f"{site} is not empty and no board made it: choose another {option('out')}"
        )
    figures: list[BoardFigures] = []
    refused = missing
    for number, path in enumerate(paths, 1):
        call.progress.note(f"verifying {path} ({number} of {len(paths)})")
        try:
            with fitting(path):
                figures += examine(path, request.level, call.trust)
        except BrinellError as error:
            refused.append(Refusal(run=str(path), why=one_line(error, most=600)))

    return write_site(site, request.title, figures, refused)


def write_site(
    site: Path, title: str, figures: Sequence[BoardFigures], refusals: Sequence[Refusal]
) -> BoardResult:
    """Write the pages and tables of a site, and delete those of what is no longer there."""
    figures = told_apart(figures)
    tasks = arrange(figures)

    models: dict[tuple[str, ...], list[BoardFigures]] = {}
    for folder in sorted(figures, key=lambda folder: (folder.identity, folder.run)):
        models.setdefault(folder.identity, []).append(folder)
    result = BoardResult(
        folder=str(site),
        title=title,
        model_count=len({folder.digest for folder in figures}),
        task_count=len(tasks),
        folder_count=len({folder.run for folder in figures}),
        verified=len({folder.run for folder in figures if folder.verified}),
        refused=sorted(refusals, key=lambda refusal: refusal.run),
    )

    files = {SITE: "", ".nojekyll": ""}
    reports = site_reports(result, tasks, models)
    for identity, folders in models.items():
        name = model_address(identity).removesuffix(".html")
        reports[name] = _with_dossier(reports[name], folders)

    for name, report in reports.items():
        place = Path(name).parent
        files[f"{name}.html"] = page(report)
        files |= {(place / table).as_posix(): text for table, text in csv_files(report).items()}
    for name, text in files.items():
        write_text(site / name, text)
    # A folder that is gone leaves no page behind, and refusals that are gone no table.
    for file in [*site.glob("*.csv"), *site.glob("tasks/*"), *site.glob("models/*")]:
        if file.relative_to(site).as_posix() not in files:
            file.unlink()
    return result


def _with_dossier(report: Report, folders: Sequence[BoardFigures]) -> Report:
    """The page of a model with what its folders say, which stand next to each other at no place."""
    paths = list(dict.fromkeys(Path(folder.run) for folder in folders))
    digest, sources = find_sources(paths, folders[0].digest)
    page = dossier(digest, sources, paths[0].parent)
    text = "The board repeated none of this: every figure is the word of whoever made the folder."
    claims = [] if folders[0].verified else [Note("claimed", "warn", text)]
    return replace(
        report,
        sentences=[*report.sentences, *page.sentences],
        blocks=[*report.blocks, *page.blocks],
        notes=[*claims, *page.notes],
        steps=page.steps,
    )


def find_folders(folders: Sequence[Path]) -> tuple[list[Path], list[Refusal]]:
    """All folders with a manifest or a request in or below some folders, and those that hold none,
    each with the reason.
    """
    paths: dict[Path, Path] = {}
    missing = []

    for folder in folders:
        below = list(_walk(folder)) if folder.is_dir() else []
        if not below:
            reason = (
                "it holds no run: brinell audit makes one"
                if folder.is_dir()
                else "there is no such folder"
            )
            missing.append(
                Refusal(
                    run=str(folder),
                    why="it is a file, and no folder of a run" if folder.is_file() else reason,
                )
            )
        # A folder that is named twice, or through a link, counts once.
        for path in below:
            paths.setdefault(path.resolve(), path)
    return list(paths.values()), missing


def _walk(folder: Path) -> Iterator[Path]:
    """Folders of runs and studies below a folder; a study without a place is left out where it was
    not named.
    """
    for parent, names, files in os.walk(folder):
        path = Path(parent)
        names[:] = sorted(
            name for name in names if name not in RUN_FOLDERS and not name.startswith(".")
        )
        if not {MANIFEST, REQUEST, ROWS} & set(files):
            continue
        verb = verb_of(path)
        if path == folder or verb is None or verb in PLACED or verb not in register.studies():
            yield path
