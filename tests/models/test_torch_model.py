"""Any module as a model: what it is fed, what it answers, and that it comes out as it went in."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.models._torch_model import TorchModel
from brinell.testing.others import check_model

IMAGE = Domain(kind="image", shape=(3, 4, 4), levels=256)
RNG = torch.Generator().manual_seed(0)
X = torch.rand(5, 3, 4, 4, generator=RNG)


class Sees(nn.Module):
    """Keeps what it was given."""

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x.detach().clone()
        return x.flatten(1)[:, :7]


def net() -> nn.Sequential:
    """Convolution, batch norm and dropout, in training mode, with one part frozen in evaluation
    mode."""
    torch_rng = torch.Generator().manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 6)
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch_rng))
    module.train()
    module[1].eval()
    return module


def state(module: nn.Module) -> list[Any]:
    return [
        [(name, value.clone()) for name, value in module.state_dict().items()],
        [part.training for part in module.modules()],
        [parameter.requires_grad for parameter in module.parameters()],
        [parameter.grad for parameter in module.parameters()],
    ]


def outputs_equal(before: list[Any], after: list[Any]) -> bool:
    weights = all(torch.equal(a[1], b[1]) for a, b in zip(before[0], after[0], strict=True))
    return weights and before[1:] == after[1:]


def test_preprocessing_is_foolboxes() -> None:
    rows = [
        (None, X),
        ({"mean": 0.5}, X - 0.5),
        ({"mean": 0.5, "std": 0.25}, (X - 0.5) / 0.25),
        ({"mean": [0.1, 0.2, 0.3], "axis": -3}, X - torch.tensor([0.1, 0.2, 0.3]).reshape(3, 1, 1)),
        (
            {"std": torch.tensor([1.0, 2.0, 4.0]), "axis": -3},
            X / torch.tensor([1.0, 2.0, 4.0]).reshape(3, 1, 1),
        ),
        ({"mean": torch.full((3, 1, 1), 0.5)}, X - 0.5),
        ({"std": [0.5, 1, 2, 4], "axis": -1}, X / torch.tensor([0.5, 1, 2, 4])),
        ({"flip_axis": -3}, X.flip(1)),
    ]
    for preprocessing, expected in rows:
        module = Sees()
        logits = TorchModel(module, IMAGE, 7, preprocessing=preprocessing).predict(X)
        assert torch.allclose(module.seen, expected, atol=1e-6)
        assert torch.allclose(logits, expected.flatten(1)[:, :7], atol=1e-6)


def test_a_module_with_other_bounds_and_a_preprocessing_that_makes_no_sense() -> None:
    module = Sees()
    TorchModel(
        module, IMAGE, 7, bounds=(0, 255), preprocessing={"mean": [123, 117, 104], "axis": -3}
    ).predict(X)
    assert torch.allclose(
        module.seen, X * 255 - torch.tensor([123.0, 117, 104]).reshape(3, 1, 1), atol=1e-4
    )
    signal = Domain(kind="signal", shape=(2, 8), low=(-5.0, 0.0), high=(5.0, 1.0))
    TorchModel(module, signal, 7, bounds=(-1, 1)).predict(
        torch.tensor([5.0, 0.5]).reshape(1, 2, 1).expand(1, 2, 8)
    )
    assert torch.allclose(module.seen[0, :, 0], torch.tensor([1.0, 0.0]))
    for options, words in (
        ({"preprocessing": {"means": 0.5}}, "no 'means'; it has mean, std, axis"),
        ({"preprocessing": {"mean": [1, 2, 3]}}, "no axis; for images it is axis=-3"),
        (
            {"preprocessing": {"mean": [1, 2], "axis": -3}},
            "mean= has 2 values, and the inputs have 3 channels: give one",
        ),
        ({"preprocessing": {"mean": [1, 2, 3], "axis": 1}}, "must be -3 to -1"),
        ({"preprocessing": {"std": 0}}, "std of 0"),
        ({"bounds": (1, 0)}, "smaller"),
    ):
        with pytest.raises(RequestError, match=words):
            TorchModel(Sees(), IMAGE, 7, **options)


def test_a_module_fits_or_is_refused_in_one_line() -> None:
    model = TorchModel(net(), IMAGE, name="mine")
    assert (model.name, model.classes, model.access, model.info.architecture) == (
        "mine",
        6,
        Access.GRADIENTS,
        "Sequential",
    )
    assert model.info.parameters == 3 * 4 * 9 + 4 + 8 + 16 * 6 + 6
    check_model(model)
    for answer, words in (
        (lambda x: x.reshape(1, 16, 3), r"shape \(1, 16, 3\)"),
        (lambda x: (x, x), "answers with a tuple"),
        (
            lambda x: x.reshape(7),
            r"cannot take the data, images of shape \(3, 4, 4\): RuntimeError: shape '\[7\]'",
        ),
        (lambda x: x.nothing, "AttributeError"),
    ):
        module = nn.Identity()
        module.forward = answer  # type: ignore[method-assign]
        with pytest.raises(RequestError, match=words) as error:
            TorchModel(module, IMAGE, name="mine")
        assert "\n" not in str(error.value) and str(error.value).startswith("mine ")


def test_nothing_changes() -> None:
    module = net()
    before = state(module)
    model = TorchModel(module, IMAGE)
    assert outputs_equal(before, state(module)), "by the probe"
    with model.session("cpu"):
        assert not any(part.training for part in module.modules())
        leaf = X.clone().requires_grad_()
        (grad,) = torch.autograd.grad(model.predict(leaf).sum(), leaf)
        assert grad.abs().sum() > 0
    assert outputs_equal(before, state(module)), "by a session"
    with pytest.raises(KeyboardInterrupt), model.session():
        raise KeyboardInterrupt
    assert outputs_equal(before, state(module)), "by a session that was broken off"
    with model.session(), model.session():
        pass
    model.predict(X)
    assert outputs_equal(before, state(module)), "by a call outside of a session"
    assert torch.equal(model.predict(X), model.predict(X)), "dropout is off"


def test_the_digest_sees_whatever_changes_an_answer() -> None:
    digest = TorchModel(net(), IMAGE).digest()
    assert TorchModel(net(), IMAGE, name="other").digest() == digest
    assert TorchModel(net().eval(), IMAGE).digest() == digest

    def changed(name: str) -> nn.Module:
        module = net()
        with torch.no_grad():
            module.get_parameter(name).flatten()[0] += 1e-3
        return module

    class Shifted(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1

    statistics = net()
    statistics[1].running_mean[0] = 0.5
    variants = [
        TorchModel(changed("0.weight"), IMAGE),
        TorchModel(changed("4.bias"), IMAGE),
        TorchModel(statistics, IMAGE),
        TorchModel(net().double(), IMAGE),
        TorchModel(Shifted(*net()), IMAGE),
        TorchModel(nn.Sequential(*list(net()), nn.ReLU()), IMAGE),
        TorchModel(net(), IMAGE, preprocessing={"mean": 0.5}),
        TorchModel(net(), IMAGE, bounds=(0, 255)),
        TorchModel(net(), IMAGE, code="other"),
    ]
    assert len({digest, *(variant.digest() for variant in variants)}) == len(variants) + 1


def test_the_digest_sees_defaults_and_closures_of_methods_and_no_spelling_of_a_preprocessing() -> (
    None
):
    def scaled(number: float) -> nn.Module:
        class Scaled(nn.Module):
            def forward(self, x: Tensor, scale: float = number) -> Tensor:
                return x.flatten(1)[:, :3] * scale

        return Scaled()

    def closed(number: float) -> nn.Module:
        class Closed(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x.flatten(1)[:, :3] * number

        return Closed()

    class Printed(nn.Module):
        def extra_repr(self) -> str:
            return f"function={object()!r}"

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)

    assert TorchModel(Printed(), IMAGE).digest() == TorchModel(Printed(), IMAGE).digest(), (
        "no address is in it"
    )
    for make in (scaled, closed):
        assert TorchModel(make(1.0), IMAGE).digest() == TorchModel(make(1.0), IMAGE).digest()
        assert TorchModel(make(1.0), IMAGE).digest() != TorchModel(make(2.0), IMAGE).digest()
    spellings = [
        {"mean": 0.5},
        {"mean": [0.5] * IMAGE.shape[0], "axis": -3},
        {"mean": 0.5, "std": 1.0},
    ]
    assert (
        len({TorchModel(net(), IMAGE, preprocessing=spelling).digest() for spelling in spellings})
        == 1
    )
