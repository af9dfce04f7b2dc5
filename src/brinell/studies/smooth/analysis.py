"""The result of smoothing: the share of samples whose class is right and cannot change within a radius."""

import numpy as np

from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import rate
from brinell.core.record import Array
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.smooth.records import Radii


class ClassRadii(Result):
    """One class of the smoothed model."""

    class_: int
    name: str
    n: int
    certified: list[Rate]


class SmoothResult(FolderResult):
    """What `brinell smooth --json` prints. All rates are of the smoothed model, none of the model itself."""

    model: str
    data: str
    n: int
    sigma: float
    """Standard deviation of the noise."""
    draws: int
    """Noisy inputs by which each share was bounded."""
    alpha: float
    """Largest probability that a radius is too large, for each sample."""
    abstained: int
    """Samples whose class the draws do not tell; they count as wrong at every radius."""
    certified: list[Rate]
    """Share of samples whose class is right and proven, by L2 radius; the first is at radius 0."""
    median_radius: float | None
    """Median radius of the samples whose class is right and proven; null without any."""
    per_class: list[ClassRadii]
    queries: int
    """Inputs that the model answered."""
    seconds: float
    """Wall time of the computation."""


def summarise(folder: Folder[Radii]) -> SmoothResult:
    """Figures of a folder from its rows."""
    manifest, table = folder.manifest, folder.rows
    request, names = manifest["request"], manifest["data"]["classes"]
    levels = np.array(manifest["radii"])
    right = table.prediction == table.label
    proven = right & (table.radius > 0)
    per_class = []
    for number in np.unique(table.label).tolist():
        part = rows.take(table, table.label == number)
        name = names[number] if number < len(names) else str(number)
        per_class.append(ClassRadii(class_=number, name=name, n=len(part), certified=_rates(part, levels)))
    return SmoothResult(
        folder=str(folder.path),
        model=manifest["models"][0]["name"],
        data=manifest["data"]["name"],
        n=len(table),
        sigma=float(request["sigma"]),
        draws=int(request["draws"]),
        alpha=float(request["alpha"]),
        abstained=int((table.radius <= 0).sum()),
        certified=_rates(table, levels),
        median_radius=float(np.median(table.radius[proven])) if proven.any() else None,
        per_class=per_class,
        queries=len(table) * (int(request["first"]) + int(request["draws"])),
        seconds=float(manifest.get("seconds") or 0.0),
    )


def _rates(table: Radii, levels: Array) -> list[Rate]:
    """The share of samples that are right and proven at each radius."""
    proven = (table.prediction == table.label) & (table.radius > 0)
    return [rate(int((proven & (table.radius >= level)).sum()), len(table), eps=float(level)) for level in levels.tolist()]


def gate_rates(result: SmoothResult) -> dict[str, list[Rate]]:
    """Rates for a gate by metric, all of the smoothed model."""
    return {"certified": result.certified}


def sentence(result: SmoothResult) -> str:
    """The result in one sentence."""
    first, middle = result.certified[0], result.certified[len(result.certified) // 2]
    return (
        f"The smoothed model is right on {100 * (first.value or 0):.1f} % of {first.n} samples, and provably so within an L2 "
        f"distance of {middle.eps:.3g} on {100 * (middle.value or 0):.1f} %."
    )


def condition(result: SmoothResult) -> str:
    """The conditions under which the figures hold."""
    abstained = f" {result.abstained} samples have no class that the draws tell; they count as wrong." if result.abstained else ""
    return (
        f"The smoothed model answers the most frequent class under noise of deviation {result.sigma:g}, which is another model "
        f"than {result.model}. Each radius is too large with a probability of at most {result.alpha:g} "
        f"({result.draws:,} draws).{abstained}"
    )
