"""Feature squeezing: does the answer change when the input is squeezed?

Xu, Evans & Qi 2018, Feature squeezing: detecting adversarial examples in deep neural networks
(NDSS), sections 3 and 5: the largest L1 distance between the probabilities for the input and for
its squeezed forms, fewer bits per value and a median filter.

Deviations: the fewest bits that cost at most one point of accuracy on the clean inputs are found
here (the paper gives 1 for MNIST and 5 for CIFAR-10); non-local means is left out; the median takes
the upper left of a 2 x 2 window as in the paper, and an axis of one dimension for signals. Rounding
passes gradients straight through, so that an attack that knows the detector has some.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Access, Domain, Kind, Model, Suspicion
from brinell.core.model import ask
from brinell.core.settings import Checked, Count, Range

MOST = 7
"""Bits that are tried at most: with eight, pictures stay as they are."""
COST = 0.01
"""Accuracy on clean inputs that squeezing may cost."""
CHUNK = 256
"""Inputs that are squeezed and asked about at once."""


@dataclass(frozen=True, kw_only=True)
class FeatureSqueezing(Checked):
    """Largest change of the probabilities when the input loses bits or goes through a median."""

    bits: Annotated[int, Range(f"[0, {MOST}]")] = 0
    """Bits per value after squeezing, 1 to 7; 0 takes the fewest that cost at most one point of
    clean accuracy."""
    window: Count = 2
    """Side of the median filter; 1 for none."""

    access: ClassVar[Access] = Access.SCORES
    domains: ClassVar[frozenset[Kind]] = frozenset({"image", "video", "signal"})

    def fit(self, x: Tensor, labels: Tensor, model: Model) -> Suspicion:
        """Choose the number of bits, unless it is given."""
        bits = self.bits or _fewest(x, labels, model)

        def suspicion(x: Tensor) -> Tensor:
            """(n,): largest change of the probabilities by squeezing."""
            plain = ask(model, x).softmax(1)
            # The paper joins its squeezers by the largest of their distances.
            squeezed = [reduce_bits(x, bits, model.domain)]
            if self.window > 1:
                squeezed.append(median(x, self.window))
            changes = [
                (ask(model, squeezed_inputs).softmax(1) - plain).abs().sum(1)
                for squeezed_inputs in squeezed
            ]
            return torch.stack(changes).amax(0)

        return suspicion


def _fewest(x: Tensor, labels: Tensor, model: Model) -> int:
    """The fewest bits that cost at most `COST` of the accuracy."""

    def right(bits: int | None) -> float:
        """Accuracy with so many bits; None leaves the inputs as they are."""
        parts = [
            part if bits is None else reduce_bits(part, bits, model.domain)
            for part in torch.split(x, CHUNK)
        ]
        with torch.no_grad():
            predicted = torch.cat([ask(model, part).argmax(1) for part in parts])
        return float((predicted == labels).float().mean())

    # Fewer bits squeeze more; accuracy falls with them, so the first that suffices is taken, and
    # MOST without a try if none does.
    clean = right(None)
    return next((bits for bits in range(1, MOST) if right(bits) >= clean - COST), MOST)


def reduce_bits(x: Tensor, bits: int, domain: Domain) -> Tensor:
    """(n, *shape) inputs rounded to 2**bits levels between the bounds; gradients pass through.

    Values that may not change stay as they are.
    """
    movable = domain.movable
    if movable is not None:
        rounded_part = reduce_bits(domain.part(x), bits, domain.free)
        return x.index_copy(1, movable.to(x.device), rounded_part)

    low, high = domain.bounds(x)
    levels = 2**bits - 1
    share = (x - low) / (high - low)
    rounded: Tensor = (share * levels).round() / levels
    # Straight through: the value is rounded, the gradient is that of the share.
    passed: Tensor = share + (rounded - share).detach()
    return low + passed * (high - low)


def median(x: Tensor, window: int) -> Tensor:
    """(n, C, ..., L) inputs with medians of windows along the last two axes (one of signals)."""
    before = (window - 1) // 2
    after = window // 2
    axes = 1 if x.ndim == 3 else 2
    flat = x.reshape(-1, 1, *x.shape[-axes:])
    padded = F.pad(flat, [before, after] * axes, mode="replicate")
    for axis in range(axes):
        padded = padded.unfold(2 + axis, window, 1)
    middle: Tensor = padded.flatten(2 + axes).median(-1).values
    return middle.reshape(x.shape)
