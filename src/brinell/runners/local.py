"""The audit in one process on this machine: model after model."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brinell.core.criterion import MISCLASSIFIED, NotRejected
from brinell.core.record import CLEAN
from brinell.engine.answers import settled
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.engine import ModelAudit
from brinell.engine.peers import Peers
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.engine.shard import session
from brinell.runners import provenance
from brinell.runners.loop import Job, carry_out
from brinell.store.run import LAYOUT, Run

KEPT = ("answers", "checks", "probes", "remarks", "extras", "failed", "traffic", "seconds")
"""Keys of the manifest that add up over resumes, each of them by model."""


def run(plan: Plan, out: Path, progress: Progress, *, command: str, resume: bool = False, peers: Peers | None = None) -> Run:
    """Carry out a plan in the folder `out`.

    Args:
        plan: what to do.
        out: the run folder; with `resume` it may hold part of the work.
        progress: told what goes on.
        command: the command line that repeats the run, for the manifest.
        resume: whether to go on with a folder that exists.
        peers: other processes that work on the same plan.

    Raises:
        RequestError: the folder holds another run, or one that nobody asked to go on with.
        StoppedError: the disk is full.
    """
    with carry_out(job_of(plan, out, command), resume=resume) as manifest:
        folder = Run(out, manifest)
        for note in manifest["data"]["notes"]:
            progress.note(f"{plan.dataset.name}: {note}")
        for doubt in plan.doubts:
            progress.note(f"{doubt}")
        for source in plan.models:
            started = time.perf_counter()
            model = source.open()
            known = dict(manifest["answers"])
            with ExitStack() as sessions:
                sessions.enter_context(session(model, plan.device))
                model = settled(model, plan.dataset, manifest, plan.device)
                surrogate = None if plan.surrogate is None else plan.surrogate.open()
                if surrogate is not None:
                    sessions.enter_context(session(surrogate, plan.device))
                    surrogate = settled(surrogate, plan.dataset, manifest, plan.device, name=f"surrogate {surrogate.name}")
                if manifest["answers"] != known:
                    folder.save_manifest()
                found = ModelAudit(plan, source, model, folder, progress, surrogate, peers)()
            manifest["warnings"] += [{"code": code, "model": source.name, "text": text} for code, text in found.items()]
            before = manifest["seconds"].get(source.name, 0.0) if peers is None else peers.seconds(cells_of(plan, source))
            manifest["seconds"][source.name] = before + time.perf_counter() - started
            folder.save_manifest()
        manifest["files"] = folder.digests()
    return folder


def job_of(plan: Plan, out: Path, command: str) -> Job:
    """What is to be written to the folder of a run, or to the address of one."""
    return Job(
        LAYOUT,
        out,
        plan.request,
        about=about(plan),
        inputs="the data, the weights, the recommended budgets",
        device=plan.device,
        command=command,
        kept={key: {} for key in KEPT},
        identity=identity,
    )


def cells_of(plan: Plan, source: ModelSource) -> list[str]:
    """The cells of a model's first check and of its stages."""
    return [clean_cell(plan, source), *(stage_cell(plan, source, stage) for stage in plan.stages)]


def identity(manifest: Mapping[str, Any]) -> list[Any]:
    """What every first check and every stage depend on."""
    return [[one["name"], one["cells"]] for key in ("models", "stages") for one in manifest[key]]


def _criterion(plan: Plan) -> dict[str, Any]:
    """What counts as adversarial; the reject class of each model stands with its facts."""
    if plan.targeting is not None:
        return plan.targeting.about()
    return MISCLASSIFIED.about() if plan.request.reject_class is None else {"name": NotRejected.name}


def about(plan: Plan) -> dict[str, Any]:
    """What a manifest says of a run that follows from its plan."""
    stages = [
        {
            "name": stage.name,
            "label": stage.label or stage.name,
            "kept_to": stage.kept_to,
            "attack": stage.plugin,
            "settings": stage.settings(),
            "turn": asdict(stage.turn),
            "eot": stage.eot,
            "gradient": stage.gradient,
            "family": stage.attack.family,
            "access": stage.attack.access.name.lower(),
            "cells": {model.name: stage_cell(plan, model, stage) for model in plan.models},
        }
        for stage in plan.stages
    ]
    return {
        "seed": plan.request.seed,
        "data": provenance.data(plan.request.data, plan.dataset, plan.data_digest, len(plan.ids), plan.selection.how),
        "models": [
            {"name": model.name, "spec": model.spec, **model.facts, "cells": {CLEAN: clean_cell(plan, model)}}
            for model in plan.models
        ],
        "criterion": _criterion(plan),
        "distance": plan.distance.name,
        "eps": list(plan.budgets.values),
        "eps_text": list(plan.budgets.texts),
        "recommended": plan.recommended,
        "stages": stages,
        "skipped": [
            {"model": model.name, "stage": name, "why": why} for model in plan.models for name, why in model.skipped.items()
        ],
        "warnings": provenance.left_out(plan.dataset),
    }
