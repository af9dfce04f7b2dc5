"""`brinell corrupt`: what the published corruptions cost models."""

from typing import Any

from brinell.cli.options import percent, show, show_reading
from brinell.cli.verb import Asked, verb
from brinell.studies.corruption.request import CorruptRequest


@verb(CorruptRequest)
def corrupt(asked: Asked) -> int:
    """Corrupt inputs in the published ways, at five severities, and count what models get wrong.

    With --reference, the mean corruption error; with --placed, what RLAB makes of the same corruption on patches.
    """
    from brinell.across import make_corrupt, plan_corrupt

    plan = plan_corrupt(asked.request(CorruptRequest))
    folder = asked.folder(plan.request, "corrupt")
    with asked.progress() as progress:
        result = make_corrupt(plan, folder, progress, command=asked.command(plan.request))
    return asked.answer(result, lambda: _show(result))


def _show(result: Any) -> None:
    from brinell.studies.corruption.words import reading

    severities = sorted({one.severity for one in result.kinds})
    levels = {(one.model, one.kind, one.severity): one.accuracy.value for one in result.kinds}
    for model in result.models:
        show(f"{model.model}: {result.n} samples, {percent(model.clean.value)} clean")
        show(f"  {'severity':<28}" + "".join(f"{severity:>9}" for severity in severities) + f"{'mean':>9}")
        for kind in model.kinds:
            values = "".join(f"{percent(levels[model.model, kind.kind, severity]):>9}" for severity in severities)
            show(f"  {kind.kind:<28}{values}{percent(kind.accuracy):>9}")
    show_reading(reading(result), result.notes)
    show(f"page: {result.folder}/report.html")
