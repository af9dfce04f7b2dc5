"""Freed memory is kept for the next tensor, in processes that are ours alone."""

import ctypes
import os
import sys

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's malloc.h."""
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Where a user has set them."""


def keep_freed_memory() -> bool:
    """Let glibc keep up to 1 GiB that was freed instead of giving it back to the kernel; whether it does.

    Otherwise each large tensor is mapped and unmapped anew, and the kernel zeroes every page again: on images of 224 x 224 that
    is a fifth to a quarter of the processor time of PGD. It changes the whole process, so only the command line does it, at
    its start; where the C library is another, or the user has set its thresholds, nothing happens. Arrow, which is imported
    later, then takes its memory from there, too: its own allocator needs 40 MiB more to write the rows of a stage.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in OWN):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl, say, has none
        return False
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Some versions allow 32 MiB at most.
    return bool((mallopt(MMAP_THRESHOLD, 2**30) or mallopt(MMAP_THRESHOLD, 2**25)) and mallopt(TRIM_THRESHOLD, 2**30))
