"""Building blocks of explainers: positions of a map's cells, fill values, queries in batches."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Batch, Domain, Oracle
from brinell.core.patches import AXES

ROWS = 512
"""Inputs that are made at once, about: a multiple of any usual batch, so that the model's
batches are full."""
ROW_BYTES = 2**28
"""Approximate limit of the size of these inputs, in bytes."""
BLUR = 1 / 4
"""Standard deviation of the blur that hides, in shares of the longest side of the places."""
REACH = 3
"""Standard deviations after which the kernel is cut off."""


def places_of(domain: Domain) -> tuple[int, ...]:
    """Shape of a map over inputs of this domain."""
    return domain.shape[len(domain.shape) - AXES[domain.kind] :]


def broadcast_maps(mask: Tensor, domain: Domain) -> Tensor:
    """Maps (..., *places) so that they broadcast against inputs (..., *shape)."""
    axes = AXES[domain.kind]
    channel_axes = len(domain.shape) - axes
    split = mask.ndim - axes
    return mask.reshape(*mask.shape[:split], *[1] * channel_axes, *mask.shape[split:])


def over_channels(values: Tensor, domain: Domain) -> Tensor:
    """(n, *places): the sum over the channels of what belongs to each value (n, *shape)."""
    axes = AXES[domain.kind]
    if len(domain.shape) == axes:
        return values
    return values.flatten(1, -axes - 1).sum(1)


def blurred(x: Tensor, domain: Domain, share: float = BLUR) -> Tensor:
    """Inputs (n, *shape), or maps (n, *places), blurred along their places.

    The outermost value goes on beyond the edge. A vector, whose values stand in no order, becomes
    its middle: of each value that between the bounds.
    """
    if domain.kind == "vector":
        low, high = domain.bounds(x)
        return ((low + high) / 2).expand_as(x).clone()

    sides = places_of(domain)
    # A narrower kernel would blur next to nothing.
    deviation = max(share * max(sides), 0.5)
    radius = max(1, math.ceil(REACH * deviation))
    positions = torch.arange(-radius, radius + 1, device=x.device, dtype=x.dtype)
    kernel = torch.exp(-0.5 * (positions / deviation) ** 2)
    kernel = (kernel / kernel.sum()).reshape(1, 1, -1)

    # A Gaussian is a product: one axis after the other.
    for axis in range(x.ndim - len(sides), x.ndim):
        rows = x.movedim(axis, -1)
        padded = F.pad(rows.reshape(-1, 1, rows.shape[-1]), (radius, radius), mode="replicate")
        x = F.conv1d(padded, kernel).reshape(rows.shape).movedim(-1, axis)
    return x.contiguous()


def hidden_fill(x: Tensor, domain: Domain) -> Tensor:
    """(n, *shape): the fill of hidden places: the blurred input, within its bounds."""
    return domain.clamp(blurred(x, domain))


def class_logit(logits: Tensor, y: Tensor) -> Tensor:
    """(n,): the logit of each label."""
    return logits.gather(1, y[:, None])[:, 0]


def class_probability(logits: Tensor, y: Tensor) -> Tensor:
    """(n,): the probability of each label."""
    return class_logit(logits.softmax(1), y)


def class_evidence(logits: Tensor, y: Tensor) -> Tensor:
    """(n,): the logit of each label less the mean of all, so that constants cancel."""
    return class_logit(logits, y) - logits.mean(1)


def count_rows(x: Tensor) -> int:
    """Masked copies of each of the inputs (n, *shape) that are made at once."""
    rows = min(ROWS, ROW_BYTES // (x[0].numel() * x.element_size()))
    return max(1, rows // len(x))


Value = Callable[[Tensor, Tensor], Tensor]
"""(rows, classes) logits and (rows,) labels to (rows,)."""


def clean_value(oracle: Oracle, batch: Batch, value: Value = class_probability) -> Tensor:
    """(n,): the explained value of the unchanged inputs."""
    return value(oracle.scores(batch.ids, batch.x), batch.y)


def masked_values(
    oracle: Oracle,
    batch: Batch,
    domain: Domain,
    count: int,
    masks: Callable[[int, int], Tensor],
    fill: Tensor,
    value: Value = class_probability,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Query the model about partly hidden inputs, in batches of many samples.

    Args:
        oracle: the model's oracle, which counts queries.
        batch: the samples.
        domain: shape, bounds and kind of the inputs.
        count: masks of each sample.
        masks: `masks(first, last)` gives (n, last - first, *places) in [0, 1], the masks of these
            numbers; 1 shows a place.
        fill: (n, *shape) values of hidden places.
        value: function of the answer that gives the figure of a mask.

    Yields:
        (n, k, *places) masks with the (n, k) values of their answers.
    """
    step = count_rows(batch.x)

    for first in range(0, count, step):
        visible = masks(first, min(first + step, count))
        k = visible.shape[1]  # masks of each sample in this batch
        inputs = blend(batch.x, fill, visible, domain).flatten(0, 1)
        logits = oracle.scores(batch.ids.repeat_interleave(k), inputs)
        yield visible, value(logits, batch.y.repeat_interleave(k)).reshape(-1, k)


def blend(x: Tensor, fill: Tensor, visible: Tensor, domain: Domain) -> Tensor:
    """(n, k, *shape): mixtures of inputs and fill.

    `visible` (n, k, *places), 0 to 1, is the share of the input at each place.
    """
    share = broadcast_maps(visible, domain)
    return domain.clamp(torch.lerp(fill[:, None], x[:, None], share))


def resized(maps: Tensor, places: tuple[int, ...]) -> Tensor:
    """Maps (n, k, *lattice) brought to (n, k, *places) by linear interpolation."""
    if tuple(maps.shape[2:]) == places:
        return maps
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(places)]
    return F.interpolate(maps, places, mode=mode, align_corners=False)
