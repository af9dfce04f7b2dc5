"""Formats a benchmark set for the terminal."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent


def lines(result: Any) -> Iterator[str]:
    """Lines of the result."""
    outcomes = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in result.outcomes.items() if count)
    yield f"{result.samples} samples: {outcomes}; {result.queries:,} queries"
    if result.median_l2 is not None:
        yield (
            f"  medians of the adversarial examples: L2 {result.median_l2:.3g}, {result.median_patches:g} patches, "
            f"{result.median_queries_to_success:g} queries, {result.median_queries_to_refined:g} with clean-up"
        )
        yield f"  {'level':>5}   inputs   accuracy   in 8 bits   unreachable"
    for level in result.levels if result.median_l2 is not None else ():
        stored = percent(level.accuracy_quantised)
        yield f"  {level.level:>5g}   {level.inputs:>6}   {percent(level.accuracy):>8}   {stored:>9}   {level.unreached:>11}"
    yield f"benchmark set: {result.folder}"
