"""Planted violators for the checker of defences: each breaks one rule, and is told which."""

from contextlib import contextmanager
from dataclasses import dataclass

import torch

from _helpers import unrefused
from brinell import plugins
from brinell.testing import check_defence

PGD, AWP = (plugins.load("defence", name) for name in ("pgd", "awp"))
SHORT = {"steps": 2}


class WritesIntoTheBatch(PGD):
    def craft(self, network, batch, threat, rng):
        return batch.x.add_(0)


class WritesNewValues(PGD):
    def craft(self, network, batch, threat, rng):
        x = super().craft(network, batch, threat, rng)
        batch.x.mul_(0.5)
        return x


class LeavesTheBounds(PGD):
    def craft(self, network, batch, threat, rng):
        return batch.x + 1


class GivesNaN(PGD):
    def craft(self, network, batch, threat, rng):
        return batch.x * float("nan")


class KeepsGradients(PGD):
    def craft(self, network, batch, threat, rng):
        return super().craft(network, batch, threat, rng).requires_grad_()


class DrawsOnItsOwn(PGD):
    def craft(self, network, batch, threat, rng):
        generator = torch.Generator()
        generator.seed()
        return super().craft(network, batch, threat, generator)


class DrawsGlobally(PGD):
    def craft(self, network, batch, threat, rng):
        torch.rand(1)
        return super().craft(network, batch, threat, rng)


class LeavesGradients(PGD):
    def craft(self, network, batch, threat, rng):
        network(batch.x).sum().backward()
        return super().craft(network, batch, threat, rng)


class AnotherShape(PGD):
    def craft(self, network, batch, threat, rng):
        return batch.x[:1]


class Fails(PGD):
    def craft(self, network, batch, threat, rng):
        raise IndexError("here")


class OneLoss(PGD):
    def loss(self, network, batch, x_adv):
        return super().loss(network, batch, x_adv).mean()


class NoWayBack(PGD):
    def loss(self, network, batch, x_adv):
        return super().loss(network, batch, x_adv).detach()


class LearnsNothing(PGD):
    def loss(self, network, batch, x_adv):
        return super().loss(network, batch, x_adv) * 0


class Endless(PGD):
    def loss(self, network, batch, x_adv):
        return super().loss(network, batch, x_adv) / 0


class Free(PGD):
    def cost(self):
        return 0, 0


class NoName(PGD):
    def safer(self):
        return None


class StaysMoved(AWP):
    @contextmanager
    def perturbed(self, parameters, loss):
        with super().perturbed(parameters, loss):
            yield
        with torch.no_grad():
            parameters[0].add_(1e-3)


class GoesDown(AWP):
    @contextmanager
    def perturbed(self, parameters, loss):
        with super().perturbed(parameters, lambda: -loss()):
            yield


@dataclass(frozen=True, kw_only=True)
class NamesItsOwnEps(PGD):
    eps: float = 0.1


VIOLATORS = [
    (WritesNewValues, "wrote into the batch"),
    (LeavesTheBounds, "outside the bounds"),
    (GivesNaN, "outside the bounds"),
    (KeepsGradients, "gives inputs with a gradient"),
    (DrawsOnItsOwn, "other inputs for the same generator"),
    (DrawsGlobally, "drew from a global random generator"),
    (LeavesGradients, "left gradients at the weights"),
    (AnotherShape, "inputs of another shape"),
    (Fails, "failed with IndexError: here"),
    (OneLoss, "not one loss for each sample"),
    (NoWayBack, "without a way back to the weights"),
    (LearnsNothing, "moves no weight"),
    (Endless, "not finite"),
    (Free, "costs no forward"),
    (NoName, "what is safer"),
    (StaysMoved, "does not put the weights back"),
    (GoesDown, "no larger"),
    (NamesItsOwnEps, "setting eps has another name here"),
]


def test_each_is_caught():
    weights = [(violator, rule) for violator, rule in VIOLATORS if issubclass(violator, AWP)]
    assert not unrefused(check_defence, weights)
    assert not unrefused(check_defence, [row for row in VIOLATORS if row not in weights], **SHORT)


def test_what_breaks_no_rule_passes():
    check_defence(PGD, **SHORT)
    check_defence(WritesIntoTheBatch, **SHORT)  # the values stay
