"""Healthy networks, on which no check may fail: of the shared data, in bf16, and of timm and
torchvision with random weights.

The batch norms of networks with random weights have seen one batch, their logits are brought to
mean 0 and deviation 1 over the images, and their answers are the labels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import measure
from benchmarks.zoo import base
from benchmarks.zoo.pair import Around
from brinell.core.domain import Domain

Loaded = tuple[object, Tensor, Tensor]
"""A model, its inputs (n, *shape) and labels (n,)."""


@dataclass(frozen=True)
class Healthy:
    """A network and the budgets on which it is audited."""

    name: str
    load: Callable[[int], Loaded]
    """With so many samples."""
    budgets: tuple[tuple[str, str], ...]
    """(norm, eps) pairs."""
    attack: str | None = None
    """Attack that replaces the cascade on a network without gradients."""


class Half(nn.Module):
    """A network whose weights and activations are bf16; its answers are float32."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net.bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        return self.net(x.bfloat16()).float()


def shared(
    name: str, change: Callable[[nn.Module], nn.Module] = lambda net: net
) -> Callable[[int], Loaded]:
    """A network of `measure` with its first test images."""

    def load(n: int) -> Loaded:
        loaded = base.load(name, n)
        return change(loaded.net), loaded.x, loaded.y

    return load


def photographs(name: str, side: int) -> Callable[[int], Loaded]:
    """An ImageNet network on the first photographs, brought to its side."""

    def load(n: int) -> Loaded:
        from PIL import Image

        folder = measure.SHARED / "imagenet_samples"
        rows = [line.split(",") for line in (folder / "labels.csv").read_text().splitlines()[1:]][
            : min(n, 32)
        ]
        pictures = [
            Image.open(folder / "images" / row[0]).convert("RGB").resize((side, side))
            for row in rows
        ]
        x = (
            torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
            .movedim(-1, 1)
            .float()
            .div(255)
            .contiguous()
        )
        return measure.subject(name).module(), x, torch.tensor([int(row[1]) for row in rows])

    return load


def untrained(make: Callable[[], nn.Module], x: Tensor, seed: int = 0) -> Loaded:
    """A network with random weights whose answers, spread over the classes, are the labels."""
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(seed)
        net = make()
        for layer in net.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.momentum = None
        with torch.no_grad():
            net.train()(x)
    net.eval().requires_grad_(False)
    with torch.no_grad():
        logits = net(x)
        mean, spread = logits.mean(0), logits.std(0).clamp_min(1e-12)
        return (
            Around(net, after=lambda z: (z - mean) / spread),
            x,
            ((logits - mean) / spread).argmax(1),
        )


def library(package: str, name: str, **settings: object) -> Callable[[int], Loaded]:
    """An architecture of timm or torchvision, ten classes, on CIFAR-10 images."""

    def load(n: int) -> Loaded:
        module = import_module(package)
        make = (
            (lambda: module.create_model(name, num_classes=10, **settings))
            if package == "timm"
            else (lambda: getattr(module.models, name)(num_classes=10, **settings))
        )
        return untrained(make, measure.images("cifar10/cifar10_test.npz", slice(n))[0])

    return load


def heartbeats(n: int) -> Loaded:
    """The network of examples/models/ecg.py, random weights, on beats brought to [0, 1]."""
    with np.load(measure.SHARED / "ecg_mitbih" / "mitbih_beats_test_ds2.npz") as arrays:
        beats = torch.from_numpy(arrays["beats_uV"][:: len(arrays["labels"]) // n][:n]).float()[
            :, None
        ]
    return untrained(
        measure.import_example("models/ecg.py").BeatNet, (beats / 8000 + 0.5).clamp(0, 1)
    )


def clips(n: int) -> Loaded:
    """The network of examples/models/video.py, random weights, on gesture clips."""
    with np.load(measure.SHARED / "video" / "asl_gesture_clips.npz") as arrays:
        x = (
            torch.from_numpy(arrays["clips"][:: 160 // min(n, 32)][: min(n, 32)])
            .permute(0, 4, 1, 2, 3)
            .float()
            .div(255)
        )
    network = measure.import_example("models/video.py").R2Plus1D
    return untrained(lambda: network(8), x.contiguous())


def onnx(file: str, data: str, **settings: object) -> Callable[[int], Loaded]:
    """A published ONNX file: scores only."""

    def load(n: int) -> Loaded:
        from brinell.models.onnx import Onnx

        x, y = measure.images(data, slice(n))
        domain = Domain(kind="image", shape=tuple(x.shape[1:]), levels=256)
        return Onnx(path=str(measure.SHARED / "onnx" / file), **settings)(domain), x, y

    return load


def linf(*eps: str) -> tuple[tuple[str, str], ...]:
    """Budgets in Linf."""
    return tuple(("linf", budget) for budget in eps)


CIFAR_NORM = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}
SMALL = {"img_size": 32, "patch_size": 4}


def networks() -> Iterator[Healthy]:
    """All of them."""
    yield Healthy("digits-cnn", shared("digits"), (*linf("0.05", "0.1", "0.2"), ("l2", "0.5")))
    for name in ("lenet5_clean", "lenet5_advtrained", "cnn4_pgd"):
        yield Healthy(name, shared(name), (*linf("0.1", "0.2", "0.3"), ("l2", "1.5")))
    for name in ("resnet20", "resnet32", "resnet44", "captum_cnn"):
        yield Healthy(name, shared(name), (*linf("0.5/255", "2/255"), ("l2", "0.25")))
    for name in ("resnet4b", "resnet2b", "cnn_wide_kw"):
        yield Healthy(name, shared(name), (*linf("2/255", "4/255", "8/255"), ("l2", "0.5")))
    for name, side in (
        ("mcunet_144", 144),
        ("squeezenet1_0", 224),
        ("mobilenet_v1", 224),
        ("mobilenet_v2", 224),
    ):
        yield Healthy(name, photographs(name, side), linf("0.5/255"))
    yield Healthy("ecg beatnet", heartbeats, linf("0.002", "0.01"))
    yield Healthy("video r2plus1d", clips, linf("0.5/255"))
    for name in ("cnn4_pgd", "resnet4b", "resnet20"):
        yield Healthy(
            f"bf16 {name}",
            shared(name, Half),
            linf({"cnn4_pgd": "0.2", "resnet4b": "4/255"}.get(name, "0.5/255")),
        )
    for name in ("test_vit", "test_vit3", "test_vit_relpos", "deit_tiny_patch16_224"):
        yield Healthy(f"timm {name}", library("timm", name, **SMALL), linf("2/255"))
    for name in (
        "test_resnet",
        "test_convnext2",
        "test_efficientnet",
        "test_byobnet",
        "test_nfnet",
        "test_mambaout",
        "regnetx_002",
    ):
        yield Healthy(f"timm {name}", library("timm", name), linf("2/255"))
    yield Healthy("timm test_coatnet", library("timm", "test_coatnet", img_size=32), linf("2/255"))
    for name in (
        "squeezenet1_1",
        "shufflenet_v2_x0_5",
        "mobilenet_v3_small",
        "resnet18",
        "densenet121",
        "swin_t",
    ):
        yield Healthy(f"torchvision {name}", library("torchvision", name), linf("1/255"))
    vit = "square?steps=200"
    yield Healthy(
        "onnx vit_pgd",
        onnx("vit_pgd_2_3_16.onnx", "cifar10/cifar10_test.npz", **CIFAR_NORM),
        linf("2/255"),
        vit,
    )
    yield Healthy(
        "onnx vit_ibp",
        onnx("vit_ibp_3_3_8.onnx", "cifar10/cifar10_test.npz", **CIFAR_NORM),
        linf("2/255"),
        vit,
    )
    yield Healthy(
        "onnx resnet_2b",
        onnx("resnet_2b.onnx", "cifar10/cifar10_test.npz", **CIFAR_NORM),
        linf("4/255"),
        vit,
    )
