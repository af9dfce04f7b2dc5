"""`brinell verify`: does every claim of a run still hold?"""

from brinell.cli.options import Json, RunFolder, show, show_json


def verify(run: RunFolder, json: Json = False) -> int:
    """Load the stored inputs, run the model again, and check each claimed success, distance and bound."""
    from brinell import api

    result = api.verify(run)
    if json:
        show_json(result.model_dump(mode="json"))
        return 0 if result.passed else 1
    for problem in result.problems:
        samples = f" ({problem.count} samples, the first {', '.join(map(str, problem.samples))})" if problem.count else ""
        show(f"FAIL  {problem.where}: {problem.what}{samples}")
    show(
        f"{result.successes} adversarial inputs and {result.predictions} clean predictions checked: "
        + ("all hold" if result.passed else "failed")
    )
    return 0 if result.passed else 1
