"""`brinell unrestricted`: examples made from scratch, on which a model errs."""

from pathlib import Path
from typing import Any

from brinell.cli.options import percent, show
from brinell.cli.verb import Asked, verb
from brinell.studies.unrestricted.request import UnrestrictedRequest


@verb(UnrestrictedRequest, kept="run.toml", resume="Go on with the run in --out.")
def unrestricted(asked: Asked) -> int:
    """Search a generator's latent space for inputs of an intended class on which the models err, within no norm ball.

    The records say who still sees the intended class, and how far each input is from the training data.
    """
    from brinell.api import make_unrestricted
    from brinell.studies.unrestricted.run import make_plan

    plan = make_plan(asked.request(UnrestrictedRequest))
    result = asked.carry_out(make_unrestricted, plan, "unrestricted")
    return asked.answer(result, lambda: _show(result))


def _show(result: Any) -> None:
    show(f"{result.attempts} attempts; judges: {', '.join(result.judges) or 'none'}")
    for one in result.results:
        total = one.total
        show(f"{one.model}, {one.variant}{f' (noise {one.noise:g})' if one.noise else ''}")
        show(f"  clear plain samples     {percent(total.clear.value)} of {total.clear.n}")
        show(f"  accuracy on them        {percent(total.plain_accuracy.value)}   (generalisation)")
        show(f"  accuracy after search   {percent(total.searched_accuracy.value)}   (and adversarial)")
        show(f"  searches that succeed   {percent(total.success.value)}, a judge sees another class in {total.contested.k} more")
    for warning in result.warnings:
        show(f"note: {warning}")
    show(f"report: {Path(result.run) / 'report.html'}")
