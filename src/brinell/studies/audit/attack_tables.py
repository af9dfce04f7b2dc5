"""The attacks of an audit: one after the other as a cascade, and each by itself."""

from collections.abc import Iterator, Sequence

from brinell.analysis.results import ModelResult, StageResult
from brinell.analysis.robust_accuracy import minus
from brinell.analysis.separate_attacks import QUERIES, SeparateAttack, share_within
from brinell.reports.numbers import counted, distance, whole
from brinell.reports.samples import where
from brinell.reports.values import (
    Block,
    Cell,
    Curve,
    Detail,
    Figures,
    Percent,
    Points,
    Seconds,
    Series,
    Table,
)

QUERY_CURVES = "Success over queries, each attack by itself"
COSTS = ("forwards", "backwards", "seconds")


def attack_blocks(models: Sequence[ModelResult], budget: int, quantity: str) -> Iterator[Block]:
    """Tables and curves of the attacks on each model.

    Args:
        models: of a run.
        budget: position of the budget at which a cascade is shown.
        quantity: name of the rates over budgets.
    """
    stages = [stage for model in models for stage in model.stages if _worked(stage)]
    separate = [stage for stage in stages if stage.separate]
    if not separate or len(separate) < len(stages):
        yield _cascade(models, budget, quantity)
    if separate:
        yield _separate_table(models)
        yield _query_curves(models)


def _worked(stage: StageResult) -> bool:
    return bool(stage.forwards or stage.backwards)


def _labelled(has_column: bool, model: ModelResult, stage: StageResult) -> list[Cell]:
    """The first cells of a row: the model where there are several, and the attack."""
    return [*[model.name] * has_column, Detail(stage.label, stage.kept_to)]


def _openings(has_column: bool, model: ModelResult, stage: StageResult, eps: str) -> list[str]:
    """The samples that the first cells of a row open: those that the attack broke.

    These cells are the model where there are several, the attack, and its number of samples.
    """
    own = {"model": model.name} if has_column else {}
    return [where(**own, attack=stage.attack, eps=eps)] * (2 + has_column)


def _costs(stage: StageResult) -> list[Cell]:
    return [stage.forwards, stage.backwards, Seconds(stage.seconds)]


def _cascade(models: Sequence[ModelResult], budget: int, quantity: str) -> Table:
    """Samples that each attack was left, what it left, and its cost; attacks without work are one
    number.
    """
    rows, idle = list[list[Cell]](), set[str]()
    opens = []
    has_column = len(models) > 1
    for model in models:
        accuracy = model.clean_accuracy.value  # before the stage
        for stage in model.stages:
            if stage.separate:
                continue
            if not _worked(stage):
                idle.add(stage.attack)
                continue
            after = stage.curve[budget].value if stage.curve else None
            figures: list[Cell] = [
                stage.attacked,
                Percent(after),
                Points(minus(after, accuracy)),
                # 0 where the stage has no figure at the budget.
                sum(stage.broken[budget : budget + 1]),
                stage.median_queries,
            ]
            rows.append([*_labelled(has_column, model, stage), *figures, *_costs(stage)])
            opens.append(_openings(has_column, model, stage, model.eps_text[budget]))
            accuracy = accuracy if after is None else after

    note = f" {counted(len(idle), 'further stage')} had nothing to do." if idle else ""
    text = (
        f"Each attack runs on what those before left. Figures at {models[0].eps_text[budget]}; the "
        "median of the queries is over the samples that it broke, and samples attacked and costs "
        f"are over all budgets.{note}"
    )
    names = ("samples attacked", quantity, "change, points", "broken first", "queries, median")
    return Table(
        title="The attacks, stage by stage",
        columns=[*["model"] * has_column, "after", *names, *COSTS],
        rows=rows,
        name="stages",
        text=text,
        folded=True,
        opens=opens,
    )


def _separate_table(models: Sequence[ModelResult]) -> Table:
    """Success, distances and queries of each attack by itself."""
    rows, has_column, first = list[list[Cell]](), len(models) > 1, models[0]
    opens = []
    for model in models:
        for stage in model.stages:
            entry = stage.separate
            if entry is None:
                continue
            rows.append([*_labelled(has_column, model, stage), *_figures(entry), *_costs(stage)])
            opens.append(_openings(has_column, model, stage, first.eps_text[-1]))

    size = distance(first.distance)
    names = [
        "samples",
        "success",
        f"{size}, mean",
        f"{size}, median",
        f"{size}, largest",
        "queries, mean",
        "queries, median",
        *(f"within {whole(queries)}" for queries in QUERIES),
    ]

    return Table(
        title="The attacks, each by itself",
        columns=[*["model"] * has_column, "attack", *names, *COSTS],
        rows=rows,
        name="attacks",
        text=(
            "Each attack tried every sample that the model gets right, whatever the others found. "
            f"Success is at {first.eps_text[-1]}, of these samples; distances are of the closest "
            "inputs found. In mean and median of the queries a failure counts with all that were "
            "spent on it; within 10, 100 and 1,000 stands the share broken in so few, with a dash "
            "where the attack never spends as many. Costs are over all budgets."
        ),
        terminal=True,
        opens=opens,
    )


def _figures(entry: SeparateAttack) -> list[Cell]:
    return [
        entry.n,
        entry.success[-1],
        entry.mean_distance,
        entry.median_distance,
        entry.largest_distance,
        entry.mean_queries,
        entry.median_queries,
        *(share_within(entry.success, queries) for queries in QUERIES),
    ]


def _query_curves(models: Sequence[ModelResult]) -> Block:
    """Success over queries, a figure for each model."""
    figures = []
    for model in models:
        series = [
            Series(
                name=stage.label,
                points=[(float(share.queries), share) for share in stage.separate.success],
            )
            for stage in model.stages
            if stage.separate
        ]
        limit = max(int(line.points[-1][0]) for line in series)
        # 1, 10, 100 and so on: a limit of four digits reaches 1,000.
        decades = [10**power for power in range(len(str(limit)))]
        figures.append(
            Curve(
                title=model.name if len(models) > 1 else QUERY_CURVES,
                series=series,
                ticks=[(float(queries), whole(queries)) for queries in decades],
                axis="queries of a sample",
                logarithmic=True,
            )
        )

    if len(figures) == 1:
        return figures[0]
    text = "Share of the correctly classified samples that each attack broke by itself."

    return Figures(title=QUERY_CURVES, figures=figures, text=text, folded=False)
