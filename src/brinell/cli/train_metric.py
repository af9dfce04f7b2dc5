"""`brinell train-metric`: a distance learned from the data, in which eps can be measured."""

from pathlib import Path
from typing import TYPE_CHECKING

from brinell.cli.options import percent, show, tell
from brinell.cli.verb import Asked, verb
from brinell.studies.metric.request import MetricRequest

if TYPE_CHECKING:
    from brinell.studies.metric.run import MetricAnswer


@verb(MetricRequest, file="The file to write; name it in brinell audit as --norm embedding:FILE.")
def train_metric(asked: Asked) -> int:
    """Train a triplet network on the data, and measure how well its distances separate classes beside those between pixels."""
    from brinell.studies.metric.run import train_metric as train

    out = asked.path
    answer = train(asked.request(MetricRequest), out, tell)
    for note in answer.notes:
        tell(f"note: {note}")
    return asked.answer(answer, lambda: _show(answer, out))


def _show(answer: "MetricAnswer", out: Path) -> None:
    auc = answer.auc
    show(f"{answer.trained_on} training samples, {answer.held_out} held out; {answer.seconds:.0f} s of processor time")
    show(f"{'':10} {'AUC':>7} {f'{answer.neighbours}-NN':>8} {'eps, median':>12} {'of 1 %':>8}")
    for name, votes in answer.knn.items():
        label = answer.eps[name].label
        middle, low = (f"{label[key]:.3g}" if label[key] is not None else "-" for key in ("median", "percent_1"))
        show(f"{name:10} {auc[name]:7.4f} {percent(votes.value):>8} {middle:>12} {low:>8}")
    show(f"gain in AUC {auc['gain']:.4f} ({auc['low']:.4f} to {auc['high']:.4f}); eps: half the distance to another class")
    show(f"embedding: {out} (brinell audit --norm 'embedding:{out}' --eps ... --attack apgd-ce)")
