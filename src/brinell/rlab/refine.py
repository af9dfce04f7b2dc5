"""After a success: patches that are not needed are cleared, and the rest is scaled down.

Every trial is a query and counts. Groups of patches are eliminated by delta debugging (Zeller & Hildebrandt 2002, Simplifying and
isolating failure-inducing input), those first that are predicted to contribute least; the scale is found by bisection. Many
samples are cleaned up in lockstep, and a sample that is done makes room for the next one, so that the batches shown to the model
stay full until the last samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.distort import CLEAN, DistortedInputs, Gradient, Variant
from brinell.rlab.episodes import Columns, Outcomes

GROUPS = 4
"""The first groups hold a quarter of the distorted patches."""
FAR = 0.2
"""The largest step of the scale: an input that has just met the criterion bears little."""


@dataclass(frozen=True, kw_only=True)
class CleanUp:
    """Number of queries of the clean-up."""

    eliminations: int = 24
    """Queries in which a group of patches is cleared."""
    halvings: int = 5
    """Queries at a smaller scale."""


class Cleaned(NamedTuple):
    """Result of the clean-up."""

    variant: Tensor
    """(n, patches) int64."""
    strength: Tensor
    """(n,): the share of the fitted distortion that is enough."""
    closest: Tensor
    """(n, patches) int64: the assignment of the closest input that met the criterion. It is usually `variant`. But with a full
    budget the remaining patches are scaled up to it again, and clearing patches brings the input no closer.
    """
    length: Tensor
    """(n,): the distance of that assignment before it is fitted and scaled."""


@dataclass(frozen=True)
class _Trials(Columns):
    """Trials of the slots, (n,) int64 on the host."""

    sample: Tensor
    count: Tensor
    """Patches that are distorted."""
    start: Tensor
    """The first of them, in the order of what they contribute, that the next trial clears."""
    group: Tensor
    """How many it clears."""
    tried: Tensor
    halved: Tensor
    eliminating: Tensor


def clean_up(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    rng: Streams,
    successes: Outcomes,
    *,
    grid: PatchGrid,
    variants: Sequence[Variant],
    settings: CleanUp,
    slots: int = 64,
    gradient: Gradient | None = None,
) -> Cleaned:
    """Clean up samples that met the criterion.

    The streams `rng` are those of the samples' episodes. Of `successes`, the patches whose `value` is least are cleared first.
    `settings` says how much is spent, and `slots` samples are cleaned up together. `gradient` is where distortions that look into
    the model get theirs from, by rows of the batch.
    """
    device, slots, patches = batch.x.device, min(slots, len(batch)), len(grid)
    trials = _Trials(*torch.zeros(len(fields(_Trials)), slots, dtype=torch.int64))
    ask = None if gradient is None else lambda rows: gradient(trials.sample.to(device)[rows])
    inputs = DistortedInputs(slots, threat.domain, variants, device, ask)
    standing, full = torch.full((slots, patches), CLEAN, device=device), batch.x[:slots].clone()
    strength, low, size = torch.ones(3, slots, device=device)
    variant = successes.variant.long()
    cleaned = Cleaned(variant.clone(), torch.ones(len(batch), device=device), variant.clone(), torch.zeros_like(successes.eps))
    alive, waiting = torch.zeros(slots, dtype=torch.bool), 0

    def fitted(sample: Tensor, x: Tensor) -> Tensor:
        """Distorted inputs (m, *shape), fitted to the budget at which the criterion was met."""
        return replace(threat, eps=successes.eps[sample]).project(x.clone(), batch.x[sample])

    while True:
        while waiting < len(batch) and not bool(alive.all()):  # the next samples take the free slots
            host = (~alive).nonzero()[:, 0][: len(batch) - waiting]
            numbers = torch.arange(waiting, waiting + len(host))
            waiting += len(host)
            rows, sample = host.to(device), numbers.to(device)
            trials.put(host, sample=numbers)
            inputs.put(rows, batch.x[sample], rng.select(sample).fold("filters"))
            standing[rows], full[rows] = variant[sample], inputs.render(rows, variant[sample], grid)
            strength[rows], low[rows] = 1, 0
            cleaned.length[sample] = threat.distance.size(full[rows] - batch.x[sample])
            size[rows] = threat.distance.size(fitted(sample, full[rows]) - batch.x[sample])
            count, affordable = torch.stack([(variant[sample] != CLEAN).sum(1), oracle.affordable(batch.ids[sample])]).cpu()
            eliminating = (count > 1) & (settings.eliminations > 0)
            group = (count // GROUPS).clamp_min(1)
            trials.put(host, count=count, start=0, group=group, tried=0, halved=0, eliminating=eliminating.long())
            alive[host] = (eliminating | (settings.halvings > 0)) & (affordable > 0)
        host = alive.nonzero()[:, 0]
        if not len(host):
            return cleaned
        rows, current = host.to(device), trials.take(host)
        sample, eliminating = current.sample.to(device), current.eliminating > 0
        ids, clean, before = batch.ids[sample], batch.x[sample], standing[rows]
        goes_on = torch.ones_like(eliminating)
        while bool(goes_on.all()):  # trials of the same samples
            current = trials.take(host)
            eliminating, eliminated = current.eliminating > 0, (current.eliminating > 0).to(device)
            group = torch.minimum(current.group, (current.count - 1).clamp_min(1))  # at least one patch stays distorted
            end = torch.minimum(current.start + group, current.count) * current.eliminating
            place, before = torch.arange(patches, device=device), standing[rows]
            trial = (place >= current.start.to(device)[:, None]) & (place < end.to(device)[:, None])
            order = successes.value[sample].masked_fill(before == CLEAN, torch.inf).argsort(dim=1, stable=True)
            after = torch.where(torch.zeros_like(trial).scatter(1, order, trial), CLEAN, before)
            distorted = inputs.render(rows, after, grid)
            x = fitted(sample, distorted)
            middle = strength[rows] - ((strength[rows] - low[rows]) / 2).clamp_max(FAR)
            scaled = threat.domain.clamp(clean + per_sample(middle, x) * (x - clean))
            x = torch.where(per_sample(eliminated, x), x, scaled)
            logits, criterion = oracle.scores(ids, x), threat.criterion.select(sample)
            adversarial = criterion.margin(logits, batch.y[sample], x) > 0
            cleared = adversarial & eliminated
            standing[rows] = torch.where(cleared[:, None], after, before)
            full[rows] = torch.where(per_sample(cleared, x), distorted, full[rows])
            strength[rows] = torch.where(adversarial & ~eliminated, middle, strength[rows])
            low[rows] = torch.where(~adversarial & ~eliminated, middle, low[rows])
            length = threat.distance.size(x - clean)
            closer = adversarial & (length < size[rows])
            size[rows] = torch.where(closer, length, size[rows])
            cleaned.closest[sample] = torch.where(closer[:, None], standing[rows], cleaned.closest[sample])
            cleaned.length[sample] = torch.where(closer, threat.distance.size(full[rows] - clean), cleaned.length[sample])
            cleaned.variant[sample], cleaned.strength[sample] = standing[rows], strength[rows]
            adversarial, affordable = torch.stack([adversarial, oracle.affordable(ids)]).cpu()
            eliminating = _next_trial(
                trials, host, current, group, (end - current.start).clamp_min(0) * adversarial, adversarial, settings
            )
            halved = trials.halved[host]
            goes_on = affordable & (eliminating | (halved < settings.halvings))
        alive[host] = goes_on


def _next_trial(
    trials: _Trials, host: Tensor, current: _Trials, group: Tensor, cleared: Tensor, adversarial: Tensor, settings: CleanUp
) -> Tensor:
    """Choose the next groups of slots (m,), of which `cleared` (m,) patches are gone: (m,) bool, who goes on eliminating."""
    busy, remaining = current.eliminating, current.count - cleared
    start = torch.where(adversarial, current.start, current.start + group)
    wrapped, attempts = start >= remaining, current.tried + busy
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
