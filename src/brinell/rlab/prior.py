"""Prior of the sensitivity of patches before the first query, learned from queries of other inputs.

It has two parts, both of the covariance that `rlab.sensitivity` starts from: how much energy the
gradient has on a patch, as a function of the content of the patch and its surroundings (one small
network, the same for every patch), and how the channels of the gradient go together.

It is fitted to random distortions on a few patches of many inputs, and the answers of the model.
The effect of a probe is taken as normal with mean 0 and the variance that `rlab.sensitivity`
predicts, up to a factor for each input; energies and channel covariance are those under which the
answers are most likely. Every probe is a query that the ledger behind the oracle counts.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.core.oracle import Batch, Oracle
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.distort import DRAW_STREAM, DistortedInputs, Variant

WINDOWS = (1.5, 3.0, 6.0)
"""Sides of the neighbourhoods that are looked at, in sides of a patch."""
TINY = 1e-30
FEATURES = 2 * len(WINDOWS) + 2
"""How many numbers describe a patch."""

_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}

WIDTH = 32
LEAST = 0.02
"""Energy of a patch that is taken for insensitive, so that it is still tried."""


class Prior(nn.Module):
    """Energies and channel covariance for inputs of so many `channels`, 0 for any.

    Unfitted, every patch and channel is alike.
    """

    covariance: Tensor

    def __init__(self, channels: int = 0, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.network = nn.Sequential(
            linear(FEATURES, WIDTH, generator),
            nn.ReLU(),
            linear(WIDTH, WIDTH, generator),
            nn.ReLU(),
            linear(WIDTH, 1),  # zeros: unfitted, all energies are equal
        )
        self.root = nn.Parameter(torch.eye(channels))
        """(channels, channels): a square root of the channel covariance, up to its scale."""

    def shares(self, content: Tensor) -> Tensor:
        """(n, patches, FEATURES) to (n, patches): energies of mean 1 over an input's patches."""
        # A softmax: energies are positive, and only their ratios are learned.
        energies: Tensor = self.network(content)[..., 0].softmax(1) * content.shape[1]
        return energies

    @torch.no_grad()
    def energies(self, content: Tensor) -> Tensor:
        """(n, patches): energies as an attack uses them, none of them zero."""
        return self.shares(content).clamp_min(LEAST)

    def channel_covariance(self) -> Tensor:
        """(channels, channels): of trace `channels`."""
        # A square is positive semidefinite whatever the weights.
        square = self.root @ self.root.T
        return square * (len(square) / square.trace().clamp_min(1e-12))

    @torch.no_grad()
    def covariance_for(self, channels: int) -> Tensor | None:
        """The covariance for inputs of so many channels; None where it was fitted on others."""
        if not channels or self.root.shape[0] != channels:
            return None
        identity = torch.eye(channels, device=self.root.device)
        # A little of the identity leaves no direction impossible.
        return (1 - LEAST) * self.channel_covariance() + LEAST * identity


def to_places(energy: Tensor, grid: PatchGrid) -> Tensor:
    """(n, patches) to (n, places): the mean over the patches that cover a place."""
    covers = grid.covers.to(energy.device)
    real = covers < len(grid)
    # Places of fewer patches than others have the index behind the last patch.
    padded = torch.cat([energy, torch.zeros_like(energy[:, :1])], 1)
    return padded[:, covers].sum(2) / real.sum(1)


def linear(inputs: int, outputs: int, generator: torch.Generator | None = None) -> nn.Linear:
    """A linear layer: uniform weights within 1 / sqrt(inputs), or zeros without a generator."""
    # `to_empty` would import sympy: more than a second.
    layer = nn.Linear(inputs, outputs, device="meta")
    layer.weight = nn.Parameter(torch.zeros(layer.weight.shape))
    layer.bias = nn.Parameter(torch.zeros(layer.bias.shape))
    if generator is not None:
        with torch.no_grad():
            for values in (layer.weight, layer.bias):
                values.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer


KINDS = 12
"""About how many variants are tried, some of each distortion and severity."""
TOGETHER = 4
"""Patches that one probe distorts."""


class Probes(NamedTuple):
    """The probes of n inputs and their answers."""

    content: Tensor
    """(n, patches, features)."""
    patches: Tensor
    """(n, probes, together) int64: which patches were distorted."""
    moments: Tensor
    """(n, probes, together, channels, channels): sums over the places of each patch of products
    of changes of two channels."""
    effect: Tensor
    """(n, probes): by how much the margin rose, in logits."""
    prediction: Tensor
    """(n, probes, surrogates): by how much it would have risen by the gradients of surrogates."""


def probe(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    grid: PatchGrid,
    variants: tuple[Variant, ...],
    rng: Streams,
    *,
    probes: int = 16,
    slopes: Tensor | None = None,
    group_size: int = TOGETHER,
    scale: Tensor | None = None,
) -> Probes:
    """Ask about each clean input, and about `probes` random distortions of a few patches each.

    The oracle must allow them all.

    `slopes` (n, surrogates, *shape) are gradients of surrogates at the clean inputs. `group_size`
    is the number of patches of a probe, and `scale` (n,) the distance to which larger ones are
    scaled down; None leaves them.
    """
    # Variants are ordered by distortion and severity, so every k-th is some of each.
    variants = variants[:: max(1, len(variants) // KINDS)]

    n = len(batch)
    rows = torch.arange(len(batch), device=batch.x.device)
    inputs = DistortedInputs(n, threat.domain, variants, batch.x.device)
    inputs.put(rows, batch.x, rng.fold(DRAW_STREAM), threat)

    def margins(x: Tensor) -> Tensor:
        return threat.criterion.margin(oracle.scores(batch.ids, x), batch.y, x)

    base = margins(batch.x)
    members = grid.members.to(batch.x.device)
    valid = grid.not_repeated.to(batch.x.device)
    clean = batch.x.reshape(n, grid.channels, grid.places)
    group = min(group_size, len(grid))
    if slopes is None:
        slopes = batch.x.new_zeros(n, 0, *batch.x.shape[1:])
    slopes = slopes.reshape(n, -1, grid.channels, grid.places)

    patches = []
    moments = []
    effects = []
    predictions = []
    for number in range(probes):
        stream = rng.fold("probe").fold(number)
        # The places of the largest of uniform numbers: patches without replacement.
        selection = stream.uniform(len(grid)).topk(group, 1).indices
        variant = stream.fold("variant").integers(len(variants), group)
        places = members[selection]
        flat = places.flatten(1)
        variant_at = variant[..., None].expand_as(places).flatten(1)
        values = inputs.values(rows, variant_at, flat, grid.channels)
        index = flat[:, None].expand_as(values)

        x = clean.scatter(2, index, values)
        if scale is not None:
            size = threat.distance.size((x - clean).view_as(batch.x)).clamp_min(1e-12)
            x = clean + (x - clean) * (scale / size).clamp_max(1)[:, None, None]

        # Of overlapping patches the later one was written: the input that the model received
        # counts.
        change = x.gather(2, index) - clean.gather(2, index)
        change = change.view(n, grid.channels, *places.shape[1:]) * valid[selection][:, None]

        patches.append(selection)
        # All that the likelihood needs of a change, whatever the number of its values.
        moments.append(torch.einsum("nckv,nekv->nkce", change, change))
        effects.append(margins(x.view_as(batch.x)) - base)
        slope = slopes.gather(3, index[:, None].expand(-1, slopes.shape[1], -1, -1)).flatten(3)
        predictions.append(torch.einsum("nscv,ncv->ns", slope, change.flatten(2)))

    return Probes(
        content=describe(batch.x, grid),
        patches=torch.stack(patches, 1),
        moments=torch.stack(moments, 1),
        effect=torch.stack(effects, 1),
        prediction=torch.stack(predictions, 1),
    )


def likelihood(prior: Prior, probes: Probes) -> Tensor:
    """(n,): mean negative log-likelihood of the answers, with the likeliest factor of each input.

    It is 0 for inputs on which no probe had an effect, since they tell nothing about where the
    effects are.
    """
    energy = prior.shares(probes.content)
    n, count, size = probes.patches.shape
    energies = energy.gather(1, probes.patches.flatten(1)).view(n, count, size)
    # The expected square of <g, d> for a patch of energy 1.
    trace = torch.einsum("npkce,ce->npk", probes.moments, prior.channel_covariance())
    variance = (energies * trace).sum(2)

    real = variance > 1e-10  # a distortion may change nothing
    variance = variance.clamp_min(1e-10)

    # Of an effect e with variance f v the loss is log(f v) / 2 + e**2 / (2 f v) and a constant. The
    # likeliest factor f is the mean of e**2 / v, by which the second term becomes a constant too.
    weight = real / real.sum(1, keepdim=True).clamp_min(1)
    factor = (probes.effect.square() / variance * weight).sum(1)
    value = 0.5 * ((variance.log() * weight).sum(1) + factor.clamp_min(1e-12).log())
    return torch.where(factor > 0, value, 0)


def fit(
    prior: Prior,
    probes: Probes,
    generator: torch.Generator,
    *,
    steps: int = 800,
    batch_size: int = 64,
) -> None:
    """Fit the prior to the answers by maximum likelihood."""
    optimizer = torch.optim.Adam(prior.parameters(), lr=3e-3)

    for step in range(steps):
        rows = torch.randint(len(probes.effect), (batch_size,), generator=generator)
        rows = rows.to(probes.effect.device)
        subset = Probes(*(column[rows] for column in probes))
        with torch.enable_grad():
            loss = likelihood(prior, subset).mean()
            optimizer.zero_grad()
            torch.autograd.backward(loss)

        for group in optimizer.param_groups:
            # A rate that falls to 0 averages over the last batches.
            group["lr"] = 3e-3 * (1 - step / steps)
        optimizer.step()


def describe(x: Tensor, grid: PatchGrid) -> Tensor:
    """(n, *shape) inputs to (n, patches, FEATURES) float32.

    For each window around a patch the logarithm of the deviation and the mean, both in comparison
    with the other patches of the input (mean 0, deviation 1); then how far from the centre the
    patch lies, by the largest and the mean square coordinate. Offset and unit of the values make no
    difference, and an input that is flat has features of 0.
    """
    axes = grid.places_along
    flat = x.flatten(1)
    least, most = flat.aminmax(dim=1, keepdim=True)
    # Around its own middle, or an offset would drown the deviations in rounding.
    planes = (flat - (least + most) / 2) / (most - least).clamp_min(TINY)
    planes = planes.view(len(x), grid.channels, *axes)
    if len(axes) not in _POOLS:
        # Values without neighbours are taken as one axis.
        planes = planes.flatten(2)
        axes = (grid.places,)
    patch = grid.patch if len(grid.patch) == len(axes) else (grid.members.shape[1],)

    columns: list[Tensor] = []
    for window in WINDOWS:
        # The odd sides nearest to the wanted ones, from 1 to the largest odd number of the axis.
        sides = []
        for side, length in zip(patch, axes, strict=True):
            odd = 2 * round((window * side - 1) / 2) + 1
            sides.append(max(1, min(odd, length - 1 + length % 2)))
        # The variance is E[x**2] - E[x]**2 in each window.
        mean = _pool(planes, sides)
        deviation = (_pool(planes.square(), sides) - mean.square()).clamp_min(0).sqrt().mean(1)
        columns += [_of_patches((deviation + 1e-4).log(), grid), _of_patches(mean.mean(1), grid)]

    features = torch.stack(columns, 2)
    deviation = features.std(1, keepdim=True, correction=0)
    features = (features - features.mean(1, keepdim=True)) / (deviation + 1e-4)

    # Coordinates from -1 to 1.
    away = (2 * grid.centres.to(x.device) - 1).square()
    position = torch.stack([away.amax(1), away.mean(1)], 1).expand(len(x), -1, -1)
    return torch.cat([features, position], 2)


def _pool(planes: Tensor, sides: list[int]) -> Tensor:
    """Means over boxes that end at the edges.

    One axis after the other: the work of a whole box grows with its volume.
    """
    for axis, side in enumerate(sides):
        window = [side if dim == axis else 1 for dim in range(len(sides))]
        padding = [length // 2 for length in window]
        # Stride 1, no rounding up of the size, and no padding in the means.
        planes = _POOLS[len(sides)](planes, window, 1, padding, False, False)
    return planes


def _of_patches(values: Tensor, grid: PatchGrid) -> Tensor:
    """(n, *places) to the means over each patch (n, patches)."""
    counts = patch_places(grid, values.device)[1].sum(1)
    return sums(values.flatten(1), grid) / counts


def sums(values: Tensor, grid: PatchGrid) -> Tensor:
    """(n, places) to the sums over each patch (n, patches)."""
    members, mask = patch_places(grid, values.device)
    return (values[:, members] * mask).sum(2)


@lru_cache(maxsize=8)
def patch_places(grid: PatchGrid, device: torch.device) -> tuple[Tensor, Tensor]:
    """The places of each patch, and which are not repeated, brought to a device once."""
    return grid.members.to(device), grid.not_repeated.to(device)
