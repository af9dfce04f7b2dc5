"""A dry run of an audit: the plan, what it costs at most, and after a short calibration what it is expected to cost."""

from collections.abc import Iterator, Sequence
from typing import Any

from brinell.analysis.folder_result import Result
from brinell.engine.cascade import Stage
from brinell.engine.estimate import Estimate, estimate
from brinell.engine.live_progress import duration
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress


class PlannedCell(Result):
    """One attack on one model, over all budgets."""

    model: str
    """Name of the model."""
    stage: str
    """The attack with its exact settings, as it was asked for."""
    title: str
    """Its name for people, the samples that it is kept to included."""
    short: str
    """Short name of the stage."""
    forwards_at_most: int
    """Forward evaluations if every budget is fought to the end on every sample."""
    backwards_at_most: int
    """Backward evaluations, likewise."""
    waits: bool
    """True if the stage waits for an alarm, which the calibration did not raise."""
    passes: int | None
    """Forwards and backwards that are expected; null without a calibration, and while the attack waits."""
    seconds: float | None
    """Time that is expected, likewise."""
    skipped: str | None
    """Why the attack cannot run on this model; null where it can."""


class PlannedCost(Result):
    """Expected cost of the audit of one model."""

    model: str
    """Name of the model."""
    passes: int
    """Forwards and backwards of all attacks."""
    seconds: float
    """Time, the checks included."""
    memory: int
    """Bytes that the process needs at most."""
    samples: int
    """Samples of the calibration."""
    calibration_seconds: float
    """Seconds that it took."""


class PlanResult(Result):
    """What `brinell audit --dry-run --json` prints."""

    data: str
    """Name of the data."""
    attacks: str
    """Name of the attacks."""
    n: int
    """Samples that would be used."""
    total: int
    """Samples that the data holds."""
    norm: str
    """Distance in which eps is measured."""
    eps: tuple[str, ...]
    """Budgets, as they are written."""
    group_size: int
    """Samples of one group."""
    cells: tuple[PlannedCell, ...]
    """Every attack on every model."""
    estimates: tuple[PlannedCost, ...]
    """One for each model; empty without a calibration, and for models on other machines, which are asked nothing."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command: a plan breaks no condition."""
        return 0


def estimate_plan(plan: Plan, progress: Progress, seconds: float) -> PlanResult:
    """The plan and its estimate.

    Args:
        plan: the plan.
        progress: told what goes on.
        seconds: about how long the calibration may take, for all models together; 0 makes none.
    """
    if seconds:
        progress.note(f"calibrating for about {seconds:.0f} s")
    share = seconds / len(plan.models)
    estimates = {source.name: estimate(plan, source, share) if seconds else None for source in plan.models}
    return PlanResult(
        data=plan.dataset.name,
        attacks=plan.attacks_title,
        n=len(plan.ids),
        total=len(plan.dataset),
        norm=plan.distance.name,
        eps=plan.budgets.texts,
        group_size=plan.group_size,
        cells=tuple(_cell(plan, source, stage, estimates[source.name]) for source in plan.models for stage in plan.stages),
        estimates=tuple(_model(cost) for cost in estimates.values() if cost is not None),
    )


def _cell(plan: Plan, source: ModelSource, stage: Stage, cost: Estimate | None) -> PlannedCell:
    forwards, backwards = plan.cost(source, stage)
    expected = None if cost is None else cost.stages.get(stage.name)
    return PlannedCell(
        model=source.name,
        stage=stage.name,
        title=stage.title,
        short=stage.short,
        forwards_at_most=forwards,
        backwards_at_most=backwards,
        waits=stage.waits and expected is None,
        passes=None if expected is None else expected[0],
        seconds=None if expected is None else expected[1],
        skipped=source.skipped.get(stage.name),
    )


def _model(cost: Estimate) -> PlannedCost:
    return PlannedCost(
        model=cost.model,
        passes=sum(passes for passes, _ in cost.stages.values()),
        seconds=cost.seconds,
        memory=cost.memory,
        samples=cost.samples,
        calibration_seconds=cost.calibration_seconds,
    )


def lines(answer: PlanResult) -> Iterator[str]:
    """The plan as a terminal shows it."""
    yield f"{answer.data}: {answer.n} of {answer.total} samples, {answer.norm}, eps {', '.join(answer.eps)}, {answer.attacks}"
    estimates = {entry.model: entry for entry in answer.estimates}
    for model in dict.fromkeys(cell.model for cell in answer.cells):
        cells = [cell for cell in answer.cells if cell.model == model]
        least = [cell for cell in cells if not cell.waits]
        most = sum(cell.forwards_at_most + cell.backwards_at_most for cell in least)
        planned = estimates.get(model)
        if planned is None:
            yield f"{model}: at most {most:,} passes"
        else:
            yield f"{model}: about {planned.passes:,} passes and {duration(planned.seconds)}; at most {most:,} passes"
        yield from _cells([cell for cell in least if not cell.skipped], planned is not None)
        if waiting := [cell for cell in cells if cell.waits and not cell.skipped]:
            yield f"  {len(waiting)} more stage{'s wait' if len(waiting) > 1 else ' waits'} for an alarm"
        for reason, names in _left_out(cells).items():
            yield f"  left out {', '.join(names)}: {reason}"
    if answer.estimates:
        yield f"one process needs about {max(entry.memory for entry in answer.estimates) / 2**20:,.0f} MiB of memory"
        calibration = sum(entry.calibration_seconds for entry in answer.estimates)
        samples = ", ".join(dict.fromkeys(str(entry.samples) for entry in answer.estimates))
        yield f"estimated in {duration(calibration)} from {samples} samples, and nothing was kept; leave out --dry-run to run it"
    else:
        yield "nothing was computed; leave out --dry-run to run it"


def _left_out(cells: Any) -> dict[str, list[str]]:
    """Why stages that wait for nothing cannot run, each reason with their names."""
    skipped = [cell for cell in cells if cell.skipped and not cell.waits]
    return {
        reason: [cell.short for cell in skipped if cell.skipped == reason]
        for reason in dict.fromkeys(cell_without_run.skipped for cell_without_run in skipped)
    }


def _cells(cells: Sequence[PlannedCell], estimated: bool) -> Iterator[str]:
    """A line for each stage with its cost."""
    wide = max((len(cell.short) for cell in cells), default=0)
    for number, cell in enumerate(cells, 1):
        most = cell.forwards_at_most + cell.backwards_at_most
        cost = f"{cell.passes:>13,} passes {duration(cell.seconds or 0.0):>12}" if estimated else f"at most {most:>13,} passes"
        yield f"  {f'{number}/{len(cells)}':>5} {cell.short:<{wide}}  {cost}"
