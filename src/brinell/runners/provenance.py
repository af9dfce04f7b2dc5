"""When, where and with what something was run: what a manifest says besides the request."""

import os
import platform
import subprocess
from collections.abc import Mapping
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


def beginning(request: BaseModel, command: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest says when a run begins or is resumed: who runs it, since when, and what was asked for."""
    return {
        "brinell": VERSION,
        "revision": revision(),
        "state": "running",
        "created": before.get("created", now()),
        "finished": None,
        "command": command,
        "request": request.model_dump(mode="json"),
    }


def now() -> str:
    """ISO time, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def data(spec: str, dataset: Dataset, digest: str, n: int, select: str = "first") -> dict[str, Any]:
    """What was run on: `n` samples of a data set, how they were chosen (`engine.selection`), and where its inputs live."""
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


def left_out(dataset: Dataset) -> list[dict[str, Any]]:
    """What a data set could not read and went on without, as warnings of the run."""
    return [{"code": one.code, "model": None, "text": one.text} for one in dataset.info.remarks]


def place(device: torch.device) -> dict[str, Any]:
    """What a manifest says of the machine, and of Python and the libraries that figures depend on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "versions": {"python": platform.python_version()} | {library: _version(library) for library in LIBRARIES},
        "hardware": {"device": name, "cpu": _cpu(), "threads": torch.get_num_threads(), "cores": os.cpu_count()},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def revision() -> str | None:
    """The checkout that this code runs from, with `+dirty` where it was changed; None outside one."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty=+dirty", "--abbrev=12"], cwd=here, capture_output=True, text=True, timeout=10
        )
        tracked = subprocess.run(["git", "ls-files", "--error-unmatch", __file__], cwd=here, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 and tracked.returncode == 0 else None
