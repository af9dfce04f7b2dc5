"""`brinell train-metric`: a distance learnt from the data, in which eps can be measured."""

from pathlib import Path
from typing import Annotated

import typer

from brinell.cli.options import Json, percent, show, show_json


def train_metric(
    out: Annotated[Path, typer.Option(help="File to write; name it in audit as --norm embedding:FILE.")],
    data: Annotated[str | None, typer.Option(help="Data to learn from. Default: digits?split=train.")] = None,
    test: Annotated[str | None, typer.Option(help="Data to judge by. Default: a fifth of the other, kept aside.")] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of each at most, from the first. Default: 20000.")] = None,
    margin: Annotated[float | None, typer.Option(help="Alpha of the triplet loss, in squared distance. Default: 0.2.")] = None,
    steps: Annotated[int | None, typer.Option(help="Batches. Default: 1500.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples of a batch. Default: 128.")] = None,
    rate: Annotated[float | None, typer.Option(help="The largest learning rate. Default: 0.002.")] = None,
    neighbours: Annotated[int | None, typer.Option(help="How many neighbours vote. Default: 5.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random number. Default: 0.")] = None,
    json: Json = False,
) -> int:
    """Train a triplet network on the data, and tell how well its distances separate classes beside those between pixels."""
    from brinell.cli.options import say
    from brinell.engine.toml import checked
    from brinell.studies.metric.request import MetricRequest
    from brinell.studies.metric.run import train_metric as train

    given = {name: value for name, value in locals().items() if name in MetricRequest.model_fields and value is not None}
    answer = train(checked(MetricRequest, given), out, say)
    for note in answer.notes:
        say(f"note: {note}")
    if json:
        show_json(answer.model_dump(mode="json"))
        return 0
    auc = answer.auc
    show(f"{answer.trained_on} samples learnt from, {answer.held_out} held out; {answer.seconds:.0f} s of processor time")
    show(f"{'':10} {'AUC':>7} {f'{answer.neighbours}-NN':>8} {'eps, median':>12} {'of 1 %':>8}")
    for name, votes in answer.knn.items():
        label = answer.eps[name].label
        middle, low = (f"{label[key]:.3g}" if label[key] is not None else "-" for key in ("median", "percent_1"))
        show(f"{name:10} {auc[name]:7.4f} {percent(votes.value):>8} {middle:>12} {low:>8}")
    show(f"gain in AUC {auc['gain']:.4f} ({auc['low']:.4f} to {auc['high']:.4f}); eps: half the distance to another class")
    show(f"embedding: {out} (brinell audit --norm 'embedding:{out}' --eps ... --attack apgd-ce)")
    return 0
