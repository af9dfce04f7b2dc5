"""`brinell audit`: robust accuracy per class over all budgets, with records and a report."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.dry_run import CALIBRATION
from brinell.cli.dry_run import dry_run as show_plan
from brinell.cli.options import ShardText, flags_of, percent, say_how_many, show
from brinell.cli.verb import Asked, verb
from brinell.core.errors import RequestError, option
from brinell.engine.request import Request


@verb(Request, kept="run.toml", resume="Go on with the run in --out.")
def audit(
    asked: Asked,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show the plan, its passes and, from a short calibration, its time and memory, with --shard 1/N divided "
            "among N processes; keep nothing.",
        ),
    ] = False,
    calibrate: Annotated[
        float | None,
        typer.Option(min=0, help=f"Seconds that the calibration of --dry-run may take; 0 makes none. Default: {CALIBRATION:g}."),
    ] = None,
    shard: ShardText = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.prom", help="Keep the progress of this process in a file that Prometheus' node exporter reads."
        ),
    ] = None,
) -> int:
    """Attack the model and write records, tables and a report.

    Without options: real handwritten digits and a small network, trained on first use; nothing is downloaded.
    """
    from brinell.api import carry_out, plan_audit
    from brinell.runners.meeting import Shard
    from brinell.runners.metrics import Metrics

    plan = plan_audit(asked.request(Request))
    if dry_run:
        workers = None if shard is None else Shard.parse(shard).of
        return show_plan(plan, asked, CALIBRATION if calibrate is None else calibrate, workers)
    if calibrate is not None:
        raise RequestError(
            f"{option('calibrate')} is for {option('dry_run')}, which tells what a run costs: add it, or leave "
            f"{option('calibrate')} out"
        )
    part = Shard.asked(shard, asked.out)
    say_how_many(plan)
    with ExitStack() as ending:

        def watch(progress: Any) -> Any:
            if metrics is None:
                return progress
            told = Metrics(metrics, progress)
            ending.callback(told.end)
            return told

        result = asked.carry_out(partial(carry_out, shard=part), plan, plan.request.norm, *flags_of(shard), watch=watch)
    return asked.answer(result.shown, lambda: _show_result(result, plan.called))


def _show_result(result: Any, attacks: str) -> None:
    for model in result.models:
        aimed = "" if model.criterion == "misclassified" else f", {model.criterion}"
        show(f"{model.model}: {model.n} samples, {model.distance}{aimed}, {attacks}")
        show(f"  {'eps':>9}   accuracy   95 % interval   robust    weakest class")
        names = {one.class_: one.name for one in model.per_class}
        if model.eps[0] > 0:
            clean = model.clean_accuracy
            interval = f"{percent(clean.low)} to {percent(clean.high)}"
            show(f"  {'clean':>9}   {percent(clean.value):>8}   {interval:<18}{clean.k:>4} of {clean.n}")
        for at, (text, rate) in enumerate(zip(model.eps_text, model.robust_accuracy, strict=True)):
            classes = {one.class_: one.robust[at].value for one in model.per_class if one.robust[at].value is not None}
            worst = min(classes, key=lambda one: classes[one] or 0.0, default=None)
            weakest = "" if worst is None else f"{percent(classes[worst])} {names[worst]}"
            interval = f"{percent(rate.low)} to {percent(rate.high)}"
            show(f"  {text:>9}   {percent(rate.value):>8}   {interval:<18}{rate.k:>4} of {rate.n}   {weakest}")
        show(f"  {model.verdict}")
        passed = [check.passed for check in model.checks]
        show(f"  checks: {passed.count(True)} passed, {passed.count(False)} failed, {passed.count(None)} not made")
        titles = {stage.attack: stage.title for stage in model.stages}
        for remark in model.remarks:
            show(f"  note: {titles.get(remark.attack, remark.attack)}: {remark.text}")
        if model.classes_without_samples:
            show(f"  warning: {model.classes_without_samples} classes of the data have no sample: nothing is known about them")
        for warning in model.warnings:
            show(f"  warning: {warning.text}")
    show(f"report: {result.run.rstrip('/')}/report.html")
