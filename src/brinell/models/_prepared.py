"""A library's network behind the preparation that the library gives to pictures before it: size, crop, mean and deviation.

So inputs stay in [0, 1] at the size that the data has, budgets mean what they say, and gradients reach the data's own pixels.
Pictures are resized with antialiasing, as the libraries do it to tensors; what a bicubic distortion overshoots is cut off at 0
and 1, as it is where the libraries resize 8-bit pictures.
"""

import difflib
import importlib
from collections.abc import Iterable
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
    """How pictures of any size become inputs of a network."""

    size: tuple[int, int]
    """Height and width of what the network is shown: the middle of the resized picture, the mean around a smaller one."""
    resized: tuple[int, int]
    """Height and width to which the picture is brought first."""
    scaling: Scaling = "shorter"
    """Which sides are brought there: the shorter one, relatively, or the longer one, both keeping proportions, or both sides."""
    mode: str = "bilinear"
    """How it is resized: bilinear or bicubic."""
    mean: tuple[float, ...]
    """Subtracted from each channel."""
    std: tuple[float, ...]
    """Then divided by."""
    reverse: bool = False
    """Whether the network takes the channels in reverse order, blue first."""

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
    """The preparation and the network.

    The network takes (n, channels, *view.size), normalised; `resize=auto` takes pictures of that size as they are.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, view: View, height: int, width: int, resize: Resize = "auto") -> None:
        super().__init__()
        self.network, self.view = network, view
        ready = resize == "auto" and (height, width) == view.size
        self.resized = (height, width) if ready else view.resized_from(height, width)
        self.same = self.resized == (height, width)
        self.padding = [part for side in (1, 0) for part in _margins(self.resized[side], view.size[side])]
        self.register_buffer("mean", torch.tensor(view.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(view.std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) in [0, 1] to (n, classes) logits."""
        x = x.flip(1) if self.view.reverse else x
        if not self.same:
            x = F.interpolate(x, self.resized, mode=self.view.mode, antialias=True, align_corners=False)
            x = x.clamp(0, 1) if self.view.mode == "bicubic" else x
        x = (x - self.mean) / self.std
        logits: Tensor = self.network(F.pad(x, self.padding) if any(self.padding) else x)
        return logits

    def extra_repr(self) -> str:
        """What the network is shown, for the digest of the model."""
        return f"{self.view}, resized={self.resized}, padding={self.padding}"


def _margins(have: int, want: int) -> tuple[int, int]:
    """How much is added before and after `have` values to make `want` of them; negative cuts off."""
    if have >= want:
        before = round((have - want) / 2)
        return -before, -(have - want - before)
    return (want - have) // 2, (want - have + 1) // 2


def library(name: str, settings: Any, example: str) -> Any:
    """A library of networks, for settings that name one of its models."""
    try:
        found = importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        raise RequestError(f"{name} cannot be imported ({one_line(error)}): pip install 'brinell[vision]'") from None
    if not settings.path:
        raise RequestError(f"{name!r} names no model: write {name}:NAME, say {name}:{example}")
    if settings.classes and not settings.weights:
        raise RequestError(f"classes={settings.classes} needs weights=FILE: {name}'s own have their own classes")
    return found


def closest(name: str, known: Iterable[str]) -> str:
    """The end of a line that says that there is no such name: the nearest one, if any is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else ""


def prepared(network: nn.Module, view: View, domain: Domain, resize: Resize, name: str) -> TorchModel:
    """The network as a model for the pictures of a domain."""
    if domain.kind != "image" or domain.shape[0] != len(view.mean):
        raise RequestError(
            f"{name} takes images of {len(view.mean)} channels, and the data are {domain.kind}s of shape {domain.shape}: "
            "give it colour pictures (image-folder has mode=RGB)"
        )
    if view.mode not in ("bilinear", "bicubic"):
        raise RequestError(f"{name} is shown pictures resized by {view.mode!r}; only bilinear and bicubic are known here")
    _, height, width = domain.shape
    module = Prepared(network, view, height, width, resize).eval()
    return TorchModel(module, domain, name=name, bounds=(0.0, 1.0), architecture=type(network).__name__)
