"""AUC of pairs, its gain, and votes: by hand, then against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

from brinell.studies.metric.run import gain, votes


def test_auc_by_hand():
    """Two pairs within a class, both at 2; between classes 4, 6, 2 and 4: 2 < 4 twice, 2 < 6, and 2
    = 2 counts half.
    """
    even, mixed, labels = (
        torch.tensor([[0.0], [2], [4], [6]]),
        torch.tensor([[0.0], [9], [1], [8]]),
        np.array([0, 0, 1, 1]),
    )
    separation = gain(even, mixed, labels)
    assert separation["pixels"] == pytest.approx(3.5 / 4)
    # Within 9 and 7, between 1, 8, 8 and 1: 7 < 8 twice of eight pairs.
    assert separation["embedding"] == pytest.approx(2 / 8)


def spread(seed, n=60, d=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    return torch.from_numpy((rng.normal(size=(n, d)) + labels[:, None]).astype(np.float32)), labels


def test_gain_is_that_of_all_pairs():
    points, labels = spread(0)
    separated_points = points + 2 * torch.from_numpy(labels)[:, None]
    separation = gain(points, separated_points, labels)
    first, second = np.triu_indices(len(labels), 1)
    for space, value in (
        (points, separation["pixels"]),
        (separated_points, separation["embedding"]),
    ):
        size = torch.pdist(space).numpy()
        assert value == pytest.approx(
            roc_auc_score(labels[first] != labels[second], size), abs=1e-9
        )
    assert (
        separation["low"]
        < separation["gain"]
        == separation["embedding"] - separation["pixels"]
        < separation["high"]
    )
    unchanged = gain(points, points, labels)
    assert unchanged["gain"] == 0 and unchanged["low"] is None, (
        "without a spread there is no interval"
    )


def test_gain_needs_both_kinds_of_pairs():
    with pytest.raises(ValueError, match="within a class"):
        gain(torch.zeros(3, 1), torch.zeros(3, 1), np.array([0, 1, 2]))


def test_votes_and_their_ties():
    """On a line: of the four nearest to 0 two are of each class, and class 1 has the nearer ones."""
    reference, reference_labels = (
        torch.tensor([[0.1], [0.2], [-0.3], [-0.4], [9.0]]),
        np.array([1, 1, 0, 0, 2]),
    )
    assert votes(torch.zeros(1, 1), reference, reference_labels, 4).tolist() == [1]
    assert votes(torch.zeros(1, 1), reference, reference_labels, 5).tolist() == [1]
    points, labels = spread(1, 200)
    queries, _ = spread(2, 80)
    expected_votes = KNeighborsClassifier(1).fit(points, labels).predict(queries)
    assert votes(queries, points, labels, 1).tolist() == expected_votes.tolist()
