"""alpha-beta-CROWN by its Python interface: asked about a module in memory, without any file.

Its package `abcrown` is installed by the user. What is asked is what a query of VNN-LIB asks
(`_verifiers`): is there an input of a box at which another score is at least as large as that of
the true class?
"""

import importlib
import importlib.util
import io
import time
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.bounds._verifiers import PROOF, SILENT, WITNESS, ToolAnswer
from brinell.core.errors import one_line
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.core.streams import seeded

PACKAGE = "abcrown"


def is_installed() -> bool:
    """True if the package can be imported."""
    return importlib.util.find_spec(PACKAGE) is not None


class PredictedModule(nn.Module):
    """A model as a module: its answers, and the layers by which the verifier chooses its way."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.layers = model.info.module
        self._predict = model.predict

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        return self._predict(x)


class Solver:
    """The verifier with a module of so many classes, on a device, for so many seconds a
    question.
    """

    def __init__(
        self, module: nn.Module, classes: int, device: torch.device, seconds: float
    ) -> None:
        with redirect_stdout(io.StringIO()):
            self._package: Any = importlib.import_module(PACKAGE)
        builder = self._package.ConfigBuilder.from_defaults()
        self._config = builder.set(general__device=device.type, bab__timeout=seconds)
        self._module = module
        self._classes = classes
        self._device = device

    def ask(self, low: Array, high: Array, label: int) -> ToolAnswer:
        """Its answer about inputs between `low` and `high` (*shape) float64 of a class."""
        # An error by a rival: the true score minus the rival's is at most 0.
        rows = torch.eye(self._classes)[label] - torch.eye(self._classes)
        errors = [(rows[k : k + 1], torch.zeros(1)) for k in range(self._classes) if k != label]
        spec = self._package.VerificationSpec.build_spec(
            lower=_beyond(low, -np.inf)[None], upper=_beyond(high, np.inf)[None], clauses=[errors]
        )

        start = time.monotonic()
        try:
            with redirect_stdout(io.StringIO()), seeded(0, self._device):
                solver = self._package.ABCrownSolver(spec, self._module, config=self._config)
                result = solver.solve()
        except Exception as error:
            return ToolAnswer(SILENT, f"it failed ({one_line(error)})")
        return _read(result, low.size, time.monotonic() - start)


def _beyond(bound: Array, end: float) -> Tensor:
    """A bound in float32, in which the verifier computes, never nearer than in float64.

    `end` is where the box widens to: -inf for a lower bound, inf for an upper one.
    """
    rounded = bound.astype(np.float32)
    is_nearer = rounded > bound if end < 0 else rounded < bound
    return torch.from_numpy(np.where(is_nearer, np.nextafter(rounded, np.float32(end)), rounded))


def _read(result: Any, size: int, seconds: float) -> ToolAnswer:
    """The answer in a result; of the inputs of its attack, each of `size` values, the worst is first."""
    status = str(result.status)
    # Versions of the tool differ in the words of their answers, and agree in how these begin.
    if status == "verified" or status.startswith("safe"):
        return ToolAnswer(PROOF, seconds=seconds)
    if not status.startswith("unsafe"):
        return ToolAnswer(SILENT, f"it answered {status}", seconds=seconds)
    # A verdict without its input cannot be checked, and so counts for nothing.
    examples = result.stats.get("attack_examples")
    if examples is None or torch.as_tensor(examples).numel() < size:
        return ToolAnswer(SILENT, "it answered unsafe without an input", seconds=seconds)
    values = torch.as_tensor(examples).detach().cpu().flatten()[:size].tolist()
    return ToolAnswer(WITNESS, x=tuple(values), seconds=seconds)
