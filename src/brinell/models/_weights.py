"""Weights from a file into a module, key for key. Nothing is ever unpickled but tensors."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from brinell.core import bounded
from brinell.core.errors import RequestError

NESTED = ("state_dict", "model_state_dict", "model", "net")
"""Keys under which checkpoints keep the state dict."""
PREFIXES = ("module.", "_orig_mod.")
"""What wrappers of a module (data parallel, compile) put before each name."""


def read_weights(file: Path) -> dict[str, Tensor]:
    """The state dict in a file, without the wrappings of checkpoints."""
    if not file.is_file():
        raise RequestError(f"there is no file {file}: check weights=")
    if file.suffix == ".safetensors":
        with bounded.decoding(file, file.stat().st_size, "no safetensors file"):
            return load_file(file)
    if file.suffix not in (".pt", ".pth", ".th", ".bin", ".ckpt"):
        raise RequestError(f"{file}: weights come as .safetensors, or as .pt or .pth that holds a state dict")
    return state_dict(read_torch(file), file)


def read_torch(file: Path) -> Any:
    """What torch reads in a file with `weights_only=True`."""
    with bounded.decoding(file, file.stat().st_size, "no file of torch"):
        _check_packing(file)
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:
            if "eights_only" in str(error) or "Unsupported" in str(error):
                raise RequestError(
                    f"{file} is a pickle of more than tensors, which is never loaded: save model.state_dict() as .safetensors"
                ) from None
            raise


def _check_packing(file: Path) -> None:
    """Refuse an archive whose members become more than they are; torch itself packs nothing."""
    with bounded.opened(file) as stream:
        if not zipfile.is_zipfile(stream):
            return
        with zipfile.ZipFile(stream) as archive:
            bounded.unpacked(sum(one.file_size for one in archive.infolist()), file.stat().st_size, file)


def state_dict(content: Any, file: Path) -> dict[str, Tensor]:
    """Names to tensors in what a checkpoint holds."""
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

    A module on the meta device takes the tensors as they are, so that no weights are drawn only to be replaced; a lazy layer
    takes their shapes too.
    """
    own = module.state_dict()
    # Batch norm's counter of batches plays no part in an answer, and old checkpoints lack it.
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in own]
    other = [
        f"{key} {tuple(state[key].shape)} for {tuple(own[key].shape)}"
        for key in own
        if key in state and not is_lazy(own[key]) and state[key].shape != own[key].shape
    ]
    found = [("missing", missing), ("unexpected", unexpected), ("of another shape", other)]
    if problems := [f"{len(keys)} {word} ({_some(keys)})" for word, keys in found if keys]:
        raise RequestError(
            f"{what} does not fit {type(module).__name__}: names {'; '.join(problems)}: take the weights of this network"
        )
    abstract = any(tensor.is_meta for tensor in own.values())
    if abstract:
        state = {key: state.get(key, torch.zeros(value.shape)).to(value.dtype) for key, value in own.items()}
    module.load_state_dict(dict(state), strict=False, assign=abstract)


def fit_file(module: nn.Module, path: str) -> None:
    """Load the weights of a file; raises as `read_weights` and `fit` do."""
    file = Path(path).expanduser()
    fit(module, read_weights(file), str(file))


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
