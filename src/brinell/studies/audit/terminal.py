"""An audit as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.studies.audit import dry_run


def lines(result: Any) -> Iterator[str]:
    """The result line by line: of an audit, or of the plan that a dry run shows."""
    yield from dry_run.lines(result) if isinstance(result, dry_run.PlanResult) else result.lines()
