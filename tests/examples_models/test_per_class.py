"""The networks of the per-class study: their published sizes and names, worked examples, and
checkpoints of narrow ones.
"""

import math
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.user_files import import_file
from brinell.models.robustbench import RobustBench
from brinell.models.torch import TorchModule
from brinell.testing.others import check_model

FILE = Path(__file__).parents[2] / "examples" / "models" / "per_class.py"
networks: Any = import_file(FILE)
CIFAR = Domain(kind="image", shape=(3, 32, 32), levels=256)
PUBLISHED = {
    "peng2023": (267_240_802, 1147),
    "wang2023_large": (266_796_506, 407),
    "wang2023": (36_479_194, 155),
}


def filled(module: nn.Module, seed: int = 0) -> nn.Module:
    """Weights of a size that lets the input through, whatever the width."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, tensor in module.state_dict().items():
            if key.endswith("running_var"):
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=rng))
            elif tensor.is_floating_point():
                fan = tensor[0].numel() if tensor.ndim > 1 else 10
                tensor.copy_(
                    torch.randn(tensor.shape, generator=rng) * (2 / fan) ** 0.5 + (tensor.ndim == 1)
                )
    return module.eval()


def narrow() -> nn.Module:
    return networks.wide_resnet(10, 1)


def narrow_ra() -> nn.Module:
    return networks.WideResNet(6, (1, 2, 1), (8, 12, 16), squeeze=0.25)


def narrow_mixture() -> Any:
    return networks.Mixture(
        networks.BiT((1, 1, 1), 8, groups=4),
        narrow(),
        networks.Mixing(32 + 16, 64 + 32, (8, 12)),
        side=128,
    )


def mixture_on_meta() -> Any:
    with torch.device("meta"):
        return networks.Mixture(
            networks.BiT((3, 8, 36, 3), 128),
            networks.wide_resnet(70, 16),
            networks.Mixing(768, 1536, (512, 768, 1024)),
        )


def test_parameters_as_published() -> None:
    for name, published in PUBLISHED.items():
        network = getattr(networks, name)()
        assert (
            sum(tensor.numel() for tensor in network.parameters()),
            len(network.state_dict()),
        ) == published, name
    mixture = mixture_on_meta()
    parts = [sum(tensor.numel() for tensor in part.parameters()) for part in mixture.children()]
    assert parts == [232_279_178, 266_796_506, 67_848_704, 0] and len(mixture.state_dict()) == 946


def test_names_of_wide_networks(subtests: pytest.Subtests) -> None:
    for name in PUBLISHED:
        with subtests.test(name=name):
            keys = getattr(networks, name)().state_dict().keys()
            inner = r"(batchnorm_[01]|conv_[01]|shortcut|se\.fc[12])"
            assert all(
                re.fullmatch(
                    rf"init_conv\.weight|(layer\.[0-2]\.block\.\d+\.{inner}|batchnorm|logits)\.\w+",
                    key,
                )
                for key in keys
            )
            blocks = Counter(key.split(".")[1] for key in keys if key.endswith("conv_0.weight"))
            squeezed = sum(key.endswith("se.fc1.weight") for key in keys)
            assert sorted(blocks.values()) == {
                "wang2023": [4, 4, 4],
                "wang2023_large": [11, 11, 11],
            }.get(name, [10, 30, 31])
            assert squeezed == (71 if name == "peng2023" else 0)
            assert sum(key.endswith("shortcut.weight") for key in keys) == 3, (
                "only where the number of channels changes"
            )


def test_names_of_the_mixture() -> None:
    mixture = mixture_on_meta()
    unit = (
        r"body\.block[1-4]\.unit\d\d\.(gn[1-3]\.(weight|bias)|conv[1-3]\.weight|downsample\.weight)"
    )
    keys = mixture.standard.state_dict().keys()
    assert all(
        re.fullmatch(rf"root\.conv\.weight|{unit}|head\.(gn|conv)\.(weight|bias)", key)
        for key in keys
    )
    last = {
        number: max(key.split(".")[2] for key in keys if key.startswith(f"body.block{number}"))
        for number in (1, 2, 3, 4)
    }
    assert last == {1: "unit03", 2: "unit08", 3: "unit36", 4: "unit03"}
    keys = mixture.mixing.state_dict().keys()
    assert all(
        re.fullmatch(r"layers\.[0-2]\.[01]\..+|linear\.weight|conv1x1\.weight", key) for key in keys
    )
    assert mixture.bn.state_dict().keys() == {"running_mean", "running_var", "num_batches_tracked"}


def test_a_block_is_padded_right_and_below_where_it_halves() -> None:
    block = networks.Block(1, 1, 2, 0.0).eval()
    block.shortcut = None
    with torch.no_grad():
        for conv in (block.conv_0, block.conv_1):
            conv.weight.zero_()[0, 0, 1, 1] = 1
        x = torch.arange(16.0).view(1, 1, 4, 4)
        out = block.conv_0(torch.nn.functional.pad(x, block.padding))
    # The middle of windows that begin at 0 and 2: rows and columns 1 and 3.
    assert out.flatten().tolist() == [5.0, 7.0, 13.0, 15.0]


def test_a_block_by_hand() -> None:
    block = networks.Block(1, 1, 1, 0.0).eval()
    with torch.no_grad():
        for conv in (block.conv_0, block.conv_1):
            conv.weight.zero_()[0, 0, 1, 1] = 1
        x = torch.tensor([[[[2.0, -1.0]]]])
        output = block(x)

    def active(value: float) -> float:
        value /= math.sqrt(1 + 1e-5)
        return value / (1 + math.exp(-value))

    assert output.flatten().tolist() == pytest.approx(
        [2 + active(active(2.0)), -1 + active(active(-1.0))], rel=1e-5
    )


def test_filters_are_standardised_by_hand() -> None:
    conv = networks.StandardisedConv(1, 1, (1, 4), bias=False)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4))
        # Mean 2.5, variance 1.25.
        output = conv(torch.tensor([1.0, 0.0, 0.0, 2.0]).view(1, 1, 1, 4))
    assert float(output) == pytest.approx((-1.5 + 2 * 1.5) / math.sqrt(1.25))


def test_the_mixture_of_two_answers_by_hand() -> None:
    mixture = filled(narrow_mixture())
    with torch.no_grad():
        mixture.mixing.linear.weight.zero_()
        mixture.bn.running_mean.fill_(-1.0)
        mixture.bn.running_var.fill_(4.0)
        for head in (mixture.standard.head.conv, mixture.robust.logits):
            head.weight.zero_()
        mixture.standard.head.conv.bias.copy_(torch.tensor([1.0] + [0.0] * 9))
        mixture.robust.logits.bias.copy_(torch.tensor([0.0] * 9 + [2.0]))
        output = mixture(torch.rand(1, 3, 32, 32)).exp().flatten()
    alpha = 0.04 / (1 + math.exp(-(2.0 * (1.0 / math.sqrt(4.0 + 1e-5)) + 1.05))) + 0.96
    standard, robust = math.exp(1.2) / (math.exp(1.2) + 9), math.exp(0.6) / (math.exp(0.6) + 9)
    assert float(output[0]) == pytest.approx(
        (1 - alpha) * standard + alpha * (1 - robust) / 9, rel=1e-5
    )
    assert float(output[9]) == pytest.approx(
        (1 - alpha) * (1 - standard) / 9 + alpha * robust, rel=1e-5
    )


def test_narrow_ones_answer_and_have_gradients(subtests: pytest.Subtests) -> None:
    for make in [narrow, narrow_ra, narrow_mixture]:
        with subtests.test(make=make):
            network = filled(make())
            x = torch.rand(
                2, 3, 32, 32, generator=torch.Generator().manual_seed(1), requires_grad=True
            )
            logits: Tensor = network(x)
            (grad,) = torch.autograd.grad(logits.logsumexp(1).sum() + logits[:, 0].sum(), x)
            assert logits.shape == (2, 10) and bool(torch.isfinite(logits).all())
            assert bool((grad.abs().flatten(2).amax(2) > 0).all()), "every channel of every input"
            with torch.no_grad():
                assert not torch.allclose(logits[0], logits[1])
                assert torch.allclose(network(x[1:]), logits[1:], atol=1e-5)


def test_checkpoints(tmp_path: Path) -> None:
    """Wrapped as checkpoints are: as they are, with prefixes in a dict, in half precision, without
    counters.
    """
    code = f"import sys, torch; sys.path.insert(0, {str(FILE.parent)!r}); import per_class"
    factory = "def net():\n    with torch.device('meta'): return per_class.wide_resnet(10, 1)"
    (tmp_path / "net.py").write_text(f"{code}\n{factory}")
    network = filled(narrow())
    wraps = [
        lambda state: state,
        lambda state: {
            "state_dict": {f"module.{key}": value for key, value in state.items()},
            "epoch": 1,
        },
        lambda state: {
            f"model.{key}": value.half() if value.is_floating_point() else value
            for key, value in state.items()
        },
        lambda state: {
            key: value for key, value in state.items() if not key.endswith("num_batches_tracked")
        },
    ]
    x = torch.rand(2, 3, 32, 32)
    for wrap in wraps:
        torch.save(wrap(network.state_dict()), tmp_path / "it.pt")
        generator = torch.random.get_rng_state()
        model: Any = TorchModule(
            path=f"{tmp_path / 'net.py'}:net", weights=str(tmp_path / "it.pt")
        )(CIFAR)
        assert torch.equal(torch.random.get_rng_state(), generator)
        assert not any(tensor.is_meta for tensor in model.module.state_dict().values())
        with torch.no_grad():
            assert torch.allclose(
                model.predict(x), network(x), atol=2e-2 * float(network(x).abs().max())
            )
        check_model(model)


def test_a_mixture_from_its_three_files(tmp_path: Path) -> None:
    mixture, other = filled(narrow_mixture()), filled(narrow_mixture(), seed=1)
    files = [str(tmp_path / f"m{number}.pt") for number in range(3)]
    torch.save(
        {f"module.{key}": value for key, value in mixture.standard.state_dict().items()}, files[0]
    )
    torch.save({"state_dict": mixture.robust.state_dict()}, files[1])
    torch.save(
        {"model": mixture.mixing.state_dict(), "bn": mixture.bn.state_dict(), "epoch": 3}, files[2]
    )
    networks.fill(other, *files)
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(other(x), mixture(x))
        assert mixture(x).exp().sum(1).tolist() == pytest.approx([1, 1], abs=1e-5)


def test_the_package_opens_its_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def load_model(name: str, **request: str) -> nn.Module:
        requests.append({"model_name": name} | request)
        if name == "None2020":
            raise KeyError(name)
        return filled(narrow())

    package, utils = ModuleType("robustbench"), ModuleType("robustbench.utils")
    utils.load_model = load_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "robustbench", package)
    monkeypatch.setitem(sys.modules, "robustbench.utils", utils)
    model = RobustBench(path="Gowal2021Improving_28_10", threat="L2", folder="zoo")(CIFAR)
    assert (model.name, model.classes) == ("Gowal2021Improving_28_10", 10)
    assert requests == [
        {
            "model_name": "Gowal2021Improving_28_10",
            "model_dir": "zoo",
            "dataset": "cifar10",
            "threat_model": "L2",
        }
    ]
    with pytest.raises(
        RequestError, match="the package robustbench cannot load None2020 .*KeyError"
    ):
        RobustBench(path="None2020")(CIFAR)
    monkeypatch.setitem(sys.modules, "robustbench.utils", None)
    for path, words in (("None2020", "cannot be imported"), ("", "names no model")):
        with pytest.raises(RequestError, match=words):
            RobustBench(path=path)(CIFAR)
