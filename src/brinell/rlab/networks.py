"""Small networks that a policy file brings as surrogates, for every kind of data.

Signals, images and video get convolutions, vectors layers.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from brinell.core.domain import Domain, Kind
from brinell.core.model import Access, ModelInfo
from brinell.core.streams import seeded
from brinell.manifest import Content

LIMIT = 2**20
"""Bytes of the weights of a network at most."""
TYPICAL = {1: (256,), 2: (48, 48), 3: (16, 32, 32)}
"""Lengths of the axes, by their number, that the convolutions see at most: means of neighbouring
values shorten longer ones."""
STRIDES = (1, 2, 2, 2, 2)
"""Strides of the convolutions."""
GAIN, NOISE = 0.2, 0.1
"""By how much the scale of an input varies in training, and the noise that is added, in
deviations of the data."""


class NetworkForm(Content):
    """The architecture of a small network."""

    width: Annotated[int, Field(ge=1, le=4096)]
    """Channels of the first convolution, or units of each layer for vectors."""
    kernel: Annotated[int, Field(ge=1, le=99)]
    """Side of the convolutions, odd; 1 for vectors."""

    @property
    def text(self) -> str:
        """The form in words."""
        kernel = f", kernel {self.kernel}" if self.kernel > 1 else ""
        return f"width {self.width}{kernel}"


FORMS: dict[Kind, tuple[NetworkForm, ...]] = {
    "signal": tuple(
        NetworkForm(width=width, kernel=kernel) for width, kernel in ((32, 5), (20, 9), (24, 7))
    ),
    "image": tuple(
        NetworkForm(width=width, kernel=kernel) for width, kernel in ((32, 3), (20, 5), (40, 3))
    ),
    "video": tuple(
        NetworkForm(width=width, kernel=kernel) for width, kernel in ((16, 3), (24, 3), (20, 3))
    ),
    "vector": tuple(NetworkForm(width=width, kernel=1) for width in (64, 96, 48)),
}
"""Forms of the networks for each kind of data, in the order in which they are trained."""


class ScaledInputs(nn.Module):
    """Inputs less the means of their channels, over the deviations.

    In training mode each has another gain and noise.

    Networks that were trained with noise share more of their gradients.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, channels: int, axes: int) -> None:
        super().__init__()
        shape = (channels, *[1] * axes)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("deviation", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to the same."""
        scaled = (x - self.mean) / self.deviation
        if not self.training:
            return scaled
        # One gain for each input, uniform in 1 - GAIN to 1 + GAIN.
        gain = 1 + GAIN * (2 * torch.rand(len(x), *[1] * (x.ndim - 1), device=x.device) - 1)
        return scaled * gain + NOISE * torch.randn_like(x)

    def measure(self, x: Tensor) -> None:
        """Take means and deviations from inputs (n, *shape); constant channels keep their scale."""
        axes = [0, *range(2, x.ndim)]
        deviation, mean = torch.std_mean(x, axes, keepdim=True, correction=0)
        self.mean.copy_(mean[0])
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0)[0])


def build(domain: Domain, classes: int, form: NetworkForm) -> nn.Sequential:
    """A network of this form for such inputs; its first part is `ScaledInputs`."""
    channels = domain.shape[0]
    lengths = domain.shape[1:]
    axes = len(lengths)
    width = form.width

    if not axes:
        layers = [
            nn.Linear(channels, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, classes),
        ]
        return nn.Sequential(ScaledInputs(channels, 0), *layers)

    convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
    normalisation = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[axes - 1]
    pooling = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[axes - 1]
    last_pooling = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[axes - 1]

    parts: list[nn.Module] = [ScaledInputs(channels, axes)]
    # Long axes are shortened first, so that a network of few layers sees all of them.
    factors = tuple(
        math.ceil(length / typical) for length, typical in zip(lengths, TYPICAL[axes], strict=True)
    )
    if max(factors) > 1:
        parts.append(pooling(factors, ceil_mode=True))  # type: ignore[arg-type]
    # Channels of the input, and of what each convolution makes; every two neighbours are a layer.
    widths = (channels, width, width, 2 * width, 2 * width, 4 * width)
    for stride, inputs, outputs in zip(STRIDES, widths, widths[1:], strict=False):
        layer = convolution(inputs, outputs, form.kernel, stride, form.kernel // 2, bias=False)
        parts += [layer, normalisation(outputs), nn.ReLU()]
    return nn.Sequential(*parts, last_pooling(1), nn.Flatten(), nn.Linear(4 * width, classes))


def size(domain: Domain, classes: int, form: NetworkForm) -> int:
    """Bytes of the weights of such a network."""
    with torch.device("meta"):
        weights = build(domain, classes, form).state_dict().values()
        return sum(value.numel() * value.element_size() for value in weights)


def fitting(domain: Domain, classes: int, form: NetworkForm) -> NetworkForm | None:
    """The form, narrowed until its weights are small enough; None if none is."""
    width = form.width
    while width and size(domain, classes, NetworkForm(width=width, kernel=form.kernel)) > LIMIT:
        width = width * 7 // 8
    return NetworkForm(width=width, kernel=form.kernel) if width else None


class SmallNetwork:
    """A model around a small network made by `build`, in evaluation mode.

    `class_names` are empty if there are none.
    """

    access = Access.GRADIENTS

    def __init__(
        self,
        module: nn.Module,
        form: NetworkForm,
        domain: Domain,
        classes: int,
        class_names: Sequence[str],
        name: str = "surrogate",
    ) -> None:
        self.module = module.eval().requires_grad_(False)
        self.form = form
        self.domain = domain
        self.classes = classes
        self.name = name

        parameters = sum(value.numel() for value in module.parameters())
        self.info = ModelInfo(
            class_names=tuple(class_names),
            architecture=f"small network, {form.text}",
            parameters=parameters,
        )

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs to (n, classes) logits."""
        logits: Tensor = self.module.to(x.device)(x)
        return logits

    def digest(self) -> str:
        """A hash of form and weights."""
        head = f"{self.form.text} {self.domain.text()} {self.classes}"
        digest = hashlib.blake2b(head.encode(), digest_size=16)
        for value in self.module.state_dict().values():
            digest.update(value.cpu().numpy().tobytes())
        return digest.hexdigest()


def initialised(domain: Domain, classes: int, form: NetworkForm, seed: int) -> nn.Sequential:
    """A network of this form with its first weights."""
    with seeded(seed):
        return build(domain, classes, form)


def restored(
    domain: Domain, classes: int, form: NetworkForm, weights: dict[str, Tensor]
) -> nn.Sequential:
    """A network of this form with these weights.

    Raises:
        ValueError: it would be larger than `LIMIT`.
        RuntimeError: the weights are those of another network.
    """
    if size(domain, classes, form) > LIMIT:
        raise ValueError(f"a surrogate of {form.text} is larger than {LIMIT} bytes")

    # The weights take the place of those of a module without memory.
    with torch.device("meta"):
        module = build(domain, classes, form)
    module.load_state_dict(weights, assign=True)
    return module
