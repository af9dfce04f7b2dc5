"""A benchmark set as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent


def lines(answer: Any) -> Iterator[str]:
    """The result line by line."""
    outcomes = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in answer.outcomes.items() if count)
    yield f"{answer.samples} samples: {outcomes}; {answer.queries:,} queries"
    if answer.median_l2 is not None:
        yield (
            f"  adversarial examples, medians: L2 {answer.median_l2:.3g}, {answer.median_patches:g} patches, "
            f"{answer.median_queries_to_success:g} queries, {answer.median_queries_to_refined:g} with clean-up"
        )
        yield f"  {'level':>5}   inputs   accuracy   in 8 bits   not reachable"
    for one in answer.levels if answer.median_l2 is not None else ():
        stored = percent(one.accuracy_quantised)
        yield f"  {one.level:>5g}   {one.inputs:>6}   {percent(one.accuracy):>8}   {stored:>9}   {one.unreached:>13}"
    yield f"benchmark set: {answer.folder}"
