"""The state of an installation, found without torch unless there is a GPU to ask it about."""

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from brinell.analysis.folder_result import Result
from brinell.core.version import VERSION
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
"""The purpose of each extra; an extra that is missing here is for developers, or a sum of
others."""
REQUIREMENT = re.compile(
    r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:>=\s*([0-9.]+))?[^;]*(?:;.*extra\s*==\s*['\"]([a-z]+)['\"])?"
)
"""A requirement of the package's metadata: name, oldest version, extra."""
LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that limit the threads of torch and NumPy."""
DRIVERS = (
    Path("/proc/driver/nvidia/version"),
    Path("/dev/nvidiactl"),
    Path("/dev/kfd"),
    Path("/dev/dxg"),
)
"""Files that exist where the kernel knows a GPU for torch: of NVIDIA, of AMD, of the Windows
host."""


class Package(Result):
    """A package that Brinell needs, or that an extra brings."""

    name: str
    """Its name on the package index."""
    needed: str
    """The oldest version that works; empty for any."""
    version: str | None
    """The installed version; null where there is none."""
    ready: bool
    """True if the installed version is new enough."""
    extra: str | None
    """The extra that brings it; null where Brinell needs it."""


class DoctorResult(Result):
    """What `brinell doctor --json` prints."""

    brinell: str
    """The version of Brinell."""
    python: str
    """The version of Python."""
    platform: str
    """Operating system and processor."""
    packages: list[Package]
    """The packages that Brinell needs, and those of its extras."""
    purposes: dict[str, str]
    """The purpose of each extra."""
    devices: dict[str, str]
    """The devices by what to write after --device, the processor first: model, memory, and
    whether it has TF32."""
    auto: str
    """The device that --device auto takes."""
    processors: int
    """Processors that this process may use."""
    threads: dict[str, str]
    """Variables that limit threads, those that are set."""
    free_bytes: dict[str, int]
    """Free space in the folder of runs and in that of temporary files."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 1 if a package that Brinell needs is missing or too old."""
        return int(not all(package.ready for package in self.packages if package.extra is None))

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The result line by line."""
        yield f"Brinell {self.brinell}, Python {self.python}, {self.platform}"
        needed = [package for package in self.packages if package.extra is None]
        yield (
            "packages  "
            f"{', '.join(f'{package.name} {package.version}' for package in needed if package.version)}"
        )
        for package in needed:
            if not package.ready:
                yield (
                    f"MISSING   {package.name}>={package.needed}: pip install "
                    f"'{package.name}>={package.needed}'"
                )
        for name, text in self.devices.items():
            yield f"device    {name}: {text}"
        yield f"device    --device auto takes {self.auto}"
        limits = (
            ", ".join(f"{name}={value}" for name, value in self.threads.items())
            or "no limit is set"
        )
        yield f"threads   {self.processors} processors; {limits}"
        for folder, free in self.free_bytes.items():
            yield f"disk      {folder}: {free / 2**30:.1f} GiB free"
        for extra, purpose in self.purposes.items():
            brought = [package for package in self.packages if package.extra == extra]
            ready = bool(brought) and all(package.ready for package in brought)
            versions = ", ".join(f"{package.name} {package.version}" for package in brought)
            advice = versions if ready else f"pip install 'brinell[{extra}]'"
            yield f"{'extra' if ready else 'missing':<9} {extra:<7} {purpose} ({advice})"


def carry_out(call: Call) -> DoctorResult:
    """Find out the state of the installation."""
    devices = find_devices()
    folders = {
        "runs": Path("runs") if Path("runs").is_dir() else Path(),
        "temporary files": Path(tempfile.gettempdir()),
    }
    return DoctorResult(
        brinell=VERSION,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=find_packages(),
        purposes=PURPOSES,
        devices=devices,
        auto="cuda:0" if "cuda:0" in devices else "cpu",
        processors=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        threads={name: os.environ[name] for name in LIMITS if os.environ.get(name)},
        free_bytes={
            f"{purpose} in {folder.absolute()}": shutil.disk_usage(folder).free
            for purpose, folder in folders.items()
        },
    )


def find_packages() -> list[Package]:
    """The packages in the metadata of Brinell, each with the extra that brings it."""
    texts, packages = list[str](), []
    with suppress(metadata.PackageNotFoundError):  # run from its sources
        texts = metadata.requires("brinell") or []
    for match in filter(None, map(REQUIREMENT.match, texts)):
        name, needed, extra = match.groups()
        if name != "brinell" and (extra is None or extra in PURPOSES):
            version = None
            with suppress(metadata.PackageNotFoundError):
                version = metadata.version(name)
            ready = version is not None and _numbers(version) >= _numbers(needed or "")
            packages.append(
                Package(name=name, needed=needed or "", version=version, ready=ready, extra=extra)
            )
    return packages


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def find_devices() -> dict[str, str]:
    """The devices of torch, which is imported only where the system knows a GPU."""
    devices = {"cpu": platform.processor() or platform.machine()}
    is_mac = (sys.platform, platform.machine()) == ("darwin", "arm64")
    if not is_mac and sys.platform != "win32" and not any(path.exists() for path in DRIVERS):
        return devices
    import torch

    if torch.backends.mps.is_available():
        return devices | {"mps": "the GPU of this machine, without float64"}
    if not torch.cuda.is_available():
        return {
            "cpu": f"{devices['cpu']}; torch {torch.__version__} cannot use the GPU of this machine"
        }
    for number in range(torch.cuda.device_count()):
        gpu, free = torch.cuda.get_device_properties(number), ""
        with suppress(RuntimeError):  # another process may hold the GPU, or all of its memory
            free = f", {torch.cuda.mem_get_info(number)[0] / 2**30:.0f} GiB free"
        coarse = (
            torch.version.hip is None and gpu.major >= 8
        )  # the first compute capability of NVIDIA with TF32
        words = (
            "TF32 is off in runs, --precision tf32 switches it on" if coarse else "it has no TF32"
        )
        devices[f"cuda:{number}"] = f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB{free}; {words}"
    return devices
