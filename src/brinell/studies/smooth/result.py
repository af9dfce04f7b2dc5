"""Rows of a smoothed model, the figures that are counted from them, and the report."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from brinell.analysis.results import OfClass, Rate
from brinell.analysis.robust_accuracy import class_name, rate
from brinell.core.record import Array, column
from brinell.manifest import Amount, Facts, Listing
from brinell.reports.numbers import percent
from brinell.reports.values import Curve, Report, Series, Table
from brinell.store import rows
from brinell.studies.result import Folder, FolderResult
from brinell.studies.smooth import SmoothRequest


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


class SmoothFacts(Facts):
    """What the request leaves open."""

    radii: Listing[Amount]
    """The radii, ascending, 0 first."""


class ClassRadii(OfClass):
    """One class of the smoothed model."""

    n: int
    certified: list[Rate]


class SmoothResult(FolderResult):
    """What `brinell smooth --json` prints. All rates are of the smoothed model, none of the model itself."""

    request: SmoothRequest
    facts: SmoothFacts
    n: int
    abstained: int
    """Samples whose class the draws do not tell; they count as wrong at every radius."""
    certified: list[Rate]
    """Share of samples whose class is right and proven, by L2 radius; the first is at radius 0."""
    median_radius: float | None
    """Median radius of the samples whose class is right and proven; null without any."""
    per_class: list[ClassRadii]
    queries: int
    """Inputs that the model answered."""

    def rates(self) -> dict[str, list[Rate]]:
        """Rates that a gate can judge, by metric."""
        return {"certified": self.certified}

    def report(self) -> Report:
        """What the page, the terminal and the CSV files say."""
        (model,) = self.models
        first, middle = self.certified[0], self.certified[len(self.certified) // 2]
        abstained = f" {self.abstained} samples have no class that the draws tell; they count as wrong." * bool(self.abstained)
        texts = [f"{rate.eps:.3g}" for rate in self.certified]
        return Report(
            verb="smooth",
            title=f"Smoothed {model}",
            subject=f"{self.data}, {self.n} samples; Gaussian noise of deviation {self.request.sigma:g}",
            sentences=[
                f"The smoothed model is right on {percent(first.value)} of {first.n} samples, and provably so within an L2 "
                f"distance of {middle.eps:.3g} on {percent(middle.value)}.",
                f"The smoothed model answers the most frequent class under noise of deviation {self.request.sigma:g}, which is "
                f"another model than {model}. Each radius is too large with a probability of at most {self.request.alpha:g} "
                f"({self.request.draws:,} draws).{abstained}",
            ],
            blocks=[
                Curve(
                    title="Proven share over the L2 radius",
                    series=[Series(name=f"smoothed {model}", points=[(rate.eps, rate) for rate in self.certified])],
                    ticks=[(rate.eps, text) for rate, text in zip(self.certified, texts, strict=True)],
                    axis="L2 radius",
                ),
                Table(
                    title="Proven share",
                    columns=("L2 radius", "proven"),
                    rows=[(rate.eps, rate) for rate in self.certified],
                    text="By randomised smoothing (Cohen et al. 2019) with exact binomial bounds. Intervals are of the sample: "
                    "95 %, Wilson.",
                    name="certified",
                    terminal=True,
                ),
                Table(
                    title="Class by class",
                    columns=("class", "samples", *texts),
                    rows=[(entry.name, entry.n, *entry.certified) for entry in self.per_class],
                    name="per_class",
                    heat=True,
                ),
            ],
        )


def radius_of(low: float, sigma: float) -> float:
    """The L2 radius within which a class of at least this probability stays the most probable one (Cohen et al., theorem 1)."""
    return sigma * NormalDist().inv_cdf(low) if low > 0.5 else 0.0


def summarise(folder: Folder[Radii]) -> SmoothResult:
    """Figures of a folder from its rows."""
    table, request, names = folder.rows, folder.request, folder.head()["classes"]
    proven = (table.prediction == table.label) & (table.radius > 0)
    groups = {label: rows.take(table, table.label == label) for label in np.unique(table.label).tolist()}
    return SmoothResult(
        **folder.head(),
        n=len(table),
        abstained=int((table.radius <= 0).sum()),
        certified=_certified(table, folder.facts.radii),
        median_radius=float(np.median(table.radius[proven])) if proven.any() else None,
        per_class=[
            ClassRadii(class_=label, name=class_name(names, label), n=len(group), certified=_certified(group, folder.facts.radii))
            for label, group in groups.items()
        ],
        queries=len(table) * (request.first + request.draws),
    )


def _certified(table: Radii, radii: list[float]) -> list[Rate]:
    """The share of samples that are right and proven at each radius."""
    proven = (table.prediction == table.label) & (table.radius > 0)
    return [rate(int((proven & (table.radius >= radius)).sum()), len(table), eps=radius) for radius in radii]
