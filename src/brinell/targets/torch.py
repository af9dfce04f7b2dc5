"""`torch:FILE.py:FACTORY?weights=FILE`: a PyTorch module made by a function of your own.

The function is called with the options `args=key=value,key=value` as text and returns an `nn.Module` that takes inputs in the
bounds of the data (normalisation is inside it) and gives logits. Weights are a state dict: `.safetensors`, or `.pt`/`.pth` as far
as torch reads it with `weights_only=True`; a whole pickled model is never loaded.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.imports import import_file
from brinell.core.torch_target import TorchTarget

__all__ = ["TorchModule"]

NESTED = ("state_dict", "model_state_dict", "model", "net")
"""Keys under which checkpoints keep the state dict."""
PREFIXES = ("module.", "_orig_mod.")
"""What wrappers of a module (data parallel, compile) put before each name."""


@dataclass(frozen=True, kw_only=True)
class TorchModule:
    """A PyTorch module from a Python file, with weights from another."""

    path: str = ""
    """`FILE.py:FACTORY`: a function that returns the module."""
    weights: str = ""
    """State dict, .safetensors or .pt; without it the module keeps what the function gave it."""
    args: str = ""
    """Arguments of the function, `key=value` joined by commas, handed over as text."""
    name: str = ""
    """How reports call it; by default the stem of the weights' file, or the function."""

    def __call__(self, domain: Domain) -> TorchTarget:
        """Make the module, load its weights, ask it once for the number of classes.

        Raises:
            RequestError: no such file or function, a function that fails or gives no module, weights that are damaged, pickled or
                do not fit, a module that cannot take inputs of the domain.
        """
        source, _, factory = self.path.rpartition(":")
        if not source or not factory:
            raise RequestError(f"{'torch:' + self.path!r} names no function: write torch:FILE.py:FACTORY?weights=FILE")
        file = Path(source).expanduser()
        module = _make(file, factory, _arguments(self.args))
        name = self.name or factory
        if self.weights:
            weights = Path(self.weights).expanduser()
            fit(module, read_weights(weights), str(weights))
            name = self.name or weights.stem
        code = f"{hashlib.blake2b(file.read_bytes()).hexdigest()} {factory} {self.args}"
        return TorchTarget(module.eval(), domain, name=name, code=code)


def _arguments(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    if bad := [key for key, equals, _ in pairs if not equals or not key.isidentifier()]:
        raise RequestError(f"args={text}: {bad[0]!r} is no key=value; write args=key=value,key=value")
    return {key: value for key, _, value in pairs}


def _make(file: Path, factory: str, arguments: Mapping[str, str]) -> nn.Module:
    scope = import_file(file)
    function = getattr(scope, factory, None)
    if not callable(function):
        own = sorted(name for name, value in vars(scope).items() if getattr(value, "__module__", "") == scope.__name__)
        raise RequestError(f"{file} has no function {factory!r}; it has {', '.join(own) or 'none'}")
    try:
        module = function(**arguments)
    except Exception as error:
        raise RequestError(f"{file}:{factory} failed with {type(error).__name__}: {_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise RequestError(f"{file}:{factory} returned a {type(module).__name__}, not an nn.Module")
    return module


def read_weights(file: Path) -> dict[str, Tensor]:
    """The state dict in a file, without the wrappings of checkpoints.

    Raises:
        RequestError: no such file, an unknown suffix, a damaged file, a pickle that is more than tensors.
    """
    if not file.is_file():
        raise RequestError(f"there is no file {file}: check weights=")
    if file.suffix == ".safetensors":
        try:
            return load_file(file)
        except (SafetensorError, OSError) as error:
            raise RequestError(f"{file} is damaged or no safetensors file ({_line(error)}): fetch it again") from None
    if file.suffix not in (".pt", ".pth", ".th", ".bin", ".ckpt"):
        raise RequestError(f"{file}: weights come as .safetensors, or as .pt or .pth that holds a state dict")
    return _state(_read_torch(file), file)


def _read_torch(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        if "eights_only" in str(error) or "Unsupported" in str(error):
            raise RequestError(
                f"{file} is a pickle of more than tensors, which is never loaded: save model.state_dict() as .safetensors"
            ) from None
        raise RequestError(f"{file} is damaged or no file of torch ({_line(error)}): fetch it again") from None


def _state(content: Any, file: Path) -> dict[str, Tensor]:
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise RequestError(f"{file} holds no state dict (names to tensors): save model.state_dict()")
    state = {str(key): value for key, value in content.items()}
    for prefix in PREFIXES:
        if all(key.startswith(prefix) for key in state):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def fit(module: nn.Module, state: Mapping[str, Tensor], what: str) -> None:
    """Load a state dict, key for key; values are cast to the type of the parameters.

    Raises:
        RequestError: missing or unexpected names, or other shapes.
    """
    own = module.state_dict()
    # Batch norm's counter of batches plays no part in an answer, and old checkpoints lack it.
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in own]
    other = [
        f"{key} {tuple(state[key].shape)} for {tuple(own[key].shape)}"
        for key in own
        if key in state and state[key].shape != own[key].shape
    ]
    found = [("missing", missing), ("unexpected", unexpected), ("of another shape", other)]
    if problems := [f"{len(keys)} {word} ({_some(keys)})" for word, keys in found if keys]:
        raise RequestError(
            f"{what} does not fit {type(module).__name__}: names {'; '.join(problems)}: take the weights of this network"
        )
    module.load_state_dict(dict(state), strict=False)


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
