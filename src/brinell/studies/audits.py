"""Audits in their folders, by themselves and as parts of other studies."""

from collections.abc import Callable
from pathlib import Path

from brinell.core.contracts import Dataset
from brinell.core.model import Model
from brinell.engine import provenance
from brinell.engine.audit import AuditWorker, audit_pieces, plan_facts
from brinell.engine.executor import Channel, Pool
from brinell.engine.model_audit import ModelAudit
from brinell.engine.plan import Plan, make_plan
from brinell.engine.progress import Progress
from brinell.engine.request import Request
from brinell.engine.time_limit import TimeLimit
from brinell.store.run import LAYOUT, TABLE, Run
from brinell.studies.job import Job, filled
from brinell.studies.pieces import Driver, ServedDriver


def plan_audit(
    request: Request, *, dataset: Dataset | None = None, models: tuple[Model, ...] = ()
) -> Plan:
    """The plan of an audit, with budgets that are named and not given as numbers; arguments and
    errors are those of `engine.plan.make_plan`.
    """
    if not (request.eps or "").startswith("recommended"):
        return make_plan(request, dataset=dataset, models=models)
    from brinell.studies.epsilon.recommended import resolve  # it brings another study

    dataset, recommended = resolve(request, dataset)
    return make_plan(request, dataset=dataset, models=models, recommended=recommended)


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
    model of its state; at the `limit` it stops in order, and can be resumed.
    """
    # A worker makes the pieces that others ask for until its process ends.
    if isinstance(pool, Channel):
        ServedDriver(out, pool).serve(AuditWorker(plan).piece)
    facts = plan_facts(plan)
    for note in (*facts["data"]["notes"], *plan.notes):
        progress.note(str(note))

    # Without workers a stage is one group; else there are groups for all of them.
    spread = 1 if pool is None else pool.spread
    pieces = audit_pieces(plan, out, progress, spread=spread, limit=limit, audit=audit)
    job = Job(LAYOUT, out, plan.request, cell=facts["cell"], command=command)
    about = facts | provenance.machine_facts(plan.device)
    with filled(job, TABLE, Driver(out, pool, limit), pieces, about, resume=resume) as content:
        return Run(**vars(content))
