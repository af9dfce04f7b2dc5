"""Every attack on every kind of input: bounds of each channel, and shapes that have nothing to
spare.
"""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from _helpers import distance, run_attack
from brinell import plugins
from brinell.core.domain import KINDS, Domain
from brinell.core.streams import Streams
from brinell.testing.linear import LinearModel, linear_problem

SHORT = {
    "rlab": {"steps": 3, "draws": 1, "clean_up": False},
    "apgd": {"steps": 4},
    "pgd": {"steps": 3},
    "fab": {"steps": 3, "targets": 1},
    "fmn": {"steps": 3},
    "ddn": {"steps": 8},
    "apgd-map": {"steps": 6},
    "mi-fgsm": {"steps": 3},
    "ray-s": {"steps": 10},
    "pgd-estimated": {"steps": 6, "pairs": 3},
    "sigma-zero": {"steps": 8},
    "sparse-pgd": {"steps": 8},
    "square": {"steps": 12},
    "simba": {"steps": 10},
    "sparse-rs": {"steps": 10},
    "cgba": {"steps": 1, "samples": 6, "starts": 4},
    "hop-skip-jump": {"steps": 1, "samples": 6, "starts": 4},
    "boundary-walk": {"steps": 3, "restarts": 1},
}
SPACES = [
    ("vector", (1,)),
    ("signal", (5, 3)),
    ("image", (1, 1, 1)),
    ("image", (2, 1, 5)),
    ("video", (1, 2, 1, 1)),
]
ATTACKS = plugins.names("attack")


def attack_of(name):
    return plugins.build("attack", name, SHORT.get(name, {}))


def test_every_attack_is_for_all_kinds_of_inputs():
    assert not [name for name in ATTACKS if attack_of(name).domains != set(KINDS)]


@pytest.mark.parametrize("part", range(5))
def test_bounds_of_each_channel_are_bounds(part):
    """Given once or for each channel, they mean the same; the checker of attacks gives them once."""
    for index, name in enumerate(ATTACKS[part::5]):
        attack, kind = attack_of(name), KINDS[(part + index) % len(KINDS)]
        norm = sorted(attack.distances)[index % len(attack.distances)]
        problem = linear_problem(kind, norm, n=3)
        domain, model = problem.model.domain, problem.model
        channels = domain.shape[0]
        channel_model = LinearModel(
            model.weight, model.bias, replace(domain, low=(0.0,) * channels, high=(1.0,) * channels)
        )
        eps = 1.5 * problem.margin
        uniform, per_channel = (
            run_attack(attack, each, problem.batch.x, problem.batch.y, eps, norm)
            for each in (model, channel_model)
        )
        assert torch.equal(uniform.fooled, per_channel.fooled), (name, kind, norm)
        assert torch.equal(uniform.costs.forwards, per_channel.costs.forwards), (name, kind, norm)
        assert torch.allclose(uniform.best.closest, per_channel.best.closest, atol=1e-5), (
            name,
            kind,
            norm,
        )


@pytest.mark.parametrize("part", range(10))
def test_inputs_with_nothing_to_spare(part):
    """One value, one row, one frame; wide bounds; everything within reach: no attack breaks, and
    what it finds is in bounds.
    """
    for name in ATTACKS[part::10]:
        attack, successes = attack_of(name), 0
        for (kind, shape), norm in zip(
            SPACES, itertools.cycle(sorted(attack.distances))
        ):  # each space, and each distance
            domain, size = Domain(kind=kind, shape=shape, low=-2.0, high=6.0), math.prod(shape)
            x = -2 + 8 * Streams.of(1, torch.arange(4)).uniform(*shape)
            weight = Streams.of(0, torch.arange(1)).fold(str(shape)).normal(3, size)[0]
            model = LinearModel(weight, -2 * weight.sum(1), domain)
            low, high = domain.bounds()
            eps = float(distance(norm).size((high - low).expand(1, *shape)))
            ledger = run_attack(attack, model, x, model.predict(x).argmax(1), eps, norm)
            assert domain.excess(ledger.best.closest) <= domain.slack, (name, kind, shape, norm)
            successes += int(ledger.fooled.sum())
        assert successes, name
