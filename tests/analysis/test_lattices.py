"""Patches of a lattice, and the mask of what stands on them, value by value."""

import itertools

import numpy as np
import pytest

from brinell.analysis.masks import PlacedDistortion, PlacedDistortions

LATTICES = [
    ((7,), (3,), (2,)),
    ((6, 5), (2, 3), (2, 3)),
    ((4, 9), (4, 2), (1, 3)),
    ((2, 5, 4), (2, 2, 2), (1, 2, 2)),
    ((5,), (5,), (9,)),
]


def reference_slices(lengths, patch, stride):
    """The places of each patch: patches begin at multiples of the stride until the end of the axis
    is covered.
    """
    starts = []
    for length, side, step in zip(lengths, patch, stride, strict=True):
        axis = [0]
        while axis[-1] + side < length:
            axis.append(axis[-1] + step)
        starts.append(axis)
    return [
        {
            place
            for place in itertools.product(*map(range, lengths))
            if all(
                first <= index < first + side
                for index, first, side in zip(place, corner, patch, strict=True)
            )
        }
        for corner in itertools.product(*starts)
    ]


def test_masks_and_shares_are_those_of_the_places():
    rng = np.random.default_rng(0)
    for lengths, patch, stride in LATTICES:
        expected = reference_slices(lengths, patch, stride)
        chosen = sorted(
            rng.permutation(len(expected))[: rng.integers(0, len(expected) + 1)].tolist()
        )
        standing = [
            PlacedDistortion(patch=p, distortion=str(rng.choice(["noise", "blur"])), severity=1)
            for p in chosen
        ]
        placement = PlacedDistortions.on(
            {"shape": lengths, "patch": patch, "stride": stride}, tuple(standing)
        )
        assert len(placement.patches) == len(expected)
        mask = placement.mask()
        for place in itertools.product(*map(range, lengths)):
            covering = [
                index for index, each in enumerate(standing) if place in expected[each.patch]
            ]
            assert mask[place] == min(covering, default=-1)
        assert placement.share() == pytest.approx(np.mean([index >= 0 for index in mask.flatten()]))
