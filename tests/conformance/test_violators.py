"""For each rule of the attack checker a planted violator that it must catch, and an honest attack
that it must pass."""

import contextlib
import gc
import itertools
import random
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from _helpers import unrefused
from _honest import Honest
from brinell.core.model import Access
from brinell.testing import LinearModel, check_attack


@dataclass(frozen=True, kw_only=True)
class Noise(Honest):
    """An honest black-box attack: as strong as random noise, and no stronger."""

    access: ClassVar[Access] = Access.LABELS

    def cost(self, classes):
        return 10, 0

    def __call__(self, ledger, batch, threat, rng):
        for draw in range(10):
            stands = ledger.active(batch.ids)
            if not stands.any():
                return
            batch, threat, rng = batch.select(stands), threat.select(stands), rng.select(stands)
            delta = (
                threat.distance.sample(rng.fold(draw), tuple(batch.x.shape[1:]))
                * threat.eps[:, None]
            )
            ledger.labels(batch.ids, threat.project(batch.x + delta, batch.x))


def ledger_behind(oracle):
    return oracle.scores.func.__self__


class NoOp(Honest):
    def __call__(self, ledger, batch, threat, rng):
        pass


class NoOpBlackBox(NoOp):
    access = Access.LABELS


class WeakBlackBox(Honest):
    """Looks at one corner far from the boundary."""

    access = Access.SCORES

    def __call__(self, ledger, batch, threat, rng):
        ledger.scores(batch.ids, batch.x)


class OverBudget(Honest):
    def __call__(self, ledger, batch, threat, rng):
        x, grad = self.step(ledger, batch, threat)
        ledger.scores(batch.ids, x + 0.1 * threat.eps[:, None] * grad.sign())


class LooksBeyond(Honest):
    """Twice as far first, as it says: honest, too."""

    def cost(self, classes):
        return 3, 1

    def reach(self, distance):
        return 2.0

    def __call__(self, ledger, batch, threat, rng):
        x, grad = self.step(ledger, batch, threat)
        for point in (threat.domain.clamp(batch.x + 2 * threat.eps[:, None] * grad.sign()), x):
            active = ledger.active(batch.ids)
            if active.any():
                ledger.scores(batch.ids[active], point[active])


def test_the_honest_ones_pass():
    for honest in (Honest, Noise, LooksBeyond):
        check_attack(honest)


class LooksFartherThanItSays(LooksBeyond):
    def reach(self, distance):
        return 1.5


class WidensTheThreat(Honest):
    def __call__(self, ledger, batch, threat, rng):
        threat.eps.mul_(2)
        super().__call__(ledger, batch, threat, rng)


class OutOfBounds(Honest):
    def __call__(self, ledger, batch, threat, rng):
        ledger.scores(batch.ids, batch.x - 1)


class AsksNaN(Honest):
    def __call__(self, ledger, batch, threat, rng):
        ledger.scores(batch.ids, batch.x * torch.nan)


class GradientPeeker(Honest):
    access = Access.SCORES


class ScorePeeker(Honest):
    access = Access.LABELS

    def __call__(self, ledger, batch, threat, rng):
        ledger.scores(batch.ids, batch.x)


class BackpropThroughScores(Honest):
    access = Access.SCORES

    def __call__(self, ledger, batch, threat, rng):
        x = batch.x.clone().requires_grad_()
        with torch.enable_grad():
            ledger.scores(batch.ids, x).sum().backward()


class DrawsFromTorch(Honest):
    def __call__(self, ledger, batch, threat, rng):
        torch.rand(1)
        super().__call__(ledger, batch, threat, rng)


class DrawsFromNumpy(Honest):
    def __call__(self, ledger, batch, threat, rng):
        np.random.rand()  # noqa: NPY002
        super().__call__(ledger, batch, threat, rng)


class DrawsFromPython(Honest):
    def __call__(self, ledger, batch, threat, rng):
        random.random()
        super().__call__(ledger, batch, threat, rng)


class SeedsTorch(Honest):
    def __call__(self, ledger, batch, threat, rng):
        torch.manual_seed(1)  # noqa: TID251
        super().__call__(ledger, batch, threat, rng)


class WritesIntoTheInputs(Honest):
    def __call__(self, ledger, batch, threat, rng):
        super().__call__(ledger, batch, threat, rng)
        batch.x.data[0] += 0.001


class MovesTheCleanInputs(Honest):
    """Brings the clean input nearer to the boundary before it measures a step from it."""

    def __call__(self, ledger, batch, threat, rng):
        x, _ = self.step(ledger, batch, threat)
        batch.x.copy_(x)
        super().__call__(ledger, batch, threat, rng)


class WritesIntoTheLabels(Honest):
    def __call__(self, ledger, batch, threat, rng):
        super().__call__(ledger, batch, threat, rng)
        batch.y[0] = 1 - batch.y[0]


class SwapsTheLabels(Honest):
    """Asks about the clean input with another label on it."""

    def __call__(self, ledger, batch, threat, rng):
        batch.y.copy_(1 - batch.y)
        ledger.scores(batch.ids, batch.x)


class ChangesTheWeights(Honest):
    def __call__(self, ledger, batch, threat, rng):
        super().__call__(ledger, batch, threat, rng)
        for thing in gc.get_objects():
            if type(thing) is LinearModel:
                thing.weight.mul_(2)


class CallsAroundTheLedger(Honest):
    def __call__(self, ledger, batch, threat, rng):
        ledger_behind(ledger)._model.predict(batch.x)
        super().__call__(ledger, batch, threat, rng)


class ForgesASuccess(Honest):
    def __call__(self, ledger, batch, threat, rng):
        super().__call__(ledger, batch, threat, rng)
        ledger_behind(ledger).best.first_success.fill_(1)


class ForgesTheCount(Honest):
    def __call__(self, ledger, batch, threat, rng):
        super().__call__(ledger, batch, threat, rng)
        ledger_behind(ledger).costs.forwards.zero_()


class MindsThePosition(Honest):
    """Steps shorter in the second half of the batch, but far enough to win at 1.05 times the
    margin."""

    def __call__(self, ledger, batch, threat, rng):
        x, _ = self.step(ledger, batch, threat)
        share = torch.where(torch.arange(len(batch)) < len(batch) // 2, 1.0, 0.97)
        ledger.scores(batch.ids, batch.x + share[:, None] * (x - batch.x))


def leave_the_flattest(batch, x, grad, selection):
    """In the chosen rows, the step without its move along the flattest coordinate: as good, but
    another input.
    """
    flattest = grad.abs().argmin(1, keepdim=True)
    return torch.where(selection[:, None], x.scatter(1, flattest, batch.x.gather(1, flattest)), x)


class FindsOtherInputsByPosition(Honest):
    def __call__(self, ledger, batch, threat, rng):
        x, grad = self.step(ledger, batch, threat)
        ledger.scores(
            batch.ids,
            leave_the_flattest(batch, x, grad, torch.arange(len(batch)) < len(batch) // 2),
        )


class DoesNotRepeat(Honest):
    calls: ClassVar[Any] = itertools.count()

    def __call__(self, ledger, batch, threat, rng):
        x, grad = self.step(ledger, batch, threat)
        odd = torch.full((len(batch),), next(self.calls) % 2 == 1)
        ledger.scores(batch.ids, leave_the_flattest(batch, x, grad, odd))


class IgnoresTheQueryBudget(Honest):
    def cost(self, classes):
        return 7, 1

    def __call__(self, ledger, batch, threat, rng):
        x, _ = self.step(ledger, batch, threat)
        for share in (0.0, 0.2, 0.4, 0.6, 1.0):
            ledger.scores(batch.ids, batch.x + share * (x - batch.x))


class CostsMoreForwards(Honest):
    def cost(self, classes):
        return 1, 1


class CostsMoreBackwards(Honest):
    def cost(self, classes):
        return 2, 0


class Breaks(Honest):
    def __call__(self, ledger, batch, threat, rng):
        raise ZeroDivisionError("halved a step of no length")


class ShapesThatDoNotFit(Honest):
    def __call__(self, ledger, batch, threat, rng):
        ledger.scores(batch.ids[:1], batch.x)


MESSAGES = {
    NoOp: "missed 12 of 12 at 1.05 times the exact margin in linf",
    WeakBlackBox: "is weaker than random noise",
    NoOpBlackBox: "is weaker than random noise",
    OverBudget: "left the budget",
    LooksFartherThanItSays: "beyond 1.5 eps in linf",
    WidensTheThreat: "left the budget",
    OutOfBounds: "left the bounds of the data",
    AsksNaN: "left the bounds of the data by nan",
    GradientPeeker: "asked for gradients and has access to scores only",
    ScorePeeker: "asked for scores and has access to labels only",
    BackpropThroughScores: "failed on vector inputs in linf with RuntimeError",
    DrawsFromTorch: "drew from a global random generator",
    DrawsFromNumpy: "drew from a global random generator",
    DrawsFromPython: "drew from a global random generator",
    SeedsTorch: "drew from a global random generator",
    WritesIntoTheInputs: "wrote into the clean inputs or labels",
    MovesTheCleanInputs: "wrote into the clean inputs",
    WritesIntoTheLabels: "wrote into the clean inputs or labels",
    SwapsTheLabels: "wrote into the clean inputs or labels",
    ChangesTheWeights: "changed the weights of the model",
    CallsAroundTheLedger: "called the model around the ledger",
    ForgesTheCount: "called the model around the ledger",
    ForgesASuccess: "was credited with a success at 0.0 times the exact margin",
    MindsThePosition: "gave other verdicts when the batch was split or reordered",
    FindsOtherInputsByPosition: "found other inputs when the batch was split or reordered",
    DoesNotRepeat: "gave two results for the same samples and streams",
    IgnoresTheQueryBudget: "queries is spent",
    CostsMoreForwards: "spent 2 forwards and 1 backwards on a sample and says that it costs 1 and 1",
    CostsMoreBackwards: "spent 2 forwards and 1 backwards on a sample and says that it costs 2 and 0",
    Breaks: "failed on vector inputs in linf with ZeroDivisionError: halved a step",
    ShapesThatDoNotFit: "a query of 1 ids came with inputs of shape",
}


@contextlib.contextmanager
def generators_kept():
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])  # noqa: NPY002


def test_caught():
    """A violator inherits a frozen dataclass without settings and so is one."""
    with generators_kept():
        assert not unrefused(
            check_attack,
            [(each, f"^{each.__name__} .*{re.escape(rule)}") for each, rule in MESSAGES.items()],
        )
