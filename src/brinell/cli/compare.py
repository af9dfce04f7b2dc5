"""`brinell compare`: two models on the same samples."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brinell.cli.options import Json, answer, percent, show

if TYPE_CHECKING:
    from brinell.analysis.results import CompareResult


def compare(
    a: Annotated[Path, typer.Argument(metavar="RUN_A", help="The first run.")],
    b: Annotated[
        Path | None, typer.Argument(metavar="[RUN_B]", help="The second run; none compares two models of RUN_A.")
    ] = None,
    model_a: Annotated[str | None, typer.Option(help="Model of RUN_A, where it has several.")] = None,
    model_b: Annotated[str | None, typer.Option(help="Model of RUN_B, where it has several.")] = None,
    json: Json = False,
) -> int:
    """Compare two models sample by sample: differences with intervals, and McNemar's exact test."""
    from brinell import runs

    result = runs.compare(a, b, model_a=model_a, model_b=model_b)
    return answer(json, result, lambda: _show(result))


def _show(result: "CompareResult") -> None:
    show(f"{result.a} against {result.b}, {result.n} common samples")
    for text, pair in [("clean", result.clean), *((f"eps {pair.eps:.4g}", pair) for pair in result.robust)]:
        p = "unknown" if pair.p is None else f"{pair.p:.3g}"
        show(
            f"  {text:<12} {percent(pair.value_a):>8} {percent(pair.value_b):>8}  difference {percent(pair.difference)} "
            f"({percent(pair.low)} to {percent(pair.high)}), only A {pair.only_a}, only B {pair.only_b}, McNemar p = {p}"
        )
    for note in result.notes:
        show(f"  note: {note}")
