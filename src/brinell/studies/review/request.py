"""What `brinell epsilon --review` is asked for."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import BaseRequest, Budgets, DataSpec, Seed


class ReviewRequest(BaseRequest):
    """What `brinell epsilon --review` is asked for."""

    data: DataSpec
    """The data: pictures with one or three channels."""
    norm: Literal["linf", "l2"] = "linf"
    """The norm in which the changes are measured: linf or l2."""
    eps: Budgets = "0.01,0.02,0.04,0.08,0.16,0.32"
    """Review: the sizes of the changes, in the units of the data's bounds."""
    change: Annotated[str, Names("folder", ("crafted", "noise"))] = "crafted"
    """Review: the kind of change: crafted (towards another class), noise, or run:FOLDER of an audit."""
    trials: int = Field(default=120, ge=2, le=100_000)
    """Review: the number of pairs."""
    catch: float = Field(default=0.2, gt=0, lt=1)
    """Review: the share of pairs in which nothing changes."""
    seed: Seed = 0
