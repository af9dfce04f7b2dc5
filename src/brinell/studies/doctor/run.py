"""Finds out the state of an installation without torch, unless there is a GPU to ask it about."""

import ast
import os
import platform
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from brinell import plugins
from brinell.core.gpu import has_gpu
from brinell.core.version import VERSION
from brinell.studies.doctor.result import DeviceResult, DiskResult, DoctorResult, ExtraResult, KindResult, PackageResult
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
EXTRA = re.compile(r"brinell\[([a-z]+)\]")
"""How a plug-in names the extra that it asks for."""
LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that limit the threads of torch and NumPy."""
FIRST_WITH_TF32 = 8
"""The first compute capability of NVIDIA with TF32."""
SHARED = "BRINELL_SHARED"
"""The variable that names the folder of shared data."""


def carry_out(call: Call) -> DoctorResult:
    """Find out the state of the installation."""
    requirements = _requirements()
    extras = [_extra(name, [package for package, extra in requirements if extra == name]) for name in PURPOSES]
    missing = {extra.name for extra in extras if not extra.ready}
    devices = _devices()
    return DoctorResult(
        brinell=VERSION,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=[package for package, extra in requirements if extra is None],
        extras=extras,
        kinds=[
            KindResult(kind=kind, name=name, missing=sorted(missing & extras_of(kind, name)))
            for kind in ("model", "dataset")
            for name in plugins.names(kind)
        ],
        devices=devices,
        auto=next((device.name for device in devices if device.name.startswith("cuda")), "cpu"),
        processors=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        threads={name: os.environ.get(name) for name in LIMITS},
        disks=_disks(),
    )


def _requirements() -> list[tuple[PackageResult, str | None]]:
    """The packages in the metadata of Brinell, each with the extra that brings it."""
    try:
        texts = metadata.requires("brinell") or []
    except metadata.PackageNotFoundError:  # run from its sources
        texts = []
    matches = [match for text in texts if (match := REQUIREMENT.match(text)) is not None and match[1] != "brinell"]
    return [(_package(match[1], match[2] or ""), match[3]) for match in matches]


def _package(name: str, needed: str) -> PackageResult:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = None
    return PackageResult(
        name=name, needed=needed, version=version, ready=version is not None and _numbers(version) >= _numbers(needed)
    )


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def _extra(name: str, packages: list[PackageResult]) -> ExtraResult:
    return ExtraResult(
        name=name, purpose=PURPOSES[name], packages=packages, ready=bool(packages) and all(package.ready for package in packages)
    )


def extras_of(kind: str, name: str) -> set[str]:
    """The extras that a plug-in of ours asks for, by its source and that of the files that serve it; none is imported."""
    folder = Path(plugins.__file__).parent / plugins.FOLDERS[kind].removeprefix("brinell.")
    file = folder / f"{name.replace('-', '_')}.py"
    if not file.is_file():
        return set()
    source = file.read_text(encoding="utf-8")
    prefix = f"brinell.{folder.name}._"
    modules = [node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.module]
    neighbours = [folder / f"_{module.removeprefix(prefix)}.py" for module in modules if module.startswith(prefix)]
    return {extra for path in (file, *neighbours) for extra in EXTRA.findall(path.read_text(encoding="utf-8"))}


def _devices() -> list[DeviceResult]:
    """The devices of torch, which is imported only where the system knows a GPU."""
    processor = DeviceResult(name="cpu", text=platform.processor() or platform.machine())
    if not has_gpu() and (sys.platform, platform.machine()) != ("darwin", "arm64"):
        return [processor]
    import torch

    if torch.backends.mps.is_available():
        return [processor, DeviceResult(name="mps", text="the GPU of this machine, without float64", tf32=False)]
    if not torch.cuda.is_available():
        return [DeviceResult(name="cpu", text=f"{processor.text}; torch {torch.__version__} cannot use the GPU of this machine")]
    return [processor, *map(_gpu, range(torch.cuda.device_count()))]


def _gpu(number: int) -> DeviceResult:
    """A GPU that torch calls cuda."""
    import torch

    gpu, free = torch.cuda.get_device_properties(number), None
    with suppress(RuntimeError):  # another process may hold the GPU, or all of its memory
        free = torch.cuda.mem_get_info(number)[0]
    return DeviceResult(
        name=f"cuda:{number}",
        text=f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB",
        free_bytes=free,
        tf32=torch.version.hip is None and gpu.major >= FIRST_WITH_TF32,
    )


def _disks() -> list[DiskResult]:
    """The folders that runs write to, and that of shared data if one is named."""
    folders = {"runs": Path("runs") if Path("runs").is_dir() else Path(), "temporary files": Path(tempfile.gettempdir())}
    disks = [_disk(purpose, folder, ()) for purpose, folder in folders.items()]
    if shared := os.environ.get(SHARED):
        path = Path(shared).expanduser()
        names = sorted(entry.name for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []
        disks.append(_disk("shared data", path, names))
    return disks


def _disk(purpose: str, folder: Path, content: list[str] | tuple[str, ...]) -> DiskResult:
    """A folder and its free space."""
    exists = folder.is_dir()
    free = shutil.disk_usage(folder).free if exists else None
    return DiskResult(purpose=purpose, folder=str(folder.absolute()), exists=exists, free_bytes=free, content=list(content))
