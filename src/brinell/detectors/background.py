"""Changed background pixels: how many values lie near the background without being it.

Pictures of digits have a background of one exact value, so any change there is visible. A value
counts as changed background where it differs from the background by more than rounding and by less
than `near` of the range; strokes are farther away, and their soft edges are what clean inputs have
too. The score is the share of such values.

Our own; the observation is that of the studies that ask which budgets are perceptible on MNIST. It
sees no model.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from brinell.core.contracts import Access, Kind, Model, Suspicion
from brinell.core.errors import RequestError
from brinell.core.settings import Checked, Fraction, Range
from brinell.detectors._background import BINS, SHARE, most_frequent


@dataclass(frozen=True, kw_only=True)
class Background(Checked):
    """Share of values that lie near the background of the data without being it."""

    tolerance: Fraction = 0.5
    """Values farther from the background than this share of the range belong to what is shown."""
    least: Annotated[float, Range("(0, 1)")] = SHARE
    """Share of all clean values that must be the background for there to be one."""

    access: ClassVar[Access] = Access.LABELS
    domains: ClassVar[frozenset[Kind]] = frozenset({"image", "video"})

    def fit(self, x: Tensor, labels: Tensor, model: Model) -> Suspicion:
        """Find the value that each channel has most often."""
        domain = model.domain
        background, share = most_frequent(x, domain)
        if share < self.least:
            raise RequestError(
                "these inputs have no background: the most frequent value is "
                f"{share:.0%} of all; leave the detector out"
            )
        low, high = domain.bounds(x)
        span = high - low
        rounding = 0.5 / BINS * span

        def suspicion(x: Tensor) -> Tensor:
            """(n,): share of the values that differ slightly from the background."""
            away = (x - background).abs()
            changed = ((away > rounding) & (away < self.tolerance * span)).to(x.dtype)
            # The count is flat, so that its gradient is that of how far the counted values are
            # away; what is added and taken off again changes no value.
            slope = changed * away / (self.tolerance * span)
            return (changed.detach() + slope - slope.detach()).flatten(1).mean(1)

        return suspicion
