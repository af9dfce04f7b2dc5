"""Splits and orders of samples: each sample once, the share of each class, and the same on every
machine.
"""

import numpy as np
from sklearn.datasets import load_digits

from brinell.core.splits import digits, stratified, turns


def test_each_class_gives_its_share_and_each_sample_is_in_one_half():
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3, 0.5, 1.0):
        labels = rng.integers(0, 5, 83)
        first, second = stratified(labels, share, seed=1)
        assert (
            sorted([*first, *second]) == list(range(83))
            and (np.diff(first) > 0).all()
            and (np.diff(second) > 0).all()
        )
        for label in range(5):
            assert (labels[second] == label).sum() == round(share * (labels == label).sum())


def test_a_split_is_the_same_everywhere_and_another_for_another_seed():
    labels = np.zeros(12, int)
    assert stratified(labels, 0.25, seed=0)[1].tolist() == [3, 7, 9]
    assert len({tuple(stratified(labels, 0.25, seed=seed)[1].tolist()) for seed in range(20)}) > 10
    # The samples that go first do not depend on how many go.
    halves = [set(stratified(labels, share, seed=3)[1].tolist()) for share in (0.25, 0.5, 0.75)]
    assert halves[0] < halves[1] < halves[2]


def naive_turns(groups):
    """Round after round, the next sample of each group that has one."""
    members = {
        group: [index for index, each in enumerate(groups) if each == group]
        for group in sorted(set(groups))
    }
    order = []
    while any(members.values()):
        order += [rest.pop(0) for rest in members.values() if rest]
    return order


def test_groups_take_turns():
    rng = np.random.default_rng(1)
    for _ in range(30):
        groups = rng.integers(0, rng.integers(1, 6), rng.integers(1, 25))
        assert turns(groups).tolist() == naive_turns(groups.tolist())
    assert turns(np.array(["b", "a", "b", "a"])).tolist() == [1, 0, 3, 2]


def test_the_digits_are_those_of_scikit_learn():
    images, labels = load_digits(return_X_y=True)
    for index, split in zip(stratified(labels, 0.3, seed=0), ("train", "test"), strict=True):
        x, y = digits(split)
        assert x.shape == (len(index), 1, 8, 8) and x.dtype == np.float32 and y.dtype == np.int64
        assert np.array_equal(x.reshape(-1, 64) * 16, images[index]) and np.array_equal(
            y, labels[index]
        )
