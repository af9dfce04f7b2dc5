"""`brinell audit`: robust accuracy per class over all budgets, with records and a report."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.options import Json, percent, show, show_json
from brinell.core.errors import RequestError, StoppedError


def audit(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE.toml]", help="Settings, such as the run.toml of a run.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR, bench:DIR.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model: digits-cnn, torch:FILE.py:FACTORY?weights=FILE. May repeat.")
    ] = None,
    norm: Annotated[str | None, typer.Option(help="Distance in which eps is measured: linf, l2, l1 or l0.")] = None,
    eps: Annotated[
        str | None, typer.Option(help="Budgets: 8/255, a list 1/255,2/255, or from:to:points as 0:8/255:9; recommended[:FOLDER].")
    ] = None,
    attack: Annotated[
        list[str] | None, typer.Option(help="Attack, in order: apgd-ce, pgd?steps=50&restarts=3. May repeat.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples, from the first. Default: 1000, or all where fewer.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random number. Default: 0.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="The most inputs shown to the model at once. Default: 128.")] = None,
    queries: Annotated[int | None, typer.Option(help="Forwards that an attack may spend on a sample at each eps.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Of the gradients: float32 (default) or bf16; verdicts are float32.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or auto (default): a GPU where there is one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: a fresh one under runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and what it costs at most; compute nothing.")] = False,
    json: Json = False,
) -> int:
    """Attack the model and write records, tables and a report.

    Without options: real handwritten digits and a small network, trained on first use; nothing is downloaded.
    """
    from brinell.engine import toml
    from brinell.engine.plan import make_plan

    flags = {
        "data": data,
        "model": tuple(model) if model else None,
        "norm": norm,
        "eps": eps,
        "attack": tuple(attack) if attack else None,
        "samples": samples,
        "seed": seed,
        "batch_size": batch_size,
        "queries": queries,
        "precision": precision,
        "device": device,
    }
    given = {key: value for key, value in flags.items() if value is not None}
    if resume and out is None:
        raise RequestError("--resume needs --out: the folder of the run to go on with")
    if resume and file is None and out is not None:
        if (out / "run.toml").exists():
            file = out / "run.toml"
        elif not given:
            raise RequestError(f"there is no run in {out} to go on with: it has no run.toml; leave out --resume to begin one")
    request = toml.make_request((toml.load(file) if file else {}) | given)
    plan = make_plan(request)
    if dry_run:
        return _show_plan(plan, as_json=json)
    return _run(plan, out, resume=resume, as_json=json)


def command_of(request: Any, verb: str = "audit") -> str:
    """The command line that repeats a request."""
    defaults = type(request)()
    words = ["brinell", verb]
    for key in type(request).model_fields:
        value = getattr(request, key)
        if value == getattr(defaults, key):
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [f"--{key.replace('_', '-')}", str(one)]
    return shlex.join(words)


def _run(plan: Any, out: Path | None, *, resume: bool, as_json: bool) -> int:
    from brinell.analysis.robust_accuracy import summarise
    from brinell.api import default_out
    from brinell.cli import say
    from brinell.cli.progress import LiveProgress
    from brinell.report import html
    from brinell.runners import local

    folder = out or default_out(plan.request.data, plan.request.norm)
    going_on = f"brinell audit --resume --out {shlex.quote(str(folder))}"
    if plan.request.samples is None and len(plan.ids) < len(plan.dataset):
        say(f"the first {len(plan.ids)} of {len(plan.dataset)} samples; --samples asks for more")
    try:
        with LiveProgress() as progress:
            run = local.run(plan, folder, progress, command=command_of(plan.request), resume=resume)
    except KeyboardInterrupt:
        say(f"interrupted; what was computed is kept: go on with {going_on}")
        return 130
    except StoppedError as error:
        say(f"error: {error} ({going_on})")
        return error.exit_code
    report = html.write(run.path)
    result = summarise(run.manifest, run.records(), str(run.path))
    if as_json:
        show_json(result.payload())
    else:
        _show_result(result, report)
    return 0


def _show_result(result: Any, report: Path) -> None:
    for model in result.models:
        show(f"{model.model}: {model.n} samples, {model.distance}, worst case over {', '.join(s.attack for s in model.stages)}")
        show(f"  {'eps':>9}   accuracy   95 % interval     held    weakest class")
        names = {one.class_: one.name for one in model.per_class}
        for at, (text, rate) in enumerate(zip(model.eps_text, model.robust_accuracy, strict=True)):
            classes = {one.class_: one.robust[at].value for one in model.per_class if one.robust[at].value is not None}
            worst = min(classes, key=lambda one: classes[one] or 0.0, default=None)
            weakest = "" if worst is None else f"{percent(classes[worst])} {names[worst]}"
            interval = f"{percent(rate.low)} to {percent(rate.high)}"
            show(f"  {text:>9}   {percent(rate.value):>8}   {interval:<18}{rate.k:>4} of {rate.n}   {weakest}")
        if model.caveat:
            show(f"  robust accuracy is {model.caveat}")
        passed = [check.passed for check in model.checks]
        show(f"  checks: {passed.count(True)} passed, {passed.count(False)} failed, {passed.count(None)} not made")
        for remark in model.remarks:
            show(f"  note: {remark.attack}: {remark.text}")
        for warning in model.warnings:
            show(f"  warning: {warning.text}")
    show(f"report: {report}")


def _show_plan(plan: Any, *, as_json: bool) -> int:
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
                forwards_at_most=forwards,
                backwards_at_most=backwards,
                skipped=model.skipped.get(stage.name),
            )
            for model, stage, (forwards, backwards) in pairs
        ),
    )
    if as_json:
        show_json(answer.model_dump(mode="json"))
        return 0
    show(f"{answer.data}: {answer.n} of {answer.total} samples, {answer.norm}, eps {', '.join(answer.eps)}")
    for cell in answer.cells:
        cost = f"at most {cell.forwards_at_most:,} forwards and {cell.backwards_at_most:,} backwards"
        show(f"  {cell.model}  {cell.stage}  " + (f"skipped: {cell.skipped}" if cell.skipped else cost))
    show("nothing was computed; leave out --dry-run to run it")
    return 0
