"""`brinell compare`: two models on the same samples."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brinell.cli.options import Json, answer, percent, show
from brinell.core.errors import RequestError

if TYPE_CHECKING:
    from brinell.analysis.compare import Side
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
    from brinell.analysis.compare import compare as paired

    if b is None and model_a is None and model_b is None:
        names = models_of(a)
        if len(names) != 2:
            raise RequestError(f"{a} holds {len(names)} models: name a second run, or two models by --model-a and --model-b")
        model_a, model_b = names
    result = paired(side(a, model_a), side(b or a, model_b))
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


def models_of(folder: Path) -> list[str]:
    """The names of the models of a run."""
    from brinell.store.run import Run

    return [one["name"] for one in Run.open(folder).manifest["models"]]


def side(folder: Path, model: str | None) -> "Side":
    """One model of a run, ready to be compared.

    Raises:
        RequestError: several models and none named, or an unknown one.
    """
    from brinell.analysis.compare import Side
    from brinell.store.run import Run

    run, names = Run.open(folder), models_of(folder)
    if model is None and len(names) > 1:
        raise RequestError(f"{folder} holds several models: name one of {', '.join(names)}")
    if model is not None and model not in names:
        raise RequestError(f"{folder} holds no model {model!r}, only {', '.join(names)}")
    return Side(run=str(folder), manifest=run.manifest, records=run.records(), model=model or names[0])
