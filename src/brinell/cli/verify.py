"""`brinell verify`: does every claim of a run still hold?"""

from typing import Any

from brinell.cli.options import Json, RunFolder, answer, show


def verify(run: RunFolder, json: Json = False) -> int:
    """Load the stored inputs, run the model again, and check each claimed success, distance and bound."""
    from brinell import api

    result = api.verify(run)
    return answer(json, result, lambda: _show(result), passed=result.passed)


def _show(result: Any) -> None:
    for problem in result.problems:
        samples = f" ({problem.count} samples, the first {', '.join(map(str, problem.samples))})" if problem.count else ""
        show(f"FAIL  {problem.where}: {problem.what}{samples}")
    show(
        f"{result.successes} adversarial inputs and {result.predictions} clean predictions checked: "
        + ("all hold" if result.passed else "failed")
    )
