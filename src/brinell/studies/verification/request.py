"""What `brinell verify` is asked for."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from brinell.engine.request import AttackSpec, BaseRequest, DataSpec, File, Folder, ModelSpec
from brinell.store.run import Run


class VerifyRequest(BaseRequest):
    """What `brinell verify` is asked for."""

    run: Folder
    """A run folder, made by brinell audit."""
    model: tuple[ModelSpec, ...] = ()
    """A model, named as for audit, in place of the one that RUN names."""
    data: DataSpec | None = None
    """The data, named as for audit, in place of those that RUN names."""
    attack: tuple[AttackSpec, ...] = ()
    """An attack of RUN that is a file, as RUN names it: it may run."""
    rerun: int | None = Field(default=None, ge=0)
    """Robust samples of each model to attack again. Default: 8, or 2 % where that is more."""
    signed_by: File | None = None
    """A file of allowed signers, or of public SSH keys: a run that none of them has signed is refused."""


def data_of(settings: Mapping[str, Any]) -> str:
    """The data that a run names, for models in memory."""
    return str(Run.open(settings["run"]).manifest["request"]["data"])
