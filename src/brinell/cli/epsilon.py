"""`brinell epsilon`: which eps is sound for some data, and why."""

from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.options import Json, show, show_json
from brinell.core.errors import RequestError


def epsilon(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR.")
    ],
    train: Annotated[str | None, typer.Option(help="Training data: neighbours are looked for there, too.")] = None,
    norm: Annotated[
        list[str] | None,
        typer.Option(help="Norm to advise an eps for: linf, l2, l1, l0. May repeat. Default: those that are fast."),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples, from the first. Default: all.")] = None,
    pairs: Annotated[
        int | None, typer.Option(help="Samples of a class for means but L2 and for perceptibility, 0 for all. Default: 100.")
    ] = None,
    fraction: Annotated[
        float | None, typer.Option(help="eps is at most this fraction of the way to another class. Default: 0.5.")
    ] = None,
    allow: Annotated[
        float | None, typer.Option(help="Share of samples on which one eps may break a condition. Default: 0.01.")
    ] = None,
    conditions: Annotated[
        list[str] | None, typer.Option(help="Condition to keep: label, interpolation, perception. May repeat. Default: all.")
    ] = None,
    ssim: Annotated[float | None, typer.Option(help="Least SSIM that counts as unnoticed. Default: 0.9.")] = None,
    psnr: Annotated[float | None, typer.Option(help="Least PSNR in dB that counts as unnoticed. Default: 30.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model that is asked about the counter-examples: digits-cnn, torch:...")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random number. Default: 0.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder. Default: a fresh one under runs/.")] = None,
    review: Annotated[
        bool, typer.Option("--review", help="Have a person judge pairs of pictures in a browser on this machine instead.")
    ] = False,
    eps: Annotated[str | None, typer.Option(help="Review: sizes of the changes. Default: 0.01 to 0.32.")] = None,
    change: Annotated[
        str | None, typer.Option(help="Review: crafted (towards another class, the default), noise, or run:FOLDER of an audit.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Review: pairs. Default: 120.")] = None,
    reviewer: Annotated[str | None, typer.Option(help="Review: whose answers these are.")] = None,
    port: Annotated[int | None, typer.Option(help="Review: port on loopback. Default: a free one.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Review: go on with the one in --out.")] = False,
    json: Json = False,
) -> int:
    """Measure how far the samples of each class are apart, and advise an eps for the data, each class and each sample.

    brinell audit --eps recommended:FOLDER attacks each sample within its own.
    """
    from brinell import api
    from brinell.cli.options import say
    from brinell.cli.review import OPTIONS, judge
    from brinell.studies.epsilon.request import EpsilonRequest

    asked = {key: value for key, value in locals().items() if value is not None and value is not False}
    of_review = {key: asked[key] for key in OPTIONS if key in asked}
    of_advice = [key for key in EpsilonRequest.model_fields if key in asked and key not in ("data", "norm", "seed")]
    if review and of_advice:
        raise RequestError(f"--{of_advice[0]} does not belong to --review: leave one of them out")
    if review:
        return judge(data, norm, out, of_review | ({"seed": seed} if seed is not None else {}), as_json=json)
    if of_review:
        raise RequestError(f"--{next(iter(of_review))} is for a person's verdict: add --review")
    given = {key: value for key, value in asked.items() if key in EpsilonRequest.model_fields}
    given |= {key: tuple(given[key]) for key in ("norm", "conditions") if key in given}

    class Telling:
        def message(self, text: str) -> None:
            say(text)

    result = api.epsilon(given.pop("data"), out=out, progress=Telling(), **given)
    if json:
        show_json(result.model_dump(mode="json", by_alias=True))
    else:
        _show(result)
    return 0


def _show(result: Any) -> None:
    show(f"{result.data}: {result.n} samples, conditions: {', '.join(result.conditions)}")
    show(f"  {'norm':<5} {'eps':>9}   {'limited by':<14} {'if it may be seen':>17}   limited by")
    for one in result.norms:
        advice = one.overall
        show(f"  {one.norm:<5} {_eps(advice.eps):>9}   {advice.reason:<14} {_eps(advice.seen):>17}   {advice.seen_reason}")
    for one in result.norms:
        show(f"  {one.why}")
    for note in result.notes:
        show(f"  note: {note.text}")
    show(f"each sample's own in an audit: --eps recommended:{result.folder}")
    show(f"report: {Path(result.folder) / 'report.html'}")


def _eps(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g}"
