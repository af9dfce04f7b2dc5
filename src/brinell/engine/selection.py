"""Selection of samples of a data set: the first, stratified by class, or at random."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.engine.request import count_samples

Select = Literal["first", "stratified", "random"]
DEFAULT_SAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The samples of a run."""

    ids: Array
    """(n,) int64, ascending: positions in the data set."""
    method: str
    """all, first, stratified or random."""

    def text(self, total: int) -> str:
        """Description in words, such as «20 of 2000 samples, stratified by class»."""
        prefix = {"all": "all ", "first": "the first "}.get(self.method, "")
        suffix = {"stratified": ", drawn stratified by class", "random": ", drawn at random"}.get(
            self.method, ""
        )
        return f"{prefix}{len(self.ids)} of {total} samples{suffix}"


def choose_samples(
    samples: int | str | None, seed: int, dataset: Dataset, *, default: Select = "stratified"
) -> Selection:
    """Select the samples of a request, which gives their number, behind a method where it names
    one.

    Unless the request gives a method, published test sets keep their order, so that figures are
    comparable with the literature; of other data samples are drawn by the `default` method.
    """
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    total = len(labels)
    if not total:
        raise RequestError(f"data {dataset.name} holds no sample: nothing to audit")

    method, _, count = str(samples or "").rpartition(":")
    if count.isdecimal() and int(count) > total:
        raise RequestError(
            f"samples is {samples}, and {dataset.name} has {total}: ask for that "
            "many at most, or for all"
        )
    n = count_samples(samples, total, DEFAULT_SAMPLES)
    method = method or ("first" if dataset.info.published else default)
    if n == total or method == "first":
        return Selection(ids=np.arange(n, dtype=np.int64), method="all" if n == total else method)

    # Data with one class, or with masks or boxes, have nothing to stratify by.
    draw = Streams.of(seed, torch.arange(total)).fold("select").uniform().numpy()
    if method == "random" or len(np.unique(labels)) == 1:
        method = "random"
        order = np.argsort(draw, kind="stable")
    else:
        order = stratified_order(labels, draw)
    # In the order of the data, so that a resumed run and a larger one read it the same way.
    return Selection(ids=np.sort(order[:n]), method=method)


def stratified_order(labels: Array, draw: Array) -> Array:
    """Order samples (n,) so that every prefix is stratified by class.

    The first sample of every class comes before the second of any. A larger selection holds every
    smaller one. `draw` are (n,) random numbers.
    """
    by_class = np.lexsort((draw, labels))
    _, first, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    # How many of its class come before each sample; as a share of the class, so that in every
    # prefix large classes have more samples than small ones.
    turn = np.arange(len(labels)) - np.repeat(first, counts)
    place = np.empty(len(labels))
    place[by_class] = turn / np.repeat(counts, counts)
    return np.lexsort((draw, place))


def missing_class_notes(labels: Array, classes: tuple[str, ...]) -> list[str]:
    """Note on classes without samples in a selection."""
    present = set(np.unique(labels).tolist())
    absent = [name for label, name in enumerate(classes) if label not in present]
    if not absent:
        return []
    listing = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
    return [
        f"{len(absent)} of {len(classes)} classes have no sample among the "
        f"{len(labels)} of this run ({listing}): "
        "nothing is known about them"
    ]
