"""The answer to a query, as JSON and in the form of the VNN competitions."""

from collections.abc import Iterator
from typing import Literal

from brinell.analysis.folder_result import Result


class FalsifyResult(Result):
    """What `brinell falsify --json` prints."""

    query: str
    network: str
    verdict: Literal["sat", "unsat", "unknown"]
    """sat: an input satisfies the query; unsat: a proof that none does; unknown: neither within the time."""
    reason: str
    """How the verdict was reached, in a sentence."""
    x: dict[str, float]
    """Values of the inputs by name, in the type of the network; empty without a counterexample."""
    y: dict[str, float]
    """Values of the outputs by name, as ONNX Runtime answers."""
    slack: float | None
    """By how much the tightest constraint holds at the counterexample; without one at the best input that was tried."""
    cases: int
    """Boxes with constraints of which one must be satisfied."""
    gradients: bool
    """True if attacks had gradients."""
    forwards: int
    """Inputs that the network answered."""
    seconds: float
    """Wall time."""


def competition_lines(result: FalsifyResult) -> Iterator[str]:
    """The verdict, and the counterexample in parentheses."""
    yield result.verdict
    values = [*result.x.items(), *result.y.items()]
    for k, (name, value) in enumerate(values):
        start, end = "((" if k == 0 else " (", "))" if k == len(values) - 1 else ")"
        yield f"{start}{name} {value!r}{end}"


SHOWN = 6
"""Values of a counterexample that a terminal shows."""


def lines(result: FalsifyResult) -> Iterator[str]:
    """The result as a terminal shows it."""
    yield result.verdict
    yield result.reason
    for title, values in (("inputs", result.x), ("outputs", result.y)):
        if values:
            listing = ", ".join(f"{name} {value:.6g}" for name, value in list(values.items())[:SHOWN])
            yield f"{title}: {listing}{', ...' if len(values) > SHOWN else ''}"
    yield f"{result.forwards} inputs in {result.seconds:.1f} s"
