"""`brinell audit`: robust accuracy per class over all budgets, with records and a report."""

from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.options import percent, say_how_many, show
from brinell.cli.verb import Asked, verb
from brinell.engine.request import Request


@verb(Request, kept="run.toml", resume="Go on with the run in --out.")
def audit(
    asked: Asked,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and its highest cost; compute nothing.")] = False,
) -> int:
    """Attack the model and write records, tables and a report.

    Without options: real handwritten digits and a small network, trained on first use; nothing is downloaded.
    """
    from brinell.api import carry_out, plan_audit

    plan = plan_audit(asked.request(Request))
    if dry_run:
        return _show_plan(plan, asked)
    say_how_many(plan)
    result = asked.carry_out(carry_out, plan, plan.request.norm)
    return asked.answer(result.shown, lambda: _show_result(result, plan.called))


def _show_result(result: Any, attacks: str) -> None:
    for model in result.models:
        aimed = "" if model.criterion == "misclassified" else f", {model.criterion}"
        show(f"{model.model}: {model.n} samples, {model.distance}{aimed}, {attacks}")
        show(f"  {'eps':>9}   accuracy   95 % interval   robust    weakest class")
        names = {one.class_: one.name for one in model.per_class}
        for at, (text, rate) in enumerate(zip(model.eps_text, model.robust_accuracy, strict=True)):
            classes = {one.class_: one.robust[at].value for one in model.per_class if one.robust[at].value is not None}
            worst = min(classes, key=lambda one: classes[one] or 0.0, default=None)
            weakest = "" if worst is None else f"{percent(classes[worst])} {names[worst]}"
            interval = f"{percent(rate.low)} to {percent(rate.high)}"
            show(f"  {text:>9}   {percent(rate.value):>8}   {interval:<18}{rate.k:>4} of {rate.n}   {weakest}")
        show(f"  {model.verdict}")
        passed = [check.passed for check in model.checks]
        show(f"  checks: {passed.count(True)} passed, {passed.count(False)} failed, {passed.count(None)} not made")
        for remark in model.remarks:
            show(f"  note: {remark.attack}: {remark.text}")
        for warning in model.warnings:
            show(f"  warning: {warning.text}")
    show(f"report: {Path(result.run) / 'report.html'}")


def _show_plan(plan: Any, asked: Asked) -> int:
    from brinell.cli.schemas import PlanAnswer, PlannedCell

    pairs = [(model, stage, plan.cost(model, stage)) for model in plan.models for stage in plan.stages]
    answer = PlanAnswer(
        data=plan.dataset.name,
        n=len(plan.ids),
        total=len(plan.dataset),
        norm=plan.distance.name,
        eps=plan.budgets.texts,
        group_size=plan.group_size,
        cells=tuple(
            PlannedCell(
                model=model.name,
                stage=stage.name,
                title=stage.title,
                forwards_at_most=forwards,
                backwards_at_most=backwards,
                skipped=model.skipped.get(stage.name),
            )
            for model, stage, (forwards, backwards) in pairs
        ),
    )
    return asked.answer(answer, lambda: _show_cells(answer))


def _show_cells(answer: Any) -> None:
    show(f"{answer.data}: {answer.n} of {answer.total} samples, {answer.norm}, eps {', '.join(answer.eps)}")
    for cell in answer.cells:
        cost = f"at most {cell.forwards_at_most:,} forwards and {cell.backwards_at_most:,} backwards"
        show(f"  {cell.model}  {cell.title}  " + (f"skipped: {cell.skipped}" if cell.skipped else cost))
    show("nothing was computed; leave out --dry-run to run it")
