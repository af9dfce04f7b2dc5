"""Two models of finished runs, sample by sample."""

from pathlib import Path

from brinell.analysis.compare import compare, model_names, side
from brinell.analysis.results import CompareResult
from brinell.core.errors import RequestError, option
from brinell.store.folder import fitting
from brinell.studies.comparison.request import CompareRequest
from brinell.studies.kit import Call


def carry_out(call: Call) -> CompareResult:
    """Compare what a call names.

    Raises:
        RequestError: no such run or model, or runs that cannot be compared.
    """
    request: CompareRequest = call.request
    first = Path(request.a)
    second = first if request.b is None else Path(request.b)
    model_a, model_b = request.model_a, request.model_b
    if request.b is None and model_a is None and model_b is None:
        names = model_names(first)
        if len(names) != 2:
            raise RequestError(
                f"{first} contains {len(names)} model{'s' * (len(names) != 1)}: name a second run, or two models by "
                f"{option('model_a')} and {option('model_b')}"
            )
        model_a, model_b = names
    with fitting(first):
        return compare(side(first, model_a), side(second, model_b))
