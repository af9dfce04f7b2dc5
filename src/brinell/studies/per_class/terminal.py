"""Terminal output of a per-class study."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent, reading
from brinell.studies.per_class.words import reading as sentences


def lines(result: Any) -> Iterator[str]:
    """Yield the lines of the result."""
    text = result.eps_text[result.at]
    yield f"{result.data}: {len(result.models)} models, {result.n} samples, {result.distance} at {text}"
    yield f"  {'model':<24} {'parameters':>12} {'clean':>8} {'robust':>8}   95 % interval      place        loses most"
    for model in sorted(result.models, key=lambda model: model.rank.rank):
        rate, place = model.robust[result.at], model.rank
        interval = f"{percent(rate.low)} to {percent(rate.high)}"
        rank = f"{place.rank:g} ({place.low:g} to {place.high:g})"
        size = "-" if model.parameters is None else f"{model.parameters:,}"
        rates = f"{percent(model.clean.value):>8} {percent(rate.value):>8}   {interval:<18}"
        yield f"  {model.model[:24]:<24} {size:>12} {rates} {rank:<12} {', '.join(model.loses_most)}"
    yield from reading(sentences(result), result.notes)
    yield f"page: {result.folder}/report.html"
