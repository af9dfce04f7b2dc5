"""`brinell verify`: does every claim of a run still hold?"""

from typing import Annotated, Any

import typer

from brinell.cli.options import Json, RunFolder, answer, show


def verify(
    run: RunFolder,
    rerun: Annotated[
        int | None,
        typer.Option(min=0, help="Robust samples of each model to attack again. Default: 8, or 2 % where that is more."),
    ] = None,
    json: Json = False,
) -> int:
    """Recompute what a run claims: rows, classes, adversarial inputs, costs, checks, tables, and a part of its robust samples."""
    from brinell import api

    result = api.verify(run, rerun=rerun)
    return answer(json, result, lambda: _show(result), passed=result.passed)


def _show(result: Any) -> None:
    for problem in result.problems:
        samples = f" ({problem.count} samples, the first {', '.join(map(str, problem.samples))})" if problem.count else ""
        show(f"FAIL  {problem.where}: {problem.what}{samples}")
    for sentence in result.proved:
        show(f"holds     {sentence}")
    for sentence in result.trusted:
        show(f"on trust  {sentence}")
    show(
        f"{result.rows} rows, {result.successes} adversarial inputs and {result.predictions} clean predictions checked, "
        f"{result.rerun} robust samples attacked again: " + ("all hold" if result.passed else "failed")
    )
