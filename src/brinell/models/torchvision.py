"""`torchvision:NAME`: an image classifier of torchvision, behind the preparation of images that its
weights state.

Weights come from your file, `weights=FILE.pth`, or from torchvision's download;
`version=IMAGENET1K_V2` selects one of several training recipes, each with its own preparation.
Nothing but tensors is unpickled.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.suggestions import suggestion
from brinell.models._prepared import Resize, View, import_library, prepare
from brinell.models._torch_model import TorchModel
from brinell.models._weights import HEAD, load_weights, load_weights_file

PUBLISHED_ARGUMENTS: dict[str, dict[str, Any]] = {
    "googlenet": {"transform_input": True, "aux_logits": True, "init_weights": False},
    "inception_v3": {"transform_input": True, "aux_logits": True, "init_weights": False},
}
"""Arguments with which torchvision creates networks for its published weights, if they differ
from the defaults."""


@dataclass(frozen=True, kw_only=True)
class Torchvision:
    """A network of torchvision, with resizing, crop and normalisation inside it."""

    path: str = ""
    """Name of the model, as in torchvision.models."""
    weights: str = ""
    """State dict, .pth or .safetensors; without it torchvision downloads its weights."""
    version: str = "DEFAULT"
    """Version of torchvision's weights, such as IMAGENET1K_V1; applies to weights from a file
    too."""
    classes: int = 0
    """Number of logits if `weights` has a number other than torchvision's; 0 for torchvision's."""
    resize: Resize = "auto"
    """library: resize and crop as torchvision does; auto: the same, except for images that
    already have the network's size."""
    name: str = ""
    """Name in reports; by default the name of the model."""

    def __call__(self, domain: Domain) -> TorchModel:
        """Create the network and load its weights."""
        models = import_library("torchvision", self, "resnet18?weights=FILE.pth").models
        published = self._published(models)
        view = _view(published.transforms())
        network = self._network(models, self.classes or len(published.meta["categories"]))
        if self.weights:
            load_weights_file(network, self.weights, HEAD)
        else:
            load_weights(network, self._fetch(published), str(published.url))
        return prepare(network, view, domain, self.resize, self.name or self.path)

    def _published(self, models: Any) -> Any:
        """The published weights of the version that was asked for."""
        names = models.list_models(module=models)
        if self.path not in names:
            raise RequestError(
                f"torchvision has no image classifier {self.path!r}{suggestion(self.path, names)}"
            )
        versions = models.get_model_weights(self.path)
        if self.version not in versions.__members__:
            raise RequestError(
                f"{self.path} has no weights {self.version!r}; it has "
                f"{', '.join(versions.__members__)}"
            )

        published = versions[self.version]
        # Some versions are those of the layers before the classifier.
        if not published.meta.get("categories"):
            raise RequestError(
                f"{self.version} of {self.path} are weights without a classifier: "
                "take another version"
            )
        return published

    def _network(self, models: Any, classes: int) -> nn.Module:
        """The network of torchvision with so many classes, its weights not loaded yet."""
        # Drawing the weights that are replaced next must not move the global generator.
        with torch.random.fork_rng(devices=[]):
            network: nn.Module = models.get_model(
                self.path,
                weights=None,
                num_classes=classes,
                **PUBLISHED_ARGUMENTS.get(self.path, {}),
            )
        return network

    def _fetch(self, published: Any) -> Any:
        """The published weights, from torch's cache or from the network."""
        try:
            return published.get_state_dict(progress=False, check_hash=True, weights_only=True)
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(error, 200)}"
            raise RequestError(
                f"the weights of torchvision:{self.path} cannot be fetched "
                f"({reason}): fetch {published.url} and name it, "
                f"torchvision:{self.path}?weights=FILE"
            ) from error


def _view(transforms: Any) -> View:
    """The preparation in the transforms of published weights."""
    size, resized = transforms.crop_size[0], transforms.resize_size[0]
    return View(
        size=(size, size),
        resized=(resized, resized),
        mode=transforms.interpolation.value,
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
    )
