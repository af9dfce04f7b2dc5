"""A small training with a known answer, for the tests of the loop, its checks and its recipes."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch.nn import functional as F

from _helpers import distance, mlp
from brinell.core.domain import Domain
from brinell.datasets._memory import from_arrays
from brinell.models._torch_model import TorchModel
from brinell.training.checks import Checker
from brinell.training.data import TrainingSamples
from brinell.training.loop import Loop, Settings
from brinell.training.recipe import Recipe, TrainedNetwork

EPS = 0.15
CPU = torch.device("cpu")
USUAL = Settings(
    eps=EPS,
    epochs=6,
    seconds=None,
    batch_size=32,
    optimizer="adamw",
    rate=0.02,
    weight_decay=0.0,
    ramp=0.3,
    average=0.9,
    augment="none",
    clip=1.0,
    precision="float32",
    seed=0,
)
SESSIONS = ExitStack()
"""Holds the session of every network that `loop` makes, until the test is over."""


def problem(n=320):
    """Class 1 where the first value is above the middle, by a robust margin of 0.2; the second
    value says it too, by 0.01.
    """
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = np.stack(
        [
            0.5 + (2 * y - 1) * rng.uniform(0.2, 0.4, n),
            0.5 + 0.01 * (2 * y - 1),
            rng.uniform(0, 1, n),
        ],
        1,
    )
    return from_arrays(x.astype(np.float32), y, domain=Domain(kind="vector", shape=(3,)))


def loop(recipe="pgd(steps=3)", module=None, file=None, custom=None, **settings):
    dataset = problem()
    train_rows, test_rows = np.arange(256), np.arange(256, 320)
    module = module or mlp(3, 2)
    module.requires_grad_(True)
    samples, held_out = (
        TrainingSamples.of(dataset, train_rows, CPU),
        TrainingSamples.of(dataset, test_rows, CPU),
    )
    checker = Checker(
        x=held_out.load(torch.arange(64)),
        y=held_out.labels,
        distance=distance("linf"),
        domain=dataset.domain,
        batch_size=64,
        seed=0,
    )
    fitted = custom or Recipe.of(recipe).fit(dataset.domain, distance("linf"))
    model = TorchModel(module, dataset.domain, 2)
    SESSIONS.enter_context(model.session())
    trained = TrainedNetwork.of(model)
    data = [samples] * len(fitted.parts)
    return Loop(
        trained, samples, data, checker, fitted, distance("linf"), replace(USUAL, **settings), file
    )


def same_state(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@dataclass(frozen=True, kw_only=True)
class IdleAttack:
    """An attack that does nothing: whoever trains by it comes to hold against it, and against
    nothing else.
    """

    domains: ClassVar = frozenset({"vector"})
    distances: ClassVar = frozenset({"linf"})
    budgeted: ClassVar = True

    def craft(self, network, batch, threat, rng):
        return batch.x

    def loss(self, network, batch, x_adv):
        return F.cross_entropy(network(x_adv), batch.y, reduction="none")

    def cost(self):
        return 1, 1

    def safer(self):
        return "pgd(steps=3)"
