"""An attack that keeps every rule, for violators to break one each."""

from dataclasses import dataclass
from typing import ClassVar

from brinell.core.losses import margin
from brinell.core.model import Access


@dataclass(frozen=True, kw_only=True)
class Honest:
    """One gradient step of full length, then a look: what every violator below is but for one
    thing.
    """

    access: ClassVar[Access] = Access.GRADIENTS
    distances: ClassVar[frozenset[str]] = frozenset({"linf"})
    domains: ClassVar[frozenset[str]] = frozenset({"vector"})
    family: ClassVar[str] = "budgeted"
    targeted: ClassVar[bool] = True

    def cost(self, classes):
        return 2, 1

    def __call__(self, ledger, batch, threat, rng):
        x, _ = self.step(ledger, batch, threat)
        if ledger.active(batch.ids).any():
            ledger.scores(batch.ids, x)

    def step(self, ledger, batch, threat):
        grad = ledger.gradient(batch.ids, batch.x, margin).grad
        return threat.project(batch.x + threat.eps[:, None] * grad.sign(), batch.x), grad
