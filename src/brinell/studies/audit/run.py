"""An audit carried out: in one process or in shards, with its page."""

from contextlib import ExitStack
from pathlib import Path

from brinell.analysis.results import AuditResult
from brinell.analysis.robust_accuracy import summarise
from brinell.core.errors import RequestError, option
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress
from brinell.pages import html
from brinell.runners import local, shards
from brinell.runners.progress import LiveProgress, MetricsFile
from brinell.runners.shard_worker import Shard, choose_shard
from brinell.store.run import Run
from brinell.studies.audit import dry_run, result
from brinell.studies.audit.plan import plan_audit
from brinell.studies.audit.request import CALIBRATION
from brinell.studies.kit import Call


def carry_out(call: Call) -> result.Audit | dry_run.PlanResult:
    """Run the audit of a call; with `dry_run`, estimate its cost instead.

    Raises:
        RequestError: the request cannot be carried out.
        StoppedError: the folder cannot be written, or the model no longer answers.
    """
    plan, options = plan_audit(call.request, dataset=call.dataset(), models=call.models()), call.options
    if options.dry_run:
        workers = None if call.shard is None else call.shard.total
        seconds = CALIBRATION if options.calibrate is None else options.calibrate
        return dry_run.estimate_plan(plan, call.progress, seconds, workers)
    if options.calibrate is not None:
        raise RequestError(
            f"{option('calibrate')} is for {option('dry_run')}, which tells what a run costs: add it, or leave "
            f"{option('calibrate')} out"
        )
    if call.shard is not None and call.out is None:
        raise RequestError(f"{option('shard')} needs {option('out')}: the folder or address where the processes meet")
    call.say_samples(plan)
    folder = call.folder(plan.request.data, plan.request.norm)
    with ExitStack() as ending:
        progress = call.progress
        if options.metrics is not None:
            live = progress if isinstance(progress, LiveProgress) else LiveProgress(quiet=True)
            metrics = MetricsFile(Path(options.metrics), live)
            ending.callback(metrics.end)
            progress = metrics
        run = carry_out_plan(plan, folder, progress, command=call.command, resume=call.resume, shard=call.shard)
    return result.of(run)


def carry_out_plan(
    plan: Plan, folder: Path, progress: Progress, *, command: str, resume: bool, shard: Shard | None = None
) -> AuditResult:
    """Run an audit that is planned, and write its report.

    Args:
        plan: what to do.
        folder: the run folder; with `shard` also the address of a store.
        progress: told what goes on.
        command: what the manifest says of how to repeat it.
        resume: whether to go on with a folder that exists.
        shard: where this process begins among those that work on the same run; none works alone.
    """
    for note in [note for source in plan.models for note in source.facts["notes"]]:
        progress.note(note)
    if (shard := choose_shard(folder, shard, resume=resume)) is not None:
        return shards.run(plan, folder, shard, progress, command=command, page=html.write, answer=_summary)
    run = local.run(plan, folder, progress, command=command, resume=resume)
    return html.write_pages(Run.open(run.path))


def open_result(folder: Path) -> result.Audit:
    """The result of a run folder, computed from its records."""
    return result.of(_summary(Run.open(folder), str(folder)))


def _summary(run: Run, name: str) -> AuditResult:
    """Result of a run from its records."""
    return summarise(run.manifest, run.records_in_place(), name)
