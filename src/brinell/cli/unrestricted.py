"""`brinell unrestricted`: examples made from scratch, on which a model errs."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.options import Json, percent, show, show_json
from brinell.core.errors import RequestError, StoppedError


def unrestricted(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE.toml]", help="Settings, such as the unrestricted.toml of a run.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Training data, to which distances are measured. Default: digits.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model under attack: digits-cnn, torch:FILE.py:FACTORY?weights=FILE. May repeat.")
    ] = None,
    judge: Annotated[
        list[str] | None, typer.Option(help="Further model that says which class it sees; never attacked. May repeat.")
    ] = None,
    generator: Annotated[str | None, typer.Option(help="File of brinell train-generator.")] = None,
    per_class: Annotated[int | None, typer.Option(help="Attempts for each intended class. Default: 20.")] = None,
    noise: Annotated[
        float | None,
        typer.Option(help="Largest change of a value in the variant with small noise. Default: 0.1; 0: no such variant."),
    ] = None,
    towards: Annotated[
        str | None, typer.Option(help="Class, by name or number, that the models are to see. Default: any wrong.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Gradient steps of a search at most. Default: 200.")] = None,
    rate: Annotated[float | None, typer.Option(help="Size of a step in the latent. Default: 0.05.")] = None,
    radius: Annotated[float | None, typer.Option(help="How far each value of the latent may go freely. Default: 0.1.")] = None,
    hold: Annotated[float | None, typer.Option(help="Weight of the loss that holds it there. Default: 1.")] = None,
    keep: Annotated[float | None, typer.Option(help="Weight of the auxiliary classifier's loss. Default: 1.")] = None,
    sure: Annotated[float | None, typer.Option(help="Probability that it must give the intended class. Default: 0.9.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random number. Default: 0.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="The most inputs shown to a model at once. Default: 128.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or auto (default): a GPU where there is one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: a fresh one under runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    json: Json = False,
) -> int:
    """Search a generator's latent space for inputs of an intended class on which the models err; no norm ball holds them.

    The records say who still sees the intended class, and how far each input is from the training data.
    """
    from brinell.engine import toml
    from brinell.studies.unrestricted.records import LAYOUT
    from brinell.studies.unrestricted.request import UnrestrictedRequest
    from brinell.studies.unrestricted.run import make_plan

    flags = {name: value for name, value in locals().items() if name in UnrestrictedRequest.model_fields and value is not None}
    flags |= {name: tuple(flags[name]) for name in ("model", "judge") if flags.get(name)}
    if resume and out is None:
        raise RequestError("--resume needs --out: the folder of the run to go on with")
    if resume and file is None and out is not None:
        if (out / LAYOUT.request).exists():
            file = out / LAYOUT.request
        elif not flags:
            raise RequestError(
                f"there is no run in {out} to go on with: it has no {LAYOUT.request}; leave out --resume to begin one"
            )
    request = toml.checked(UnrestrictedRequest, (toml.load(file) if file else {}) | flags)
    return _make(make_plan(request), out, resume=resume, as_json=json)


def _make(plan: Any, out: Path | None, *, resume: bool, as_json: bool) -> int:
    from brinell.api import default_out
    from brinell.cli.options import say
    from brinell.cli.progress import LiveProgress
    from brinell.cli.verb import command_of
    from brinell.studies.unrestricted import page as page
    from brinell.studies.unrestricted.analysis import summarise
    from brinell.studies.unrestricted.run import make

    folder = out or default_out(plan.request.data, "unrestricted")
    going_on = f"brinell unrestricted --resume --out {shlex.quote(str(folder))}"
    try:
        with LiveProgress() as progress:
            run = make(plan, folder, progress, command=command_of(plan.request, "unrestricted"), resume=resume)
    except KeyboardInterrupt:
        say(f"interrupted; what was computed is kept: go on with {going_on}")
        return 130
    except StoppedError as error:
        say(f"error: {error} ({going_on})")
        return error.exit_code
    report = page.write(run.path)
    result = summarise(run.manifest, run.rows(), str(folder))
    if as_json:
        show_json(result.model_dump(mode="json"))
    else:
        _show(result, report)
    return 0


def _show(result: Any, report: Path) -> None:
    show(f"{result.attempts} attempts; judges: {', '.join(result.judges) or 'none'}")
    for one in result.results:
        total = one.total
        show(f"{one.model}, {one.variant}{f' (noise {one.noise:g})' if one.noise else ''}")
        show(f"  clear plain samples     {percent(total.clear.value)} of {total.clear.n}")
        show(f"  accuracy on them        {percent(total.plain_accuracy.value)}   (generalisation)")
        show(f"  accuracy after search   {percent(total.searched_accuracy.value)}   (and adversarial)")
        show(f"  searches that succeed   {percent(total.success.value)}, a judge sees another class in {total.contested.k} more")
    for warning in result.warnings:
        show(f"note: {warning}")
    show(f"report: {report}")
