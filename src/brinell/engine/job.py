"""The folder of an audit or study: begun or resumed, filled, finished."""

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from pydantic import BaseModel

from brinell.core.errors import RequestError, option
from brinell.engine import provenance, toml
from brinell.engine.request import IN_MEMORY, BaseRequest
from brinell.store import trust
from brinell.store.files import write_text
from brinell.store.folder import REQUEST, Layout
from brinell.store.inventory import FILES


@dataclass(frozen=True)
class Job:
    """Work to be written to a folder, and the identity that distinguishes it from other requests."""

    layout: Layout
    path: Path
    request: BaseRequest
    _: KW_ONLY
    about: dict[str, Any]
    """Entries of the manifest besides the request and the machine."""
    inputs: str
    """Inputs besides the settings on which the work depends, for the message that a folder cannot be resumed."""
    device: torch.device
    command: str
    """Command line that repeats the work."""
    ignored: tuple[str, ...] = ("batch_size", "device")
    """Settings that do not affect the rows, so that a resumed run may change them."""
    accumulated: Mapping[str, Any] = field(default_factory=lambda: {"seconds": 0.0})
    """Keys of the manifest whose values accumulate over resumed runs, with their initial values."""
    identity: Callable[[Mapping[str, Any]], Any] = operator.itemgetter("cell")
    """Function of a manifest whose value must be equal for a folder to be resumed; by default the content hash."""


@contextmanager
def manifest_session(job: Job, *, resume: bool) -> Iterator[dict[str, Any]]:
    """Begin or resume a folder and lock it; the body does the work, and afterwards the manifest says that it is finished.

    The request is written first, because a run can be resumed from the request alone but not from the manifest alone.

    Yields:
        The manifest, which the body may change and which is written again at the end.

    Raises:
        RequestError: the folder holds another request, or `resume` is false.
        StoppedError: the disk is full.
    """
    layout, path = job.layout, job.path
    previous = layout.begin(path, resume=resume)
    with layout.lock(path):
        if previous and job.identity(previous) != job.identity(job.about):
            refuse_request(layout, path, previous["request"], job.request, job.ignored, job.inputs)
        layout.check(path, previous)
        manifest = layout.head | provenance.start_record(job.request, job.command, previous) | job.about
        manifest |= provenance.machine_facts(job.device) | {
            key: previous.get(key, start) for key, start in job.accumulated.items()
        }
        write_text(path / REQUEST, settings_text(layout, job.request, job.command, path))
        layout.save(path, manifest)
        yield manifest
        manifest |= {"state": "finished", "finished": provenance.timestamp()}
        manifest[FILES] = layout.save(path, manifest)


def settings_text(layout: Layout, request: BaseRequest, command: str, folder: Path) -> str:
    """Text of the request file: settings, the command that repeats a request with objects in memory, and the user's mark."""
    repeat_command = command if IN_MEMORY in request.model_dump_json() else f"{layout.command} {REQUEST}"
    return trust.add_mark(folder, toml.dump(request, repeat_command))


def refuse_request(
    layout: Layout,
    path: Path,
    previous: Mapping[str, Any],
    request: BaseModel,
    ignored: tuple[str, ...] = (),
    inputs: str = "the data",
) -> NoReturn:
    """Raise RequestError for a second request in a folder; the message lists the differences."""
    settings = request.model_dump(mode="json")
    changed = [key for key in settings if previous.get(key) != settings[key] and key not in ignored]
    words = ", ".join(f"{key} was {previous.get(key)!r} and is {settings[key]!r}" for key in changed)
    fallback = f"{inputs} or brinell itself has changed since it began"
    raise RequestError(f"{path} holds another {layout.noun} ({words or fallback}): choose another {option('out')}")
