"""The settings of `brinell falsify`."""

from typing import Annotated

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import AttackSpec, BaseRequest, Seed


class FalsifyRequest(BaseRequest):
    """The settings of `brinell falsify`."""

    query: Annotated[str, Names("file")]
    """A query in VNN-LIB 1.0 or 2.0 about one network: bounds of each input, and linear constraints of the outputs."""
    network: Annotated[str, Names("file")]
    """The network: MODEL.onnx, or NAME=MODEL.onnx with its name in the query."""
    timeout: float = Field(default=60.0, gt=0, le=1e6)
    """Seconds after which the search ends. With a limit of time the machine decides what is found."""
    attack: tuple[AttackSpec, ...] = ("apgd?loss=margin&steps=30", "apgd?loss=margin&steps=100", "square?steps=300&loss=margin")
    """Attacks in the Linf distance. They run in turn on the box of the inputs, with other random starts each time, until an input
    is found or the time is up. Those that need gradients are left out where the network gives none."""
    starts: int = Field(default=16, ge=1, le=4096)
    """Starts of an attack side by side."""
    bound: Annotated[str, Names("bound")] = "crown"
    """The method of proof that is tried first, such as crown or beta-crown?parts=200; none leaves it out."""
    answer: Annotated[str, Names("file")] = ""
    """A file for the verdict and the counterexample, in the form of the VNN competitions. Default: none."""
    seed: Seed = 0
