"""Sentences that interpret a study of a detector, each computed from its figures."""

from brinell.core.boxes import ERRORS, FALSE
from brinell.pages.format import percent, short
from brinell.studies.dense.detection_results import DetectionResult
from brinell.studies.dense.results import Figure


def value_text(error: str, value: float | None) -> str:
    """A share of objects, or false boxes per picture."""
    if value is None:
        return "–"
    return f"{value:.1f}" if error == FALSE else percent(value)


def figure_text(figure: Figure, error: str = "") -> str:
    """A figure with its interval."""
    text = value_text(error, figure.value)
    if figure.low is None or figure.high is None:
        return text
    scale = 1 if error == FALSE else 100
    return f"{text} ({scale * figure.low:.1f} to {scale * figure.high:.1f})"


def eps_text(norm: str, eps: float) -> str:
    """A budget as people write it: in Linf as a fraction of 255 where that is short."""
    fraction = f"{255 * eps:.6g}/255"
    return fraction if norm == "linf" and eps and len(fraction) < len("0.25/255") else short(eps)


def reading(result: DetectionResult) -> list[str]:
    """Sentences on AP, recall and errors at the largest budget, and on checks that failed."""
    half, recall = result.ap50, result.recall
    sentences = [
        f"At {eps_text(result.norm, half[-1].eps)}, AP50 of {result.n} pictures is at most {percent(half[-1].value)} "
        f"({percent(half[0].value)} without an "
        f"attack), and boxes with scores above {result.least_score:g} find at most {percent(recall[-1].value)} of the "
        f"{result.objects} "
        f"objects ({percent(recall[0].value)})."
    ]
    texts = {
        "missed": "misses {} of the objects ({})",
        "false": "shows {} false boxes a picture ({})",
        "mislabelled": "mislabels {} of them ({})",
        "misplaced": "misplaces {} of them ({})",
    }
    parts = [
        texts[error].format(*(value_text(error, figures[level].value) for level in (-1, 0)))
        for error in ERRORS
        if (figures := getattr(result.errors, error))
    ]
    if parts:
        listing = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        sentences.append(f"Attacked for each kind of error by itself, {result.model} {listing}.")
    return sentences + [f"{check.text}." for check in result.checks if not check.passed]
