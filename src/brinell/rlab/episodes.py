"""A whole batch played by one policy, and cleaned up: what an attack, a benchmark set and a training run share."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.batch import Batch
from brinell.core.oracle import Oracle
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.cache import CLEAN
from brinell.rlab.cleanup import CleanUp, Reached, clean_up
from brinell.rlab.env import PatchEnv
from brinell.rlab.gradients import Gradients
from brinell.rlab.interface import Policy
from brinell.rlab.prior import Prior
from brinell.rlab.results import Found
from brinell.rlab.rules import Rules
from brinell.rlab.variants import Variant


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
    closest: Tensor
    """(n, patches) int16: what stands in the closest of all inputs that reached the goal, which need not be the cleanest."""
    length: Tensor
    """(n,): distance of that before it is fitted and scaled; NaN for none."""
    map: Tensor
    """(n, patches, distortions): the sensitivity map (`rlab.sensitivity`), NaN for samples that were not played."""

    def select(self, rows: Tensor) -> "Played":
        """The same of the chosen samples."""
        return Played(*(column[rows] for column in self))


def play(
    oracle: Oracle,
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
        oracle: where the model is asked.
        batch: the samples.
        threat: distance and budgets.
        rng: a stream for each sample.
        grid: the patches.
        variants: what may stand on them.
        rules: how an episode goes.
        policy: who picks. Its `picks` are those of `PatchEnv`.
        prior: what is known of patches beforehand.
        clean: how much is spent on cleaning up; None leaves it out.
        slots: samples that advance together.
        ended: called once with what the environment counted, before clean-up.
    """
    gradients = Gradients(oracle, batch)
    environment = PatchEnv(
        oracle, batch, threat, grid, variants, rng, rules=rules, prior=prior, slots=slots, gradients=gradients, maps=True
    )
    turn = environment.reset(torch.ones_like(environment.alive))
    while bool(environment.alive.any()):
        step = environment.step(policy.act(turn, environment.streams))
        over = ~environment.alive
        turn = environment.reset(over) if bool(over.any()) else step.turn
    found, together = environment.found, len(environment.alive)
    del environment  # its distorted inputs would lie in memory beside those of the clean-up
    ended(found)
    strength, closest = torch.ones_like(found.eps), found.variant.clone()
    played = Played(
        found.reached, found.variant, found.eps, strength, found.steps, found.value, found.slope, closest, found.length, found.map
    )
    rows = ((found.variant != CLEAN).any(1) & found.reached).nonzero()[:, 0]
    if clean is not None and len(rows):
        cleaned = clean_up(
            oracle,
            batch.select(rows),
            threat.select(rows),
            rng.select(rows),
            Reached(found.variant[rows].long(), found.eps[rows], found.value[rows]),
            grid=grid,
            variants=variants,
            settings=clean,
            slots=together,
            gradient=lambda of: gradients(rows[of]),
        )
        played.strength[rows], played.length[rows] = cleaned.strength, cleaned.length
        played.variant[rows], played.closest[rows] = (one.to(torch.int16) for one in (cleaned.variant, cleaned.closest))
    return played


__all__ = ["Played", "play"]
