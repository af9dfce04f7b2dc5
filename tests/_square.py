"""Shared helpers of the tests of the Square Attack: a model that is never fooled, and the queries
of the attack.
"""

import torch

from _helpers import Recorder, run_attack
from brinell.attacks.square import Square
from brinell.core.domain import Domain
from brinell.core.losses import margin
from brinell.core.streams import Streams

IMAGE = Domain(kind="image", shape=(3, 12, 12))


def unbeaten(classes=2):
    """A linear model that is never fooled, so that every query is a proposal; its scores move with
    each value.
    """

    def logits(x):
        flat = x.flatten(1)
        weight = torch.linspace(-1, 1, flat.shape[1]) + 0.3 * torch.sin(
            torch.arange(flat.shape[1]) * 1.7
        )
        return torch.stack([torch.full((len(x),), 1e4), flat @ weight], 1)

    return logits


def record_queries(domain, norm, eps, *, n=3, steps=30, seed=0, **settings):
    """Clean inputs (n, *shape), and (steps + 1, n, *shape) of what the attack asked about, the
    start first."""
    x = Streams.of(9, torch.arange(n)).uniform(*domain.shape) * 0.4 + 0.3
    model = Recorder(unbeaten(), domain)
    ledger = run_attack(Square(steps=steps, **settings), model, x, [0] * n, eps, norm, seed=seed)
    assert ledger.costs.forwards.tolist() == [steps + 1] * n and not ledger.costs.backwards.any()
    return x, torch.stack(model.calls)


def proposals(calls):
    """For each proposal, the best input before it and whether it was taken."""
    model, y = unbeaten(), torch.zeros(calls.shape[1], dtype=torch.long)
    best, highest = calls[0].clone(), margin(model(calls[0]), y)
    for proposal in calls[1:]:
        value = margin(model(proposal), y)
        accepted = value > highest
        yield best.clone(), proposal, accepted
        best[accepted], highest = proposal[accepted], torch.maximum(value, highest)
