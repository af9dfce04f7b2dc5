"""Audits in their folders, by themselves and as parts of other studies."""

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
from brinell.store.run import LAYOUT, TABLE, Run
from brinell.studies.job import Job, filled
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
    for note in (*facts["data"]["notes"], *plan.notes):
        progress.note(str(note))

    job = Job(LAYOUT, out, plan.request, cell=facts["cell"], command=command)
    spread = 1 if pool is None else pool.spread
    make_audit = partial(audit, folder=out, progress=progress, spread=spread, limit=limit)
    pieces, driver = audit_pieces(plan, make_audit), Driver(out, pool, limit)
    about = facts | provenance.machine_facts(plan.device)
    with filled(job, TABLE, driver, pieces, about, resume=resume) as content:
        return Run(**vars(content))
