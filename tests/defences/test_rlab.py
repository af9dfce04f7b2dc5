"""The defence rlab: what it crafts is legal, within the queries that it declares, and clean inputs
are learned beside.
"""

import pytest
import torch
from torch.nn import functional as F

from _helpers import batch_of, distance
from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.threat import Threat

DOMAIN = Domain(kind="image", shape=(1, 6, 6))


class Corner:
    """Two classes by the mean of one corner; counts the inputs that it answers."""

    def __init__(self):
        self.asked = 0

    def __call__(self, x):
        self.asked += len(x)
        z = 20 * (x[:, 0, :3, :3].mean((1, 2)) - 0.5)
        return torch.stack([-z, z], 1)


def crafted(norm="l2", seed=3, eps=0.6, n=12):
    network = Corner()
    batch = batch_of(
        0.5 + 0.05 * torch.randn(n, 1, 6, 6, generator=torch.Generator().manual_seed(1)),
        torch.zeros(n).long(),
    )
    batch = batch_of(batch.x, network(batch.x).argmax(1))
    network.asked = 0
    defence = plugins.build("defence", "rlab", {"steps": 10, "patch": 2})
    threat = Threat(distance=distance(norm), eps=torch.full((n,), eps), domain=DOMAIN)
    before = batch.x.clone()
    x = defence.craft(network, batch, threat, torch.Generator().manual_seed(seed))
    assert torch.equal(batch.x, before)
    return x, batch, network, defence


@pytest.mark.parametrize(("norm", "eps"), [("l2", 0.6), ("linf", 0.2)])
def test_what_is_learned_is_within_the_budget_and_misleads_the_network(norm, eps):
    x, batch, network, defence = crafted(norm, eps=eps)
    assert network.asked <= len(batch) * (defence.cost()[0] - 2), (
        "two of the forwards are those of the update"
    )
    assert (distance(norm).size(x - batch.x) <= eps + 1e-5).all() and x.min() >= 0 and x.max() <= 1
    lead = network(batch.x).gather(1, batch.y[:, None]) - network(x).gather(1, batch.y[:, None])
    assert (network(x).argmax(1) != batch.y).float().mean() > 0.5 and (
        lead > 0
    ).float().mean() > 0.8


def test_the_same_random_numbers_craft_the_same_and_others_something_else():
    first, repetition, other = (crafted(seed=seed)[0] for seed in (3, 3, 4))
    assert torch.equal(first, repetition) and not torch.equal(first, other)


def test_clean_inputs_are_learned_beside():
    x, batch, network, defence = crafted()
    losses = [
        F.cross_entropy(network(inputs), batch.y, reduction="none") for inputs in (batch.x, x)
    ]
    assert torch.allclose(defence.loss(network, batch, x), sum(losses) / 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"steps": "0"}, "steps")],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(Exception, match=message):
        plugins.build("defence", "rlab", settings)
