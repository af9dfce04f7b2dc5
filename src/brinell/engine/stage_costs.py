"""The cost of the stages of an audit at most, said before they are run."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from brinell.core.numbers import seconds
from brinell.engine.adaptive import conditions
from brinell.engine.plan import ModelSource, Plan

BACKWARD = 2.0
"""The time of a backward evaluation, in forward ones."""
ALARM = "if a check fails, as where gradients are missing"


class Cost(NamedTuple):
    """Evaluations of a model at most, and the time that they take."""

    passes: int
    """Forward and backward ones."""
    seconds: float | None
    """Their time at the pace of the model; None if that is not known."""
    waits: bool
    """True for a stage that waits for an alarm that is not certain beforehand."""


def costs_of(plan: Plan, source: ModelSource, pace: float | None) -> Iterator[Cost]:
    """The cost of each stage of a plan, 0 where it cannot run; `pace` is the time of a forward
    evaluation in seconds.
    """
    # Stages that an alarm starts for certain are no surprise.
    plain = {stage.name for stage in plan.stages if not stage.waits}
    certain = conditions(
        (),
        incomplete=bool(plain & source.skipped.keys()),
        repaired=None,
        labels_only=source.facts["access"] == "labels",
    )

    for stage in plan.stages:
        forwards, backwards = plan.cost(source, stage)
        waits = stage.gradient != "own" or stage.turn.when not in (None, *certain)
        time = None if pace is None else pace * (forwards + BACKWARD * backwards)
        yield Cost(forwards + backwards, time, waits)


def cost_text(costs: Sequence[Cost]) -> str:
    """The cost of stages in words: at most, and up to where an alarm adds some."""
    certain = [cost for cost in costs if not cost.waits]
    text = f"at most {_sum_text(certain)}"
    if sum(cost.passes for cost in costs) > sum(cost.passes for cost in certain):
        text += f", up to {_sum_text(costs)} {ALARM}"
    return text


def _sum_text(costs: Sequence[Cost]) -> str:
    times = [cost.seconds for cost in costs if cost.seconds is not None]
    time = f", {seconds(sum(times))}" if times else ""
    return f"{sum(cost.passes for cost in costs):,} passes{time}"
