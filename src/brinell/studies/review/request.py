"""What `brinell review` is asked for."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names, Plain
from brinell.engine.request import BaseRequest, Budgets, DataSpec, Seed


class ReviewRequest(BaseRequest):
    """What `brinell review` is asked for."""

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
    """The share of pairs in which nothing changes."""
    seed: Seed = 0


class ReviewOptions(BaseRequest):
    """How a review is served."""

    reviewer: Plain = ""
    """Whose answers these are; each person has all pairs to judge."""
    port: int = Field(default=0, ge=0, le=65535)
    """The port on loopback. 0 takes a free one."""
