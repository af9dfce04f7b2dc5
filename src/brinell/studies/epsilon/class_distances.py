"""Mean distances within and between the classes of a data set, over every pair of samples; nothing n x n is kept."""

import numpy as np
import torch
from torch import Tensor

from brinell.core.record import Array

BLOCK = 1024
"""Rows and columns of a block of distances."""
POWERS = {"linf": float("inf"), "l2": 2.0, "l1": 1.0, "l0": 0.0}
"""Norm to the p of torch.cdist, for which 0 counts what differs."""


def class_means(x: Tensor, labels: Array, classes: int, norm: str) -> Array:
    """Mean distances between classes, and within each between different samples.

    L2 distances come out of matrix products, whose float32 errors are some 1e-6 of the squared length; the others are computed
    from the differences.

    Args:
        x: (n, d) float32.
        labels: (n,) int64.
        classes: number of classes.
        norm: linf, l2, l1 or l0.

    Returns:
        (classes, classes) float64, NaN for classes without a pair.
    """
    y = torch.from_numpy(labels)
    of_class = torch.nn.functional.one_hot(y, classes).double()
    total = torch.zeros(classes, classes, dtype=torch.float64)
    for rows, y_rows in zip(torch.split(x, BLOCK), torch.split(of_class, BLOCK), strict=True):
        for columns, y_columns in zip(torch.split(x, BLOCK), torch.split(of_class, BLOCK), strict=True):
            size = torch.cdist(rows, columns, p=POWERS[norm], compute_mode="use_mm_for_euclid_dist")
            if rows.data_ptr() == columns.data_ptr():
                size.fill_diagonal_(0)
            total += y_rows.T @ size.double() @ y_columns
    samples = of_class.sum(0)
    pairs = samples[:, None] * samples - torch.diag(samples)
    return np.asarray((total / pairs).numpy())
