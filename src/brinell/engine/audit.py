"""Carries out the plan of an audit in a run folder, model after model; `model_audit` does the work
on each.
"""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brinell.core.criterion import MISCLASSIFIED, NotRejected
from brinell.engine import provenance
from brinell.engine.cells import plan_hash
from brinell.engine.executor import Channel, Pool
from brinell.engine.group_worker import AuditWorker, open_models
from brinell.engine.job import Job, make_folder
from brinell.engine.model_audit import ModelAudit
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress
from brinell.store.run import ACCUMULATED, LAYOUT, Run, stored_facts


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
    """Carry out a plan in the folder `out`, which with `resume` may hold part of the work.

    `command` is the line that repeats the run, for the manifest; `pool` the workers that attack
    groups, or the channel that this process serves as one of them; `audit` makes the audit of a
    model.
    """
    if isinstance(pool, Channel):
        pool.serve(AuditWorker(plan).answer)
    facts = plan_facts(plan)

    def work() -> None:
        manifest = (
            LAYOUT.head
            | provenance.start_record(plan.request, command)
            | json.loads(json.dumps(facts))
        )
        manifest |= (
            provenance.machine_facts(plan.device)
            | {key: {} for key in ACCUMULATED}
            | stored_facts(out)
        )
        folder = Run(out, manifest)
        for note in (*manifest["data"]["notes"], *plan.notes):
            progress.note(str(note))
        for source in plan.models:
            start, answers = time.perf_counter(), dict(manifest["answers"])
            with ExitStack() as sessions:
                model, surrogates = open_models(plan, source, manifest, sessions)
                if manifest["answers"] != answers:
                    folder.save_facts()
                failures = audit(plan, source, model, folder, progress, surrogates, pool)()
            manifest["warnings"] += [
                {"code": code, "model": source.name, "text": text}
                for code, text in failures.items()
            ]
            manifest["seconds"][source.name] = (
                manifest["seconds"].get(source.name, 0.0) + time.perf_counter() - start
            )
            folder.save_facts()
        LAYOUT.save(out, manifest | {"finished": provenance.timestamp()})

    job = Job(
        LAYOUT,
        out,
        plan.request,
        cell=facts["cell"],
        command=command,
    )
    make_folder(job, work, resume=resume)
    return Run.open(out, thresholds=True)


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
        }
        for stage in plan.stages
    ]
    criterion = (plan.targeting or plan.threshold or MISCLASSIFIED).describe()
    if plan.request.reject_class is not None:
        criterion = {"name": NotRejected.name}  # the class is with the facts of each model
    surrogates = [
        {"name": entry.name, "spec": entry.spec, **entry.facts}
        for entry in (*plan.surrogates, *plan.brought)
    ]
    return {
        "cell": plan_hash(plan),
        "seed": plan.request.seed,
        "data": provenance.data_facts(
            plan.request.data, plan.dataset, plan.data_digest, len(plan.ids), plan.selection.method
        ),
        "models": [
            {"name": model.name, "spec": model.spec, **model.facts} for model in plan.models
        ],
        **({"surrogates": surrogates} if surrogates else {}),
        "criterion": criterion,
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
        "warnings": [
            {"code": remark.code, "model": None, "text": remark.text}
            for remark in plan.dataset.info.remarks
        ],
    }
