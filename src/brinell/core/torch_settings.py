"""Settings of torch for the whole process."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def float32_products(*, tf32: bool = False) -> Iterator[None]:
    """Context in which a GPU multiplies float32 numbers in full, or by 10 bits of them (`tf32`)."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def kept_defaults() -> Iterator[None]:
    """Context that restores torch's defaults at its end.

    They are the type and the device of new tensors, and whether gradients are computed.
    """
    dtype = torch.get_default_dtype()
    device = torch.get_default_device()
    gradients = torch.is_grad_enabled()

    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        # Naming the processor would leave a mode of torch's own on, which slows each call down.
        torch.set_default_device(None if device == torch.device("cpu") else device)
        torch.set_grad_enabled(gradients)


@contextmanager
def float32_tensors() -> Iterator[None]:
    """Context whose new tensors are of float32, whatever default the caller set."""
    with kept_defaults():
        torch.set_default_dtype(torch.float32)
        yield
