"""Terminal output of `brinell epsilon`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def lines(result: Any) -> Iterator[str]:
    """Format the result as lines."""
    yield f"{result.data}: {result.n} samples, conditions: {', '.join(result.conditions)}"
    yield f"  {'norm':<5} {'unnoticed up to':>15} {'sound up to':>12}   limited by"
    for recommendation in result.norms:
        unnoticed = "–" if recommendation.unnoticed is None else _eps(recommendation.unnoticed)
        sound, reason = _eps(recommendation.sound), recommendation.overall.sound_reason
        yield f"  {recommendation.norm:<5} {unnoticed:>15} {sound:>12}   {reason}"
    for recommendation in result.norms:
        yield f"  {recommendation.advice}"
    for note in result.notes:
        yield f"  note: {note.text}"
    yield f"to audit each sample within its recommended eps: --eps recommended:{result.folder}"
    yield f"report: {Path(result.folder) / 'report.html'}"


def _eps(value: float | None) -> str:
    """Format an eps; None means no limit."""
    return "no limit" if value is None else f"{value:g}"
