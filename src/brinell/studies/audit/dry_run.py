"""A dry run of an audit: the plan, what it costs at most, and how long that takes at the pace of a
few passes.
"""

import time
from collections.abc import Iterator

from brinell.analysis.folder_result import Result
from brinell.engine.group_attack import predict
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.stage_costs import Cost, cost_text, costs_of
from brinell.reports.numbers import counted, distance, listed
from brinell.reports.values import Note, Report, Seconds, Table
from brinell.studies.result import ReportedResult

PASSES = 64
"""Samples whose answers show the pace of a model."""


class PlannedCell(Result):
    """One attack on one model, over all budgets."""

    model: str
    """Name of the model."""
    attack: str
    """The attack with its exact settings."""
    label: str
    """Its name for people."""
    forwards_at_most: int
    """Forward evaluations if every budget is fought to the end on every sample."""
    backwards_at_most: int
    """Backward evaluations, likewise."""
    seconds_at_most: float | None
    """The time of these at the pace of the model; null for a model on another machine, which is
    asked nothing."""
    waits: bool
    """True if the stage waits for an alarm that is not certain beforehand."""
    skipped: str | None
    """Why the attack cannot run on this model; null where it can."""

    @property
    def cost(self) -> Cost:
        """Its cost."""
        passes = self.forwards_at_most + self.backwards_at_most
        return Cost(passes, self.seconds_at_most, self.waits)


class PlanResult(ReportedResult):
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
    cells: tuple[PlannedCell, ...]
    """Every attack on every model."""

    def report(self) -> Report:
        """The cost of each model and attack."""
        sentences, notes = list[str](), list[Note]()

        runs = [cell for cell in self.cells if not cell.skipped]
        for model in dict.fromkeys(cell.model for cell in self.cells):
            cells = [cell for cell in self.cells if cell.model == model]
            own = [cell for cell in runs if cell.model == model]
            sentences.append(f"{model}: {cost_text([cell.cost for cell in own])}.")
            # A stage that may never be needed is not missed where it cannot run.
            for reason in dict.fromkeys(
                cell.skipped for cell in cells if cell.skipped and not cell.waits
            ):
                names = listed(
                    [cell.label for cell in cells if cell.skipped == reason and not cell.waits]
                )
                notes.append(Note("skipped", "warn", f"{model}: left out {names}: {reason}."))
        return Report(
            verb="audit",
            title=f"The plan on {self.data}",
            subject=f"{self.n} of {counted(self.total, 'sample')}; {distance(self.norm)} "
            f"{', '.join(self.eps)}; {self.attacks}",
            sentences=[
                *sentences,
                "Attacks stop on broken samples, so a run costs less. Leave out "
                "--dry-run to run it.",
            ],
            blocks=[
                Table(
                    title="Passes and time at most",
                    columns=["model", "attack", "passes", "time"],
                    rows=[
                        (
                            c.model,
                            f"{c.label} (if a check fails)" if c.waits else c.label,
                            c.forwards_at_most + c.backwards_at_most,
                            Seconds(c.seconds_at_most),
                        )
                        for c in runs
                    ],
                    terminal=True,
                )
            ],
            notes=notes,
        )


def estimate_plan(plan: Plan) -> PlanResult:
    """The plan and its cost."""
    return PlanResult(
        data=plan.dataset.name,
        attacks=plan.attacks_title,
        n=len(plan.ids),
        total=len(plan.dataset),
        norm=plan.distance.name,
        eps=plan.budgets.texts,
        cells=tuple(cell for source in plan.models for cell in _cells(plan, source)),
    )


def _cells(plan: Plan, source: ModelSource) -> Iterator[PlannedCell]:
    """The attacks on a model, at the pace of its answers to some samples, of which one on another
    machine is asked for none.
    """
    model, pace = source.open(), None
    if model.info.server is None:
        with model.info.session(plan.device):
            x = plan.dataset.load(plan.ids[:PASSES].tolist()).to(plan.device)
            # The first answers warm the device up: only those after them are timed.
            predict(model, x, plan.request.batch_size)
            start = time.perf_counter()
            predict(model, x, plan.request.batch_size)
            pace = (time.perf_counter() - start) / max(1, len(x))

    for stage, cost in zip(plan.stages, costs_of(plan, source, pace), strict=True):
        forwards, backwards = plan.cost(source, stage)
        yield PlannedCell(
            model=source.name,
            attack=stage.name,
            label=stage.short,
            forwards_at_most=forwards,
            backwards_at_most=backwards,
            seconds_at_most=cost.seconds,
            waits=cost.waits,
            skipped=source.skipped.get(stage.name),
        )
