"""Formats a verification for the terminal."""

from collections.abc import Iterator
from typing import Any

from brinell.studies.verification.result import Status

ENDINGS = {
    Status.PROVED: "all hold",
    Status.REFUSED: "refused",
    Status.CONSISTENT: "the files agree with each other; nothing more is proved",
}


def lines(result: Any) -> Iterator[str]:
    """Lines of the result."""
    for sentence in result.premises:
        yield f"premise       {sentence}"
    for problem in result.problems:
        samples = f" ({problem.count} samples, the first {', '.join(map(str, problem.samples))})" if problem.count else ""
        yield f"FAIL          {problem.location}: {problem.description}{samples}"
    for sentence in result.verified_claims:
        yield f"verified      {sentence}"
    for sentence in result.unverified_claims:
        yield f"not verified  {sentence}"
    if result.refusal:
        yield f"neither the model nor the data was used: {ENDINGS[result.status]}"
        return
    if not result.rows:
        yield ENDINGS[result.status]
        return
    if not result.predictions:
        yield f"{result.rows} rows compared with those of a repetition: {ENDINGS[result.status]}"
        return
    yield (
        f"{result.rows} rows, {result.successes} adversarial inputs and {result.predictions} clean predictions checked, "
        f"{result.replayed} rows of {result.samples} samples replayed: {ENDINGS[result.status]}"
    )
