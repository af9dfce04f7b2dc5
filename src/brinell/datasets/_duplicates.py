"""Inputs that occur in two data sets."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from brinell.core.contracts import Dataset

CHUNK = 512
"""Inputs loaded at once."""


def find_duplicates(
    train: Dataset, test: Dataset, positions: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """Pairs of positions (in train, in test) of equal inputs.

    If an input occurs twice in test, its last position is reported.

    Inputs are equal if they round to the same stored values: an 8-bit image equals itself after a
    division by 255, a multiplication by 1/255, or a cast to half precision. With `positions`, those
    of `test` alone are compared.
    """
    # Rounded to what is stored: the same picture may come from files of two formats.
    stored = test.domain if test.domain.levels is not None else train.domain

    def digests(dataset: Dataset, positions: Sequence[int]) -> Iterator[bytes]:
        # In portions, since only the hashes are kept.
        for start in range(0, len(positions), CHUNK):
            for row in stored.round(dataset.load(positions[start : start + CHUNK])).numpy():
                yield hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=16).digest()

    indices = range(len(test)) if positions is None else positions
    index_of = dict(zip(digests(test, indices), indices, strict=True))
    own = enumerate(digests(train, range(len(train))))
    return [(train_index, index_of[digest]) for train_index, digest in own if digest in index_of]
