"""A verification as a terminal shows it."""

from collections.abc import Iterator
from typing import Any


def lines(result: Any) -> Iterator[str]:
    """The result line by line."""
    for problem in result.problems:
        samples = f" ({problem.count} samples, the first {', '.join(map(str, problem.samples))})" if problem.count else ""
        yield f"FAIL  {problem.where}: {problem.what}{samples}"
    for sentence in result.proved:
        yield f"holds     {sentence}"
    for sentence in result.trusted:
        yield f"on trust  {sentence}"
    if result.refused:
        yield (
            "not verified: no model was asked, and no data was opened; "
            + ("failed" if result.problems else "the files are whole")
        )
        return
    yield (
        f"{result.rows} rows, {result.successes} adversarial inputs and {result.predictions} clean predictions checked, "
        f"{result.rerun} robust samples attacked again: " + ("all hold" if result.passed else "failed")
    )
