"""`brinell benchmark`: the adversarial benchmark set of a model."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.options import Json, percent, show, show_json
from brinell.core.errors import RequestError, StoppedError


def benchmark(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE.toml]", help="Settings, such as the benchmark.toml of a set.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR.")] = None,
    model: Annotated[str | None, typer.Option(help="Model: digits-cnn, torch:FILE.py:FACTORY?weights=FILE.")] = None,
    distortions: Annotated[
        str | None, typer.Option(help="What may be placed: names joined by +, file.py:Class. Default: gaussian-noise.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Who places it: default, greedy, random, or a file of train-agent.")] = None,
    patch: Annotated[
        str | None,
        typer.Option(help="Side of a patch in values, or one for each axis (4x16x16). Default: 8 to 64 patches an axis."),
    ] = None,
    stride: Annotated[str | None, typer.Option(help="From one patch to the next. Default: the side of a patch.")] = None,
    eps: Annotated[str | None, typer.Option(help="The largest L2 distance of a flip. Default: no cap.")] = None,
    steps: Annotated[int | None, typer.Option(help="Queries until a sample is given up. Default: 1000.")] = None,
    refine: Annotated[
        int | None, typer.Option(help="Queries after the first flip that look for a nearer one. Default: 200.")
    ] = None,
    levels: Annotated[str | None, typer.Option(help="Multiples of the L2 at the flip. Default: 1,2,4,6,8,10.")] = None,
    true_below: Annotated[float | None, typer.Option(help="Goal: the true class falls below this probability.")] = None,
    wrong_class: Annotated[str | None, typer.Option(help="Goal: this class, by name or number, is seen where it is not.")] = None,
    wrong_above: Annotated[float | None, typer.Option(help="Goal: with more than this probability.")] = None,
    samples: Annotated[int | None, typer.Option(help="Samples, from the first. Default: 1000, or all where fewer.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random number. Default: 0.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="The most inputs shown to the model at once. Default: 128.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or auto (default): a GPU where there is one.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence that the data card names. Default: unknown.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the set. Default: a fresh one under runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the set in --out.")] = False,
    json: Json = False,
) -> int:
    """Distort what the model gets right until it errs, at graded severities, and store it as a data set.

    The folder loads with the datasets library; --data bench:FOLDER scores other models on it.
    """
    from brinell.engine import toml
    from brinell.studies.benchmark.plan import make_plan
    from brinell.studies.benchmark.records import LAYOUT
    from brinell.studies.benchmark.request import BenchmarkRequest

    flags = {name: value for name, value in locals().items() if name in BenchmarkRequest.model_fields and value is not None}
    if resume and out is None:
        raise RequestError("--resume needs --out: the folder of the set to go on with")
    if resume and file is None and out is not None:
        if (out / LAYOUT.request).exists():
            file = out / LAYOUT.request
        elif not flags:
            raise RequestError(f"there is no benchmark set in {out} to go on with: leave out --resume to begin one")
    request = toml.checked(BenchmarkRequest, (toml.load(file) if file else {}) | flags)
    return _make(make_plan(request), out, resume=resume, as_json=json)


def _make(plan: Any, out: Path | None, *, resume: bool, as_json: bool) -> int:
    from brinell.analysis.results import BenchmarkResult
    from brinell.api import default_out
    from brinell.cli.options import say
    from brinell.cli.progress import LiveProgress
    from brinell.cli.verb import command_of
    from brinell.studies.benchmark.cards import figures
    from brinell.studies.benchmark.run import make

    folder = out or default_out(plan.request.data, "benchmark")
    going_on = f"brinell benchmark --resume --out {shlex.quote(str(folder))}"
    for sample, why in plan.unreadable.items():
        say(f"warning: sample {sample} is left out: {why}")
    if plan.request.samples is None and len(plan.ids) < len(plan.dataset):
        say(f"the first {len(plan.ids)} of {len(plan.dataset)} samples; --samples asks for more")
    try:
        with LiveProgress() as progress:
            made = make(plan, folder, progress, command=command_of(plan.request, "benchmark"), resume=resume)
    except KeyboardInterrupt:
        say(f"interrupted; what was computed is kept: go on with {going_on}")
        return 130
    except StoppedError as error:
        say(f"error: {error} ({going_on})")
        return error.exit_code
    answer = BenchmarkResult(folder=str(folder), **figures(made, made.manifest))
    if as_json:
        show_json(answer.model_dump(mode="json"))
    else:
        _show(answer)
    return 0


def _show(answer: Any) -> None:
    outcomes = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in answer.outcomes.items() if count)
    show(f"{answer.samples} samples: {outcomes}; {answer.queries:,} queries")
    if answer.median_l2 is not None:
        show(
            f"  flips, medians: L2 {answer.median_l2:.3g}, {answer.median_patches:g} patches, "
            f"{answer.median_queries_to_goal:g} queries, {answer.median_queries_to_flip:g} with clean-up"
        )
        show(f"  {'level':>5}   inputs   accuracy   in 8 bits   not reachable")
    for one in answer.levels if answer.median_l2 is not None else ():
        stored = percent(one.accuracy_stored)
        show(f"  {one.level:>5g}   {one.inputs:>6}   {percent(one.accuracy):>8}   {stored:>9}   {one.unreached:>13}")
    show(f"benchmark set: {answer.folder}")
