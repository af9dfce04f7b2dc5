"""An unrestricted attack on this machine: block after block into a folder of its own."""

import time
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError
from brinell.core.version import VERSION
from brinell.engine import toml
from brinell.engine.engine import Progress
from brinell.runners import provenance as facts
from brinell.runners.same import check_same
from brinell.store.files import write_text
from brinell.studies.unrestricted.records import FORMAT, REQUEST, UnrestrictedRun
from brinell.studies.unrestricted.run import BLOCK, Engine, UnrestrictedPlan, models_of

CURSORY = ("batch_size", "device")
"""Settings that change nothing in the rows: a run may go on with others."""
CHANGED = "the data, the generator, the weights of a model or brinell itself has changed since it began"


def make(plan: UnrestrictedPlan, out: Path, progress: Progress, *, command: str, resume: bool = False) -> UnrestrictedRun:
    """Carry out a plan in the folder `out`, or what is missing of it.

    Args:
        plan: what to do.
        out: the folder; with `resume` it may hold some of it.
        progress: told what goes on.
        command: the command line that repeats it.
        resume: whether to go on with a folder that exists.

    Raises:
        RequestError: the folder holds another run, or one that nobody asked to go on with.
        StoppedError: the disk is full.
    """
    folder = UnrestrictedRun(out, plan.parts)
    before = folder.manifest
    if before is not None and not resume:
        raise RequestError(f"{out} holds an unrestricted attack: add --resume to go on with it, or choose another --out")
    if before is None and out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir()) and not resume:
        raise RequestError(f"{out} is not empty, and all of the folder is to be this run's own: choose another --out")
    with folder.lock():
        check_same(out, "run", before, plan.cell, plan.request, cursory=CURSORY, otherwise=CHANGED)
        started = time.perf_counter()
        write_text(out / REQUEST, toml.dump(plan.request, f"brinell unrestricted {REQUEST}"))
        manifest = _manifest(plan, command, before)
        folder.save_manifest(manifest)
        _blocks(plan, folder, progress)
        manifest |= {
            "state": "finished",
            "finished": facts.now(),
            "seconds": manifest["seconds"] + time.perf_counter() - started,
        }
        folder.save_manifest(manifest)
    return folder


def _blocks(plan: UnrestrictedPlan, folder: UnrestrictedRun, progress: Progress) -> None:
    missing = [number for number in range(plan.parts) if not folder.has_part(number)]
    if not missing:
        return
    left = sum(len(plan.intended[number * BLOCK : (number + 1) * BLOCK]) for number in missing)
    searches = sum(settings.cost[0] for settings in plan.variants.values()) * len(plan.models)
    progress.stage(", ".join(model.name for model in plan.models), "unrestricted", left, left * searches)
    broken = 0
    with Engine(plan, progress.passes) as engine:
        for number in missing:
            rows, arrays = engine.block(number)
            folder.save_part(number, rows, arrays)
            left -= len({row["attempt"] for row in rows})
            broken += len({row["attempt"] for row in rows if row["outcome"] == "found"})
            progress.open(left, broken)


def _manifest(plan: UnrestrictedPlan, command: str, before: dict[str, Any] | None) -> dict[str, Any]:
    before, about = before or {}, plan.kept.about
    return {
        "format": FORMAT,
        "cell": plan.cell,
        "brinell": VERSION,
        "revision": facts.revision(),
        "state": "running",
        "created": before.get("created", facts.now()),
        "finished": None,
        "command": command,
        "request": plan.request.model_dump(mode="json"),
        "parts": plan.parts,
        "attempts": len(plan.intended),
        "data": facts.data(plan.request.data, plan.dataset, plan.data_digest, len(plan.dataset)),
        "models": models_of(plan.models),
        "judges": models_of(plan.judges),
        "variants": {name: {"noise": settings.noise} for name, settings in plan.variants.items()},
        "wanted": plan.wanted,
        "generator": {
            "file": plan.request.generator,
            "digest": plan.generator_digest,
            "same_data": about.get("data_digest") == plan.data_digest,
            "about": about,
        },
        "versions": facts.versions(),
        "hardware": facts.hardware(plan.device),
        "seconds": before.get("seconds", 0.0),
    }
