"""`brinell gate`: does a run reach what is demanded? Exit code 0 or 1, for CI systems."""

from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.options import Json, RunFolder, answer, show


def gate(
    run: RunFolder,
    robust: Annotated[
        float | None, typer.Option(help="Least robust accuracy, 0 to 1, for the lower end of its interval.")
    ] = None,
    worst_class: Annotated[float | None, typer.Option(help="The same for the weakest class.")] = None,
    clean: Annotated[float | None, typer.Option(help="The same for clean accuracy.")] = None,
    eps: Annotated[str | None, typer.Option(help="Budget of these thresholds, one of the run's. Default: its largest.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="A run that this one must not be worse than.")] = None,
    max_drop: Annotated[float | None, typer.Option(help="Most that a rate may fall below the baseline's, chance or not.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of the run, where it has several.")] = None,
    allow: Annotated[list[str] | None, typer.Option(help="Code of a warning that does not fail the gate. May repeat.")] = None,
    without_checks: Annotated[
        bool, typer.Option("--without-checks", help="Pass too where checks that count were not made.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the checks as JUnit XML.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write the failed checks as SARIF 2.1.0.")] = None,
    json: Json = False,
) -> int:
    """Test the lower end of each interval against thresholds, or a run against a baseline.

    A missing figure fails, and so does a check that was not made.
    """
    from brinell import runs
    from brinell.pages.gate import junit as as_junit
    from brinell.pages.gate import sarif as as_sarif
    from brinell.store.files import write_text

    verdict = runs.gate(
        run,
        robust=robust,
        worst_class=worst_class,
        clean=clean,
        eps=eps,
        baseline=baseline,
        max_drop=max_drop,
        model=model,
        allow=allow or (),
        without_checks=without_checks,
    )
    if junit is not None:
        write_text(junit, as_junit(verdict))
    if sarif is not None:
        write_text(sarif, as_sarif(verdict))
    return answer(json, verdict, lambda: _show(verdict), passed=verdict.passed)


def _show(verdict: Any) -> None:
    for check in verdict.checks:
        if check.passed is None:
            show(f"not made  {check.name}: {check.reason or check.why}")
        else:
            show(f"{'pass' if check.passed else 'FAIL'}  {check.name}: {check.why}")
    missing = [check for check in verdict.checks if check.passed is None]
    some = f"; {len(missing)} were not made, which --without-checks allows" if missing else ""
    weak = f"; the attacks are weaker than fast: {verdict.weak}" if verdict.weak else ""
    show(f"gate {'passed' if verdict.passed else 'failed'}{some}{weak}")
