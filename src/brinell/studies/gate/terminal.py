"""A gate as a terminal shows it: a failure ends with the line that says what failed, by how much, and what to do."""

from collections.abc import Iterator

from brinell.analysis.gate import Check, GateResult


def lines(verdict: GateResult) -> Iterator[str]:
    """The result line by line: conditions that hold, those without an answer, the verdict, and last the failures."""
    for check in verdict.checks:
        if check.passed is None:
            yield f"not made  {check.name}: {check.reason or check.text}"
        elif check.passed:
            yield f"pass  {check.name}: {check.text}"
    missing = [check for check in verdict.checks if check.passed is None]
    missing_text = f"; {len(missing)} were not made, which --without-checks allows" if missing else ""
    weak = f"; the attacks are weaker than fast: {verdict.weak}" if verdict.weak else ""
    failures = verdict.failures
    count = f", {len(failures)} of {len(verdict.checks)} conditions" if failures else ""
    yield f"gate {'passed' if verdict.passed else 'failed'}{count}{missing_text}{weak}"
    for check in reversed(failures):  # the conditions that the user set come first, so their failures end the output
        yield failure(check)


def failure(check: Check) -> str:
    """The line of a condition that does not hold, with what to do about it."""
    return f"FAIL  {check.name}: {check.text}{f'; {check.remedy}' if check.remedy else ''}"
