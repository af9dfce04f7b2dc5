"""Whoever watches a network that writes into its own tensors sees what it sees in the same network
that does not."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.distances.l2 import L2
from brinell.engine.deciding import ClassTensors
from brinell.engine.repair import repair_candidates, with_straight_through
from brinell.explainers.grad_cam import GradCAM
from brinell.models._torch_model import TorchModel

IMAGE = Domain(kind="image", shape=(2, 8, 8))
X = torch.rand(4, 2, 8, 8, generator=torch.Generator().manual_seed(0))
LAYERS = ("conv", "norm", "act", "second", "last")


class Network(nn.Module):
    """A network with each kind of writing in place: a module, a function, a residual sum, a scaling
    of logits.
    """

    def __init__(self, inplace: bool, act: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.inplace = inplace
        self.conv, self.norm, self.act = (
            nn.Conv2d(2, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            act(inplace=inplace),
        )
        self.second, self.last, self.fc = (
            nn.Conv2d(4, 4, 3, padding=1),
            act(inplace=inplace),
            nn.Linear(4, 3),
        )
        rng = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(torch.randn(value.shape, generator=rng) / 2)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.conv(x)))
        y = self.second(x)
        y = y.add_(x) if self.inplace else y + x
        y = F.relu_(y) if self.inplace else F.relu(y)
        y = self.last(y - 0.3).mean((2, 3))
        features = y.mul_(2) if self.inplace else 2 * y
        logits = self.fc(features)
        return logits.div_(3).sub_(1) if self.inplace else logits / 3 - 1


def pair(act: type[nn.Module] = nn.ReLU) -> list[TorchModel]:
    return [TorchModel(Network(inplace, act), IMAGE, classes=3) for inplace in (False, True)]


def batch_of(model: TorchModel) -> Batch:
    return Batch(ids=torch.arange(len(X)), x=X, y=model.predict(X).argmax(1))


def explain(model: TorchModel, explainer: Any) -> Tensor:
    batch = batch_of(model)
    threat = Threat(distance=L2(), eps=torch.full((len(X),), 1.0), domain=IMAGE)
    return explainer(Ledger(model, batch, threat).oracle(), batch, IMAGE, Streams.of(0, batch.ids))


def test_grad_cam() -> None:
    for layer in ["", *LAYERS]:
        for act in [nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.SiLU, nn.ELU]:
            maps = [
                explain(model, GradCAM(layer=layer).attach(model.module, IMAGE))
                for model in pair(act)
            ]
            assert maps[0].amax() > 0 and torch.allclose(*maps, atol=1e-6)


def test_tensors_with_a_number_for_each_class() -> None:
    tensors = []
    for model in pair():
        with ClassTensors(len(X), 3) as mode:
            model.predict(X)
        tensors.append(list(mode.tensors.values()))
    assert torch.allclose(tensors[0][0], tensors[1][0]) and torch.allclose(
        tensors[0][-1], tensors[1][-1]
    )
    assert not torch.allclose(tensors[1][0], tensors[1][-1])


class Rounded(nn.Module):
    """A module without a gradient, which writes into its input if it is told to."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(8).round_().div_(8) if self.inplace else (x * 8).round() / 8


def rounded(inplace: bool, first: bool) -> TorchModel:
    rng = torch.Generator().manual_seed(3)
    layers = [nn.Flatten(), nn.Linear(128, 12), Rounded(inplace), nn.Linear(12, 3)]
    if first:
        layers = [
            nn.Hardtanh(0.0, 1.0, inplace=inplace),
            Rounded(inplace),
            nn.Flatten(),
            nn.Linear(128, 3),
        ]
    network = nn.Sequential(*layers)
    with torch.no_grad():
        for value in network.parameters():
            value.copy_(torch.randn(value.shape, generator=rng) / 4)
    # Scaled, so that the module gets a tensor of its own to write into.
    return TorchModel(network, IMAGE, preprocessing={"mean": 0.1, "std": 0.9})


def test_every_repair() -> None:
    for first in [True, False]:
        gradients = []
        for inplace in (False, True):
            model = rounded(inplace, first)
            gradients.append({})
            for name, repair in repair_candidates(model, X).items():
                x = X.clone().requires_grad_()
                answers = repair.predict(x)
                assert torch.allclose(answers, model.predict(X), atol=1e-5), name
                gradients[-1][name] = torch.autograd.grad(answers.square().sum(), x)[0]
        assert list(gradients[0]) == list(gradients[1]) and gradients[0]
        for name, gradient in gradients[0].items():
            assert torch.allclose(gradient, gradients[1][name], atol=1e-5), name


def test_straight_through() -> None:
    for function in ["round", "floor", "ceil", "trunc", "sign"]:

        class Net(nn.Module):
            def __init__(self, inplace: bool) -> None:
                super().__init__()
                self.inplace = inplace

            def forward(self, x: Tensor) -> Tensor:
                h = 3 * x.flatten(1)[:, :5] - 1
                if self.inplace:
                    getattr(h, function + "_")()
                    h.detach_()
                    return h * 2
                return getattr(h, function)().detach() * 2

        gradients = []
        for inplace in (False, True):
            x = X.clone().requires_grad_()
            answers = with_straight_through(TorchModel(Net(inplace), IMAGE), attach=True).predict(x)
            assert torch.equal(answers, Net(False)(X))
            gradients.append(torch.autograd.grad(answers.sum(), x)[0])
        assert gradients[0].abs().sum() > 0 and torch.equal(*gradients)
