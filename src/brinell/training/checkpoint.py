"""Checkpoints: the complete state of a training in one safetensors file, written atomically."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor
from torch.optim import Optimizer

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.store.files import write_atomically

KEY = "brinell"


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors by name, and further facts as JSON.

    Raises:
        StoppedError: the disk is full or the folder cannot be written; the previous file is still
            there.
    """
    # Cloned, since safetensors refuses tensors that share memory.
    contiguous = {
        name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()
    }
    content = save(contiguous, {KEY: json.dumps(facts)})
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts that `write` wrote; a damaged file is refused."""
    with (
        bounded.decoding(path, path.stat().st_size, "no checkpoint"),
        safe_open(path, "pt") as file,
    ):
        facts = json.loads((file.metadata() or {})[KEY])
        if not isinstance(facts, dict):
            raise RequestError(
                f"{path} is no checkpoint of brinell harden: delete it, and the "
                "training begins anew"
            )
        return {name: file.get_tensor(name) for name in file.keys()}, facts


def add_prefix(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with `prefix` and a slash before each name."""
    return {f"{prefix}/{name}": value for name, value in state.items()}


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries of a state dict to which `add_prefix` gave this prefix, without it."""
    return {
        name.removeprefix(f"{prefix}/"): value
        for name, value in tensors.items()
        if name.startswith(f"{prefix}/")
    }


def optimizer_state(optimizer: Optimizer) -> dict[str, Tensor]:
    """An optimiser's state of each parameter, by its number and the name of the value."""
    states = optimizer.state_dict()["state"]
    return {
        f"{index}/{name}": value
        for index, state in states.items()
        for name, value in state.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the state that `optimizer_state` returned into the optimiser."""
    state: dict[int, dict[str, Tensor]] = {}
    for path, value in tensors.items():
        index, _, name = path.partition("/")
        state.setdefault(int(index), {})[name] = value.clone()
    # The groups of parameters and their settings stay those of the optimiser.
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
