"""Carries out the plan of an audit in a run folder, model after model; `model_audit` does the work on each."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brinell.core.criterion import MISCLASSIFIED, NotRejected
from brinell.core.record import CLEAN
from brinell.engine import provenance
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.executor import Channel, Pool
from brinell.engine.group_worker import AuditWorker, open_models
from brinell.engine.job import Job, manifest_session
from brinell.engine.model_audit import ModelAudit
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.store.run import LAYOUT, Run

ACCUMULATED_KEYS = ("answers", "checks", "probes", "remarks", "extras", "failed", "traffic", "seconds")
"""Keys of the manifest, by model, whose values accumulate over resumed runs."""


def run_audit(
    plan: Plan,
    out: Path,
    progress: Progress,
    *,
    command: str,
    resume: bool = False,
    pool: Pool | Channel | None = None,
    audit: Callable[..., ModelAudit] = ModelAudit,
) -> Run:
    """Carry out a plan in the folder `out`.

    Args:
        plan: what to do.
        out: the run folder; with `resume` it may hold part of the work.
        progress: receives the progress reports.
        command: the command line that repeats the run, for the manifest.
        resume: whether to go on with a folder that exists.
        pool: the workers that attack groups, or the channel that this process serves as one of them.
        audit: makes the audit of a model.

    Raises:
        RequestError: the folder holds another run, or one that nobody asked to go on with.
        StoppedError: the disk is full.
    """
    if isinstance(pool, Channel):
        pool.serve(AuditWorker(plan).answer)
    with manifest_session(make_job(plan, out, command), resume=resume) as manifest:
        folder = Run(out, manifest)
        for note in manifest["data"]["notes"]:
            progress.note(f"{plan.dataset.name}: {note}")
        for doubt in plan.notes:
            progress.note(f"{doubt}")
        for source in plan.models:
            start = time.perf_counter()
            answers = dict(manifest["answers"])
            with ExitStack() as sessions:
                model, surrogates = open_models(plan, source, manifest, sessions)
                if manifest["answers"] != answers:
                    folder.save_manifest()
                failures = audit(plan, source, model, folder, progress, surrogates, pool)()
            manifest["warnings"] += [{"code": code, "model": source.name, "text": text} for code, text in failures.items()]
            previous = manifest["seconds"].get(source.name, 0.0)
            manifest["seconds"][source.name] = previous + time.perf_counter() - start
            folder.save_manifest()
    return folder


def make_job(plan: Plan, out: Path, command: str) -> Job:
    """The job of a run in a folder or at an address."""
    return Job(
        LAYOUT,
        out,
        plan.request,
        about=plan_facts(plan),
        inputs="the data, the weights, the recommended budgets",
        device=plan.device,
        command=command,
        accumulated={key: {} for key in ACCUMULATED_KEYS},
        identity=plan_identity,
    )


def cells_of(plan: Plan, source: ModelSource) -> list[str]:
    """Cells of a model's clean check and of its stages."""
    return [clean_cell(plan, source), *(stage_cell(plan, source, stage) for stage in plan.stages)]


def plan_identity(manifest: Mapping[str, Any]) -> list[Any]:
    """Names and cells of all models and stages, which identify a run."""
    return [[entry["name"], entry["cells"]] for key in ("models", "stages") for entry in manifest[key]]


def _criterion(plan: Plan) -> dict[str, Any]:
    """The criterion's entry in the manifest; the reject class of each model is with its facts."""
    if plan.targeting is not None:
        return plan.targeting.describe()
    if plan.threshold is not None:
        return plan.threshold.describe()
    return MISCLASSIFIED.describe() if plan.request.reject_class is None else {"name": NotRejected.name}


def _surrogate_facts(source: ModelSource) -> dict[str, Any]:
    return {"name": source.name, "spec": source.spec, **source.facts}


def plan_facts(plan: Plan) -> dict[str, Any]:
    """Entries of the manifest that follow from the plan."""
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
    surrogates = (*plan.surrogates, *plan.brought)
    return {
        "seed": plan.request.seed,
        "data": provenance.data_facts(plan.request.data, plan.dataset, plan.data_digest, len(plan.ids), plan.selection.method),
        "models": [
            {"name": model.name, "spec": model.spec, **model.facts, "cells": {CLEAN: clean_cell(plan, model)}}
            for model in plan.models
        ],
        **({"surrogates": [_surrogate_facts(source) for source in surrogates]} if surrogates else {}),
        "criterion": _criterion(plan),
        "distance": plan.distance.name,
        "eps": list(plan.budgets.values),
        "eps_text": list(plan.budgets.texts),
        "recommended": plan.recommended,
        "stages": stages,
        "skipped": [
            {"model": model.name, "stage": name, "reason": reason}
            for model in plan.models
            for name, reason in model.skipped.items()
        ],
        "warnings": provenance.loading_warnings(plan.dataset),
    }
