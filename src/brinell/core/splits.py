"""Splits of labelled samples that are the same on every machine and under every library version."""

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

Indices = np.ndarray[tuple[int], np.dtype[np.int64]]


def stratified(labels: np.ndarray[Any, Any], share: float, seed: int) -> tuple[Indices, Indices]:
    """Split the samples in two, class by class.

    Each class is ordered by a hash of (seed, index), so nothing depends on a random generator.

    Args:
        labels: (n,) integers.
        share: part of each class that goes to the second list, between 0 and 1; rounded to whole
            samples.
        seed: another seed, another split.

    Returns:
        Two ascending lists of indices that together hold each sample once.
    """
    second: list[int] = []
    for label in np.unique(labels):
        # Ranks come from a hash, so that no version of a generator changes the split.
        members = sorted(
            np.flatnonzero(labels == label).tolist(), key=lambda index: _rank(seed, index)
        )
        second += members[: round(share * len(members))]

    in_second = np.zeros(len(labels), dtype=bool)
    in_second[second] = True
    return np.flatnonzero(~in_second), np.flatnonzero(in_second)


def turns(groups: np.ndarray[Any, Any]) -> Indices:
    """An order in which groups take turns: the first sample of each, then the second, and so on.

    Data that is stored patient after patient, or class after class, so holds all of them in its
    first samples.

    Args:
        groups: (n,) anything that can be sorted, such as the numbers of patients.

    Returns:
        (n,) the positions in the new order; within a round groups are sorted, within a group
            samples keep their order.
    """
    _, group = np.unique(groups, return_inverse=True)
    by_group = np.argsort(group, kind="stable")
    counts = np.bincount(group)

    # The round of a sample is its position within its group.
    rounds = np.empty(len(group), dtype=np.int64)
    rounds[by_group] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.lexsort((group, rounds)).astype(np.int64)


def _rank(seed: int, index: int) -> bytes:
    """The hash by which a sample is ordered."""
    return hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()


def digits(split: str) -> tuple[np.ndarray[Any, np.dtype[np.float32]], Indices]:
    """The part `train` (70 %) or `test` of scikit-learn's digits.

    They are images (m, 1, 8, 8) in [0, 1] and labels (m,). `digits-cnn` learns from the one and is
    audited on the other. The file is read here, because the import of `sklearn.datasets` takes a
    second.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.submodule_search_locations is not None
    table = np.loadtxt(
        Path(package.submodule_search_locations[0]) / "datasets/data/digits.csv.gz", delimiter=","
    )
    # A line is the pixels of a picture, then its class.
    images = table[:, :-1].reshape(-1, 1, 8, 8)
    labels = table[:, -1].astype(np.int64)

    train, test = stratified(labels, share=0.3, seed=0)
    keep = train if split == "train" else test
    # The pictures have values from 0 to 16.
    return (images[keep] / 16).astype(np.float32), labels[keep]
