"""`brinell detect`: detectors before a model, and attacks that know them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.options import Json, percent, show, show_json


def detect(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, made by brinell audit.")],
    train: Annotated[str, typer.Option(help="Clean data that detectors learn from, none of the run's samples.")],
    detector: Annotated[
        list[str] | None,
        typer.Option(help="background, feature-squeezing, mahalanobis, file.py:Class. May repeat. Default: all three."),
    ] = None,
    fpr: Annotated[float | None, typer.Option(help="False-alarm rate at which the alarm is set. Default: 0.05.")] = None,
    fit: Annotated[
        int | None, typer.Option(help="Clean inputs to learn from, as many to set the threshold. Default: 2000.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of the run, from the first. Default: 200.")] = None,
    eps: Annotated[str | None, typer.Option(help="Budget of the attack that knows. Default: the run's largest.")] = None,
    steps: Annotated[int | None, typer.Option(help="Its gradient steps; 0 leaves it out. Default: 100.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random number. Default: 0.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder. Default: a fresh one under runs/.")] = None,
    json: Json = False,
) -> int:
    """How much of a robust accuracy is due to changes that a detector sees, and what is left when the attack knows it."""
    from brinell.api import detect as run_detect
    from brinell.cli.options import say
    from brinell.studies.detection.request import DetectRequest

    given = {name: value for name, value in locals().items() if name in DetectRequest.model_fields and value is not None}
    given.pop("run"), given.pop("train")
    result = run_detect(run, train, out=out, tell=say, **given)
    if json:
        show_json(result.model_dump(mode="json"))
    else:
        _show(result)
    return 0


def _show(result: Any) -> None:
    show(f"{'model':16} {'detector':18} {'without':>8} {'unaware':>8} {'aware':>8} {'false alarms':>13}")
    for one in result.detectors:
        aware = percent(one.aware.value) if one.aware else "-"
        rates = f"{percent(one.robust.value):>8} {percent(one.unaware.value):>8} {aware:>8} {percent(one.false_alarms.value):>13}"
        show(f"{one.model[:16]:16} {one.detector[:18]:18} {rates}")
    show("robust accuracy without the detector, with it against attacks that do not know it, and against some that do")
    show(f"page: {result.folder}/detection.html")
