"""A failing model gives one line of error, and errors of Brinell pass unchanged."""

import pytest
import torch

from _helpers import VECTOR, Recorder, plan_of
from _refusals import refused
from brinell.core.contracts import Dataset, check_complete
from brinell.core.errors import ContractError, ModelError, RequestError
from brinell.core.model import Access, Model, ModelInfo, ask

X = torch.zeros(3, 2)


def failing(error):
    def logits(x):
        raise error

    return Recorder(logits)


def test_the_models_own_error_in_one_line():
    with pytest.raises(
        ModelError,
        match=r"^model recorder failed on a batch of 3 inputs \(RuntimeError: out of "
        r"memory, 2 GiB\)",
    ):
        ask(failing(RuntimeError("out of\n memory, 2 GiB")), X)


class Old:
    """A complete model without a declared `info`."""

    name, domain, classes, access = "old", VECTOR, 2, Access.SCORES

    def predict(self, x):
        return x

    def digest(self):
        return "old"


def test_a_model_or_data_without_a_member_of_the_contract_is_refused_in_one_line():
    assert check_complete(Model, Recorder(torch.zeros)).info == ModelInfo()
    with pytest.raises(ContractError, check=refused("core.contracts.check_complete")):
        plan_of(Old(), X, [0, 0, 0])
    with pytest.raises(ContractError, check=refused("core.contracts.check_complete")):
        check_complete(Dataset, Old())


def test_our_own_errors_and_interrupts_pass():
    for error in (RequestError("as it is"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            ask(failing(error), X)
