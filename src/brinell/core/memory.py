"""Shortage of memory, as the devices of torch report it: not all of them by a separate
error type.
"""

import gc
import re

import torch

SHORT = re.compile(
    r"^\w+ (backend )?out of memory\b|^CUDA error: out of "
    r"memory|_STATUS_ALLOC_FAILED|DefaultCPUAllocator"
)
"""How messages of torch begin, or what they hold: of mps, of libraries on a GPU, of the
processor."""


def is_memory_short(error: BaseException) -> bool:
    """True if an error says that the memory of a device or of the machine did not suffice."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and SHORT.search(str(error)) is not None


def release_memory() -> None:
    """Give back what Python and torch keep for later.

    Call it once the error is gone that holds the failed attempt.
    """
    gc.collect()
    # Does nothing where there is no such device.
    torch.cuda.empty_cache()
    torch.xpu.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
