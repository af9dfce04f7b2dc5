"""Measurements during a training: accuracy on clean samples, after its own attack, after PGD.

Catastrophic overfitting is robustness to the training attack alone (Wong, Rice & Kolter 2020, Fast
is better than free, section 5.4): within a few steps the accuracy by the training attack rises, and
that by an attack of several steps falls to 0. So both are measured on the same samples, at the
current budget of the training.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Distance, Domain, Threat
from brinell.core.intervals import wilson
from brinell.core.oracle import Batch
from brinell.training.recipe import Recipe, TrainedNetwork

PGD_STEPS = 10
STRONG = Recipe.of(f"pgd(steps={PGD_STEPS})")
"""The attack against which every recipe is validated."""
GAP = 0.8
"""PGD must leave this share of the accuracy that the training attack leaves, intervals
considered."""
COLLAPSE = 0.25
"""Of what clean accuracy was above a guess, this share must be left: a training at too high a
rate ends at one answer for all."""


@dataclass(frozen=True, kw_only=True)
class AccuracyCheck:
    """Accuracy on validation samples at one point of a training."""

    n: int
    clean: int
    """Number of clean inputs that are classified correctly."""
    seen: int
    """Right on what the recipe crafts at the budget of the moment."""
    attacked: int
    """Right after PGD at the budget of the moment."""

    def collapsed(self, before: float, guess: float) -> bool:
        """True if the network has significantly lost nearly all of its lead over a `guess`.

        `before` is its best clean accuracy so far.
        """
        clean = wilson(self.clean, self.n)
        return clean is not None and clean.high < guess + COLLAPSE * (before - guess)

    @property
    def overfits(self) -> bool:
        """True if the network is robust to the training attack and significantly less to PGD."""
        trained_attack = wilson(self.seen, self.n)
        attacked = wilson(self.attacked, self.n)
        return (
            trained_attack is not None
            and attacked is not None
            and attacked.high < GAP * trained_attack.low
        )


@torch.no_grad()
def is_correct(trained: TrainedNetwork, x: Tensor, y: Tensor) -> Tensor:
    """(n,) bool: right in evaluation mode."""
    with trained.evaluation_mode():
        return trained.predict(x).argmax(1) == y


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Validation samples, on which a recipe is validated by PGD of ten steps."""

    x: Tensor
    y: Tensor
    distance: Distance
    domain: Domain
    batch_size: int
    seed: int

    @property
    def guess(self) -> float:
        """Accuracy of a constant answer, the most frequent class."""
        return float(self.y.bincount().max()) / len(self.y)

    def check(self, trained: TrainedNetwork, recipe: Recipe, eps: float, n: int) -> AccuracyCheck:
        """All three accuracies on the first `n` samples."""
        clean = 0
        seen = 0
        attacked = 0
        rng = self._generator()
        for batch, threat in self._batches(eps, n):
            x = batch.x
            y = batch.y
            clean += int(is_correct(trained, x, y).sum())

            # What is learned from may lie beyond the budget, as the noise of N-FGSM does; what PGD
            # is held against may not.
            crafted = recipe.craft(trained, batch, threat, rng)
            if recipe.budgeted:
                crafted = threat.project(crafted, x)
            seen += int(is_correct(trained, crafted, y).sum())

            strong = STRONG.craft(trained, batch, threat, rng)
            attacked += int(is_correct(trained, strong, y).sum())
        return AccuracyCheck(n=min(n, len(self.y)), clean=clean, seen=seen, attacked=attacked)

    def robust(self, trained: TrainedNetwork, eps: float, n: int) -> int:
        """Number of the first `n` samples that are classified correctly after PGD."""
        rng = self._generator()
        right = 0
        for batch, threat in self._batches(eps, n):
            x_adv = STRONG.craft(trained, batch, threat, rng)
            right += int(is_correct(trained, x_adv, batch.y).sum())
        return right

    def _generator(self) -> torch.Generator:
        return torch.Generator(self.x.device).manual_seed(self.seed)

    def _batches(self, eps: float, n: int) -> Iterator[tuple[Batch, Threat]]:
        """The first `n` samples in batches, each with its threat at a budget."""
        batches = self.x[:n].split(self.batch_size)  # type: ignore[no-untyped-call]
        classes = self.y[:n].split(self.batch_size)  # type: ignore[no-untyped-call]
        for x, y in zip(batches, classes, strict=True):
            radii = torch.full((len(x),), eps, device=x.device)
            batch = Batch(ids=torch.arange(len(x), device=x.device), x=x, y=y)
            yield batch, Threat(distance=self.distance, eps=radii, domain=self.domain)
