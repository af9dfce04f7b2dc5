"""The command of a worker: that of its driver, up to the point where the driver hands out tasks
(`engine.executor`).

A worker carries the same call out in a temporary folder, so that it opens what the driver opens. Where
the driver would hand out tasks, it answers them.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from brinell.core.errors import RequestError
from brinell.engine.executor import Channel, Pool
from brinell.engine.progress import SilentProgress
from brinell.engine.rank_pool import LINGER, TOKEN, Crew, RankPool, Session, read_token
from brinell.engine.ranks import Place
from brinell.engine.ray_pool import RayPool
from brinell.studies import register
from brinell.studies.kit import Call, Study

SENT = ("request", "options", "command", "trust", "datasets", "objects")
"""The fields of a call that its workers get."""
SHORT_LINGER = 2.0
"""Seconds that an interrupted rank 0 waits for the others."""


def command_of(call: Call) -> Callable[[Channel], None]:
    """The command of the workers of a call, which can be sent to other machines."""
    values = {field.name: getattr(call, field.name) for field in fields(call) if field.name in SENT}
    return partial(_serve, call.study.verb, values, os.getcwd())


def open_pool(call: Call) -> Pool:
    """The workers that the option `on` of a call names."""
    if isinstance(call.on, Crew):
        return RankPool(call.on, _values_of(call))
    return RayPool(
        str(call.on),
        command_of(call),
        device=str(getattr(call.request, "device", "cpu")),
    )


@contextmanager
def open_crew(
    place: Place, study: Study, folder: Path | None, command: str, warn: Callable[[str], object]
) -> Iterator[Crew]:
    """The ranks of a job for the command of rank 0, which are dismissed at its end."""
    with _job_token(place, study, folder) as token:
        crew = Crew(place, token, command, partial(_command_of_rank, place), warn)
        linger = LINGER
        try:
            yield crew
        except KeyboardInterrupt:
            linger = SHORT_LINGER
            raise
        finally:
            crew.close(linger=linger)


@contextmanager
def _job_token(place: Place, study: Study, folder: Path | None) -> Iterator[bytes]:
    """The token of a job, which the folder of the run holds as long as rank 0 drives."""
    if folder is None or place.token_file is not None:
        yield read_token(place, folder)
        return

    with study.layout.lock(folder):  # a second job in the folder is refused before it writes
        token = read_token(place, folder)
    try:
        yield token
    finally:
        (folder / TOKEN).unlink(missing_ok=True)
        with suppress(OSError):  # it holds something
            folder.rmdir()


def serve_rank(place: Place, study: Study, folder: Path | None, command: str) -> None:
    """Answer the tasks of rank 0 until it needs no more."""
    study.resolve(study.run)  # is imported while rank 0 begins
    token = read_token(place, folder)
    Session(place, token, command, partial(_command_of_rank, place)).serve()


def _values_of(call: Call) -> dict[str, Any]:
    """A call as data for ranks."""
    if call.datasets or call.objects:
        raise RequestError("ranks take no models and data in memory: name them, as a terminal does")
    return {
        "verb": call.study.verb,
        "request": call.request.model_dump(mode="json"),
        "options": None if call.options is None else call.options.model_dump(mode="json"),
        "command": call.command,
        "trust": None if call.trust is None else str(call.trust),
    }


def _command_of_rank(place: Place, values: Mapping[str, Any]) -> Callable[[Channel], None]:
    """The command of the worker on a rank, with the GPU of the rank in place of any."""
    study = register.load(values["verb"])
    request = dict(values["request"])
    if request.get("device") in ("auto", "cuda") and torch.cuda.is_available():
        request["device"] = f"cuda:{place.local_rank % torch.cuda.device_count()}"

    call = {
        "request": study.request.model_validate(request),
        "options": None
        if study.options is None
        else study.options.model_validate(values["options"]),
        "command": values["command"],
        "trust": None if values["trust"] is None else Path(values["trust"]),
    }
    return partial(_serve, values["verb"], call, os.getcwd())


def _serve(verb: str, values: dict[str, Any], directory: str, channel: Channel) -> None:
    """Run the call in a temporary folder, from the directory of the driver where this machine has
    it.
    """
    if Path(directory).is_dir():
        os.chdir(directory)
    study = register.load(verb)
    with tempfile.TemporaryDirectory(prefix="brinell-worker-") as folder:
        call = Call(
            study=study,
            progress=SilentProgress(),
            out=Path(folder) / "out",
            channel=channel,
            **values,
        )
        study.resolve(study.run)(call)
