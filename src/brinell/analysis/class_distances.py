"""How near the classes of the data lie to each other, beside how much each loses."""

from collections.abc import Mapping, Sequence

from brinell.analysis.inference import correlate_ranks
from brinell.analysis.results import ModelResult, NearestClass
from brinell.analysis.robust_accuracy import class_name

Means = Sequence[Sequence[float | None]]
"""Mean distance by class of the row and class of the column; None without a pair."""


def nearest_classes(
    names: Sequence[str], means: Means, nearest_samples: Mapping[int, float | None]
) -> dict[int, NearestClass]:
    """By class the other class of the smallest mean distance; without those that have no pair.

    Args:
        names: of the classes.
        means: of the study.
        nearest_samples: by class the median distance to the nearest sample of another class.
    """
    nearest = {}

    for label, row in enumerate(means):
        distances = {
            other: mean for other, mean in enumerate(row) if other != label and mean is not None
        }
        # A class without a pair in the study has no nearest one.
        if distances:
            other = min(distances, key=distances.__getitem__)
            nearest[label] = NearestClass(
                class_=other,
                name=class_name(names, other),
                distance=distances[other],
                nearest_sample=nearest_samples.get(label),
            )
    return nearest


def with_nearest(model: ModelResult, nearest: Mapping[int, NearestClass]) -> ModelResult:
    """The figures of a model with the nearest class of each, and how both go together."""
    per_class = [
        entry.model_copy(update={"nearest": nearest.get(entry.class_)}) for entry in model.per_class
    ]
    pairs = [
        (entry.nearest.distance, entry.total_drop)
        for entry in per_class
        if entry.nearest is not None and entry.total_drop is not None
    ]
    correlation = correlate_ranks([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    return model.model_copy(update={"per_class": per_class, "distance_correlation": correlation})
