"""Targeted attacks against linear models, whose exact distance to the target class is known."""

import torch

from _helpers import distance
from brinell import plugins
from brinell.core.contracts import reach_of
from brinell.core.criterion import Targeted
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.testing.linear import linear_problem


def led(name, problem, norm, eps, classes, **settings):
    attack = plugins.build("attack", name, settings)
    batch = problem.batch
    threat = Threat(
        distance=distance(norm), eps=eps, domain=problem.model.domain, criterion=Targeted(classes)
    )
    ledger = Ledger(
        problem.model,
        batch,
        threat,
        access=attack.access,
        minimal=attack.family == "minimal",
        reach=reach_of(attack, norm),
    )
    attack(ledger.oracle(), batch, threat, Streams.of(0, batch.ids).fold("test"))
    return ledger


def test_apgd_with_targets_takes_the_target_class_alone():
    problem = linear_problem("vector", "l2")
    ledger = led(
        "apgd", problem, "l2", 1.1 * problem.margin, 1 - problem.batch.y, targets=3, loss="margin"
    )
    assert ledger.fooled.all()


def test_the_target_classes_go_with_the_samples():
    """Half of the batch is led to each side; the criterion of a part is the part of the criterion."""
    problem = linear_problem("vector", "l2", n=6)
    far_class = torch.tensor([3, 3, 3, 0, 0, 0])
    ledger = led(
        "pgd",
        problem,
        "l2",
        1.1 * problem.margin,
        torch.where(torch.arange(6) % 2 == 0, 1 - problem.batch.y, far_class),
    )
    assert ledger.fooled.tolist() == [
        True,
        problem.batch.y[1] == 1 and far_class[1] == 0,
        True,
        problem.batch.y[3] == 1,
        True,
        problem.batch.y[5] == 1,
    ]


def test_the_strongest_input_of_a_robust_sample_is_kept():
    problem = linear_problem("vector", "l2", n=4)
    batch, eps = problem.batch, 0.5 * problem.margin
    threat = Threat(distance=distance("l2"), eps=eps, domain=problem.model.domain)
    ledger = Ledger(problem.model, batch, threat, access=Access.SCORES, strongest=True)
    oracle = ledger.oracle()
    way = problem.model.weight[1] - problem.model.weight[0]
    way = way / way.norm() * torch.where(batch.y == 0, 1.0, -1.0)[:, None]
    nearby, nearer = (batch.x + share * eps[:, None] * way for share in (0.3, 0.9))
    for x in (nearby, nearer, batch.x):
        oracle.scores(batch.ids, x)
    assert torch.equal(ledger.best.strongest, nearer) and not ledger.fooled.any()
    oracle.scores(batch.ids[:2].repeat(2), torch.cat([nearby[:2], batch.x[:2]]))
    assert torch.equal(ledger.best.strongest, nearer)
    assert torch.equal(ledger.best.closest, batch.x), "no success, so nothing is closest"
