"""The command of a worker: the call of its driver, which runs until it serves (`engine.executor`)."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from brinell.engine.executor import Channel
from brinell.engine.progress import SilentProgress
from brinell.engine.ray_pool import RayPool
from brinell.studies import register
from brinell.studies.kit import Call

SENT = ("request", "options", "command", "trust", "datasets", "objects")
"""The fields of a call that its workers get."""


def command_of(call: Call) -> Callable[[Channel], None]:
    """The command of the workers of a call, which can be sent to other machines."""
    values = {field.name: getattr(call, field.name) for field in fields(call) if field.name in SENT}
    return partial(_serve, call.study.verb, values, os.getcwd())


def open_pool(call: Call) -> RayPool:
    """Start the workers that the option `on` of a call names."""
    return RayPool(
        str(call.on),
        command_of(call),
        device=str(getattr(call.request, "device", "cpu")),
    )


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
