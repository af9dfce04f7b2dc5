"""A benchmark set on this machine: part after part, then the card, the metadata and the checksums."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError
from brinell.core.version import VERSION
from brinell.engine import toml
from brinell.engine.engine import Progress
from brinell.engine.shard import session
from brinell.runners import provenance as facts
from brinell.runners.same import check_same
from brinell.store.files import write_text
from brinell.studies.benchmark import cards
from brinell.studies.benchmark.part import Part
from brinell.studies.benchmark.plan import BenchmarkPlan
from brinell.studies.benchmark.records import FORMAT, REQUEST, BenchmarkSet, Outcome

CURSORY = ("batch_size", "device", "licence")
"""Settings that change nothing in the set's rows: a run may go on with others."""
CHANGED = "the data, the weights, the policy, a distortion or brinell itself has changed since it began"


def make(plan: BenchmarkPlan, out: Path, progress: Progress, *, command: str, resume: bool = False) -> BenchmarkSet:
    """Make the set in the folder `out`, or what is missing of it.

    Args:
        plan: what to make.
        out: the folder; with `resume` it may hold some of it.
        progress: told what goes on.
        command: the command line that repeats it.
        resume: whether to go on with a folder that exists.

    Raises:
        RequestError: the folder holds another set, or one that nobody asked to go on with.
        StoppedError: the disk is full.
    """
    folder = BenchmarkSet(out, plan.parts, plan.form)
    before = folder.manifest
    if before is not None and not resume:
        raise RequestError(f"{out} holds a benchmark set: add --resume to go on with it, or choose another --out")
    if before is None and out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir()) and not resume:
        raise RequestError(f"{out} is not empty, and all of a benchmark set's folder is its own: choose another --out")
    with folder.lock():
        check_same(out, "benchmark set", before, plan.cell, plan.request, cursory=CURSORY, otherwise=CHANGED)
        started = time.perf_counter()
        write_text(out / REQUEST, toml.dump(plan.request, f"brinell benchmark {REQUEST}"))
        manifest = _manifest(plan, command, before)
        folder.save_manifest(manifest)
        _parts(plan, folder, progress)
        samples = folder.samples()
        manifest |= {
            "state": "finished",
            "finished": facts.now(),
            "seconds": manifest["seconds"] + time.perf_counter() - started,
            "counts": {outcome: samples["outcome"].count(outcome) for outcome in map(str, Outcome)},
        }
        folder.save_manifest(manifest)
        cards.write(folder, manifest)
        folder.save_sums()
    return folder


def _parts(plan: BenchmarkPlan, folder: BenchmarkSet, progress: Progress) -> None:
    missing = [number for number in range(plan.parts) if not folder.has_part(number)]
    left = sum(len(plan.ids[number * plan.part_size : (number + 1) * plan.part_size]) for number in missing)
    per_sample = 2 + plan.attack.cost(plan.model.classes)[0] + 2 * len(plan.levels)
    progress.stage(plan.facts["name"], "rlab", left, left * per_sample)
    reached = 0
    with session(plan.model, plan.device):
        for number in missing:
            part = Part(plan, number, progress)
            folder.save_part(number, part.rows, part.samples, part.arrays)
            left -= len(part.samples)
            reached += sum(sample["outcome"] == Outcome.REACHED for sample in part.samples)
            progress.open(left, reached)


def _manifest(plan: BenchmarkPlan, command: str, before: dict[str, Any] | None) -> dict[str, Any]:
    before = before or {}
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
        "levels": list(plan.levels),
        "goal": asdict(plan.goal),
        "eps": plan.eps,
        "data": facts.data(plan.request.data, plan.dataset, plan.data_digest, len(plan.ids)),
        "model": {"spec": plan.request.model, **plan.facts},
        "grid": {"patch": list(plan.grid.patch), "stride": list(plan.grid.steps), "lattice": list(plan.grid.lattice)},
        "training_queries": plan.training_queries,
        "versions": facts.versions(),
        "hardware": facts.hardware(plan.device),
        "seconds": before.get("seconds", 0.0),
    }
