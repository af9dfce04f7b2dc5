"""A model that fails is told in one line, and errors of our own pass as they are."""

import pytest
import torch

from _helpers import Recorder
from brinell.core.errors import ModelError, RequestError
from brinell.core.model import ask

X = torch.zeros(3, 2)


def failing(error):
    def logits(x):
        raise error

    return Recorder(logits)


def test_the_models_own_error_in_one_line():
    with pytest.raises(ModelError, match=r"^model recorder failed on a batch of 3 inputs \(RuntimeError: out of memory, 2 GiB\)"):
        ask(failing(RuntimeError("out of\n memory, 2 GiB")), X)


def test_our_own_errors_and_interrupts_pass():
    for error in (RequestError("as it is"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            ask(failing(error), X)
