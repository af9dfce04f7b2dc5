"""`brinell harden`: a model that holds, and the proof that it does."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from brinell.cli.options import percent, show, show_reading
from brinell.cli.verb import Asked, verb
from brinell.studies.harden.request import HardenRequest

if TYPE_CHECKING:
    from brinell.studies.harden.analysis import HardenResult


@verb(HardenRequest, kept="run.toml", resume="Go on with the training and the audits in --out.")
def harden(asked: Asked) -> int:
    """Train a model adversarially, and audit it before and after on data that it never saw.

    Without options: the built-in network on real handwritten digits.
    """
    from brinell.harden import make_harden
    from brinell.studies.harden.plan import make_plan

    plan = make_plan(asked.request(HardenRequest))
    result = asked.carry_out(make_harden, plan, "harden")
    return asked.answer(result, lambda: _show(result))


def _show(result: "HardenResult") -> None:
    from brinell.pages.format import points
    from brinell.studies.harden.words import reading

    both = result.comparison
    show(f"{result.model}: {result.ended_with} at {result.norm} {result.eps:.4g}, {result.steps} steps, {result.seconds:.0f} s")
    show(f"  {'eps':>9}     before      after   difference and 95 % interval, McNemar's p")
    for text, pair in [("clean", both.clean), *((f"{pair.eps:.4g}", pair) for pair in both.robust if pair.eps > 0)]:
        p = "unknown" if pair.p is None else f"{pair.p:.2g}"
        show(
            f"  {text:>9}   {percent(pair.value_b):>8}   {percent(pair.value_a):>8}   {points(pair.difference):>6} points "
            f"({points(pair.low)} to {points(pair.high)}), p = {p}"
        )
    verdict = f"The audit after the training: {result.after.verdict[0].lower()}{result.after.verdict[1:]}"
    show_reading([*reading(result), verdict], result.events)
    show(f"weights: {result.weights}")
    if result.spec is not None:
        show(f"model: --model {shlex.quote(result.spec)}")
    show(f"report: {Path(result.run) / 'report.html'}")
