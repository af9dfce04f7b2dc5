"""An audit carried out, with its page."""

from pathlib import Path

from brinell.analysis.proofs import with_proofs
from brinell.analysis.robust_accuracy import summarise
from brinell.engine.audit import run_audit
from brinell.engine.executor import Channel, Pool
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress
from brinell.store.run import LAYOUT as LAYOUT
from brinell.store.run import Run
from brinell.studies.audit import detection, dry_run
from brinell.studies.audit.plan import plan_audit
from brinell.studies.audit.result import Audit
from brinell.studies.kit import Call


def carry_out(call: Call) -> Audit | dry_run.PlanResult:
    """Run the audit of a call; with `dry_run`, say what it costs at most instead."""
    plan, options = (
        plan_audit(call.request, dataset=call.dataset(), models=call.models()),
        call.options,
    )
    if options.dry_run:
        return dry_run.estimate_plan(plan)
    if options.certify:
        from brinell.studies.audit import certification  # it brings another study

        certification.check(call, plan)
    if options.detector:
        detection.check(call, plan)
    call.say_samples(plan)
    folder = call.folder(plan.request.data, plan.request.norm)
    audit = carry_out_plan(
        plan, folder, call.progress, command=call.command, resume=call.resume, pool=call.pool()
    )
    if options.certify:
        certification.certify(call, plan, folder)
    if options.detector:
        detection.measure(call, plan, folder)
    if options.certify or options.detector:
        audit = open_result(folder)
        audit.write()
    return audit


def carry_out_plan(
    plan: Plan,
    folder: Path,
    progress: Progress,
    *,
    command: str,
    resume: bool,
    pool: Pool | Channel | None = None,
) -> Audit:
    """Run an audit that is planned, and write its report; arguments as for
    `engine.audit.run_audit`.
    """
    for note in [note for source in plan.models for note in source.facts["notes"]]:
        progress.note(note)
    run = run_audit(plan, folder, progress, command=command, resume=resume, pool=pool)
    audit = open_result(run.path)
    audit.write()
    return audit


def write_page(folder: Path) -> Path:
    """Write tables and page of a run from its records."""
    return open_result(folder).write()


def open_result(folder: Path) -> Audit:
    """The result of a run folder, computed from its records."""
    run = Run.open(folder, thresholds=True)
    figures = summarise(run.manifest, run.records(), str(folder))
    if len(figures.models) == 1:
        figures = figures.model_copy(update={"models": [with_proofs(figures.models[0], folder)]})
    return Audit.of(detection.with_detectors(figures, folder))
