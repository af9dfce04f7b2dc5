"""A small problem to harden a network on, for the tests of the study."""

import numpy as np

MODEL = """
import torch
from torch import nn


def network(seed="0"):
    rng = torch.Generator().manual_seed(int(seed))
    module = nn.Sequential(nn.Flatten(), nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=rng)
    return module


def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(2))


def by_chance():
    return nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
"""


def samples(n, seed):
    """The first value says which class, by a margin of 0.4, and the second too, by 0.02."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = np.stack(
        [
            0.5 + (2 * y - 1) * rng.uniform(0.2, 0.4, n),
            0.5 + 0.01 * (2 * y - 1),
            rng.uniform(0, 1, n),
        ],
        1,
    )
    return x.astype(np.float32), y.astype(np.int64)


def harden_arguments(work, out, *options, train="train", model="network"):
    spec = f"{work / 'model.py'}:{model}"
    paths = [
        "--data",
        str(work / "test.npz"),
        "--train",
        str(work / f"{train}.npz"),
        "--model",
        spec,
    ]
    settings = [
        "--eps",
        "0.15",
        "--attack",
        "fgsm",
        "--attack",
        "pgd?steps=5",
        "--budgets",
        "0,0.15",
        "--epochs",
        "12",
        "--average",
        "0.9",
    ]
    return [
        "harden",
        *paths,
        *settings,
        "--rate",
        "0.02",
        "--average",
        "0.9",
        "--batch-size",
        "32",
        "--out",
        str(out),
        *options,
    ]


def save_spoiled(work, name, change):
    x, y = samples(256, 0)
    x, y = change(x, y)
    np.savez(work / f"{name}.npz", x=x, y=y)
    return name
