"""A claim as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent
from brinell.studies.claim.ranking import sentence
from brinell.studies.claim.records import CARD


def lines(result: Any) -> Iterator[str]:
    """The claim line by line."""
    yield from result.sentences
    yield f"  {'eps':>9}   proof   counterexample   inconclusive   attacked   proven"
    for level in result.levels:
        proven = "–" if level.certified is None else percent(level.certified.value)
        yield (
            f"  {level.text:>9}   {level.proof:>5}   {level.counterexample:>14}   {level.inconclusive:>12}   "
            f"{percent(level.robust.value):>8}   {proven:>6}"
        )
    if result.rank is not None:
        yield sentence(result.rank, result.robust)
        if result.rank.comparable:
            yield result.rank.why
    yield f"page: {result.folder}/report.html, model card: {result.folder}/{CARD}"
