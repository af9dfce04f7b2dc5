"""The devices of a module's tensors, and advice about those that stay behind when it moves."""

import re
from itertools import chain

import torch
from torch import Tensor, nn

MIXED = re.compile(r"(same|two|different) devices?\b|and (weight|bias) type \(torch\.\w*FloatTensor\) should be", re.IGNORECASE)
"""Words of torch about an operation on tensors of two devices."""
MAX_NAMES = 3
"""Most names in a message."""


def device_of(module: nn.Module) -> torch.device | None:
    """The first device of a module; None if it has neither parameters nor buffers."""
    return next((tensor.device for tensor in chain(module.parameters(), module.buffers())), None)


def devices_of(module: nn.Module) -> set[torch.device]:
    """All devices of a module's parameters and buffers; a single number may lie anywhere."""
    return {tensor.device for tensor in chain(module.parameters(), module.buffers()) if tensor.ndim}


def is_mixed(error: RuntimeError) -> bool:
    """True if torch refused to compute with tensors of two devices."""
    return MIXED.search(str(error)) is not None


def left_behind(module: nn.Module, device: torch.device) -> str:
    """What to do about tensors of a module that do not lie on a device; empty if all that can be seen do."""
    weights = [(name, tensor) for name, tensor in chain(module.named_parameters(), module.named_buffers()) if tensor.ndim]
    if names := [name for name, tensor in weights if tensor.device != device]:
        devices = sorted({str(tensor.device) for _, tensor in weights})
        return (
            f"its weights are on {' and '.join(devices)} ({_first_names(names)}), and the inputs on {device}: move it to one "
            "device by model.to(device), or load it over several GPUs by device_map"
        )
    plain = [
        f"{prefix}.{name}".lstrip(".")
        for prefix, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, Tensor) and value.ndim and value.device != device
    ]
    if plain:
        return f"{_first_names(plain)} stays behind when the model moves to {device}: keep it by register_buffer"
    if device.type != "cpu":
        return f"its forward pass makes a tensor on another device: make it with device=x.device, here {device}"
    return ""


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + ", ..." * (len(names) > MAX_NAMES)
