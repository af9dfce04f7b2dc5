"""`timm:NAME`: a network of PyTorch Image Models, behind the preparation of images that its data
config states.

NAME is a model's name with or without the tag of its weights (`resnet18.a1_in1k`), or
`local-dir:FOLDER` and `hf-hub:REPOSITORY` as in timm. Weights come from your file,
`weights=FILE.safetensors`, or from timm's download. Nothing but tensors is unpickled.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.suggestions import suggestion
from brinell.models._prepared import Resize, Scaling, View, import_library, prepare
from brinell.models._torch_model import TorchModel
from brinell.models._weights import HEAD, load_weights_file

SCALING: dict[str, Scaling] = {"center": "shorter", "border": "longer", "squash": "both"}
"""Scaling of images before the centre crop, by timm's crop mode."""


@dataclass(frozen=True, kw_only=True)
class Timm:
    """A network of timm, with resizing, crop and normalisation inside it."""

    path: str = ""
    """Name of the model, `local-dir:FOLDER` or `hf-hub:REPOSITORY`."""
    weights: str = ""
    """State dict, .safetensors or .pt; without it timm downloads its weights."""
    classes: int = 0
    """Number of logits if `weights` has a number other than timm's; 0 for timm's."""
    resize: Resize = "auto"
    """library: resize and crop as timm does; auto: the same, except for images that already have
    the network's size."""
    name: str = ""
    """Name in reports; by default the name of the model."""

    def __call__(self, domain: Domain) -> TorchModel:
        """Create the network and load its weights."""
        timm = import_library("timm", self, "resnet18.a1_in1k?weights=FILE.safetensors")
        base = self.path.partition(".")[0]
        if ":" not in self.path and not timm.is_model(base):
            raise RequestError(
                f"timm {timm.__version__} has no model "
                f"{base!r}{suggestion(base, timm.list_models())}"
            )
        network = self._network(timm)
        config = timm.data.resolve_model_data_config(network)
        return prepare(network, view_of(config), domain, self.resize, self.name or self.path)

    def _network(self, timm: Any) -> nn.Module:
        """The network of timm, with its own weights or those of a file."""
        options = {"num_classes": self.classes} if self.classes else {}
        try:
            # Drawing the weights that are replaced next must not move the global generator.
            with torch.random.fork_rng(devices=[]):
                network: nn.Module = timm.create_model(
                    self.path, pretrained=not self.weights, **options
                )
        except Exception as error:
            doing = "made" if self.weights else "made with timm's own weights"
            reason = f"{type(error).__name__}: {one_line(error, 200)}"
            remedy = "give a file of your own, weights=FILE.safetensors"
            raise RequestError(
                f"timm:{self.path} cannot be {doing} ({reason}): {remedy}"
            ) from error

        if self.weights:
            load_weights_file(network, self.weights, HEAD)
        return network


def view_of(config: dict[str, Any]) -> View:
    """The preparation in a data config of timm."""
    _, height, width = config["input_size"]
    return View(
        size=(height, width),
        resized=(int(height / config["crop_pct"]), int(width / config["crop_pct"])),
        scaling=SCALING[config["crop_mode"]],
        mode=config["interpolation"],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
