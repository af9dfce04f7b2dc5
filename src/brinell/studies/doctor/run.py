"""Finds out the state of an installation without torch, unless there is a GPU to ask it about."""

import os
import platform
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from brinell.core.version import VERSION
from brinell.studies.doctor.result import DeviceFacts, DoctorResult, Package
from brinell.studies.kit import Call

PURPOSES = {
    "onnx": "networks in ONNX",
    "sklearn": "saved classifiers of scikit-learn",
    "vision": "networks of torchvision and timm",
    "hf": "classifiers of Hugging Face",
    "ecg": "heartbeats in WFDB records",
    "video": "videos in files",
    "http": "models behind a server",
    "pandas": "result.to_pandas()",
    "metric": "brinell train metric",
    "gym": "agents of other libraries",
    "ray": "workers on Ray, --on ray",
}
"""The purpose of each extra; an extra that is missing here is for developers, or a sum of others."""
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:>=\s*([0-9.]+))?[^;]*(?:;.*extra\s*==\s*['\"]([a-z]+)['\"])?")
"""A requirement of the package's metadata: name, oldest version, extra."""
LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that limit the threads of torch and NumPy."""
DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
"""Files that exist where the kernel knows a GPU for torch: of NVIDIA, of AMD, of the Windows host."""
FIRST_WITH_TF32 = 8
"""The first compute capability of NVIDIA with TF32."""


def carry_out(call: Call) -> DoctorResult:
    """Find out the state of the installation."""
    devices = find_devices()
    folders = {"runs": Path("runs") if Path("runs").is_dir() else Path(), "temporary files": Path(tempfile.gettempdir())}
    return DoctorResult(
        brinell=VERSION,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=find_packages(),
        purposes=PURPOSES,
        devices=devices,
        auto=next((device.name for device in devices if device.name.startswith("cuda")), "cpu"),
        processors=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        threads={name: os.environ[name] for name in LIMITS if os.environ.get(name)},
        free_bytes={f"{purpose} in {folder.absolute()}": shutil.disk_usage(folder).free for purpose, folder in folders.items()},
    )


def find_packages() -> list[Package]:
    """The packages in the metadata of Brinell, each with the extra that brings it."""
    try:
        texts = metadata.requires("brinell") or []
    except metadata.PackageNotFoundError:  # run from its sources
        texts = []
    packages = []
    for match in filter(None, map(REQUIREMENT.match, texts)):
        name, needed, extra = match.groups()
        if name != "brinell" and (extra is None or extra in PURPOSES):
            version = None
            with suppress(metadata.PackageNotFoundError):
                version = metadata.version(name)
            ready = version is not None and _numbers(version) >= _numbers(needed or "")
            packages.append(Package(name=name, needed=needed or "", version=version, ready=ready, extra=extra))
    return packages


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def find_devices() -> list[DeviceFacts]:
    """The devices of torch, which is imported only where the system knows a GPU."""
    processor = platform.processor() or platform.machine()
    has_gpu = sys.platform == "win32" or any(path.exists() for path in DRIVERS)
    if not has_gpu and (sys.platform, platform.machine()) != ("darwin", "arm64"):
        return [DeviceFacts(name="cpu", text=processor)]
    import torch

    devices = [DeviceFacts(name="cpu", text=processor)]
    if torch.backends.mps.is_available():
        return [*devices, DeviceFacts(name="mps", text="the GPU of this machine, without float64")]
    if not torch.cuda.is_available():
        return [DeviceFacts(name="cpu", text=f"{processor}; torch {torch.__version__} cannot use the GPU of this machine")]
    for number in range(torch.cuda.device_count()):
        gpu, free = torch.cuda.get_device_properties(number), ""
        with suppress(RuntimeError):  # another process may hold the GPU, or all of its memory
            free = f", {torch.cuda.mem_get_info(number)[0] / 2**30:.0f} GiB free"
        coarse = torch.version.hip is None and gpu.major >= FIRST_WITH_TF32
        words = "TF32 is off in runs, --precision tf32 switches it on" if coarse else "it has no TF32"
        text = f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB{free}; {words}"
        devices.append(DeviceFacts(name=f"cuda:{number}", text=text))
    return devices
