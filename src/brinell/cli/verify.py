"""`brinell verify`: does every claim of a run still hold?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.options import TRUST, Json, RunFolder, answer, say, show


def verify(
    run: RunFolder,
    rerun: Annotated[
        int | None,
        typer.Option(min=0, help="Robust samples of each model to attack again. Default: 8, or 2 % where that is more."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model, named as for audit, in place of the one that RUN names. May be repeated.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The data, named as for audit, in place of those that RUN names.")] = None,
    attack: Annotated[
        list[str] | None, typer.Option(help="An attack of RUN that is a file, as RUN names it: it may run. May be repeated.")
    ] = None,
    trust: Annotated[Path | None, typer.Option(help=TRUST)] = None,
    signed_by: Annotated[
        Path | None,
        typer.Option(help="A file of allowed signers, or of public SSH keys: a run that none of them has signed is refused."),
    ] = None,
    json: Json = False,
) -> int:
    """Recompute what a run claims: rows, classes, adversarial inputs, costs, checks, tables, and a part of its robust samples.

    Of a run that was made elsewhere nothing is run or opened, unless it is named again or trusted; its files alone are checked.
    """
    from brinell import api
    from brinell.wording import in_options

    result = in_options(api.verify)(run, model or None, data, attack=attack or (), rerun=rerun, trust=trust, signed_by=signed_by)
    return answer(json, result, lambda: _show(result), passed=result.passed)


def _show(result: Any) -> None:
    for problem in result.problems:
        samples = f" ({problem.count} samples, the first {', '.join(map(str, problem.samples))})" if problem.count else ""
        show(f"FAIL  {problem.where}: {problem.what}{samples}")
    for sentence in result.proved:
        show(f"holds     {sentence}")
    for sentence in result.trusted:
        show(f"on trust  {sentence}")
    if result.refused:
        say(f"warning: {result.refused}")
        show(
            "not verified: no model was asked, and no data was opened; "
            + ("failed" if result.problems else "the files are whole")
        )
        return
    show(
        f"{result.rows} rows, {result.successes} adversarial inputs and {result.predictions} clean predictions checked, "
        f"{result.rerun} robust samples attacked again: " + ("all hold" if result.passed else "failed")
    )
