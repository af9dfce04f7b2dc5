"""Terminal output of a corruption study."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent, reading
from brinell.studies.corruption.words import reading as sentences


def lines(result: Any) -> Iterator[str]:
    """Yield the lines of the result."""
    severities = sorted({level.severity for level in result.kinds})
    levels = {(level.model, level.kind, level.severity): level.accuracy.value for level in result.kinds}
    for model in result.models:
        yield f"{model.model}: {result.n} samples, {percent(model.clean.value)} clean"
        yield f"  {'severity':<28}" + "".join(f"{severity:>9}" for severity in severities) + f"{'mean':>9}"
        for kind in model.kinds:
            values = "".join(f"{percent(levels[model.model, kind.kind, severity]):>9}" for severity in severities)
            yield f"  {kind.kind:<28}{values}{percent(kind.accuracy):>9}"
    yield from reading(sentences(result), result.notes)
    yield f"page: {result.folder}/report.html"
