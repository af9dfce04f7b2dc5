"""What is measured while a network is trained: its accuracy on validation samples, untouched, by the training attack and by PGD.

Catastrophic overfitting is robustness to the training attack alone (Wong, Rice & Kolter 2020, Fast is better than free,
section 5.4): within a few steps the accuracy by the training attack rises and that by an attack of several steps falls to 0. So
both are measured on the same samples, at the budget that the training has reached.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Defence, Distance, Domain, Threat
from brinell.core.intervals import wilson
from brinell.core.oracle import Batch
from brinell.training.recipe import Recipe, Trained

GAP = 0.8
"""PGD must leave this share of the accuracy that the training attack leaves, intervals considered."""
COLLAPSE = 0.25
"""Of what clean accuracy was above a guess, this share must be left: a training at too high a rate ends at one answer for all."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """Accuracy on validation samples at one point of a training."""

    n: int
    clean: int
    """Right on untouched inputs."""
    seen: int
    """Right on what the recipe crafts at the budget of the moment."""
    attacked: int
    """Right after PGD at the budget of the moment."""

    def collapsed(self, before: float, guess: float) -> bool:
        """Whether the network has lost nearly all that its clean accuracy `before` was above that of a `guess`, beyond chance."""
        clean = wilson(self.clean, self.n)
        return clean is not None and clean.high < guess + COLLAPSE * (before - guess)

    @property
    def overfits(self) -> bool:
        """Whether the network holds against the training attack and not against PGD, beyond chance."""
        seen, attacked = wilson(self.seen, self.n), wilson(self.attacked, self.n)
        return seen is not None and attacked is not None and attacked.high < GAP * seen.low


@torch.no_grad()
def correct(trained: Trained, x: Tensor, y: Tensor) -> Tensor:
    """(n,) bool: right in evaluation mode."""
    with trained.attacked():
        return trained.predict(x).argmax(1) == y


def attack(trained: Trained, by: Defence | Recipe, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
    """(n, *shape) what a defence or recipe makes of a batch."""
    if isinstance(by, Recipe):
        return by.craft(trained, batch, threat, rng)
    with trained.attacked():
        return by.craft(trained.predict, batch, threat, rng)


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Validation samples, and how they are attacked."""

    x: Tensor
    y: Tensor
    distance: Distance
    domain: Domain
    strong: Defence
    """PGD of ten steps."""
    batch_size: int
    seed: int

    @property
    def guess(self) -> float:
        """The accuracy of whoever always names the most frequent class."""
        return float(self.y.bincount().max()) / len(self.y)

    def check(self, trained: Trained, recipe: Recipe, eps: float, n: int) -> Check:
        """All three accuracies on the first `n` samples."""
        clean = seen = attacked = 0
        rng = torch.Generator(self.x.device).manual_seed(self.seed)
        for x, y in zip(self.x[:n].split(self.batch_size), self.y[:n].split(self.batch_size), strict=True):  # type: ignore[no-untyped-call]
            batch, threat = self._asked(x, y, eps)
            clean += int(correct(trained, x, y).sum())
            crafted = attack(trained, recipe, batch, threat, rng)
            # What is learned from may lie beyond the budget, as the noise of N-FGSM does; what PGD is held against may not.
            seen += int(correct(trained, threat.project(crafted, x) if recipe.budgeted else crafted, y).sum())
            attacked += int(correct(trained, attack(trained, self.strong, batch, threat, rng), y).sum())
        return Check(n=min(n, len(self.y)), clean=clean, seen=seen, attacked=attacked)

    def robust(self, trained: Trained, eps: float, n: int) -> int:
        """How many of the first `n` samples are right after PGD."""
        rng = torch.Generator(self.x.device).manual_seed(self.seed)
        found = 0
        for x, y in zip(self.x[:n].split(self.batch_size), self.y[:n].split(self.batch_size), strict=True):  # type: ignore[no-untyped-call]
            batch, threat = self._asked(x, y, eps)
            found += int(correct(trained, attack(trained, self.strong, batch, threat, rng), y).sum())
        return found

    def _asked(self, x: Tensor, y: Tensor, eps: float) -> tuple[Batch, Threat]:
        ids = torch.arange(len(x), device=x.device)
        radii = torch.full((len(x),), eps, device=x.device)
        return Batch(ids=ids, x=x, y=y), Threat(distance=self.distance, eps=radii, domain=self.domain)
