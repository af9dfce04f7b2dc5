"""A library's network behind the library's own preparation of images: size, crop, mean and
deviation.

Inputs stay in [0, 1] at the size of the data, so budgets keep their meaning and gradients reach the
data's own pixels. Images are resized with antialiasing, as the libraries resize tensors. Bicubic
interpolation overshoots; its values are clamped to [0, 1], as the libraries do for 8-bit images.
"""

import importlib
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.models._torch_model import TorchModel

Scaling = Literal["shorter", "longer", "both"]
Resize = Literal["auto", "library"]


@dataclass(frozen=True, kw_only=True)
class View:
    """Settings by which images of any size become inputs of a network."""

    size: tuple[int, int]
    """Height and width of the network's input: the centre of the resized image; a smaller image
    is padded with the mean."""
    resized: tuple[int, int]
    """Height and width to which the image is resized first."""
    scaling: Scaling = "shorter"
    """Sides that `resized` determines: shorter or longer side (relative to the target), keeping
    proportions, or both sides."""
    mode: str = "bilinear"
    """Interpolation: bilinear or bicubic."""
    mean: tuple[float, ...]
    """Mean that is subtracted from each channel."""
    std: tuple[float, ...]
    """Deviation by which each channel is divided afterwards."""
    reverse: bool = False
    """True if the network takes the channels in reverse order, blue first."""

    def resized_from(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing."""
        if self.scaling == "both":
            return self.resized
        if self.scaling == "shorter" and self.resized[0] == self.resized[1]:
            # torchvision's Resize, which timm takes too: the longer side is cut off, not rounded.
            side, short = self.resized[0], min(height, width)
            return int(side * height / short), int(side * width / short)
        high, wide = height / self.resized[0], width / self.resized[1]
        ratio = max(high, wide) if self.scaling == "longer" else min(high, wide)
        return round(height / ratio), round(width / ratio)


class Prepared(nn.Module):
    """A network behind its preparation of images.

    The network takes (n, channels, *view.size), normalised. With `resize=auto` images of exactly
    that size are not resized.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, network: nn.Module, view: View, height: int, width: int, resize: Resize = "auto"
    ) -> None:
        super().__init__()
        self.network, self.view = network, view
        ready = resize == "auto" and (height, width) == view.size
        self.resized = (height, width) if ready else view.resized_from(height, width)
        self.same = self.resized == (height, width)
        # Torch pads the last axis first: left and right, then top and bottom.
        self.padding = [
            part for side in (1, 0) for part in _margins(self.resized[side], view.size[side])
        ]
        self.register_buffer("mean", torch.tensor(view.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(view.std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) in [0, 1] to (n, classes) logits."""
        x = x.flip(1) if self.view.reverse else x
        if not self.same:
            x = F.interpolate(
                x, self.resized, mode=self.view.mode, antialias=True, align_corners=False
            )
            x = x.clamp(0, 1) if self.view.mode == "bicubic" else x
        x = (x - self.mean) / self.std
        # Padding with 0 after the normalisation is padding with the mean.
        logits: Tensor = self.network(F.pad(x, self.padding) if any(self.padding) else x)
        return logits

    def extra_repr(self) -> str:
        """The preparation as text, for the digest of the model."""
        return f"{self.view}, resized={self.resized}, padding={self.padding}"


def _margins(size: int, target: int) -> tuple[int, int]:
    """Padding before and after `size` values that makes `target` of them; negative values crop."""
    if size >= target:
        before = round((size - target) / 2)
        return -before, -(size - target - before)
    return (target - size) // 2, (target - size + 1) // 2


def import_library(name: str, settings: Any, example: str) -> Any:
    """Import a library of networks; refuses settings that name none of its models."""
    try:
        module = importlib.import_module(name)
    # Mismatched versions of torch and a library of networks fail by RuntimeError.
    except (ImportError, RuntimeError) as error:
        raise RequestError(
            f"{name} cannot be imported ({one_line(error)}): pip install 'brinell[vision]'"
        ) from None

    if not settings.path:
        raise RequestError(
            f"{name!r} names no model: write {name}:NAME, for example {name}:{example}"
        )
    if settings.classes and not settings.weights:
        raise RequestError(
            f"classes={settings.classes} needs weights=FILE: {name}'s weights "
            "have a fixed number of classes"
        )
    return module


def prepare(
    network: nn.Module, view: View, domain: Domain, resize: Resize, name: str
) -> TorchModel:
    """The network as a model for images of a domain, behind the preparation `view`."""
    if domain.kind != "image" or domain.shape[0] != len(view.mean):
        raise RequestError(
            f"{name} takes images of {len(view.mean)} channels, and the data are "
            f"{domain.kind}s of shape {domain.shape}: "
            "give it colour pictures (image-folder has mode=RGB)"
        )
    if view.mode not in ("bilinear", "bicubic"):
        raise RequestError(
            f"{name} expects pictures resized by {view.mode!r}; only bilinear and "
            "bicubic are supported"
        )

    _, height, width = domain.shape
    module = Prepared(network, view, height, width, resize).eval()
    return TorchModel(
        module, domain, name=name, bounds=(0.0, 1.0), architecture=type(network).__name__
    )
