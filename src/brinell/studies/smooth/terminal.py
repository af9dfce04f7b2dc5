"""Terminal output of `brinell smooth`."""

from collections.abc import Iterator

from brinell.pages.terminal import percent
from brinell.store.folder import PAGE
from brinell.studies.smooth.analysis import SmoothResult, condition, sentence


def lines(result: SmoothResult) -> Iterator[str]:
    """The result as a terminal shows it."""
    yield f"{'L2 radius':>10} {'proven':>8}   of {result.n} samples"
    for rate in result.certified:
        yield f"{rate.eps:10.4g} {percent(rate.value):>8}"
    yield sentence(result)
    yield condition(result)
    yield f"page: {result.folder}/{PAGE}"
