"""Provenance of a run for its manifest: time, machine, versions, data, and the hash of what its rows
depend on.
"""

import hashlib
import json
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


def content_hash(**content: Any) -> str:
    """24 hex digits that change whenever any of `content` (JSON values) does."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


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
    sampling = None if info.sampling is None else asdict(info.sampling)

    return {
        "spec": spec,
        "name": dataset.name,
        "digest": digest,
        "n": n,
        "total": len(dataset),
        "select": select,
        "domain": dataset.domain.to_json(),
        "sampling": sampling,
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
    # An installed copy may lie within a checkout of something else, which does not track this file.
    commands = (
        ["git", "ls-files", "--error-unmatch", __file__],
        ["git", "describe", "--always", "--dirty=+dirty", "--abbrev=12"],
    )
    answers = []
    for command in commands:
        try:
            answers.append(
                subprocess.run(
                    command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10
                )
            )
        except (OSError, subprocess.SubprocessError):
            return None

    if any(answer.returncode for answer in answers):
        return None
    return answers[-1].stdout.strip() or None
