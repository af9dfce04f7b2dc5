"""Makes the allocator keep freed memory for the next tensor, in processes that belong
to Brinell.
"""

import ctypes
import os
import sys

MMAP_THRESHOLD = -3
TRIM_THRESHOLD = -1
"""M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's malloc.h."""
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which a user sets these thresholds."""


def keep_freed_memory() -> bool:
    """Let glibc keep up to 1 GiB of freed memory; returns True if that worked.

    Otherwise each large tensor is mapped and unmapped anew, and the kernel zeroes every page again:
    on images of 224 x 224 that is a fifth to a quarter of the processor time of PGD. The setting
    affects the whole process, so only the command line makes it, at its start. With another C
    library, or if the user has set the thresholds, nothing happens. Arrow, which is imported later,
    then also uses this allocator: its default allocator needs 40 MiB more to write the rows of a
    stage.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in OWN):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl, say, has none
        return False
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

    # Some versions allow 32 MiB at most.
    maps = mallopt(MMAP_THRESHOLD, 2**30) or mallopt(MMAP_THRESHOLD, 2**25)
    return bool(maps and mallopt(TRIM_THRESHOLD, 2**30))
