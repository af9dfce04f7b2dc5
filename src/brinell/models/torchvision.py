"""`torchvision:NAME`: an image classifier of torchvision, behind the preparation of pictures that its weights state.

Weights come from a file of yours, `weights=FILE.pth`, or from torchvision's own download; `version=IMAGENET1K_V2` names one of
several training recipes, each with its own preparation. Nothing is unpickled but tensors.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.settings import Plain
from brinell.models._prepared import Resize, View, closest, library, prepared
from brinell.models._torch_model import TorchModel
from brinell.models._weights import fit, fit_file

__all__ = ["Torchvision"]

AS_PUBLISHED: dict[str, dict[str, Any]] = {
    "googlenet": {"transform_input": True, "aux_logits": True, "init_weights": False},
    "inception_v3": {"transform_input": True, "aux_logits": True, "init_weights": False},
}
"""Arguments with which torchvision makes networks for its published weights, where they are not the defaults."""


@dataclass(frozen=True, kw_only=True)
class Torchvision:
    """A network of torchvision, resizing, crop and normalisation inside it."""

    path: str = ""
    """Name of the model, as in torchvision.models."""
    weights: str = ""
    """State dict, .pth or .safetensors; without it torchvision fetches its own."""
    version: str = "DEFAULT"
    """Which of torchvision's weights, also where they are in a file: IMAGENET1K_V1 and so on."""
    classes: int = 0
    """Number of logits where `weights` has another than torchvision's own; 0 for that."""
    resize: Resize = "auto"
    """library: resize and crop as torchvision does; auto: the same, but for pictures that have the network's size already."""
    name: Plain = ""
    """How reports call it; by default the name of the model."""

    def __call__(self, domain: Domain) -> TorchModel:
        """Make the network and load its weights.

        Raises:
            RequestError: torchvision is not installed or has no such model or weights, weights that cannot be fetched or do not
                fit, data that are no colour pictures.
        """
        models = library("torchvision", self, "resnet18?weights=FILE.pth").models
        published = self._published(models)
        view = _view(published.transforms())
        network = self._network(models, self.classes or len(published.meta["categories"]))
        if self.weights:
            fit_file(network, self.weights)
        else:
            fit(network, self._fetched(published), str(published.url))
        return prepared(network, view, domain, self.resize, self.name or self.path)

    def _published(self, models: Any) -> Any:
        """The entry of the weights that are asked for: where they are, their classes, the preparation."""
        known = models.list_models(module=models)
        if self.path not in known:
            raise RequestError(f"torchvision has no image classifier {self.path!r}{closest(self.path, known)}")
        versions = models.get_model_weights(self.path)
        if self.version not in versions.__members__:
            raise RequestError(f"{self.path} has no weights {self.version!r}; it has {', '.join(versions.__members__)}")
        published = versions[self.version]
        if not published.meta.get("categories"):
            raise RequestError(f"{self.version} of {self.path} are weights without a classifier: take another version")
        return published

    def _network(self, models: Any, classes: int) -> nn.Module:
        # Drawing the weights that are replaced next must not move the global generator.
        with torch.random.fork_rng(devices=[]):
            network: nn.Module = models.get_model(self.path, weights=None, num_classes=classes, **AS_PUBLISHED.get(self.path, {}))
        return network

    def _fetched(self, published: Any) -> Any:
        try:
            return published.get_state_dict(progress=False, check_hash=True, weights_only=True)
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(error, 200)}"
            raise RequestError(
                f"the weights of torchvision:{self.path} cannot be fetched ({reason}): fetch {published.url} and name it, "
                f"torchvision:{self.path}?weights=FILE"
            ) from error


def _view(transforms: Any) -> View:
    size, resized = transforms.crop_size[0], transforms.resize_size[0]
    return View(
        size=(size, size),
        resized=(resized, resized),
        mode=transforms.interpolation.value,
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
    )
