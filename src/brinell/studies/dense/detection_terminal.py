"""Terminal output of a study of a detector."""

from collections.abc import Iterator

from brinell.core.boxes import ERRORS
from brinell.studies.dense.detection_results import DetectionResult
from brinell.studies.dense.detection_words import eps_text, figure_text, reading

TITLES = {"missed": "missed", "false": "false a picture", "mislabelled": "mislabelled", "misplaced": "misplaced"}
"""Titles of the columns of errors."""
WIDTH = 24


def lines(result: DetectionResult) -> Iterator[str]:
    """Yield the lines of the result."""
    yield f"{result.model} on {result.data}: {result.n} pictures, {result.objects} objects, {result.norm}"
    curves = [("AP50", result.ap50, ""), ("AP", result.ap, ""), (f"recall at {result.least_score:g}", result.recall, "")]
    curves += [(TITLES[error], getattr(result.errors, error), error) for error in ERRORS if getattr(result.errors, error)]
    for part in (curves[:3], curves[3:]):
        if part:
            yield f"  {'eps':<10}" + "".join(f"{title:<{WIDTH}}" for title, _, _ in part).rstrip()
        for level, figure in enumerate(part[0][1] if part else ()):
            row = "".join(f"{figure_text(figures[level], error):<{WIDTH}}" for _, figures, error in part)
            yield f"  {eps_text(result.norm, figure.eps):<10}{row}".rstrip()
    yield from reading(result)
    yield from result.notes
    yield f"page: {result.folder}/report.html"
