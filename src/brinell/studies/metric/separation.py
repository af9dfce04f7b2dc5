"""How well a distance separates pairs of one class from pairs of two: AUC, a gain's interval, votes of neighbours."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell.core.intervals import CONFIDENCE, deviations
from brinell.core.record import Array


class Gain(NamedTuple):
    """The AUC of two distances on the same pairs, and what one gains on the other."""

    before: float
    after: float
    low: float
    """Of `after - before`, at 95 %."""
    high: float


def gain(before: Tensor, after: Tensor, labels: Array, seed: int, draws: int = 200) -> Gain:
    """AUC in two distances, with a bootstrap interval of the difference.

    The AUC is the share of pairs of pairs in which the one within a class is nearer than the one between; ties count half.
    Pairs share samples, so samples are drawn anew and not pairs: a pair counts as often as both of its samples together were
    drawn, and no sample is its own pair. The interval is normal, with the standard deviation of the drawn differences. It covers
    the choice of samples, not that of the training run.

    Args:
        before: (n, d) float32 points, between which the first distance is L2.
        after: (n, k) points of the same samples in another space.
        labels: (n,) int64, with two samples of some class and more than one class.
        seed: of the draws.
        draws: how many.

    Raises:
        ValueError: no pair within a class, or none between classes.
    """
    first, second = np.triu_indices(len(labels), 1)
    same = labels[first] == labels[second]
    if same.all() or not same.any():
        raise ValueError("separation takes pairs within a class and pairs between classes")
    pairs = np.stack([first, second], 1)
    ranked = [_Ranked(torch.pdist(points).numpy(), same, pairs) for points in (before, after)]
    once = np.ones(len(labels))
    old, new = (one.auc(once) for one in ranked)
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(draws):
        count = np.bincount(rng.integers(len(labels), size=len(labels)), minlength=len(labels)).astype(np.float64)
        a, b = (one.auc(count) for one in ranked)
        drawn.append(b - a)
    reach = deviations(CONFIDENCE) * float(np.nanstd(drawn, ddof=1))
    return Gain(old, new, new - old - reach, new - old + reach)


class _Ranked:
    """Pairs in the order of their distance, which stays the same however often each counts."""

    def __init__(self, size: Array, same: Array, pairs: Array) -> None:
        order = np.argsort(size, kind="stable")
        ordered = size[order]
        self.starts = np.flatnonzero(np.concatenate([[True], ordered[1:] > ordered[:-1]]))
        self.same, self.first, self.second = same[order], pairs[order, 0], pairs[order, 1]

    def auc(self, count: Array) -> float:
        """Where each sample counts so often (n,); NaN where a class of pairs has no weight."""
        weight = count[self.first] * count[self.second]
        within = np.add.reduceat(np.where(self.same, weight, 0), self.starts)
        between = np.add.reduceat(np.where(self.same, 0, weight), self.starts)
        total = within.sum() * between.sum()
        beyond = between.sum() - np.cumsum(between) + between / 2
        return float((within * beyond).sum() / total) if total > 0 else float("nan")


def votes(points: Tensor, reference: Tensor, known: Array, classes: int, k: int) -> Array:
    """(n,) int64: the class of most of the k nearest in the reference, of two with as many that of the nearer ones.

    Args:
        points: (n, d) float32.
        reference: (m, d), none of the same samples.
        known: (m,) int64 labels of the reference.
        classes: how many there are.
        k: neighbours, at most m.
    """
    labels = torch.from_numpy(known)
    # A millionth for each place decides ties and nothing else.
    weight = 1 + 1e-6 * torch.arange(k, 0, -1, dtype=torch.float64)
    found = []
    for part in torch.split(points, 512):
        near = labels[torch.cdist(part, reference).topk(k, largest=False).indices]
        tally = torch.zeros(len(part), classes, dtype=torch.float64).scatter_add_(1, near, weight.expand(len(part), k))
        found.append(tally.argmax(1))
    return np.asarray(torch.cat(found).numpy())
