"""`brinell audit --dry-run`: the plan, what it costs at most, and after a short calibration what it is expected to cost."""

from typing import Any

from brinell.cli.options import LOUDNESS, show, tell
from brinell.cli.verb import Asked

CALIBRATION = 20.0
"""Seconds of a calibration where nobody said."""


def dry_run(plan: Any, asked: Asked, seconds: float, workers: int | None = None) -> int:
    """Answer with the plan and its estimate.

    Args:
        plan: the plan.
        asked: the command line.
        seconds: about how long the calibration may take, for all models together; 0 makes none.
        workers: processes that are to share the run; None does not ask.
    """
    from brinell.cli.schemas import PlanAnswer
    from brinell.runners.estimate import estimate

    if seconds:
        tell(f"calibrating for about {seconds:.0f} s; --calibrate 0 leaves it out")
    share = seconds / len(plan.models)
    found = {source.name: estimate(plan, source, share) if seconds else None for source in plan.models}
    answer = PlanAnswer(
        data=plan.dataset.name,
        n=len(plan.ids),
        total=len(plan.dataset),
        norm=plan.distance.name,
        eps=plan.budgets.texts,
        group_size=plan.group_size,
        cells=tuple(_cell(plan, source, stage, found[source.name]) for source in plan.models for stage in plan.stages),
        estimates=tuple(_model(one) for one in found.values() if one is not None),
        workers=None if workers is None else _workers(plan, list(found.values()), workers),
    )
    return asked.answer(answer, lambda: _show(answer, plan.called))


def _cell(plan: Any, source: Any, stage: Any, found: Any) -> Any:
    from brinell.cli.schemas import PlannedCell

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
    from brinell.cli.schemas import WorkersAnswer

    if None in found:
        return None
    seconds = sum(one.seconds for one in found) / number
    return WorkersAnswer(number=number, seconds=seconds, memory=max(one.memory for one in found))


def _model(found: Any) -> Any:
    from brinell.cli.schemas import EstimateAnswer

    return EstimateAnswer(
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


def _show(answer: Any, attacks: str) -> None:
    from brinell.runners.progress import duration

    show(f"{answer.data}: {answer.n} of {answer.total} samples, {answer.norm}, eps {', '.join(answer.eps)}, {attacks}")
    estimates = {one.model: one for one in answer.estimates}
    for model in dict.fromkeys(cell.model for cell in answer.cells):
        cells = [cell for cell in answer.cells if cell.model == model]
        least = [cell for cell in cells if not cell.waits]
        most = sum(cell.forwards_at_most + cell.backwards_at_most for cell in least)
        found = estimates.get(model)
        if found is None:
            show(f"{model}: at most {most:,} passes")
        else:
            likely = f"{duration(found.low)} to {duration(found.high)}"
            show(f"{model}: about {found.passes:,} passes and {duration(found.seconds)} ({likely}); at most {most:,} passes")
        _show_cells([cell for cell in least if not cell.skipped], found is not None)
        if waiting := [cell for cell in cells if cell.waits and not cell.skipped]:
            cost = f", which takes {duration(found.alarmed)} more if gradients are masked" if found and found.alarmed else ""
            show(f"  {len(waiting)} more stage{'s wait' if len(waiting) > 1 else ' waits'} for an alarm{cost}")
        for cell in cells if LOUDNESS.verbose else ():
            show(f"  {cell.stage}" + (f"  skipped: {cell.skipped}" if cell.skipped else "  waits" if cell.waits else ""))
        for why, names in _left_out(cells).items():
            show(f"  left out {', '.join(names)}: {why}")
    if answer.estimates:
        share = f"{max(one.memory for one in answer.estimates) / 2**20:,.0f} MiB of memory"
        if answer.workers is None:
            show(f"one process needs about {share}")
        else:
            each = f"about {duration(answer.workers.seconds)} and {share}"
            show(f"the work is divided among {answer.workers.number} processes like this one: each takes {each}")
        spent = sum(one.spent for one in answer.estimates)
        samples = ", ".join(dict.fromkeys(str(one.samples) for one in answer.estimates))
        show(f"estimated in {duration(spent)} from {samples} samples, and nothing was kept; leave out --dry-run to run it")
    else:
        show("nothing was computed; leave out --dry-run to run it")


def _left_out(cells: Any) -> dict[str, list[str]]:
    """Why stages that wait for nothing cannot run, each reason with their names."""
    skipped = [cell for cell in cells if cell.skipped and not cell.waits]
    return {why: [cell.short for cell in skipped if cell.skipped == why] for why in dict.fromkeys(one.skipped for one in skipped)}


def _show_cells(cells: Any, estimated: bool) -> None:
    from brinell.runners.progress import duration

    wide = max((len(cell.short) for cell in cells), default=0)
    for number, cell in enumerate(cells, 1):
        most = cell.forwards_at_most + cell.backwards_at_most
        cost = f"{cell.passes:>13,} passes {duration(cell.seconds):>12}" if estimated else f"at most {most:>13,} passes"
        show(f"  {f'{number}/{len(cells)}':>5} {cell.short:<{wide}}  {cost}")
