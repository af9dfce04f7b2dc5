"""All pairs of a data set reduced to class means and nearest neighbours: time over bare matrix products, memory, agreement.

Bare: the same blocks of the same matrix multiplied and nothing else, each pair once, as ours does. Both run in turns in one
process; `cpu` is its processor time, which a busy machine disturbs least. Linf runs after L2, from whose neighbours its search
begins. Agreement: on `--subset` samples with scipy.spatial.distance.cdist in float64. Memory is the largest of the
whole process.
"""

import resource
import time
from argparse import Namespace
from collections.abc import Callable

import measure
import numpy as np
import torch
from measure import SHARED, Table, spread

from brinell.core.neighbours import Neighbours, Reference
from brinell.core.pairs import BLOCK, class_means, l2_statistics

DATA = {"mnist": ("mnist/mnist_train.npz",), "cifar10": ("cifar10/cifar10_train_a.npz", "cifar10/cifar10_train_b.npz")}


def timed(work: Callable[[], object]) -> float:
    """Processor seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def bare(x: torch.Tensor) -> None:
    """The matrix products alone."""
    buffer = torch.empty(BLOCK * BLOCK)
    parts = x.split(BLOCK)
    for i, rows in enumerate(parts):
        for columns in parts[i:]:
            torch.mm(rows, columns.T, out=buffer[: len(rows) * len(columns)].view(len(rows), len(columns)))


def disagreement(bytes_: np.ndarray, x: torch.Tensor, y: np.ndarray, norms: list[str]) -> dict[str, float]:
    """Largest difference of means and neighbours from SciPy's, by norm."""
    from scipy.spatial.distance import cdist

    sums, first = l2_statistics(x, y, 10)
    alike, errors_by_norm = y[:, None] == y[None, :], {}
    for norm in norms:
        name = {"l2": "euclidean", "linf": "chebyshev", "l1": "cityblock"}[norm]
        truth = cdist(x.double().numpy(), x.double().numpy(), name)
        neighbours, scale = first, 1.0
        if norm != "l2":
            neighbours, scale = Reference(bytes_, y).nearest(norm, bytes_, y, first, itself=np.arange(len(y))), 255.0
        means = sums.means() if norm == "l2" else class_means(x, y, 10, norm)
        same_class = np.where(alike & ~np.eye(len(y), dtype=bool), truth, np.inf)
        outside = np.where(alike, np.inf, truth)
        errors = [
            abs(same_class.min(1) - neighbours.same_class / scale).max(),
            abs(outside.min(1) - neighbours.other_class / scale).max(),
        ]
        for a in range(10):
            for b in range(10):
                block = truth[np.ix_(y == a, y == b)]
                mean = block.sum() / (block.size - (a == b) * len(block))
                errors.append(abs(mean - means[a, b]) / max(mean, 1.0))
        errors_by_norm[norm] = float(max(errors))
    return errors_by_norm


def subject(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, d) as bytes, and labels."""
    files = [np.load(SHARED / file) for file in DATA[name]]
    pixels = np.concatenate([file["images"].reshape(len(file["labels"]), -1) for file in files])
    return pixels[:n], np.concatenate([file["labels"] for file in files]).astype(np.int64)[:n]


def measured(table: Table, name: str, pixels: np.ndarray, y: np.ndarray, options: Namespace) -> None:
    """A line for each norm."""
    x = torch.from_numpy(pixels.astype(np.float32)).div_(255)
    results: list[Neighbours] = []
    own_seconds, products = [], []
    for _ in range(options.repetitions):
        products.append(timed(lambda: bare(x)))
        own_seconds.append(timed(lambda: results.append(l2_statistics(x, y, 10)[1])))
    off = disagreement(pixels[: options.subset], x[: options.subset], y[: options.subset], options.norms)
    for norm in options.norms:
        seconds, ratio, scale = own_seconds, [a / b for a, b in zip(own_seconds, products, strict=True)], 1.0
        if norm != "l2":
            start = time.process_time()
            results.append(Reference(pixels, y).nearest(norm, pixels, y, results[0], itself=np.arange(len(y))))
            seconds, scale = [time.process_time() - start], 255.0
            ratio = [seconds[0] / products[-1]]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        least = f"{results[-1].other_class.min() / scale:.4f}", f"{results[-1].same_class.min() / scale:.4f}"
        table.add(
            name, len(y), norm, spread(seconds, 1), spread(ratio), spread(products, 1), *least, f"{peak:.2f}", f"{off[norm]:.1e}"
        )


def main() -> None:
    """All data sets that were asked for."""
    options = measure.arguments(__doc__ or "", data=list(DATA), n=60000, norms=["l2", "linf"], subset=2000, repetitions=1)
    command = measure.command(options, "data", "n", "norms", "subset", "repetitions")
    columns = "data, n, norm, cpu s, times bare, bare s, least to other class, least to own, GiB, off SciPy".split(", ")
    table = Table("All pairs to class means and nearest neighbours", command, columns)
    for name in options.data:
        measured(table, name, *subject(name, options.n), options)


if __name__ == "__main__":
    main()
