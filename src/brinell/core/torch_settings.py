"""Settings of torch for the whole process: what the code of others changes there would change the figures that come after it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def _set_determinism(values: tuple[bool, bool]) -> None:
    """Set whether only deterministic algorithms are used, and whether others merely give a warning."""
    torch.use_deterministic_algorithms(values[0], warn_only=values[1])


def _set_device(device: torch.device) -> None:
    """Set the default device; the processor without a mode of torch's own, which would slow each call down."""
    torch.set_default_device(None if device == torch.device("cpu") else device)


def _set_cudnn(values: tuple[bool, bool]) -> None:
    """Set the two switches by which cuDNN chooses its kernels."""
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = values


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "the default type": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device": (lambda: torch.empty(0).device, _set_device),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the recording of gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic algorithms": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        _set_determinism,
    ),
    "the precision of products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "automatic half precision": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda enabled: torch.set_autocast_enabled("cpu", enabled),
    ),
    "automatic half precision on GPUs": (
        lambda: torch.is_autocast_enabled("cuda"),
        lambda enabled: torch.set_autocast_enabled("cuda", enabled),
    ),
    "the kernels of cuDNN": (
        lambda: (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
        _set_cudnn,
    ),
    "the search for anomalies": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
}
"""How each setting is read and written, by its name in sentences."""


@contextmanager
def float32_products(*, tf32: bool = False) -> Iterator[None]:
    """Context in which a GPU multiplies float32 numbers in full, or, with `tf32`, with 10 bits of them."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def kept_settings() -> Iterator[list[str]]:
    """Context that restores torch's settings at its end. Its list then names the changed ones, with values before and after."""
    before = [read() for read, _ in SETTINGS.values()]
    changes: list[str] = []
    try:
        yield changes
    finally:
        for (name, (read, write)), value in zip(SETTINGS.items(), before, strict=True):
            if (changed := read()) != value:
                write(value)
                changes.append(f"{name} from {value} to {changed}")
