"""The folder of a study: record or resumed, filled, finished."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from brinell.core import bounded
from brinell.core.errors import BrinellError, RequestError, StoppedError, option
from brinell.core.version import VERSION
from brinell.engine import provenance, toml
from brinell.engine.piece import Pieces
from brinell.engine.request import IN_MEMORY, BaseRequest
from brinell.store import trust
from brinell.store.files import write_text
from brinell.store.folder import (
    MANIFEST,
    PARTS,
    PLAN,
    REQUEST,
    Layout,
    read_json,
    with_article,
)
from brinell.store.parts import ONCE
from brinell.store.table import Folder, FolderTable
from brinell.studies.pieces import Driver

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Job:
    """Work to be written to a folder, and the identity that distinguishes it from other
    requests.
    """

    layout: Layout
    path: Path
    request: BaseRequest
    _: KW_ONLY
    cell: str
    """The hash of all that the rows depend on."""
    command: str
    ignored: tuple[str, ...] = ("batch_size", "device")
    """Settings that do not affect the rows, so that a resumed run may change them."""


@contextmanager
def filled(
    job: Job,
    table: FolderTable[Rows],
    driver: Driver,
    pieces: Pieces,
    about: Mapping[str, Any],
    *,
    resume: bool,
) -> Iterator[Folder[Rows]]:
    """Have made what a folder lacks, and lock it while the block writes what follows from its
    content.

    Args:
        job: the work.
        table: the format of the folder.
        driver: has the pieces made.
        pieces: return a `PieceResult`: all rows, and the entries of the manifest that were found.
        about: the entries that were known before.
        resume: whether the folder may hold a part of the work.
    """
    with open_folder(job, resume=resume) as is_complete:
        if is_complete:
            pieces.close()
            yield table.read(job.path)
            return

        record = provenance.start_record(job.request, job.command)
        answer = driver.carry_out(pieces)
        manifest = {**record, "cell": job.cell, **about, **answer.facts}
        manifest["finished"] = provenance.timestamp()
        yield table.write(job.path, manifest, answer.rows)


@contextmanager
def open_folder(job: Job, *, resume: bool) -> Iterator[bool]:
    """Begin or resume a folder and lock it while the block makes what is missing, the manifest
    last.

    Until the folder is complete, `.parts/plan.json` says whose it is. A complete folder is not
    changed any more: then the value is True, and the block has nothing to do. One whose manifest
    says what is `left` may be read, and is resumed like an unfinished one.
    """
    layout, path = job.layout, job.path
    previous, plan = layout.begin(path, resume=resume), path / PLAN
    is_new = not path.exists()

    with layout.lock(path):
        if _has_no_piece(path):
            # It stopped before anything was computed.
            shutil.rmtree(plan.parent, ignore_errors=True)
        if previous or plan.exists():
            record = previous or read_record(plan)
            if record.get("cell") != job.cell:
                refuse_request(job, record["request"])
            if not resume:
                raise RequestError(
                    f"{path} holds {with_article(layout.noun)} that is not whole: "
                    f"add {option('resume')} to go on "
                    f"with it, or choose another {option('out')}"
                )
        is_complete = bool(previous) and not previous.get("left")
        with _leaving_nothing(path, is_new=is_new):
            if not is_complete:
                # A folder without a manifest is unfinished, whatever stopped it.
                (path / MANIFEST).unlink(missing_ok=True)
                write_text(path / REQUEST, settings_text(layout, job.request, job.command, path))
                request = job.request.model_dump(mode="json")
                write_text(
                    plan, json.dumps({"brinell": VERSION, "cell": job.cell, "request": request})
                )
            yield is_complete
        if is_complete or not read_json(path / MANIFEST).get("left"):
            shutil.rmtree(path / PARTS, ignore_errors=True)


def _has_no_piece(path: Path) -> bool:
    """True if no piece of a folder is done: its plan, and answers that are made before any piece,
    bind it to no request.
    """
    files = (path / PARTS).glob("*")
    return all(file == path / PLAN or file.name.startswith(ONCE) for file in files)


@contextmanager
def _leaving_nothing(path: Path, *, is_new: bool) -> Iterator[None]:
    """Delete a folder that is new, if the block is refused before its first piece is done."""
    try:
        yield
    except BrinellError as error:
        # What stopped is resumed by the settings in the folder.
        if is_new and not isinstance(error, StoppedError) and _has_no_piece(path):
            shutil.rmtree(path, ignore_errors=True)
        raise


def read_record(file: Path) -> dict[str, Any]:
    """A file of JSON values in `.parts`."""
    try:
        record = bounded.json_of(file)
    except (OSError, RequestError) as error:
        raise RequestError(
            f"{file} is damaged ({error}): delete it and go on with {option('resume')}"
        ) from None
    if not isinstance(record, dict):
        raise RequestError(f"{file} is damaged: delete it and go on with {option('resume')}")
    return record


def settings_text(layout: Layout, request: BaseRequest, command: str, folder: Path) -> str:
    """Text of the request file: settings, the command that repeats a request with objects in
    memory, and the user's mark.
    """
    repeat_command = (
        command if IN_MEMORY in request.model_dump_json() else f"{layout.command} {REQUEST}"
    )
    return trust.add_mark(folder, toml.dump(request, repeat_command))


def refuse_request(job: Job, previous: Mapping[str, Any]) -> NoReturn:
    """Raise RequestError for a second request in a folder; the message lists the differences."""
    settings = job.request.model_dump(mode="json")
    changed = [
        key for key in settings if previous.get(key) != settings[key] and key not in job.ignored
    ]
    words = ", ".join(
        f"{key} was {previous.get(key)!r} and is {settings[key]!r}" for key in changed
    )

    fallback = (
        "the data, the weights, something else that it reads, or brinell itself has "
        "changed since it began"
    )
    raise RequestError(
        f"{job.path} holds another {job.layout.noun} ({words or fallback}): "
        f"choose another {option('out')}"
    )
