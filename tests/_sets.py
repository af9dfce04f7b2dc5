"""Benchmark sets of twelve small pictures: the model, the distortions, the command, and how sets
are compared.
"""

import json

import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors.numpy import load_file

from _helpers import COUNT
from brinell.core.domain import Domain

PIXELS = Domain(kind="image", shape=(1, 5, 5), levels=256)
FILTERS = """
import torch

from _placing import Lift


class Random(Lift):
    def __call__(self, x, severity, rng, draw):
        return torch.rand_like(x)


class Flat(Lift):
    def __call__(self, x, severity, rng, draw):
        return x.flatten(1)


class Nan(Lift):
    def __call__(self, x, severity, rng, draw):
        return x * float("nan")


class Out(Lift):
    def __call__(self, x, severity, rng, draw):
        return x + 1
"""
MODEL = (
    COUNT
    + '''

class Sum(nn.Module):
    """Class 1 where the mean is above a half; a third class is never near."""

    def __init__(self):
        super().__init__()
        self.at = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        count()
        z = 20 * (x.flatten(1).mean(1) - self.at)
        return torch.stack([-z, z, 0 * z - 30], 1)


def model():
    return Sum()
'''
)


def logits(x):
    z = 20 * (x.flatten(1).mean(1) - 0.5)
    return torch.stack([-z, z, 0 * z - 30], 1)


def benchmark_arguments(work, out, *options, levels="1,2,40"):
    data, model = f"npz:{work / 'data.npz'}", f"torch:{work / 'model.py'}:model"
    settings = [
        "--distortions",
        f"{work / 'distortions.py'}:Lift",
        "--patch",
        "1",
        "--steps",
        "60",
        "--refine",
        "5",
        "--levels",
        levels,
    ]
    return ["benchmark", "--data", data, "--model", model, *settings, "--out", str(out), *options]


def rows_of(folder, files="data/*.parquet"):
    return [row for path in sorted(folder.glob(files)) for row in pq.read_table(path).to_pylist()]


def arrays_of(folder):
    return {
        name: array
        for path in sorted((folder / "arrays").glob("*"))
        for name, array in load_file(path).items()
    }


def probe_queries(folder):
    """The forwards by which the kind of the model's answers was recognised, before any sample was
    played."""
    return json.loads((folder / "manifest.json").read_text())["probes"]["recorder"]["forwards"]


def assert_same_set(first, second):
    """The same rows, pictures and arrays, file by file, and the same card."""
    names = [path.name for path in sorted((first / "data").iterdir())]
    assert names == [path.name for path in sorted((second / "data").iterdir())]
    for name in ("rows.parquet", *(f"data/{name}" for name in names)):
        assert pq.read_table(first / name).equals(pq.read_table(second / name))
    a, b = arrays_of(first), arrays_of(second)
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    assert (first / "README.md").read_text() == (second / "README.md").read_text()
    assert not [path for path in second.rglob("*.tmp")] and not (second / ".parts").exists()
