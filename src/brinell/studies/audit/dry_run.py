"""A dry run of an audit: the plan, what it costs at most, and after a short calibration what it is expected to cost."""

from brinell.analysis.folder_result import Result
from brinell.engine.cascade import Stage
from brinell.engine.estimate import Estimate, estimate
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.reports.numbers import counted, listed, seconds, whole
from brinell.reports.values import Note, Report, Seconds, Table
from brinell.studies.result import ReportedResult


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
    group_size: int
    """Samples of one group."""
    cells: tuple[PlannedCell, ...]
    """Every attack on every model."""
    estimates: tuple[PlannedCost, ...]
    """One for each model; empty without a calibration, and for models on other machines, which are asked nothing."""

    def report(self) -> Report:
        """The cost of each model and attack."""
        sentences, notes = [], []
        expected = {cost.model: cost for cost in self.estimates}
        runs = [cell for cell in self.cells if not cell.waits and not cell.skipped]
        for model in dict.fromkeys(cell.model for cell in self.cells):
            most = sum(cell.forwards_at_most + cell.backwards_at_most for cell in runs if cell.model == model)
            about = (
                f"about {whole(expected[model].passes)} passes and {seconds(expected[model].seconds)}; "
                if model in expected
                else ""
            )
            sentences.append(f"{model}: {about}at most {whole(most)} passes.")
            cells = [cell for cell in self.cells if cell.model == model]
            if waiting := sum(cell.waits and not cell.skipped for cell in cells):
                notes.append(Note("waits", "warn", f"{model}: {counted(waiting, 'more stage')} may follow on an alarm."))
            for reason in dict.fromkeys(cell.skipped for cell in cells if cell.skipped and not cell.waits):
                names = listed([cell.short for cell in cells if cell.skipped == reason and not cell.waits])
                notes.append(Note("skipped", "warn", f"{model}: left out {names}: {reason}."))
        if self.estimates:
            memory = max(cost.memory for cost in self.estimates) / 2**20
            took = seconds(sum(cost.calibration_seconds for cost in self.estimates))
            sentences.append(
                f"One process needs about {memory:,.0f} MiB; estimated in {took} from {self.estimates[0].samples} samples."
            )
        return Report(
            verb="audit",
            title=f"The plan on {self.data}",
            subject=f"{self.n} of {counted(self.total, 'sample')}, {self.norm}, eps {', '.join(self.eps)}, {self.attacks}",
            sentences=[*sentences, "Nothing was kept; leave out --dry-run to run it."],
            blocks=[
                Table(
                    title="Passes and time",
                    columns=["model", "attack", "passes", "time", "passes at most"],
                    rows=[
                        (c.model, c.short, c.passes, Seconds(c.seconds), c.forwards_at_most + c.backwards_at_most) for c in runs
                    ],
                    terminal=True,
                )
            ],
            notes=notes,
        )


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
        estimates=tuple(
            PlannedCost(
                model=cost.model,
                passes=sum(passes for passes, _ in cost.stages.values()),
                seconds=cost.seconds,
                memory=cost.memory,
                samples=cost.samples,
                calibration_seconds=cost.calibration_seconds,
            )
            for cost in estimates.values()
            if cost is not None
        ),
    )


def _cell(plan: Plan, source: ModelSource, stage: Stage, cost: Estimate | None) -> PlannedCell:
    forwards, backwards = plan.cost(source, stage)
    passes, time = (cost.stages.get(stage.name) if cost is not None else None) or (None, None)
    return PlannedCell(
        model=source.name,
        stage=stage.name,
        title=stage.title,
        short=stage.short,
        forwards_at_most=forwards,
        backwards_at_most=backwards,
        waits=stage.waits and passes is None,
        passes=passes,
        seconds=time,
        skipped=source.skipped.get(stage.name),
    )
