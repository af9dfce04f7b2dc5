"""Terminal output of `brinell epsilon`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brinell.studies.epsilon.analysis import format_eps


def lines(result: Any) -> Iterator[str]:
    """Format the result as lines."""
    yield f"{result.data}: {result.n} samples, conditions: {', '.join(result.conditions)}"
    yield f"  {'norm':<5} {'audit up to':>12} {'unnoticed up to':>16} {'sound by distance up to':>24}   limited by"
    for recommendation in result.norms:
        unnoticed = "–" if recommendation.unnoticed is None else format_eps(recommendation.unnoticed)
        audit, sound = format_eps(recommendation.audit), format_eps(recommendation.sound)
        yield f"  {recommendation.norm:<5} {audit:>12} {unnoticed:>16} {sound:>24}   {recommendation.overall.sound_reason}"
    for recommendation in result.norms:
        yield f"  {recommendation.advice}"
    for note in result.notes:
        yield f"  note: {note.text}"
    yield f"to audit each sample within its recommended eps: --eps recommended:{result.folder}"
    yield f"report: {Path(result.folder) / 'report.html'}"
