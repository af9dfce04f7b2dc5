"""A dry run of an audit: the plan, what it costs at most, and after a short calibration what it is expected to cost."""

from collections.abc import Iterator, Sequence
from typing import Any

from brinell.analysis.results import Result
from brinell.core.errors import option
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress
from brinell.runners.estimate import estimate
from brinell.runners.progress import duration


class PlannedCell(Result):
    """One attack on one model, over all budgets."""

    model: str
    """Name of the model."""
    stage: str
    """The attack with its exact settings, as it was asked for."""
    title: str
    """Its name for people, the samples that it is kept to included."""
    short: str
    """What it does and no more."""
    forwards_at_most: int
    """Forward evaluations if every budget is fought to the end on every sample."""
    backwards_at_most: int
    """Backward evaluations, likewise."""
    waits: bool
    """Whether it waits for an alarm, which the calibration did not raise."""
    passes: int | None
    """Forwards and backwards that are expected; null without a calibration, and while the attack waits."""
    seconds: float | None
    """Time that is expected, likewise."""
    skipped: str | None
    """Why the attack cannot run on this model; null where it can."""


class PlannedCost(Result):
    """What the audit of one model is expected to cost."""

    model: str
    """Name of the model."""
    passes: int
    """Forwards and backwards of all attacks."""
    seconds: float
    """Time, the checks included."""
    low: float
    """Lower end of the 95 % interval of the time, for what another few samples may say."""
    high: float
    """Upper end."""
    memory: int
    """Bytes that the process needs at most."""
    alarmed: float
    """Seconds that the stages for masked gradients cost besides, if a check raises that alarm."""
    samples: int
    """Samples of the calibration."""
    spent: float
    """Seconds that it took."""


class SharedCost(Result):
    """The audit of all models, divided among several processes (`--shard 1/N --dry-run`)."""

    number: int
    """Processes, and shards."""
    seconds: float
    """The time of one process, divided by their number; waits for the last group of a stage are left out."""
    memory: int
    """Bytes that each of them needs at most."""


class PlanResult(Result):
    """What `brinell audit --dry-run --json` prints."""

    data: str
    """Name of the data."""
    attacks: str
    """What people call the attacks."""
    n: int
    """Samples that would be used."""
    total: int
    """Samples that the data holds."""
    norm: str
    """Distance in which eps is measured."""
    eps: tuple[str, ...]
    """Budgets, as they are written."""
    group_size: int
    """Samples that one shard holds."""
    cells: tuple[PlannedCell, ...]
    """Every attack on every model."""
    estimates: tuple[PlannedCost, ...]
    """One for each model; empty without a calibration, and for models on other machines, which are asked nothing."""
    workers: SharedCost | None = None
    """The same on several processes; None without --shard, or where a model has no estimate."""


def estimate_plan(plan: Plan, progress: Progress, seconds: float, workers: int | None) -> PlanResult:
    """The plan and its estimate.

    Args:
        plan: the plan.
        progress: told what goes on.
        seconds: about how long the calibration may take, for all models together; 0 makes none.
        workers: processes that are to share the run; None does not ask.
    """
    if seconds:
        progress.note(f"calibrating for about {seconds:.0f} s; {option('calibrate', '0')} leaves it out")
    share = seconds / len(plan.models)
    found = {source.name: estimate(plan, source, share) if seconds else None for source in plan.models}
    return PlanResult(
        data=plan.dataset.name,
        attacks=plan.called,
        n=len(plan.ids),
        total=len(plan.dataset),
        norm=plan.distance.name,
        eps=plan.budgets.texts,
        group_size=plan.group_size,
        cells=tuple(_cell(plan, source, stage, found[source.name]) for source in plan.models for stage in plan.stages),
        estimates=tuple(_model(one) for one in found.values() if one is not None),
        workers=None if workers is None else _workers(plan, list(found.values()), workers),
    )


def _cell(plan: Any, source: Any, stage: Any, found: Any) -> Any:
    forwards, backwards = plan.cost(source, stage)
    one = next((one for one in found.stages if one.name == stage.name and one.expected), None) if found else None
    return PlannedCell(
        model=source.name,
        stage=stage.name,
        title=stage.title,
        short=stage.short,
        forwards_at_most=forwards,
        backwards_at_most=backwards,
        waits=stage.waits and one is None,
        passes=None if one is None else round(one.forwards + one.backwards),
        seconds=None if one is None else one.seconds,
        skipped=source.skipped.get(stage.name),
    )


def _workers(plan: Any, found: list[Any], number: int) -> Any:
    """The time of one process divided among several, each of which needs the memory of one."""
    if None in found:
        return None
    seconds = sum(one.seconds for one in found) / number
    return SharedCost(number=number, seconds=seconds, memory=max(one.memory for one in found))


def _model(found: Any) -> Any:
    return PlannedCost(
        model=found.model,
        passes=round(found.passes),
        seconds=found.seconds,
        low=found.low,
        high=found.high,
        memory=found.memory,
        alarmed=found.alarmed,
        samples=found.samples,
        spent=found.spent,
    )


def lines(answer: PlanResult) -> Iterator[str]:
    """The plan as a terminal shows it."""
    yield f"{answer.data}: {answer.n} of {answer.total} samples, {answer.norm}, eps {', '.join(answer.eps)}, {answer.attacks}"
    estimates = {one.model: one for one in answer.estimates}
    for model in dict.fromkeys(cell.model for cell in answer.cells):
        cells = [cell for cell in answer.cells if cell.model == model]
        least = [cell for cell in cells if not cell.waits]
        most = sum(cell.forwards_at_most + cell.backwards_at_most for cell in least)
        found = estimates.get(model)
        if found is None:
            yield f"{model}: at most {most:,} passes"
        else:
            likely = f"{duration(found.low)} to {duration(found.high)}"
            yield f"{model}: about {found.passes:,} passes and {duration(found.seconds)} ({likely}); at most {most:,} passes"
        yield from _cells([cell for cell in least if not cell.skipped], found is not None)
        if waiting := [cell for cell in cells if cell.waits and not cell.skipped]:
            cost = f", which takes {duration(found.alarmed)} more if gradients are masked" if found and found.alarmed else ""
            yield f"  {len(waiting)} more stage{'s wait' if len(waiting) > 1 else ' waits'} for an alarm{cost}"
        for why, names in _left_out(cells).items():
            yield f"  left out {', '.join(names)}: {why}"
    if answer.estimates:
        share = f"{max(one.memory for one in answer.estimates) / 2**20:,.0f} MiB of memory"
        if answer.workers is None:
            yield f"one process needs about {share}"
        else:
            each = f"about {duration(answer.workers.seconds)} and {share}"
            yield f"the work is divided among {answer.workers.number} processes like this one: each takes {each}"
        spent = sum(one.spent for one in answer.estimates)
        samples = ", ".join(dict.fromkeys(str(one.samples) for one in answer.estimates))
        yield f"estimated in {duration(spent)} from {samples} samples, and nothing was kept; leave out --dry-run to run it"
    else:
        yield "nothing was computed; leave out --dry-run to run it"


def _left_out(cells: Any) -> dict[str, list[str]]:
    """Why stages that wait for nothing cannot run, each reason with their names."""
    skipped = [cell for cell in cells if cell.skipped and not cell.waits]
    return {why: [cell.short for cell in skipped if cell.skipped == why] for why in dict.fromkeys(one.skipped for one in skipped)}


def _cells(cells: Sequence[PlannedCell], estimated: bool) -> Iterator[str]:
    wide = max((len(cell.short) for cell in cells), default=0)
    for number, cell in enumerate(cells, 1):
        most = cell.forwards_at_most + cell.backwards_at_most
        cost = f"{cell.passes:>13,} passes {duration(cell.seconds or 0.0):>12}" if estimated else f"at most {most:>13,} passes"
        yield f"  {f'{number}/{len(cells)}':>5} {cell.short:<{wide}}  {cost}"
