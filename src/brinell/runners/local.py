"""One process on this machine: model after model."""

import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brinell.core.criterion import MISCLASSIFIED
from brinell.core.errors import RequestError
from brinell.core.record import CLEAN, SCHEMA_VERSION
from brinell.core.version import VERSION
from brinell.engine.engine import ModelAudit, Progress, clean_cell, stage_cell
from brinell.engine.plan import Plan
from brinell.engine.request import Request
from brinell.engine.shard import session
from brinell.engine.toml import dump
from brinell.runners import provenance as facts
from brinell.store.files import write_text
from brinell.store.run import Run


def run(plan: Plan, out: Path, progress: Progress, *, command: str, resume: bool = False) -> Run:
    """Carry out a plan in the folder `out`.

    Args:
        plan: what to do.
        out: the run folder; with `resume` it may hold part of the work.
        progress: told what goes on.
        command: the command line that repeats the run, for the manifest.
        resume: whether to go on with a folder that exists.

    Raises:
        RequestError: the folder holds another run, or one that nobody asked to go on with.
        StoppedError: the disk is full.
    """
    with ExitStack() as stack:
        folder = Run(out, {})
        if (out / "manifest.json").exists():
            folder = Run.open(out)
            if not resume:
                raise RequestError(f"{out} holds a run: add --resume to go on with it, or choose another --out")
        stack.enter_context(folder.lock())
        _check_same(folder, plan)
        folder.manifest = _manifest(plan, command, folder.manifest)
        # The request first: with it alone a run can go on, with a manifest alone it could not.
        write_text(out / "run.toml", dump(plan.request))
        folder.save_manifest()
        for note in folder.manifest["data"]["notes"]:
            progress.message(f"note: {plan.dataset.name}: {note}")
        for source in plan.models:
            started = time.perf_counter()
            model = source.open()
            with session(model, plan.device):
                found = ModelAudit(plan, source, model, folder, progress)()
            folder.manifest["warnings"] += [{"code": code, "model": source.name, "text": text} for code, text in found.items()]
            seconds = folder.manifest["seconds"].get(source.name, 0.0) + time.perf_counter() - started
            folder.manifest["seconds"][source.name] = seconds
            folder.save_manifest()
        folder.manifest |= {"state": "finished", "finished": facts.now(), "files": folder.digests()}
        folder.save_manifest()
    return folder


def _check_same(folder: Run, plan: Plan) -> None:
    """Refuse to mix two different runs in one folder."""
    before = folder.manifest.get("request")
    if before is None:
        return
    now = plan.request.model_dump(mode="json")
    ignored = ("batch_size", "device")
    changed = [key for key in Request.model_fields if before.get(key) != now[key] and key not in ignored]
    if changed:
        words = ", ".join(f"{key} was {before.get(key)!r} and is {now[key]!r}" for key in changed)
        raise RequestError(f"{folder.path} holds another run ({words}): choose another --out")
    if (folder.manifest.get("recommended") or {}).get("digest") != (plan.recommended or {}).get("digest"):
        raise RequestError(f"other budgets are recommended now than when {folder.path} began: choose another --out")
    was = folder.manifest["data"]["digest"], {model["name"]: model["digest"] for model in folder.manifest["models"]}
    if was != (plan.data_digest, {model.name: model.facts["digest"] for model in plan.models}):
        raise RequestError(f"the data or the weights have changed since {folder.path} began: choose another --out")


def _manifest(plan: Plan, command: str, before: dict[str, Any]) -> dict[str, Any]:
    stages = [
        {
            "name": stage.name,
            "attack": stage.plugin,
            "settings": stage.settings(),
            "turn": asdict(stage.turn),
            "eot": stage.eot,
            "family": stage.attack.family,
            "access": stage.attack.access.name.lower(),
            "cells": {model.name: stage_cell(plan, model, stage) for model in plan.models},
        }
        for stage in plan.stages
    ]
    return {
        "schema": SCHEMA_VERSION,
        "brinell": VERSION,
        "revision": facts.revision(),
        "state": "running",
        "created": before.get("created", facts.now()),
        "finished": None,
        "command": command,
        "request": plan.request.model_dump(mode="json"),
        "seed": plan.request.seed,
        "data": facts.data(plan.request.data, plan.dataset, plan.data_digest, len(plan.ids)),
        "models": [
            {"name": model.name, "spec": model.spec, **model.facts, "cells": {CLEAN: clean_cell(plan, model)}}
            for model in plan.models
        ],
        "criterion": MISCLASSIFIED.about() if plan.targeting is None else plan.targeting.about(),
        "distance": plan.distance.name,
        "eps": list(plan.budgets.values),
        "eps_text": list(plan.budgets.texts),
        "recommended": plan.recommended,
        "stages": stages,
        "skipped": [
            {"model": model.name, "stage": name, "why": why} for model in plan.models for name, why in model.skipped.items()
        ],
        "warnings": facts.left_out(plan.dataset),
        "checks": before.get("checks", {}) if before.get("brinell") == VERSION else {},
        "probes": before.get("probes", {}) if before.get("brinell") == VERSION else {},
        "remarks": before.get("remarks", {}),
        "extras": before.get("extras", {}),
        "failed": before.get("failed", {}),
        "traffic": before.get("traffic", {}),
        "versions": facts.versions(),
        "hardware": facts.hardware(plan.device),
        "seconds": before.get("seconds", {}),
    }
