"""Benchmark sets of twelve small pictures: the model, the distortions, the command, and how sets are compared."""

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


def words(work, out, *more, levels="1,2,40"):
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
    return ["benchmark", "--data", data, "--model", model, *settings, "--out", str(out), *more]


def rows_of(folder, where="data"):
    return [row for path in sorted((folder / where).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def arrays_of(folder):
    return {name: array for path in sorted((folder / "arrays").glob("*")) for name, array in load_file(path).items()}


def asked_in(folder):
    """The forwards by which the kind of the model's answers was recognised, before any sample was played."""
    return json.loads((folder / "manifest.json").read_text())["probes"]["recorder"]["forwards"]


def same_set(one, other):
    """The same rows, pictures and arrays, file by file, and the same card and checksums but for what a clock decides."""
    for where in ("data", "samples"):
        names = [path.name for path in sorted((one / where).iterdir())]
        assert names == [path.name for path in sorted((other / where).iterdir())]
        for name in names:
            assert pq.read_table(one / where / name).equals(pq.read_table(other / where / name))
    a, b = arrays_of(one), arrays_of(other)
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    assert (one / "README.md").read_text() == (other / "README.md").read_text()
    assert not [path for path in other.rglob("*.tmp")]
