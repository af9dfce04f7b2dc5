"""An audit carried out, with its page."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.errors import RequestError, option
from brinell.core.record import has_broken
from brinell.engine.executor import Channel
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress
from brinell.engine.time_limit import TimeLimit
from brinell.store.run import LAYOUT, TABLE, Run
from brinell.store.run_manifest import stages_of
from brinell.store.table import Violation
from brinell.studies.audit import dry_run, inner, waves
from brinell.studies.audit.result import Audit, summarise
from brinell.studies.audits import plan_audit, run_audit
from brinell.studies.differences import FolderComparison, Repetition
from brinell.studies.kit import Call


def carry_out(call: Call) -> Audit | dry_run.PlanResult:
    """Run the audit of a call; with `dry_run`, say what it costs at most instead."""
    plan = plan_audit(call.request, dataset=call.dataset(), models=call.models())
    if call.request.until is not None:
        # Before anything is computed.
        waves.parse_until(call.request.until).check_samples(len(plan.ids))
    if call.options.dry_run:
        return dry_run.estimate_plan(plan)
    inner.check(call, plan)

    call.say_samples(plan)
    folder = call.folder(plan.request.data, plan.request.norm)
    note_models(plan, call.progress)
    pool, limit = call.pool(), TimeLimit(call.options.minutes)
    audit = partial(run_audit, out=folder, command=call.command, pool=pool, limit=limit)
    if plan.waves is None or isinstance(pool, Channel):
        run = audit(plan, progress=call.progress, resume=call.resume)
    else:
        run = waves.run_waves(plan, audit, call.progress, resume=call.resume)

    inner.fill(call, plan, folder)
    result = summarise(run)
    result.write()
    return result


def note_models(plan: Plan, progress: Progress) -> None:
    """Say what the models of a plan say of themselves."""
    for source in plan.models:
        for note in source.facts["notes"]:
            progress.note(note)


def repetition(call: Call, folder: Path, comparison: FolderComparison) -> Repetition:
    """The audit of a folder, which is carried out again on drawn samples."""
    from brinell.studies.audit.repetition import RepeatedRun  # only verification needs it

    run = Run(path=folder, manifest=LAYOUT.read(folder), rows=TABLE.read_rows(folder))
    stated = [model.name for model in call.models()]
    if run.manifest.get("left"):
        raise RequestError(
            f"{folder} was stopped before its stages were done, so that it cannot be repeated",
            remedy=f"go on with brinell audit {option('resume')} {option('out', str(folder))}",
        )
    names = [entry["name"] for entry in run.manifest["models"]]
    if stated and stated != names:
        raise RequestError(
            f"{folder} contains {', '.join(names)}, but the call gives {', '.join(stated)}: "
            "pass the models of the run"
        )
    plan = plan_audit(call.request, dataset=call.dataset(), models=call.models())
    if plan.waves is not None:
        plan = plan.first_waves(run.manifest["waves"])
    return RepeatedRun(run, plan, comparison)


def faults(folder: Path, manifest: Mapping[str, Any]) -> Iterator[Violation]:
    """Rules that the rows of a folder break, and inputs that no row speaks of or that
    are missing.
    """
    run = Run(path=folder, manifest=manifest, rows=TABLE.read_rows(folder))
    yield from TABLE.rules(manifest, run.rows)
    for model, stage in stages_of(manifest):
        rows = run.of_stage(model, stage)
        if odd := set(rows.sample_id[has_broken(rows)].tolist()) ^ run.stored(model, stage):
            description = "an input is stored, and no row says so, or the other way round"
            yield Violation(f"{model} {stage}", description, np.array(sorted(odd)))
