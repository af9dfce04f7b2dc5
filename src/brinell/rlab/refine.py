"""After a success: patches that are not needed are cleared, and the rest is scaled down.

Every trial is a query and counts. Groups of patches are eliminated by delta debugging (Zeller &
Hildebrandt 2002, Simplifying and isolating failure-inducing input), those first that are predicted
to contribute least; the scale is found by bisection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core import norms
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.distort import CLEAN, DRAW_STREAM, DistortedInputs, Variant
from brinell.rlab.episodes import EpisodeOutcomes, SlotColumns
from brinell.rlab.way import Ways

GROUPS = 4
"""The first groups hold a quarter of the distorted patches."""
FAR = 0.2
"""The largest step of the scale: an input that has just met the criterion bears little."""


class CleanUp(NamedTuple):
    """Queries in which a group of patches is cleared, and queries at a smaller scale."""

    eliminations: int = 24
    halvings: int = 5


@dataclass(frozen=True)
class _Trials(SlotColumns):
    """Trials of the samples, (n,) int64 on the host."""

    count: Tensor
    """Patches that are distorted."""
    start: Tensor
    """The first of them, in the order of what they contribute, that the next trial clears."""
    group: Tensor
    """How many it clears."""
    tried: Tensor
    """Eliminations so far."""
    halved: Tensor
    """Trials of the scale so far."""
    eliminating: Tensor
    """1 while patches are cleared, 0 while the scale falls."""


def clean_up(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    rng: Streams,
    successes: EpisodeOutcomes,
    *,
    grid: PatchGrid,
    variants: Sequence[Variant],
    settings: CleanUp,
    ways: Ways,
) -> tuple[Tensor, Tensor, Tensor]:
    """Clean up samples that met the criterion, in lockstep: `variant`, `strength`, `closest`.

    These three are as in `EpisodeOutcomes`.
    The streams `rng` are those of the samples' episodes. Of `successes`, the patches whose `value`
    is least are cleared first. With a full budget the remaining patches are scaled up to it again,
    and clearing patches brings the input no closer. `ways` takes note of the trials.
    """
    n = len(batch)
    device = batch.x.device
    patches = len(grid)
    index = torch.arange(n, device=device)

    variant = successes.variant.long()
    has_learned = successes.content.shape == batch.x.shape
    inputs = DistortedInputs(n, threat.domain, variants, device, learned=has_learned)
    inputs.put(index, batch.x, rng.fold(DRAW_STREAM), threat)
    if has_learned:
        inputs.recall(index, successes.content)
    full = inputs.render(index, variant, grid)
    standing = variant.clone()
    strength = torch.ones(n, device=device)
    low = torch.zeros(n, device=device)

    def fitted(rows: Tensor, x: Tensor) -> Tensor:
        """Distorted inputs (m, *shape), fitted to the budget at which the criterion was met."""
        return replace(threat, eps=successes.eps[rows]).project(x.clone(), batch.x[rows])

    size = threat.distance.size(fitted(index, full) - batch.x)
    closest = variant.clone()

    count, affordable = torch.stack([(variant != CLEAN).sum(1), oracle.affordable(batch.ids)]).cpu()
    trials = _Trials(*torch.zeros(len(fields(_Trials)), n, dtype=torch.int64))
    eliminating = (count > 1) & (settings.eliminations > 0)
    everyone = torch.arange(n)
    group = (count // GROUPS).clamp_min(1)
    trials.put(everyone, count=count, group=group, eliminating=eliminating.long())
    host = everyone[(eliminating | (settings.halvings > 0)) & (affordable > 0)]

    while len(host):
        rows = host.to(device)
        current = trials.take(host)
        ids = batch.ids[rows]
        clean = batch.x[rows]
        before = standing[rows]

        # Which places of the order are cleared: a group, of which one patch stays distorted.
        is_elimination = (current.eliminating > 0).to(device)
        group = torch.minimum(current.group, (current.count - 1).clamp_min(1))
        end = torch.minimum(current.start + group, current.count) * current.eliminating
        place = torch.arange(patches, device=device)
        in_group = (place >= current.start.to(device)[:, None]) & (place < end.to(device)[:, None])

        # Those first that are predicted to contribute least.
        value = successes.value[rows].masked_fill(before == CLEAN, torch.inf)
        order = value.argsort(dim=1, stable=True)
        is_cleared = torch.zeros_like(in_group).scatter(1, order, in_group)
        after = torch.where(is_cleared, CLEAN, before)
        distorted = inputs.render(rows, after, grid)
        x = fitted(rows, distorted)

        # Or the present input at a smaller scale: half way to the largest one that failed.
        x = fitted(rows, distorted)
        middle = strength[rows] - ((strength[rows] - low[rows]) / 2).clamp_max(FAR)
        scaled = threat.domain.clamp(clean + per_sample(middle, x) * (x - clean))

        x = torch.where(per_sample(is_elimination, x), x, scaled)
        logits = oracle.scores(ids, x)
        criterion = threat.criterion.select(rows)
        adversarial = criterion.margin(logits, batch.y[rows], x) > 0

        # A success clears the patches or lowers `strength`; a failure of the scale raises `low`.
        cleared = adversarial & is_elimination
        standing[rows] = torch.where(cleared[:, None], after, before)
        full[rows] = torch.where(per_sample(cleared, x), distorted, full[rows])
        strength[rows] = torch.where(adversarial & ~is_elimination, middle, strength[rows])
        low[rows] = torch.where(~adversarial & ~is_elimination, middle, low[rows])

        length = threat.distance.size(x - clean)
        probability = logits.softmax(1).gather(1, batch.y[rows, None])[:, 0]
        closer = adversarial & (length < size[rows])
        size[rows] = torch.where(closer, length, size[rows])
        closest[rows] = torch.where(closer[:, None], standing[rows], closest[rows])

        adversarial, affordable = torch.stack([adversarial, oracle.affordable(ids)]).cpu()
        ways.note(
            ids,
            torch.ones_like(adversarial),
            adversarial,
            probability=probability,
            size=norms.l2(x - clean),
            before=before,
            after=after,
        )
        cleared_patches = (end - current.start).clamp_min(0) * adversarial
        eliminating = _next_trial(
            trials, host, current, group, cleared_patches, adversarial, settings
        )
        host = host[affordable & (eliminating | (trials.halved[host] < settings.halvings))]

    return standing.to(torch.int16), strength, closest.to(torch.int16)


def _next_trial(
    trials: _Trials,
    host: Tensor,
    current: _Trials,
    group: Tensor,
    cleared: Tensor,
    adversarial: Tensor,
    settings: CleanUp,
) -> Tensor:
    """Choose the next groups of slots (m,), of which `cleared` (m,) patches are gone.

    Returns (m,) bool: which go on eliminating.
    """
    busy = current.eliminating
    remaining = current.count - cleared
    # Where a group was cleared, the next patches have moved up to its place.
    start = torch.where(adversarial, current.start, current.start + group)
    # Past the last patch the groups become half as large.
    wrapped = start >= remaining
    attempts = current.tried + busy
    over = (wrapped & (group == 1)) | (remaining <= 1) | (attempts >= settings.eliminations)

    trials.put(
        host,
        count=remaining,
        start=torch.where(wrapped, 0, start),
        group=torch.where(wrapped, (group // 2).clamp_min(1), group),
        tried=attempts,
        halved=current.halved + (1 - busy),
        eliminating=busy * ~over,
    )
    return trials.eliminating[host] > 0
