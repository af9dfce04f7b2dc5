"""Every attack on every kind of input: bounds of each channel, and shapes that have nothing to spare."""

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
    "ddn": {"steps": 12},
    "pgd-estimated": {"steps": 6, "pairs": 3},
    "cw": {"steps": 15, "searches": 3, "step_size": 0.1, "init_c": 1.0},
    "ead": {"steps": 15, "searches": 3, "step_size": 0.1, "init_c": 1.0},
    "square": {"steps": 12},
    "simba": {"steps": 10},
    "bandits": {"steps": 5},
    "nes": {"steps": 2, "samples": 6},
    "sparse-rs": {"steps": 10},
    "hop-skip-jump": {"steps": 1, "samples": 6, "starts": 4},
}
SHAPES = {
    "vector": [(1,), (13,)],
    "signal": [(5, 3)],
    "image": [(1, 1, 1), (2, 1, 5)],
    "video": [(1, 2, 1, 1), (3, 2, 1, 4)],
}
ATTACKS = plugins.names("attack")


def attack_of(name):
    return plugins.build("attack", name, SHORT.get(name, {}))


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_is_for_all_kinds_of_inputs(name):
    assert attack_of(name).domains == set(KINDS)


@pytest.mark.parametrize("name", ATTACKS)
def test_bounds_of_each_channel_are_bounds(name):
    """Given once or for each channel, they mean the same; the checker of attacks gives them once."""
    attack = attack_of(name)
    for kind, norm in zip(KINDS, itertools.cycle(sorted(attack.distances))):  # each kind, and each distance
        problem = linear_problem(kind, norm, n=4)
        domain, model = problem.model.domain, problem.model
        channels = domain.shape[0]
        channel_model = LinearModel(model.weight, model.bias, replace(domain, low=(0.0,) * channels, high=(1.0,) * channels))
        eps = 1.5 * problem.margin
        uniform, per_channel = (
            run_attack(attack, one, problem.batch.x, problem.batch.y, eps, norm) for one in (model, channel_model)
        )
        assert torch.equal(uniform.fooled, per_channel.fooled) and torch.equal(
            uniform.costs.forwards, per_channel.costs.forwards
        ), (kind, norm)
        assert torch.allclose(uniform.best.closest, per_channel.best.closest, atol=1e-5), (kind, norm)


@pytest.mark.parametrize("name", ATTACKS)
def test_inputs_with_nothing_to_spare(name):
    """One value, one row, one frame; wide bounds; everything within reach: no attack breaks, and what it finds is in bounds."""
    attack, successes = attack_of(name), 0
    spaces = [(kind, shape) for kind, shapes in SHAPES.items() for shape in shapes]
    for (kind, shape), norm in zip(spaces, itertools.cycle(sorted(attack.distances))):  # each space, and each distance
        domain, size = Domain(kind=kind, shape=shape, low=-2.0, high=6.0), math.prod(shape)
        x = -2 + 8 * Streams.of(1, torch.arange(5)).uniform(*shape)
        weight = Streams.of(0, torch.arange(1)).fold(str(shape)).normal(3, size)[0]
        model = LinearModel(weight, -2 * weight.sum(1), domain)
        low, high = domain.bounds()
        eps = float(distance(norm).size((high - low).expand(1, *shape)))
        ledger = run_attack(attack, model, x, model.predict(x).argmax(1), eps, norm, batch_size=4)
        assert domain.excess(ledger.best.closest) <= domain.slack, (kind, shape, norm)
        successes += int(ledger.fooled.sum())
    assert successes
