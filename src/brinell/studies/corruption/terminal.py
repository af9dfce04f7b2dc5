"""A corruption study as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent, reading
from brinell.studies.corruption.words import reading as sentences


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    severities = sorted({one.severity for one in result.kinds})
    levels = {(one.model, one.kind, one.severity): one.accuracy.value for one in result.kinds}
    for model in result.models:
        yield f"{model.model}: {result.n} samples, {percent(model.clean.value)} clean"
        yield f"  {'severity':<28}" + "".join(f"{severity:>9}" for severity in severities) + f"{'mean':>9}"
        for kind in model.kinds:
            values = "".join(f"{percent(levels[model.model, kind.kind, severity]):>9}" for severity in severities)
            yield f"  {kind.kind:<28}{values}{percent(kind.accuracy):>9}"
    yield from reading(sentences(result), result.notes)
    yield f"page: {result.folder}/report.html"
