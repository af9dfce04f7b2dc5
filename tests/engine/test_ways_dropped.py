"""A way around a gradient that a model fails with is dropped with a reason; that memory is short is no reason."""

import pytest
import torch
from torch import nn

from _helpers import audited, batch_of, distance
from brinell.core.domain import Domain
from brinell.core.errors import MemoryShortError
from brinell.core.streams import Streams
from brinell.engine.adaptive import find_repair
from brinell.engine.repair import candidates, culprits
from brinell.models._torch_model import TorchModel

FOUR = Domain(kind="vector", shape=(4,))


class Stepped(nn.Module):
    """Rounds its inputs, and fails in one way or another where it is called with a gradient and without the model around it."""

    def __init__(self, error, most=0):
        super().__init__()
        self.error, self.most, self.within = error, most, False

    def forward(self, x):
        if self.error is not None and not self.within and torch.is_grad_enabled() and len(x) > self.most:
            raise self.error
        return torch.round(5 * x) / 5


class Around(nn.Module):
    def __init__(self, error, most=0):
        super().__init__()
        self.step, self.last = Stepped(error, most), nn.Linear(4, 3)
        draw = torch.Generator().manual_seed(0)
        for weights in self.parameters():
            weights.data = torch.rand(weights.shape, generator=draw) - 0.5

    def forward(self, x):
        self.step.within = True
        try:
            return self.last(self.step(x))
        finally:
            self.step.within = False


def inputs(n=32):
    return torch.rand(n, 4, generator=torch.Generator().manual_seed(1))


def repair_of(net, **keywords):
    x = inputs()
    streams = Streams.of(0, torch.arange(len(x)))
    return find_repair(
        TorchModel(net, FOUR), batch_of(x, net(x).argmax(1)), distance("linf"), 0.2, streams, batch_size=32, **keywords
    )


def test_a_module_that_cannot_be_called_alone_is_told_and_the_others_are_tried():
    told = []
    repaired, _, _ = repair_of(Around(RuntimeError("only within its model")).eval(), dropped=told.append)
    assert told == ["module step called alone (only within its model)"]
    assert repaired.way == "the identity at every rounding"
    told.clear()
    repair_of(Around(None).eval(), dropped=told.append)
    assert told == []


def test_short_memory_is_no_fault_of_a_module():
    """A module that has memory for four inputs is looked at with four; one that has none for one is no module that fits badly."""
    told = []
    model = TorchModel(Around(torch.OutOfMemoryError("7 GiB"), most=4).eval(), FOUR)
    assert [str(one) for one in culprits(model, inputs(), told.append)] == ["module step (Stepped) returns zeros"] and not told
    model = TorchModel(Around(torch.OutOfMemoryError("7 GiB")).eval(), FOUR)
    with pytest.raises(MemoryShortError, match="7 GiB"):
        culprits(model, inputs())


def test_a_stand_in_that_does_not_fit_is_told():
    """Two modules take inputs of the model's shape; before the second one the sizes differ, so that the identity fails."""

    class Failing(nn.Module):
        def forward(self, x):
            if x.requires_grad and type(x.grad_fn).__name__ != "NoneType" and "Round" not in type(x.grad_fn).__name__:
                raise RuntimeError("no such gradient")
            return x

    net = nn.Sequential(Stepped(None), Failing(), nn.Linear(4, 3)).eval()
    model, told = TorchModel(net, FOUR), []
    ways = [way for way, _ in candidates(model, inputs(), [], told.append)]
    assert any("no such gradient" in one for one in told) and "the identity at every rounding" not in ways


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("7 GiB"), RuntimeError("no such call")], ids=["memory", "fault"])
def test_an_audit_tells_what_it_dropped_and_goes_on(tmp_path, error):
    net, x = Around(error, most=4).eval(), inputs()
    attack = ("fgsm", "apgd-ce?steps=3&gradient=repaired")
    run = audited(tmp_path / "run", TorchModel(net, FOUR), x.numpy(), net(x).argmax(1).numpy(), eps="0.2", attack=attack)
    (said,) = run.manifest["remarks"].values()
    assert "gradient-repaired" in said["checks"]
    short = isinstance(error, torch.OutOfMemoryError)
    assert ("ways-dropped" in said["checks"]) is not short
    assert short or said["checks"]["ways-dropped"].endswith("module step called alone (no such call)")
