"""The settings of `brinell review`."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names, Plain
from brinell.engine.request import BaseRequest, Budgets, DataSpec, Seed


class ReviewRequest(BaseRequest):
    """The settings of `brinell review`."""

    data: DataSpec
    """The data: pictures with one or three channels."""
    norm: Literal["linf", "l2"] = "linf"
    """The norm in which the changes are measured: linf or l2."""
    eps: Budgets = "0.01,0.02,0.04,0.08,0.16,0.32"
    """The sizes of the changes, in the units of the data's bounds."""
    change: Annotated[str, Names("folder", ("crafted", "noise"))] = "crafted"
    """The kind of change: crafted (towards another class), noise, or run:FOLDER of an audit."""
    trials: int = Field(default=120, ge=2, le=100_000)
    """The number of pairs."""
    catch: float = Field(default=0.2, gt=0, lt=1)
    """The share of pairs without a change."""
    seed: Seed = 0


class ReviewOptions(BaseRequest):
    """Settings of the server."""

    reviewer: Plain = ""
    """The name of the person who answers. Each person judges all pairs."""
    port: int = Field(default=0, ge=0, le=65535)
    """The port on loopback. 0 takes a free one."""
