"""Audits in their folders, by themselves and as parts of other studies."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from brinell.engine import provenance
from brinell.engine.audit import AuditWorker, audit_pieces, plan_facts
from brinell.engine.executor import Channel, Pool
from brinell.engine.model_audit import ModelAudit
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress
from brinell.engine.time_limit import TimeLimit
from brinell.store.run import ACCUMULATED, LAYOUT, Run
from brinell.studies.job import Job, open_folder
from brinell.studies.pieces import Driver, ServedDriver


def run_audit(
    plan: Plan,
    out: Path,
    progress: Progress,
    *,
    command: str,
    resume: bool = False,
    pool: Pool | Channel | None = None,
    audit: Callable[..., ModelAudit] = ModelAudit,
    limit: TimeLimit | None = None,
) -> Run:
    """Carry out a plan in the folder `out`, which with `resume` may hold part of the work.

    `command` is the line that repeats the run, for the manifest; `pool` the workers that attack
    groups, or the channel that this process serves as one of them; `audit` makes the audit of a
    model; at the `limit` it stops in order, and can be resumed.
    """
    if isinstance(pool, Channel):
        ServedDriver(out, pool).serve(AuditWorker(plan).piece)
    facts = plan_facts(plan)

    job = Job(LAYOUT, out, plan.request, cell=facts["cell"], command=command)
    with open_folder(job, resume=resume) as is_complete:
        manifest = (
            LAYOUT.head
            | provenance.start_record(plan.request, command)
            | json.loads(json.dumps(facts))
            | provenance.machine_facts(plan.device)
            | {key: {} for key in ACCUMULATED}
        )
        notes = () if is_complete else (*manifest["data"]["notes"], *plan.notes)
        for note in notes:
            progress.note(str(note))

        if not is_complete:
            spread = 1 if pool is None else pool.spread
            make_audit = partial(
                audit, run=Run(out, manifest), progress=progress, spread=spread, limit=limit
            )
            driver = Driver(out, pool, limit)
            driver.carry_out(audit_pieces(plan, manifest, make_audit))
            LAYOUT.save(out, manifest | {"finished": provenance.timestamp()})
    return Run.open(out, thresholds=True)
