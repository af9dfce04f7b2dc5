"""Provenance of a run for its manifest: time, machine, versions and data."""

import os
import platform
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from brinell.core.contracts import Dataset
from brinell.core.version import VERSION

LIBRARIES = ("torch", "numpy", "pyarrow", "safetensors", "scikit-learn", "pillow")


def start_record(request: BaseModel, command: str) -> dict[str, Any]:
    """Entries of the manifest when a run begins or resumes: versions, times, command and request."""
    return {
        "brinell": VERSION,
        "revision": revision(),
        "created": timestamp(),
        "finished": None,
        "command": command,
        "request": request.model_dump(mode="json"),
    }


def timestamp() -> str:
    """ISO time, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def data_facts(
    spec: str, dataset: Dataset, digest: str, n: int, select: str = "first"
) -> dict[str, Any]:
    """Facts about the data: `n` samples of a data set, their selection method (`engine.selection`),
    and the domain.
    """
    info = dataset.info
    return {
        "spec": spec,
        "name": dataset.name,
        "digest": digest,
        "n": n,
        "total": len(dataset),
        "select": select,
        "domain": dataset.domain.to_json(),
        "sampling": None if info.sampling is None else asdict(info.sampling),
        "classes": list(dataset.classes),
        "notes": list(info.notes),
    }


def machine_facts(device: torch.device) -> dict[str, Any]:
    """Facts about the machine, Python and the libraries that figures depend on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "versions": {"python": platform.python_version()}
        | {library: _version(library) for library in LIBRARIES},
        "hardware": {
            "device": name,
            "cpu": _cpu(),
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
        },
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def revision() -> str | None:
    """Git revision of this code, with `+dirty` for uncommitted changes; None outside a checkout."""
    folder = Path(__file__).parent
    try:
        words = ["git", "describe", "--always", "--dirty=+dirty", "--abbrev=12"]
        answer = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=10)
        tracked = subprocess.run(
            ["git", "ls-files", "--error-unmatch", __file__],
            cwd=folder,
            capture_output=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (
        answer.stdout.strip() or None
        if answer.returncode == 0 and tracked.returncode == 0
        else None
    )
