"""A whole batch played by one policy, and cleaned up: what an attack, a benchmark set and a training run share."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.assignment import Assignment
from brinell.core.bank import CLEAN, Bank
from brinell.core.batch import Batch
from brinell.core.filtering import Variant
from brinell.core.ledger import Desk
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rl.cleanup import CleanUp, clean_up
from brinell.rl.env import Placement, Rules
from brinell.rl.found import Found
from brinell.rl.interface import Policy
from brinell.rl.prior import Prior


class Played(NamedTuple):
    """What became of each sample of a batch."""

    reached: Tensor
    """(n,) bool."""
    variant: Tensor
    """(n, patches) int16: what stands on each patch in the end, CLEAN for nothing."""
    eps: Tensor
    """(n,): the budget that it is fitted to."""
    strength: Tensor
    """(n,): the share of the fitted distortion that is left after clean-up."""
    steps: Tensor
    """(n,): queries after the first until the goal was reached."""
    value: Tensor
    """(n, patches): what each patch was foretold to bring, in shares of the way to the goal."""
    slope: Tensor
    """(n, channels, places): the linear model's gradient, from which what further distortions would bring follows."""

    def select(self, rows: Tensor) -> "Played":
        """The same of the chosen samples."""
        return Played(*(column[rows] for column in self))


def play(
    desk: Desk,
    batch: Batch,
    threat: Threat,
    rng: Streams,
    *,
    grid: PatchGrid,
    variants: tuple[Variant, ...],
    rules: Rules,
    policy: Policy,
    prior: Prior | None = None,
    clean: CleanUp | None = None,
    slots: int = 64,
    ended: Callable[[Found], None] = lambda found: None,
) -> Played:
    """Play every sample once, then clean up those that reached the goal.

    Args:
        desk: where the model is asked.
        batch: the samples.
        threat: distance and budgets.
        rng: a stream for each sample.
        grid: the patches.
        variants: what may stand on them.
        rules: how an episode goes.
        policy: who picks. Its `picks` are those of `Placement`.
        prior: what is known of patches beforehand.
        clean: how much is spent on cleaning up; None leaves it out.
        slots: samples that advance together.
        ended: called once with what the environment counted, before clean-up.
    """
    environment = Placement(desk, batch, threat, grid, variants, rng, rules=rules, prior=prior, slots=slots)
    turn = environment.reset(torch.ones_like(environment.alive))
    while bool(environment.alive.any()):
        step = environment.step(policy.act(turn, environment.streams))
        over = ~environment.alive
        turn = environment.reset(over) if bool(over.any()) else step.turn
    found, together = environment.found, len(environment.alive)
    del environment  # its filtered inputs would lie in memory beside those of the clean-up
    ended(found)
    strength = torch.ones_like(found.eps)
    played = Played(found.reached, found.variant, found.eps, strength, found.steps, found.value, found.slope)
    if clean is not None:
        standing = ((found.variant != CLEAN).any(1) & found.reached).nonzero()[:, 0]
        for rows in torch.split(standing, together):
            if len(rows):  # nothing splits into one empty part
                assignment = _standing(batch.x[rows], threat, grid, variants, rng.select(rows), found.variant[rows].long())
                part, at, value = batch.select(rows), threat.select(rows), found.value[rows]
                played.strength[rows] = clean_up(desk, part, at, assignment, found.eps[rows], value, rules.goal, clean)
                played.variant[rows] = assignment.variant.to(torch.int16)
                del assignment
    return played


def _standing(
    x: Tensor, threat: Threat, grid: PatchGrid, variants: tuple[Variant, ...], rng: Streams, variant: Tensor
) -> Assignment:
    """The state in which these variants (m, patches) stand on the inputs (m, *shape)."""
    assignment = Assignment(grid, Bank(x, threat.domain, variants, rng.fold("filters")))
    everywhere = torch.arange(len(grid), device=x.device).expand(len(x), -1)
    assignment.edit(torch.arange(len(x), device=x.device), everywhere, variant)
    return assignment


__all__ = ["Played", "play"]
