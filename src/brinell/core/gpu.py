"""GPUs that the system knows, found without torch, whose import takes long."""

import sys
from pathlib import Path

DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
"""Files that exist where the kernel knows a GPU for torch: of NVIDIA, of AMD, of the Windows host."""


def has_gpu() -> bool:
    """True if the kernel lists a GPU that torch calls cuda; also True on Windows, where no file lists them."""
    return sys.platform == "win32" or any(path.exists() for path in DRIVERS)
