"""The folder of `brinell smooth`.

manifest.json   request, model, data
rows.parquet    a row for each sample
report.html     the page; made from the rows
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

from pydantic import Field

from brinell.core.record import Array, column
from brinell.manifest import Amount, Content, Count, FolderManifest, Listing
from brinell.store.folder import Layout
from brinell.store.table import Table


@dataclass(frozen=True, kw_only=True)
class Radii:
    """Rows as columns, each a (rows,) array."""

    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    prediction: Array = column("int32", "class that was most frequent among the first draws")
    count: Array = column("int64", "later draws that the model gave this class")
    draws: Array = column("int64", "number of these draws")
    low: Array = column("float64", "lower bound of the probability of the class under noise (Clopper-Pearson)")
    radius: Array = column("float64", "L2 distance within which the class cannot change; 0 where it is not told (abstained)")

    def __len__(self) -> int:
        return len(self.sample_id)


class SmoothSettings(Content):
    """Settings that the figures depend on."""

    sigma: Annotated[float, Field(gt=0)]
    """Standard deviation of the noise."""
    draws: Annotated[int, Field(ge=1)]
    """Noisy inputs by which each share was bounded."""
    first: Count
    """Noisy inputs by which the class was chosen."""
    alpha: Annotated[float, Field(gt=0, lt=1)]
    """Largest probability that a radius is too large."""


class SmoothManifest(FolderManifest):
    """The manifest of a smoothed model."""

    request: SmoothSettings  # type: ignore[assignment]  # those that figures need
    """Settings of the request."""
    radii: Listing[Amount]
    """The radii, ascending, 0 first."""


def radius_of(low: float, sigma: float) -> float:
    """The L2 radius within which a class of at least this probability stays the most probable one (Cohen et al., theorem 1)."""
    return sigma * NormalDist().inv_cdf(low) if low > 0.5 else 0.0


TABLE = Table(Layout(verb="smooth", noun="smoothed model", version=1, manifest=SmoothManifest), Radii)
