"""`timm:NAME`: a network of PyTorch Image Models, behind the preparation of pictures that its own data config states.

NAME is a model's name with or without the tag of its weights (`resnet18.a1_in1k`), or `local-dir:FOLDER` and `hf-hub:REPOSITORY`
as timm has them. Weights come from a file of yours, `weights=FILE.safetensors`, or from timm's own download. Nothing is unpickled
but tensors.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.settings import Plain
from brinell.models._prepared import Resize, Scaling, View, closest, library, prepared
from brinell.models._torch_model import TorchModel
from brinell.models._weights import fit_file

__all__ = ["Timm"]

SCALING: dict[str, Scaling] = {"center": "shorter", "border": "longer", "squash": "both"}
"""timm's words for how a picture is brought to size before its middle is taken."""


@dataclass(frozen=True, kw_only=True)
class Timm:
    """A network of timm, resizing, crop and normalisation inside it."""

    path: str = ""
    """Name of the model, `local-dir:FOLDER` or `hf-hub:REPOSITORY`."""
    weights: str = ""
    """State dict, .safetensors or .pt; without it timm fetches its own."""
    classes: int = 0
    """Number of logits where `weights` has another than timm's own; 0 for that."""
    resize: Resize = "auto"
    """library: resize and crop as timm does; auto: the same, but for pictures that have the network's size already."""
    name: Plain = ""
    """How reports call it; by default the name of the model."""

    def __call__(self, domain: Domain) -> TorchModel:
        """Make the network and load its weights.

        Raises:
            RequestError: timm is not installed or has no such model, weights that cannot be fetched or do not fit, data that are
                no pictures of as many channels.
        """
        timm = library("timm", self, "resnet18.a1_in1k?weights=FILE.safetensors")
        _known(timm, self.path)
        network = self._network(timm)
        config = timm.data.resolve_model_data_config(network)
        return prepared(network, view_of(config), domain, self.resize, self.name or self.path)

    def _network(self, timm: Any) -> nn.Module:
        options = {"num_classes": self.classes} if self.classes else {}
        try:
            # Drawing the weights that are replaced next must not move the global generator.
            with torch.random.fork_rng(devices=[]):
                network: nn.Module = timm.create_model(self.path, pretrained=not self.weights, **options)
        except Exception as error:
            doing = "made" if self.weights else "made with timm's own weights"
            reason = f"{type(error).__name__}: {one_line(error, 200)}"
            raise RequestError(f"timm:{self.path} cannot be {doing} ({reason}): {_advice(timm, self.path)}") from error
        if self.weights:
            fit_file(network, self.weights)
        return network


def _known(timm: Any, name: str) -> None:
    """A name that is no folder or repository must be one of timm's, with a tag that it has."""
    base, _, tag = name.partition(".")
    if ":" in name:
        return
    if not timm.is_model(base):
        raise RequestError(f"timm {timm.__version__} has no model {base!r}{closest(base, timm.list_models())}")
    tags = [other.partition(".")[2] for other in timm.list_pretrained(f"{base}.*")]
    if tag and tag not in tags:
        raise RequestError(f"timm {timm.__version__} has no weights {tag!r} of {base}; it has {', '.join(tags) or 'none'}")


def _advice(timm: Any, name: str) -> str:
    """Which file to give where timm's own weights are not to be had."""
    own = "give a file of your own, weights=FILE.safetensors"
    if ":" in name:
        return own
    config = timm.get_pretrained_cfg(name)
    source = config.hf_hub_id or config.url if config else None
    if not source:
        return own
    what = f"model.safetensors of {source} on the Hugging Face Hub" if config.hf_hub_id else source
    return f"fetch {what} and name it, timm:{name}?weights=FILE"


def view_of(config: dict[str, Any]) -> View:
    """The preparation that a data config of timm states."""
    _, height, width = config["input_size"]
    return View(
        size=(height, width),
        resized=(int(height / config["crop_pct"]), int(width / config["crop_pct"])),
        scaling=SCALING[config["crop_mode"]],
        mode=config["interpolation"],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
