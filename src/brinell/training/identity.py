"""Samples that two data sets have in common, by a hash of each input."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from brinell.core.contracts import Dataset, Domain

AT_ONCE = 512
"""Inputs that are read together."""


def digests(dataset: Dataset, stored: Domain, positions: Sequence[int] | None = None) -> Iterator[bytes]:
    """A hash of each input as it comes back from storage, in order; of all of them, or of those at some positions."""
    at = range(len(dataset)) if positions is None else positions
    for start in range(0, len(at), AT_ONCE):
        for row in stored.round(dataset.load(at[start : start + AT_ONCE])).numpy():
            yield hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=16).digest()


def shared(train: Dataset, test: Dataset, positions: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """The positions of equal inputs, in the first and the second; of equal ones within the second, the last.

    Inputs are equal if they are stored alike: an image of 8 bits is itself, whether it was divided by 255, multiplied by 1/255 or
    kept in half precision.

    Args:
        train: the first.
        test: the second, of the same shape.
        positions: which inputs of the second count; all by default.
    """
    stored = test.domain if test.domain.levels is not None else train.domain
    at = range(len(test)) if positions is None else positions
    known = dict(zip(digests(test, stored, at), at, strict=True))
    return [(mine, known[digest]) for mine, digest in enumerate(digests(train, stored)) if digest in known]
