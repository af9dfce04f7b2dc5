"""Which samples of a data set are looked at: the first, or some that are drawn."""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch

from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError
from brinell.core.record import Array
from brinell.core.streams import Streams

Select = Literal["first", "stratified", "random"]
DEFAULT_SAMPLES = 1000
NAMED = 5
"""How many classes a line names."""
SORTED = 0.5
"""Data are told to be counted from 1 where no sample is of class 0 and the share of the other classes that have some is above."""


class Selects(Protocol):
    """A request that says which samples, and how many."""

    @property
    def samples(self) -> int | None:
        """How many; None for the default."""

    @property
    def select(self) -> Select | None:
        """How they are chosen; None leaves that to the data."""

    @property
    def seed(self) -> int:
        """Of what is drawn."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The samples of a run."""

    ids: Array
    """(n,) int64, ascending: positions in the data set."""
    how: str
    """all, first, stratified or random."""

    def text(self, total: int) -> str:
        """The same in words, such as «20 of 2000 samples, stratified by class»."""
        words = {"first": f"the first {len(self.ids)}", "stratified": str(len(self.ids)), "random": str(len(self.ids))}
        drawn = {"stratified": ", drawn stratified by class", "random": ", drawn at random"}
        return f"{words.get(self.how, f'all {len(self.ids)}')} of {total} samples{drawn.get(self.how, '')}"


def choose(request: Selects, dataset: Dataset, *, usual: Select = "stratified") -> Selection:
    """The samples that a request asks for.

    Unless it says how, published test sets keep their order, so that figures are comparable with those of others, and of all else
    samples are drawn as `usual` says.

    Args:
        request: how many, how, and the seed.
        dataset: the data.
        usual: how, where neither the request nor the data says.

    Raises:
        RequestError: the data holds no sample, or fewer than were asked for.
    """
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    held = len(labels)
    if not held:
        raise RequestError(f"data {dataset.name} holds no sample: nothing to audit")
    if request.samples and request.samples > held:
        raise RequestError(f"samples is {request.samples}, and {dataset.name} has {held}: ask for that many at most")
    n = min(held, request.samples or DEFAULT_SAMPLES)
    how = request.select or ("first" if dataset.info.published else usual)
    if n == held:
        return Selection(ids=np.arange(n, dtype=np.int64), how="all")
    if how == "first":
        return Selection(ids=np.arange(n, dtype=np.int64), how=how)
    draw = Streams.of(request.seed, torch.arange(held)).fold("select").uniform().numpy()
    order = np.lexsort((np.arange(held), draw)) if how == "random" else stratified(labels, draw)
    return Selection(ids=np.sort(order[:n]), how=how)


def stratified(labels: Array, draw: Array) -> Array:
    """An order (n,) of samples in which the first ones are of every class, in proportion to its size, however many they are.

    The first sample of every class comes before the second of any. A larger selection holds every smaller one. `draw` are (n,)
    random numbers.
    """
    by_class = np.lexsort((draw, labels))
    _, first, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    place = np.empty(len(labels))
    place[by_class] = (np.arange(len(labels)) - np.repeat(first, counts)) / np.repeat(counts, counts)
    return np.lexsort((draw, place))


def missing(labels: Array, all_labels: Array, classes: tuple[str, ...]) -> list[str]:
    """What is odd about the labels of a selection beside `all_labels` of the data, in one line each."""
    there = set(np.unique(labels).tolist())
    without = [name for label, name in enumerate(classes) if label not in there]
    if not without:
        return []
    of_all = set(np.unique(all_labels).tolist())
    named = ", ".join(without[:NAMED]) + (f" and {len(without) - NAMED} more" if len(without) > NAMED else "")
    text = f"{len(without)} of {len(classes)} classes have no sample among the {len(labels)} of this run ({named})"
    if 0 not in of_all and len(of_all) > SORTED * len(classes):
        return [f"{text}: if labels are counted from 1, take 1 from each, for classes are counted from 0"]
    return [f"{text}: nothing is known about them"]
