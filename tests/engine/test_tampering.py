"""An attack in this process that changes what it is judged by is refused in one line, and an honest one is not."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from _helpers import distance, mlp
from brinell.core import norms
from brinell.core.criterion import Misclassified
from brinell.core.domain import Domain
from brinell.core.errors import ContractError
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.engine.cascade import Stage
from brinell.engine.shard import Group, ShardSetting, run_shard
from brinell.models._torch_model import TorchModel

SIX = Domain(kind="vector", shape=(6,))
N = 4


class Attack:
    """A step along the gradient, and then something else, which is handed the local names of whoever called."""

    family, access, norms = "budgeted", Access.GRADIENTS, ("linf",)

    def __init__(self, act):
        self.act = act

    def __call__(self, oracle, batch, threat, rng):
        step = oracle.gradient(batch.ids, batch.x).grad.sign()
        oracle.scores(batch.ids, threat.project(batch.x + 0.3 * step, batch.x))
        self.act(sys._getframe(1).f_locals)


def shard(act, make=lambda: mlp(6, 3)):
    """The result of an attack on four samples at a budget of 0.3."""
    x = torch.rand(N, 6, generator=torch.Generator().manual_seed(0))
    module = make()
    label = module(x).argmax(1).numpy()
    stage = Stage(name="mine", plugin="mine", attack=Attack(act))
    settings = {
        "distance": distance("linf"),
        "domain": SIX,
        "levels": np.array([0.3]),
        "seed": 0,
        "batch_size": 8,
        "queries": None,
    }
    setting = ShardSetting(name="net", model=TorchModel(module, SIX, 3), stage=stage, **settings)
    group = Group(
        sample_id=np.arange(N), target=None, label=label, clean_pred=label.copy(), clean_confidence=np.ones(N, np.float32),
        level=np.zeros(N, np.int64), x=x, unit=np.ones(N),
    )  # fmt: skip
    return run_shard(setting, group)


def module_of(names):
    return names["setting"].model.info.module


def write(array, value):
    array[0] = value


def replace_forward(names):
    module_of(names)[1].forward = lambda x: x


TAMPERING = {
    "clean inputs were written": lambda names: names["group"].x.add_(0.01),
    "label of the samples were written": lambda names: write(names["group"].label, (names["group"].label[0] + 1) % 3),
    "sample_id of the samples were written": lambda names: write(names["group"].sample_id, 9),
    "clean_pred of the samples were written": lambda names: write(names["group"].clean_pred, (names["group"].label[0] + 1) % 3),
    "clean_confidence of the samples were written": lambda names: write(names["group"].clean_confidence, 0.5),
    "level of the samples were written": lambda names: write(names["group"].level, -1),
    "unit of the samples were written": lambda names: write(names["group"].unit, 2.0),
    "budgets of the samples were written": lambda names: write(names["setting"].levels, 0.5),
    "the ledger was written into": lambda names: names["ledger"].costs.forwards.zero_(),
    "times forwards and": lambda names: names["counted"].predict(torch.rand(1, 6)),
    "backwards, and the ledger": lambda names: names["counted"].predict(torch.rand(N, 6).requires_grad_()).sum().backward(),
    "other code, hooks or modes": lambda names: module_of(names).train(),
    "code, hooks or modes": lambda names: module_of(names)[1].register_forward_hook(lambda *_: None),
    "hooks or modes": replace_forward,
    "weights were written into": lambda names: module_of(names)[3].bias.data.add_(1e-3),
}


@pytest.mark.parametrize("part", range(3))
def test_what_an_attack_changes_is_named(part):
    for words, act in list(TAMPERING.items())[part::3]:
        with pytest.raises(ContractError, match=f"while mine ran, .*{words}") as error:
            shard(act)
        assert "\n" not in str(error.value)


def test_an_honest_attack_is_not_refused():
    records = shard(lambda names: None).records
    assert records.forwards.tolist() == [2] * N and records.backwards.tolist() == [1] * N and "fooled" in records.outcome


def test_functions_that_judge_are_watched(monkeypatch):
    cases = [
        (norms, "linf", lambda d: d.flatten(1).sum(1) * 0, "brinell.core.norms.linf was replaced"),
        (Misclassified, "met", lambda *_: True, "Misclassified.met was replaced"),
        (Ledger, "more", lambda self: None, "Ledger.more was replaced"),
        (torch.Tensor, "argmax", torch.Tensor.argmin, "Tensor.argmax was replaced"),
        (nn.functional, "relu", nn.functional.gelu, "functional.relu was replaced"),
    ]
    for owner, name, function, words in cases:
        with monkeypatch.context() as patch, pytest.raises(ContractError, match=words):
            shard(lambda names, owner=owner, name=name, function=function: patch.setattr(owner, name, function, raising=False))


def test_a_model_that_changes_its_own_buffers_is_no_tampering():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(6, 3)
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls.add_(1)
            return self.net(x)

    assert len(shard(lambda names: None, Counts).records)
