"""`brinell epsilon`: which eps is sound for some data, and why; with --review, a person judges pairs of pictures in a browser."""

from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.options import say, show
from brinell.cli.verb import Asked, verb
from brinell.core.errors import RequestError, option
from brinell.studies.epsilon.request import EpsilonRequest
from brinell.studies.review.request import ReviewRequest


@verb(EpsilonRequest, ReviewRequest, argument="data", resume="Review: go on with the one in --out.")
def epsilon(
    asked: Asked,
    review: Annotated[
        bool, typer.Option("--review", help="Have a person judge pairs of pictures in a browser on this machine instead.")
    ] = False,
    reviewer: Annotated[str, typer.Option(help="Review: whose answers these are.", show_default=False)] = "",
    port: Annotated[int, typer.Option(help="Review: the port on loopback. Default: a free one.", show_default=False)] = 0,
) -> int:
    """Measure how far the samples of each class are apart, and recommend an eps for the data, each class and each sample.

    brinell audit --eps recommended:FOLDER attacks each sample within its own.
    """
    from brinell import api
    from brinell.wording import in_options

    served = {name: value for name, value in (("reviewer", reviewer), ("port", port), ("resume", asked.resume)) if value}
    foreign = [key for key in asked.given if key not in (ReviewRequest if review else EpsilonRequest).model_fields]
    if review and foreign:
        raise RequestError(f"--{foreign[0]} does not belong to {option('review')}: leave one of them out")
    if review:
        return _review(asked, served)
    if foreign := [*foreign, *served]:
        raise RequestError(f"--{foreign[0]} is for a person's verdict: add {option('review')}")
    request = asked.request(EpsilonRequest)
    result = in_options(api.epsilon)(**request.model_dump(exclude_unset=True), out=asked.out, progress=asked.progress())
    return asked.answer(result, lambda: _show(result))


def _review(asked: Asked, served: dict[str, Any]) -> int:
    """Serve the pairs until all are judged."""
    from brinell import api
    from brinell.wording import in_options

    if len(asked.given.get("norm", ())) > 1:
        raise RequestError(f"a review has one norm, linf or l2: give {option('norm')} once")
    given = asked.given | ({"norm": asked.given["norm"][0]} if "norm" in asked.given else {})
    request = asked.request(ReviewRequest, given)
    folder = asked.folder(request, "review", "--review")
    result = in_options(api.review)(**request.model_dump(exclude_unset=True), out=folder, tell=say, **served)
    return asked.answer(result, lambda: _show_review(result))


def _show_review(result: Any) -> None:
    from brinell.studies.review.page import interval, threshold

    show(f"{result.answered} of {result.trials} pairs judged, {result.false_alarms} false alarms on {result.catch} equal ones")
    show("  half of the changes are noticed at")
    for one in [result.overall, *result.per_class] if result.overall else ():
        show(f"  {one.name:<16} {threshold(one):>16}   95 % interval: {interval(one)}")
    show(f"page: {Path(result.folder) / 'report.html'}")


def _show(result: Any) -> None:
    show(f"{result.data}: {result.n} samples, conditions: {', '.join(result.conditions)}")
    show(f"  {'norm':<5} {'unnoticed up to':>15} {'sound up to':>12}   limited by")
    for one in result.norms:
        unnoticed = "–" if one.unnoticed is None else _eps(one.unnoticed)
        show(f"  {one.norm:<5} {unnoticed:>15} {_eps(one.sound):>12}   {one.overall.seen_reason}")
    for one in result.norms:
        show(f"  {one.advice}")
    for note in result.notes:
        show(f"  note: {note.text}")
    show(f"each sample's own in an audit: --eps recommended:{result.folder}")
    show(f"report: {Path(result.folder) / 'report.html'}")


def _eps(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g}"
