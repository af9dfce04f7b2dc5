"""A per-class study as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent, reading
from brinell.studies.per_class.words import reading as sentences


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    text = result.eps_text[result.at]
    yield f"{result.data}: {len(result.models)} models, {result.n} samples, {result.distance} at {text}"
    yield f"  {'model':<24} {'parameters':>12} {'clean':>8} {'robust':>8}   95 % interval      place        loses most"
    for one in sorted(result.models, key=lambda one: one.rank.rank):
        rate, place = one.robust[result.at], one.rank
        interval = f"{percent(rate.low)} to {percent(rate.high)}"
        among = f"{place.rank:g} ({place.low:g} to {place.high:g})"
        size = "-" if one.parameters is None else f"{one.parameters:,}"
        rates = f"{percent(one.clean.value):>8} {percent(rate.value):>8}   {interval:<18}"
        yield f"  {one.model[:24]:<24} {size:>12} {rates} {among:<12} {', '.join(one.loses_most)}"
    yield from reading(sentences(result), result.notes)
    yield f"page: {result.folder}/report.html"
