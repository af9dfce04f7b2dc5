"""A repair with which a model fails is dropped with a reason; short memory is not such a reason."""

import pytest
import torch
from torch import nn

from _helpers import run_audit
from brinell.core.domain import Domain
from brinell.engine.repair import repair_candidates
from brinell.models._torch_model import TorchModel

FOUR = Domain(kind="vector", shape=(4,))


class Stepped(nn.Module):
    """Rounds its inputs, and fails where gradients pass straight through the rounding."""

    def __init__(self, error):
        super().__init__()
        self.error, self.last = error, nn.Linear(4, 3)
        draw = torch.Generator().manual_seed(0)
        for weights in self.parameters():
            weights.data = torch.rand(weights.shape, generator=draw) - 0.5

    def forward(self, x):
        steps = torch.round(5 * x)
        if self.error is not None and steps.requires_grad and "Round" not in type(steps.grad_fn).__name__:
            raise self.error
        return self.last(steps / 5)


def inputs(n=32):
    return torch.rand(n, 4, generator=torch.Generator().manual_seed(1))


def test_a_repair_that_fails_is_told():
    drops = []
    assert not repair_candidates(TorchModel(Stepped(RuntimeError("no such gradient")).eval(), FOUR), inputs(), drops.append)
    assert len(drops) == 3 and all(drop.endswith("(no such gradient)") for drop in drops)
    assert repair_candidates(TorchModel(Stepped(None).eval(), FOUR), inputs(), drops.append) and len(drops) == 3


def test_short_memory_is_no_fault_of_a_repair():
    with pytest.raises(RuntimeError, match="7 GiB"):
        repair_candidates(TorchModel(Stepped(torch.OutOfMemoryError("7 GiB")).eval(), FOUR), inputs())


def test_an_audit_tells_what_it_dropped_and_goes_on(tmp_path):
    net, x = Stepped(RuntimeError("no such call")).eval(), inputs()
    attack = ("fgsm", "apgd-ce?steps=3&gradient=repaired")
    run = run_audit(tmp_path / "run", TorchModel(net, FOUR), x.numpy(), net(x).argmax(1).numpy(), eps="0.2", attack=attack)
    (remarks,) = run.manifest["remarks"].values()
    assert "gradient-repaired" not in remarks["checks"]
    assert remarks["checks"]["ways-dropped"].endswith("(no such call)")
