"""The plan of an audit, with budgets that are named and not given as numbers."""

from brinell.core.contracts import Dataset
from brinell.core.model import Model
from brinell.engine.plan import Plan, make_plan
from brinell.engine.request import Request


def plan_audit(
    request: Request, *, dataset: Dataset | None = None, models: tuple[Model, ...] = ()
) -> Plan:
    """Make the plan of an audit; arguments and errors are those of `engine.plan.make_plan`."""
    if not (request.eps or "").startswith("recommended"):
        return make_plan(request, dataset=dataset, models=models)
    from brinell.studies.epsilon.recommended import resolve  # it brings another study

    dataset, recommended = resolve(request, dataset)
    return make_plan(request, dataset=dataset, models=models, recommended=recommended)
