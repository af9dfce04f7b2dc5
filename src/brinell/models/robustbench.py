"""`robustbench:NAME`: the CIFAR-10 networks of the per-class study, built here; others through the package robustbench.

Peng2023Robust, Wang2023Better_WRN-70-16, Wang2023Better_WRN-28-10, Bai2023Improving_edm and Cui2023Decoupled_WRN-28-10 need
only the checkpoint that RobustBench publishes (Croce et al. 2021, arXiv 2010.09670), `weights=FILE.pt`, loaded key for key.
Bai2023Improving_edm has three files, joined by + in this order: accurate network, robust network, mixing network. Nothing but
tensors is unpickled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.settings import Plain
from brinell.core.suggestions import suggestion
from brinell.models._cifar10_networks import Mixture, adaptive_smoothing, ra_wide_resnet, wide_resnet
from brinell.models._torch_model import TorchModel
from brinell.models._weights import load_weights, read_torch, read_weights, state_dict

__all__ = ["RobustBench"]

BUILT: Mapping[str, Callable[[], nn.Module]] = {
    "Peng2023Robust": ra_wide_resnet,
    "Wang2023Better_WRN-70-16": lambda: wide_resnet(70, 16),
    "Wang2023Better_WRN-28-10": lambda: wide_resnet(28, 10),
    "Bai2023Improving_edm": adaptive_smoothing,
    "Cui2023Decoupled_WRN-28-10": lambda: wide_resnet(28, 10),
}
"""Networks that need no package, by name. All take (n, 3, 32, 32) in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class RobustBench:
    """A network of RobustBench's model zoo, with its published checkpoint."""

    path: str = ""
    """Name in the model zoo."""
    weights: tuple[str, ...] = ()
    """Checkpoint, .pt or .safetensors; join several files by +. Only for the five networks that are built here."""
    dataset: str = "cifar10"
    """Data set for the package: cifar10, cifar100 or imagenet."""
    threat: str = "Linf"
    """Threat model for the package: Linf, L2 or corruptions."""
    folder: str = "models"
    """Folder of the package's downloads."""
    name: Plain = ""
    """Name in reports; by default the name in the model zoo."""

    def __call__(self, domain: Domain) -> TorchModel:
        """Build the network and load its checkpoint.

        Raises:
            RequestError: weights are missing or do not fit, the name needs the package and it cannot be imported, or the data
                are not images of the network's size.
        """
        name = self.name or self.path
        if self.path not in BUILT or (self.dataset, self.threat) != ("cifar10", "Linf"):
            return TorchModel(self._through_package().eval(), domain, name=name, bounds=(0.0, 1.0))
        if domain.kind != "image" or domain.shape != (3, 32, 32):
            raise RequestError(
                f"robustbench:{self.path} takes images of shape (3, 32, 32), and the data are {domain.kind}s of shape "
                f"{domain.shape}: audit it on CIFAR-10"
            )
        if not self.weights:
            raise RequestError(
                f"robustbench:{self.path} needs its checkpoint: fetch it from RobustBench's model zoo and name it, "
                f"robustbench:{self.path}?weights={_files(self.path)}"
            )
        # Nothing is drawn that the checkpoint replaces: the largest of them has 567 million weights.
        with torch.device("meta"):
            network = BUILT[self.path]()
        files = [Path(file).expanduser() for file in self.weights]
        if isinstance(network, Mixture) and len(files) > 1:
            _fit_mixture(network, files)
        elif len(files) > 1:
            raise RequestError(f"robustbench:{self.path} is one file, not {len(files)}: name its checkpoint alone")
        else:
            load_weights(network, _unwrapped(read_weights(files[0])), str(files[0]))
        return TorchModel(network.eval(), domain, name=name, bounds=(0.0, 1.0))

    def _through_package(self) -> nn.Module:
        """The network by the package robustbench."""
        if not self.path:
            raise RequestError(
                f"'robustbench' names no model: write robustbench:NAME?weights=FILE; built here are {', '.join(BUILT)}"
            )
        hint = "" if self.path in BUILT else suggestion(self.path, BUILT).removesuffix("?")
        problem = f"robustbench:{self.path} on {self.dataset} and {self.threat} is not built here{hint}"
        if self.weights:
            raise RequestError(
                f"{problem}; the package finds its checkpoints by itself: leave weights= out, or take torch:FILE.py:FACTORY"
            )
        try:
            from robustbench.utils import load_model
        except Exception as error:
            raise RequestError(
                f"{problem}, and the package robustbench cannot be imported ({type(error).__name__}: {one_line(error, 120)}): "
                f"install it, or take one of {', '.join(BUILT)}"
            ) from error
        options = {"model_dir": self.folder, "dataset": self.dataset, "threat_model": self.threat}
        try:
            network: nn.Module = load_model(model_name=self.path, **options)
        except Exception as error:
            raise RequestError(
                f"the package robustbench cannot load {self.path} on {self.dataset} and {self.threat} ({type(error).__name__}: "
                f"{one_line(error, 200)}): check the name, or put the checkpoint into {self.folder}"
            ) from error
        return network


def _files(name: str) -> str:
    parts = [f"{name}.pt_m{number}.pt" for number in range(3)] if name == "Bai2023Improving_edm" else [f"{name}.pt"]
    return "+".join(parts)


def _unwrapped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict without the prefix `model.` that some checkpoints have."""
    return {key.removeprefix("model."): value for key, value in state.items()}


def _fit_mixture(network: Mixture, files: list[Path]) -> None:
    """Load the published files of an accurate, a robust and a mixing network; the last also holds the mixture's batch norm."""
    if len(files) != 3:
        raise RequestError(
            f"there are {len(files)} files of weights; name three, accurate, robust and mixing network, or one of all"
        )
    for part, file in zip((network.standard, network.robust), files, strict=False):
        load_weights(part, _unwrapped(read_weights(file)), str(file))
    last = files[2]
    content: Any = read_torch(last) if last.is_file() else read_weights(last)
    content = content.get("state_dict", content) if isinstance(content, Mapping) else content
    if not isinstance(content, Mapping) or not {"model", "bn"} <= content.keys():
        raise RequestError(f"{last} is no checkpoint of a mixing network: it must hold `model` and `bn`, and be named last")
    load_weights(network.mixing, state_dict(content["model"], last), f"`model` in {last}")
    load_weights(network.bn, state_dict(content["bn"], last), f"`bn` in {last}")
