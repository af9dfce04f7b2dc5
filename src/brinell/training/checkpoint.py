"""Checkpoints: everything that a training needs to go on, in one safetensors file that is put in place whole."""

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
    """Write tensors by name, and what else is to be known, as JSON.

    Raises:
        StoppedError: the disk is full or the folder cannot be written; what was there before is still there.
    """
    own = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    content = save(own, {KEY: json.dumps(facts)})
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write` wrote; a damaged file is refused."""
    with bounded.decoding(path, path.stat().st_size, "no checkpoint"), safe_open(path, "pt") as held:
        facts = json.loads((held.metadata() or {})[KEY])
        if not isinstance(facts, dict):
            raise RequestError(f"{path} is no checkpoint of brinell harden: delete it, and the training begins anew")
        return {name: held.get_tensor(name) for name in held.keys()}, facts


def named(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict under names of its own."""
    return {f"{prefix}/{name}": value for name, value in state.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `named` put there."""
    return {name.removeprefix(f"{prefix}/"): value for name, value in tensors.items() if name.startswith(f"{prefix}/")}


def of_optimizer(optimizer: Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers of each parameter, by its number and name."""
    held = optimizer.state_dict()["state"]
    return {f"{at}/{name}": value for at, state in held.items() for name, value in state.items() if isinstance(value, Tensor)}


def into_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Hand it back what it remembered."""
    state: dict[int, dict[str, Tensor]] = {}
    for path, value in tensors.items():
        at, _, name = path.partition("/")
        state.setdefault(int(at), {})[name] = value.clone()
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
