"""The episodes of a whole batch under one policy, followed by clean-up: shared by the attack and benchmark sets."""

from collections.abc import Callable

import torch
from torch import Tensor

from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.cache import CLEAN, Gradients
from brinell.rlab.cleanup import CleanUp, clean_up
from brinell.rlab.env import PatchEnv, Placement
from brinell.rlab.interface import Action, Observation, Policy, mapped
from brinell.rlab.outcomes import Outcomes


def act(policy: Policy, observation: Observation, rng: Streams, rows: Tensor) -> Action:
    """Action of the policy in the slots `rows` (m,); it is not called for the other slots."""
    action = policy.act(mapped(lambda column: column[rows], observation), rng.select(rows))
    return tuple(choices.new_full((len(rng), *choices.shape[1:]), -1).index_copy(0, rows, choices) for choices in action)


def run_episodes(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    rng: Streams,
    policy: Policy,
    *,
    clean: CleanUp | None = None,
    on_end: Callable[[Outcomes], None] = lambda outcomes: None,
) -> Outcomes:
    """Run one episode on each sample, then clean up those that met the criterion.

    The arguments up to `rng` are those of `PatchEnv`; the policy chooses among the variants of the placement. `clean` sets the
    number of queries of the clean-up; None omits it. `on_end` is called once before the clean-up, with the outcomes of the
    environment.
    """
    gradients = Gradients(oracle, batch)
    environment = PatchEnv(oracle, batch, threat, placement, rng, gradients=gradients, maps=True)
    observation = environment.reset(torch.ones_like(environment.alive))
    while len(rows := environment.rows):
        step = environment.step(act(policy, observation, environment.streams, rows))
        vacancy = len(environment.rows) < len(environment.alive)
        observation = environment.reset(~environment.alive) if environment.waiting and vacancy else step.observation
    outcomes, slots = environment.outcomes, len(environment.alive)
    del environment  # its distorted inputs would lie in memory beside those of the clean-up
    on_end(outcomes)
    outcomes.closest.copy_(outcomes.variant)
    rows = ((outcomes.variant != CLEAN).any(1) & outcomes.success).nonzero()[:, 0]
    if clean is not None and len(rows):
        cleaned = clean_up(
            oracle,
            batch.select(rows),
            threat.select(rows),
            rng.select(rows),
            outcomes.select(rows),
            grid=placement.grid,
            variants=placement.variants,
            settings=clean,
            slots=slots,
            gradient=lambda of: gradients(rows[of]),
        )
        outcomes.strength[rows], outcomes.length[rows] = cleaned.strength, cleaned.length
        outcomes.variant[rows], outcomes.closest[rows] = (column.to(torch.int16) for column in (cleaned.variant, cleaned.closest))
    return outcomes
