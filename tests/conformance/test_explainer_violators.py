"""Each rule of the checker of explainers catches the mistake that it is there for."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from _helpers import unrefused
from brinell.core.contracts import KINDS, Access
from brinell.explainers._asking import class_logit, over_channels, places_of
from brinell.testing import check_explainer
from brinell.testing.explainers import ROWS


@dataclass(frozen=True, kw_only=True)
class Good:
    """The gradient, whose mistakes follow."""

    access: ClassVar = Access.GRADIENTS
    domains: ClassVar = frozenset(KINDS)

    def __call__(self, oracle, batch, domain, rng):
        return over_channels(oracle.gradient(batch.ids, batch.x, class_logit).grad.abs(), domain)


class Flat(Good):
    def __call__(self, oracle, batch, domain, rng):
        return super().__call__(oracle, batch, domain, rng).flatten(1)[:, :3]


class NotFinite(Good):
    def __call__(self, oracle, batch, domain, rng):
        return super().__call__(oracle, batch, domain, rng) / 0.0


class Global(Good):
    def __call__(self, oracle, batch, domain, rng):
        return super().__call__(oracle, batch, domain, rng) + 1e-9 * torch.rand(1)


class Writes(Good):
    def __call__(self, oracle, batch, domain, rng):
        maps = super().__call__(oracle, batch, domain, rng)
        batch.x[0] += 0.1
        return maps


class Hooked(Good):
    def attach(self, module, domain):
        module.register_forward_hook(lambda *_: None)
        return self


class Counting(Good):
    calls: ClassVar[list] = []

    def __call__(self, oracle, batch, domain, rng):
        self.calls.append(1)
        return super().__call__(oracle, batch, domain, rng) + 1e-3 * len(self.calls)


class Company(Good):
    def __call__(self, oracle, batch, domain, rng):
        maps = super().__call__(oracle, batch, domain, rng)
        return maps - maps.mean(0) + len(batch)


class Greedy(Good):
    access: ClassVar = Access.SCORES


class Blind(Good):
    def __call__(self, oracle, batch, domain, rng):
        return torch.ones(len(batch), *places_of(domain))


@dataclass(frozen=True, kw_only=True)
class Seeded(Good):
    """With a seed."""

    seed: int = 0


RULES = [
    (Flat, "gives maps of shape"),
    (NotFinite, "gives NaN or infinity"),
    (Global, "drew from a global random generator"),
    (Writes, "wrote into what it was given"),
    (Hooked, "left a hook on the network"),
    (Counting, "gave two maps of the same inputs"),
    (Company, "gave other maps when the batch was split"),
    (Greedy, "has access to scores only"),
    (Blind, "does not find the band"),
    (Seeded, "setting seed has another name here"),
]


def test_each_mistake_is_caught():
    assert not unrefused(check_explainer, RULES)


def test_the_explainer_without_mistakes_passes():
    assert ROWS > 3
    check_explainer(Good)
