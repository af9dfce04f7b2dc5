"""`brinell study`: models side by side, class by class."""

from typing import Any

from brinell.cli.options import percent, say_how_many, show, show_reading
from brinell.cli.verb import Asked, verb
from brinell.studies.per_class.request import StudyRequest


@verb(StudyRequest, argument="run", resume="Go on with the audit in --out.")
def study(asked: Asked) -> int:
    """Compare any number of models class by class: stages, drops, places with intervals, and what goes with robustness.

    The models are those of runs that are there, or are audited first. Without options: four networks for digits.
    """
    from brinell.across import make_study, plan_study
    from brinell.api import default_out

    plan = plan_study(asked.request(StudyRequest))
    if plan.audit is not None:
        say_how_many(plan.audit)
    folder = asked.out or default_out(plan.data, "study")
    asked.begin(plan.request, folder)
    with asked.progress() as progress:
        result = make_study(plan, folder, progress, command=asked.command(plan.request), resume=asked.resume)
    return asked.answer(result, lambda: _show(result))


def _show(result: Any) -> None:
    from brinell.studies.per_class.words import reading

    text = result.eps_text[result.at]
    show(f"{result.data}: {len(result.models)} models, {result.n} samples, {result.distance} at {text}")
    show(f"  {'model':<24} {'parameters':>12} {'clean':>8} {'robust':>8}   95 % interval      place        loses most")
    for one in sorted(result.models, key=lambda one: one.rank.rank):
        rate, place = one.robust[result.at], one.rank
        interval = f"{percent(rate.low)} to {percent(rate.high)}"
        among = f"{place.rank:g} ({place.low:g} to {place.high:g})"
        size = "-" if one.parameters is None else f"{one.parameters:,}"
        rates = f"{percent(one.clean.value):>8} {percent(rate.value):>8}   {interval:<18}"
        show(f"  {one.model[:24]:<24} {size:>12} {rates} {among:<12} {', '.join(one.loses_most)}")
    show_reading(reading(result), result.notes)
    show(f"page: {result.folder}/report.html")
