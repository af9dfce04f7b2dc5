"""A repair with which a model fails is dropped with a reason; short memory is not such a reason."""

import pytest
import torch
from torch import nn

from _helpers import batch_of, distance, run_audit
from brinell.core.domain import Domain
from brinell.core.errors import MemoryShortError
from brinell.core.streams import Streams
from brinell.engine.adaptive import find_repair
from brinell.engine.repair import find_culprits, repair_candidates
from brinell.models._torch_model import TorchModel

FOUR = Domain(kind="vector", shape=(4,))


class Stepped(nn.Module):
    """Rounds its inputs, and fails in one way or another where it is called with a gradient and without the model around it."""

    def __init__(self, error, limit=0):
        super().__init__()
        self.error, self.limit, self.inside_model = error, limit, False

    def forward(self, x):
        if self.error is not None and not self.inside_model and torch.is_grad_enabled() and len(x) > self.limit:
            raise self.error
        return torch.round(5 * x) / 5


class Around(nn.Module):
    def __init__(self, error, limit=0):
        super().__init__()
        self.step, self.last = Stepped(error, limit), nn.Linear(4, 3)
        draw = torch.Generator().manual_seed(0)
        for weights in self.parameters():
            weights.data = torch.rand(weights.shape, generator=draw) - 0.5

    def forward(self, x):
        self.step.inside_model = True
        try:
            return self.last(self.step(x))
        finally:
            self.step.inside_model = False


def inputs(n=32):
    return torch.rand(n, 4, generator=torch.Generator().manual_seed(1))


def repair_of(net, **keywords):
    x = inputs()
    streams = Streams.of(0, torch.arange(len(x)))
    return find_repair(
        TorchModel(net, FOUR), batch_of(x, net(x).argmax(1)), distance("linf"), 0.2, streams, batch_size=32, **keywords
    )


def test_a_module_that_cannot_be_called_alone_is_told_and_the_others_are_tried():
    drops = []
    repaired, _, _ = repair_of(Around(RuntimeError("only within its model")).eval(), on_drop=drops.append)
    assert drops == ["module step called alone (only within its model)"]
    assert repaired.substitute == "the identity at every rounding"
    drops.clear()
    repair_of(Around(None).eval(), on_drop=drops.append)
    assert drops == []


@pytest.mark.slow
def test_short_memory_is_no_fault_of_a_module():
    """A module with memory for four inputs is checked with four; one without memory for one raises."""
    drops = []
    model = TorchModel(Around(torch.OutOfMemoryError("7 GiB"), limit=4).eval(), FOUR)
    assert [str(culprit) for culprit in find_culprits(model, inputs(), drops.append)] == [
        "module step (Stepped) returns zeros"
    ] and not drops
    model = TorchModel(Around(torch.OutOfMemoryError("7 GiB")).eval(), FOUR)
    with pytest.raises(MemoryShortError, match="7 GiB"):
        find_culprits(model, inputs())


def test_a_stand_in_that_does_not_fit_is_told():
    """Two modules take inputs of the model's shape; before the second one the sizes differ, so that the identity fails."""

    class Failing(nn.Module):
        def forward(self, x):
            if x.requires_grad and type(x.grad_fn).__name__ != "NoneType" and "Round" not in type(x.grad_fn).__name__:
                raise RuntimeError("no such gradient")
            return x

    net = nn.Sequential(Stepped(None), Failing(), nn.Linear(4, 3)).eval()
    model, drops = TorchModel(net, FOUR), []
    descriptions = [description for description, _ in repair_candidates(model, inputs(), [], drops.append)]
    assert any("no such gradient" in drop for drop in drops) and "the identity at every rounding" not in descriptions


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("7 GiB"), RuntimeError("no such call")], ids=["memory", "fault"])
def test_an_audit_tells_what_it_dropped_and_goes_on(tmp_path, error):
    net, x = Around(error, limit=4).eval(), inputs()
    attack = ("fgsm", "apgd-ce?steps=3&gradient=repaired")
    run = run_audit(tmp_path / "run", TorchModel(net, FOUR), x.numpy(), net(x).argmax(1).numpy(), eps="0.2", attack=attack)
    (remarks,) = run.manifest["remarks"].values()
    assert "gradient-repaired" in remarks["checks"]
    short = isinstance(error, torch.OutOfMemoryError)
    assert ("ways-dropped" in remarks["checks"]) is not short
    assert short or remarks["checks"]["ways-dropped"].endswith("module step called alone (no such call)")
