"""The proxy of a distortion in a child process: each call sends the inputs and streams, and brings the distorted inputs back."""

from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.core.settings import MOST_COUNT
from brinell.isolation.process import CALL_SECONDS, PluginProcess
from brinell.isolation.proxy import IsolatedPlugin
from brinell.isolation.witness import choose_rows, compare
from brinell.manifest import Content


class DrawsAnswer(Content):
    """The number of versions."""

    draws: Annotated[int, Field(ge=1, le=MOST_COUNT)] | None
    """Number of versions of one input at each severity; null if endless."""


class IsolatedDistortion(IsolatedPlugin):
    """A distortion in a child process, with the members of `core.contracts.Distortion`. `rlab.variants` checks its answers."""

    def __init__(self, process: PluginProcess, properties: dict[str, Any], source: str) -> None:
        super().__init__(process, properties, source)
        self._draws: dict[tuple[int, ...], int | None] = {}

    def draws(self, shape: tuple[int, ...]) -> int | None:
        """Number of versions of one input of this shape at each severity."""
        if shape not in self._draws:
            self._draws[shape] = self._process.ask("draws", {"shape": list(shape)}, form=DrawsAnswer).fields["draws"]
        return self._draws[shape]

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor, gradient: Tensor | None = None) -> Tensor:
        """(n, *shape) inputs to their distorted versions."""
        arrays = {"x": x, "severity": severity, "keys": rng.keys, "draw": draw}
        arrays |= {} if gradient is None else {"gradient": gradient}
        answer = _distort(self._process, arrays)
        if answer.shape == x.shape and answer.dtype == x.dtype and len(x):
            for row in choose_rows(len(x)):
                repeated = _distort(self.witness, {name: array[row : row + 1] for name, array in arrays.items()})
                compare(self._process, answer[row : row + 1], repeated, 1.0)
        return answer.to(x.device)


def _distort(process: PluginProcess, arrays: dict[str, Tensor]) -> Tensor:
    """The distorted inputs of a child."""
    answer = process.ask("distort", None, arrays, seconds=CALL_SECONDS).arrays.get("x")
    if answer is None:
        raise process.failure("it answered without inputs")
    return answer
