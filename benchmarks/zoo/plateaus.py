"""Defences whose scores are flat in places: right gradients that lead nowhere from there.

The class is that of a network or of an ensemble. The counterpart has scores without plateaus.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.zoo.base import Base
from benchmarks.zoo.gains import arrange, gap
from benchmarks.zoo.inputs import Mean
from benchmarks.zoo.outputs import members
from benchmarks.zoo.pair import Around, Bpda, Change, Pair, around, defence, generator
from benchmarks.zoo.shown import Shown

SHARP = 30.0
"""Factor on the logits of a sharp member."""
ZONE = (0.5, 3.0)
"""Leads between which a dead zone shows the lower one."""


def _shown(base: Base, show: Change) -> Pair:
    return Pair(defended=Shown(base.net, show), counterpart=base.net)


class SharpMean(Mean):
    """The mean of very sharp probabilities of several models."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        return torch.stack([(SHARP * net(x)).softmax(1) for net in self.members]).mean(0)


@defence("sharp-ensemble", "answers")
def sharp_ensemble(base: Base) -> Pair:
    """The mean of very sharp softmaxes of three networks; the counterpart has the means of logits
    and of probabilities.
    """
    nets = members(base)
    defended = SharpMean(*nets)
    mild = Around(
        Mean(*[Around(net, after=lambda z: z.softmax(1)) for net in nets]), after=torch.log
    )
    routes = (Bpda(defended, mild), Mean(*nets), mild, *nets)
    return Pair(defended=defended, counterpart=Bpda(defended, Mean(*nets)), surrogates=routes)


@defence("sharp-log-ensemble", "answers")
def sharp_log_ensemble(base: Base) -> Pair:
    """The logarithm of the same mean, with a floor of one in a million."""
    nets = members(base)
    defended = Around(SharpMean(*nets), after=lambda p: p.clamp_min(1e-6).log())
    routes = (Mean(*nets), *nets)
    return Pair(defended=defended, counterpart=Bpda(defended, Mean(*nets)), surrogates=routes)


@defence("drawn-temperatures", "answers")
def drawn_temperatures(base: Base) -> Pair:
    """Probabilities at a temperature that a hash of the image draws, from 1 to a thousandth."""

    def show(x: Tensor, z: Tensor) -> Tensor:
        draw = torch.frac(1e4 * x.detach().flatten(1).sum(1, keepdim=True).sin()).abs()
        return (z * 10 ** (3 * draw)).softmax(1)

    return _shown(base, show)


@defence("clipped-lead", "answers")
def clipped_lead(base: Base) -> Pair:
    """The lead of the first class is clipped at half a logit."""
    return _shown(base, lambda x, z: arrange(z, gap(z).clamp(max=ZONE[0]), z.detach()))


@defence("clipped-logits", "answers")
def clipped_logits(base: Base) -> Pair:
    """Logits are clipped to two below the largest one, and their lead to one."""
    return _shown(
        base,
        lambda x, z: arrange(z, gap(z).clamp(max=1.0), (z - z.amax(1, keepdim=True)).clamp(min=-2)),
    )


@defence("dead-zone", "answers")
def dead_zone(base: Base) -> Pair:
    """The lead stands still between half a logit and three."""
    low, high = ZONE

    def show(x: Tensor, z: Tensor) -> Tensor:
        lead = gap(z)
        return arrange(z, lead.clamp(max=low) + (lead - high).relu(), z.detach())

    return _shown(base, show)


@defence("terraces", "answers")
def terraces(base: Base) -> Pair:
    """The lead climbs in steps of one logit, each flat but for its last tenth."""

    def show(x: Tensor, z: Tensor) -> Tensor:
        lead = gap(z)
        rise = 10 * (lead.frac() - 0.9).relu()
        return arrange(z, lead.floor() + rise + 1e-3 * lead, z.detach())

    return _shown(base, show)


@defence("flat-inputs", "partial gradient")
def flat_inputs(base: Base) -> Pair:
    """Each input value stands still on one half of each of eight steps, and climbs twice as fast on
    the other.
    """
    return around(base, lambda x: ((8 * x).floor() + (2 * (8 * x).frac() - 1).relu()) / 8)


@defence("flat-but-for-a-pattern", "answers")
def flat_but_for_a_pattern(base: Base) -> Pair:
    """The lead is clipped, and a fine random pattern of the image is added to it while it is."""
    signs = torch.randn(1, *base.x.shape[1:], generator=generator(12)).sign()

    def show(x: Tensor, z: Tensor) -> Tensor:
        lead, wave = gap(z), (x * signs).flatten(1).sum(1).sin()
        clipped = F.hardtanh(lead, 0.0, ZONE[0])
        return arrange(
            z, clipped + 0.1 * wave * (lead > ZONE[0]) * (lead - ZONE[0]).clamp(max=1), z
        )

    return _shown(base, show)
