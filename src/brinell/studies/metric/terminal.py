"""A learned distance as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent


def lines(answer: Any) -> Iterator[str]:
    """The result line by line."""
    auc = answer.auc
    yield f"{answer.trained_on} training samples, {answer.held_out} held out; {answer.seconds:.0f} s of processor time"
    yield f"{'':10} {'AUC':>7} {f'{answer.neighbours}-NN':>8} {'eps, median':>12} {'of 1 %':>8}"
    for name, votes in answer.knn.items():
        label = answer.eps[name].label
        middle, low = (f"{label[key]:.3g}" if label[key] is not None else "-" for key in ("median", "percent_1"))
        yield f"{name:10} {auc[name]:7.4f} {percent(votes.value):>8} {middle:>12} {low:>8}"
    interval = "no interval" if auc["low"] is None else f"{auc['low']:.4f} to {auc['high']:.4f}"
    yield f"gain in AUC {auc['gain']:.4f} ({interval}); eps: half the distance to another class"
    out = answer.embedding
    yield f"embedding: {out} (brinell audit --norm 'embedding:{out}' --eps ... --attack apgd-ce)"
