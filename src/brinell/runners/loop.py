"""How a folder is filled, by the audit and by every study: begin or resume, part after part, finish."""

import operator
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from pydantic import BaseModel

from brinell.core.errors import RequestError, option
from brinell.engine import toml, trust
from brinell.engine.progress import Progress
from brinell.engine.request import IN_MEMORY, BaseRequest
from brinell.runners import provenance
from brinell.store.files import write_text
from brinell.store.folder import REQUEST, Layout


@dataclass(frozen=True)
class Job:
    """What is to be written to a folder, and what tells it from other requests."""

    layout: Layout
    path: Path
    request: BaseRequest
    _: KW_ONLY
    about: dict[str, Any]
    """What the manifest says besides the request and where it ran."""
    inputs: str
    """What the work depends on besides its settings, for the line that says why a folder cannot be resumed."""
    device: torch.device
    command: str
    """The command line that repeats it."""
    ignored: tuple[str, ...] = ("batch_size", "device", "isolate")
    """Settings that change nothing in the rows: a run may be resumed with others."""
    kept: Mapping[str, Any] = field(default_factory=lambda: {"seconds": 0.0})
    """Keys of the manifest that add up over resumes, with what they begin as."""
    identity: Callable[[Mapping[str, Any]], Any] = operator.itemgetter("cell")
    """What of a manifest must be equal for its folder to be resumed; by default the hash of all that the work depends on."""


@contextmanager
def carry_out(job: Job, *, resume: bool) -> Iterator[dict[str, Any]]:
    """Begin or resume a folder and lock it; the body does the work, and afterwards the manifest says that it is finished.

    The request is written first: with it alone a run can be resumed, with a manifest alone it could not.

    Yields:
        The manifest, which the body may change and which is written again at the end.

    Raises:
        RequestError: the folder holds another request, or nobody asked to resume it.
        StoppedError: the disk is full.
    """
    layout, path = job.layout, job.path
    before = layout.begin(path, resume=resume)
    with layout.lock(path):
        if before and job.identity(before) != job.identity(job.about):
            refuse(layout, path, before["request"], job.request, job.ignored, job.inputs)
        layout.check(path, before)
        manifest = layout.head | provenance.beginning(job.request, job.command, before) | job.about
        manifest[trust.MARK] = trust.mark(manifest["request"], type(job.request))
        manifest |= provenance.place(job.device) | {key: before.get(key, start) for key, start in job.kept.items()}
        write_text(path / REQUEST, request_text(job, manifest[trust.MARK]))
        layout.save(path, manifest)
        yield manifest
        manifest |= {"state": "finished", "finished": provenance.now()}
        layout.save(path, manifest)


def request_text(job: Job, mark: str | None) -> str:
    """What the file of a request says: the settings, how it is made again, and the mark of whoever began it."""
    return settings_text(job.layout, job.request, job.command, mark)


def settings_text(layout: Layout, request: BaseRequest, command: str, mark: str | None) -> str:
    """The same of a folder without a job; `command` repeats what was in memory."""
    again = command if IN_MEMORY in request.model_dump_json() else f"{layout.command} {REQUEST}"
    return trust.marked(toml.dump(request, again), mark)


def refuse(
    layout: Layout,
    path: Path,
    before: Mapping[str, Any],
    request: BaseModel,
    ignored: tuple[str, ...] = (),
    inputs: str = "the data",
) -> NoReturn:
    """Refuse to mix two requests in one folder, with a line that says how they differ."""
    now = request.model_dump(mode="json")
    changed = [key for key in now if before.get(key) != now[key] and key not in ignored]
    words = ", ".join(f"{key} was {before.get(key)!r} and is {now[key]!r}" for key in changed)
    otherwise = f"{inputs} or brinell itself has changed since it began"
    raise RequestError(f"{path} holds another {layout.what} ({words or otherwise}): choose another {option('out')}")


def each_part(
    manifest: dict[str, Any],
    sizes: Mapping[int, int],
    make: Callable[[int], int],
    progress: Progress,
    *,
    model: str,
    stage: str,
    forwards: int,
) -> None:
    """Make the parts that are missing, one after another; progress is told of them as a stage of a model.

    `sizes` are the samples in each missing part, and `make` writes one and returns how many of them were fooled; `forwards` is
    the most that a sample costs. The manifest's `seconds` are added to.
    """
    started, left, fooled = time.perf_counter(), sum(sizes.values()), 0
    samples = left
    progress.stage(model, stage, left, left * forwards)
    for number, size in sizes.items():
        fooled += make(number)
        left -= size
        progress.open(left, samples - fooled)
    manifest["seconds"] += time.perf_counter() - started
