"""A gate as a terminal shows it."""

from collections.abc import Iterator
from typing import Any


def lines(verdict: Any) -> Iterator[str]:
    """The result line by line."""
    for check in verdict.checks:
        if check.passed is None:
            yield f"not made  {check.name}: {check.reason or check.why}"
        else:
            yield f"{'pass' if check.passed else 'FAIL'}  {check.name}: {check.why}"
    missing = [check for check in verdict.checks if check.passed is None]
    some = f"; {len(missing)} were not made, which --without-checks allows" if missing else ""
    weak = f"; the attacks are weaker than fast: {verdict.weak}" if verdict.weak else ""
    yield f"gate {'passed' if verdict.passed else 'failed'}{some}{weak}"
