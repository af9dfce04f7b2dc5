"""`brinell verify`: does every claim of a run still hold?"""

from brinell.cli.options import Json, RunFolder, show, show_json
from brinell.core.errors import RequestError


def verify(run: RunFolder, json: Json = False) -> int:
    """Load the stored inputs, run the model again, and check each claimed success, distance and bound."""
    from brinell.audit.plan import Request, make_plan
    from brinell.audit.verify import Verification
    from brinell.runners.local import session
    from brinell.store.run import Run

    folder = Run.open(run)
    request = Request(**folder.manifest["request"])
    if any(spec.startswith("in-memory") for spec in (request.data, *request.model)):
        raise RequestError(f"{run} was made from a model or data in memory: call brinell.verify(run, model, data) from Python")
    plan = make_plan(request)
    verification = Verification(folder, plan)
    verification.files()
    for source in plan.models:
        target = source.open()
        with session(target, plan.device):
            verification.model(source, target)
    result = verification.result()
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
