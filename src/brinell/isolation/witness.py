"""The witness of a plug-in: a second child process, which repeats a few of its answers.

What a distortion does to an input, or a detector thinks of it, depends on the input alone. A plug-in that counts its calls,
remembers inputs or tells judges from others answers differently in a process that has seen other calls, and is refused.
"""

import random

import torch
from torch import Tensor

from brinell.core.errors import ContractError
from brinell.isolation.process import PluginProcess

ROWS = 2
"""Rows of a call that are repeated at most."""
TOLERANCE = 1e-3
"""Largest difference of two answers, as a share of the largest value of the call: batches of another size round otherwise."""
_CHOICE = random.SystemRandom()
"""Nobody foresees which rows are repeated; no figure depends on it."""


def choose_rows(n: int) -> list[int]:
    """Random rows of n. Each is repeated in a call of its own, so that the witness has another number of calls behind it."""
    return _CHOICE.sample(range(n), min(n, ROWS))


def compare(process: PluginProcess, answer: Tensor, repeated: Tensor, scale: float) -> None:
    """Compare rows of an answer with their repetition.

    Raises:
        ContractError: they differ.
    """
    both = answer.isfinite() & repeated.isfinite() if repeated.shape == answer.shape else None
    if both is None or not torch.equal(answer.isfinite(), repeated.isfinite()):
        raise refusal(process)
    if not bool(((repeated - answer).abs()[both] <= TOLERANCE * scale).all()):
        raise refusal(process)


def refusal(process: PluginProcess) -> ContractError:
    """The error about answers that do not depend on the inputs alone; the child ends."""
    return process.failure("a second process gives other answers to the same inputs, and answers must depend on inputs alone")
