"""A network in each container that torch has: the figures of the network itself, from Python and
from a file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.inputs import models_of
from brinell.models._content import model_copier
from brinell.models._torch_model import TorchModel
from brinell.models._weights import read_weights
from brinell.models.torch import TorchModule

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
IMAGE = Domain(kind="image", shape=(1, 4, 4))
X = torch.rand(11, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def network(seed: int = 1) -> nn.Module:
    module = nn.Sequential(
        nn.Conv2d(1, 3, 2),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(27, 3),
    )
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in module.parameters():
            value.copy_(torch.randn(value.shape, generator=rng) / 2)
    return module.eval()


def exported(module: nn.Module, n: int | None) -> Any:
    shapes = None if n else ({0: torch.export.Dim("n")},)
    return torch.export.export(module, (X[: n or 2],), dynamic_shapes=shapes)


CONTAINERS: dict[str, Callable[[nn.Module], Any]] = {
    "traced": lambda module: torch.jit.trace(module, X[:2]),
    "scripted": torch.jit.script,
    "frozen": lambda module: torch.jit.freeze(torch.jit.script(module)),
    "exported": lambda module: exported(module, None),
    "exported for one": lambda module: exported(module, 1),
    "exported for four": lambda module: exported(module, 4).module(),
    "a graph": torch.fx.symbolic_trace,
    "compiled": torch.compile,
    "parallel": nn.DataParallel,
    "compiled and parallel": lambda module: nn.DataParallel(torch.compile(module)),
    "a part of another": lambda module: nn.Sequential(nn.Identity(), module),
    "traced part": lambda module: nn.Sequential(nn.Identity(), torch.jit.trace(module, X[:2])),
    "compiled part": lambda module: nn.Sequential(nn.Identity(), torch.compile(module)),
    "exported part": lambda module: nn.Sequential(nn.Identity(), exported(module, None).module()),
    "traced whole": lambda module: torch.jit.trace(nn.Sequential(nn.Identity(), module), X[:2]),
    "a function": lambda module: torch.jit.trace(module, X[:2]).forward,
    "a compiled function": lambda module: torch.compile(lambda x: module(x)),
}


PARTS = (
    "frozen",
    "exported",
    "exported for four",
    "a graph",
    "parallel",
    "traced part",
    "a function",
)
"""Containers of which each needs code of its own; the others, which are slow to make or mix
these, wait for `make slow`."""


@pytest.mark.parametrize(
    "names", [PARTS, pytest.param(sorted({*CONTAINERS} - {*PARTS}), marks=pytest.mark.slow)]
)
def test_answers_gradients_copies_and_digests(names: tuple[str, ...]) -> None:
    data, plain = (
        brinell.data(X, torch.arange(11) % 3, layout="first"),
        TorchModel(network(), IMAGE),
    )
    for container in names:
        make = CONTAINERS[container]
        model, repetition, other = (
            models_of({"mine": make(network(seed))}, data, "")[0] for seed in (1, 1, 2)
        )
        for n in (1, 6):
            x = X[:n].clone().requires_grad_()
            assert torch.allclose(model.predict(x), plain.predict(x), atol=1e-5)
            if "function" not in container:
                gradients = [
                    torch.autograd.grad(each.predict(x).square().sum(), x)[0]
                    for each in (model, plain)
                ]
                assert torch.allclose(*gradients, atol=1e-4)
        if "function" not in container:
            assert torch.allclose(model_copier(model)().predict(X), plain.predict(X), atol=1e-5)
            assert repetition.digest() == model.digest() != other.digest()


def test_the_digest_covers_the_code() -> None:
    for container in ["traced", "scripted", "exported", "a graph"]:

        class Scaled(nn.Module):
            def __init__(self, factor: float) -> None:
                super().__init__()
                self.net, self.factor = network(), factor

            def forward(self, x: Tensor) -> Tensor:
                return self.net(x) * self.factor

        assert (
            len(
                {
                    TorchModel(CONTAINERS[container](Scaled(factor)), IMAGE).digest()
                    for factor in (2.0, 3.0)
                }
            )
            == 2
        )


def test_what_is_asked_otherwise_is_said() -> None:
    for container in ["exported for four", "compiled", "parallel"]:
        (note,) = TorchModel(CONTAINERS[container](network()), IMAGE, name="mine").info.notes
        assert note.startswith("mine is asked ")


def test_a_factory_may_return_a_container(tmp_path: Path) -> None:
    torch.jit.save(CONTAINERS["traced"](network()), tmp_path / "net.pt")
    torch.export.save(exported(network(), 4), tmp_path / "net.pt2")
    (tmp_path / "mine.py").write_text(
        f"import torch\ndef jit():\n    return torch.jit.load('{tmp_path}/net.pt')\n"
        f"def program():\n    return torch.export.load('{tmp_path}/net.pt2')\n"
        "def parallel():\n    return torch.nn.DataParallel(jit())\n"
    )
    for name in ("jit", "program", "parallel"):
        assert torch.allclose(
            TorchModule(path=f"{tmp_path}/mine.py:{name}")(IMAGE).predict(X),
            network()(X),
            atol=1e-5,
        )
    for file, words in (
        (tmp_path / "net.pt", r"let a function of FILE.py return torch.jit.load\('.*net.pt'\)"),
        (tmp_path / "net.pt2", "weights come as .safetensors"),
    ):
        with pytest.raises(RequestError, match=words):
            read_weights(file)
        with pytest.raises(RequestError, match="names no function: write torch:FILE.py:FACTORY"):
            TorchModule(path=str(file))(IMAGE)


def test_a_quantised_network_answers_and_is_copied() -> None:
    quantised = torch.ao.quantization.quantize_dynamic(network(), {nn.Linear}, dtype=torch.qint8)
    model = TorchModel(quantised, IMAGE)
    assert (
        model.digest()
        != TorchModel(
            torch.ao.quantization.quantize_dynamic(network(2), {nn.Linear}, dtype=torch.qint8),
            IMAGE,
        ).digest()
    )
    assert torch.equal(model_copier(model)().predict(X), model.predict(X))
