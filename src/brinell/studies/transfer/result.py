"""The statements of a transfer: the best sources, the most and least affected models, the matrix and its tables."""

from collections.abc import Iterator

from brinell.reports.numbers import counted, distance, listed, p_value, percent, points, short
from brinell.reports.values import Detail, Note, Percent, Report, Table
from brinell.studies.result import Folder, FolderResult
from brinell.studies.transfer import TransferRequest
from brinell.studies.transfer.figures import (
    Answers,
    Cell,
    EvaluatedModel,
    SourceResult,
    TransferFacts,
    correct_p_values,
    list_made,
    make_cell,
    model_results,
    notes_on,
    rows_by_model,
    shortfalls,
    source_results,
)

PAIRED = "paired on the same samples, corrected for all pairs"
NO_ORDER = "No order of the sources is shown: some share no target, so they cannot be compared. Add a model."
RANKS = (
    "Ranks order the sources made in this transfer, which share their samples. Each two are compared on the models that neither "
    "was made on; where two share none, no source has a rank. The 95 % intervals of the ranks hold together: they follow from "
    "paired comparisons of all sources, corrected for their number."
)


class TransferResult(FolderResult):
    """What `brinell transfer --json` prints."""

    request: TransferRequest
    facts: TransferFacts
    sources: list[SourceResult]
    """The sources, which are the rows of the matrix."""
    per_model: list[EvaluatedModel]
    """The models, which are the columns of the matrix."""
    cells: list[Cell]
    """One cell for each source and model, source by source."""
    notes: list[str]
    """Limits on comparing figures, one sentence each."""

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        attack = f"; made by {self.facts.attack}" if self.facts.attack else ""
        size = f"{counted(len(self.sources), 'source')}, {counted(len(self.per_model), 'model')}"
        return Report(
            verb="transfer",
            title="Transfer of adversarial examples between models",
            subject=f"{self.data}; {budget(self)}{attack}; {size}",
            sentences=sentences(self),
            blocks=[*_matrices(self), _sources(self), _cells(self)],
            notes=[Note("coverage", "note", text) for text in self.notes],
        )


def summarise(folder: Folder[Answers]) -> TransferResult:
    """Figures of a folder from its rows."""
    models, facts = folder.head()["models"], folder.facts
    answers = {source.name: rows_by_model(folder.rows, source, models) for source in facts.sources}
    names = folder.head()["classes"]
    cells = [make_cell(source, model, answers[source.name], names) for source in facts.sources for model in models]
    sources = source_results(facts.sources, answers, cells, models)
    made = list_made(facts.sources, models)
    impossible = shortfalls(len(made), len(models) if made else 0, len(cells), max(source.n for source in sources))
    return TransferResult(
        **folder.head(),
        sources=sources,
        per_model=model_results(models, facts.sources, cells),
        cells=correct_p_values(cells),
        notes=[*notes_on(facts.sources, sources), *impossible],
    )


def _matrices(result: TransferResult) -> list[Table]:
    """Success, and what is left of each model, source by model."""
    names = [model.model for model in result.per_model]
    matrix = {(cell.source, cell.model): cell for cell in result.cells}

    def change(cell: Cell) -> Detail:
        interval = f" ({points(cell.low)} to {points(cell.high)})" if cell.low is not None else ""
        return Detail(percent(cell.accuracy.value), f"{points(cell.difference)}{interval}, p {p_value(cell.p)}")

    return [
        Table(
            title="Success, source by model",
            columns=("made on", *names, "others, mean", "rank"),
            rows=[
                (
                    source.name,
                    *(_success(matrix[source.name, name]) for name in names),
                    Percent(source.success),
                    source.rank,
                )
                for source in result.sources
            ],
            text="Examples that the model in the column misclassifies, among those whose clean inputs this model and the source "
            f"both classify correctly. White-box cells: the examples were made on this model. {RANKS}",
            heat=True,
            reverse=True,
            terminal=True,
        ),
        Table(
            title="Accuracy on the examples",
            columns=("made on", *names),
            rows=[
                ("clean", *(matrix[result.sources[0].name, name].clean for name in names)),
                *((source.name, *(change(matrix[source.name, name]) for name in names)) for source in result.sources),
            ],
            text="Accuracy of the model in the column on each source's examples. Below it: the change from the clean inputs of "
            "the same samples, in points, with its interval and McNemar's exact p, corrected for the number of cells (Holm).",
            folded=True,
        ),
    ]


def _success(cell: Cell) -> object:
    return Detail(cell.success, "white-box") if cell.white_box else cell.success


def _sources(result: TransferResult) -> Table:
    columns = ("source", "examples", "without example", "L2, median", "Linf, largest", "success on others, mean")
    return Table(
        title="The sources",
        columns=(*columns, "forwards", "backwards"),
        rows=[
            (
                source.name,
                source.n,
                source.missing,
                source.median_l2,
                source.max_linf,
                Percent(source.success),
                source.forwards,
                source.backwards,
            )
            for source in result.sources
        ],
        name="sources",
    )


def _cells(result: TransferResult) -> Table:
    """All cells with their classes and distortions, for the CSV file."""
    rows: list[tuple[object, ...]] = []
    for cell in result.cells:
        head = (cell.source, cell.model, cell.white_box)
        rows.append((*head, None, None, cell.accuracy, cell.success))
        rows += [(*head, part.name, None, part.accuracy, part.success) for part in cell.per_class]
        rows += [(*head, None, part.distortion, part.accuracy, part.success) for part in cell.per_distortion]
    columns = ("source", "model", "white_box", "class", "distortion", "accuracy", "success")
    return Table(title="Cells", columns=columns, rows=rows, name="cells", page=False)


def sentences(result: TransferResult) -> list[str]:
    """The best source, and the models on which examples succeed least and most; that no order is shown comes last."""
    found = [sentence for sentence in (*_best_source(result), _affected(result)) if sentence]
    return sorted(found, key=lambda sentence: sentence == NO_ORDER)


def _best_source(result: TransferResult) -> Iterator[str]:
    """Sentences on the source whose examples transfer best."""
    ranked = [source for source in result.sources if source.rank is not None]
    if not ranked:
        made = [
            source
            for source, facts in zip(result.sources, result.facts.sources, strict=True)
            if facts.kind == "made" and source.success is not None
        ]
        yield NO_ORDER * (len(made) > 1)
        return
    first = max(ranked, key=lambda source: (source.rank is not None and source.rank.high == 1, source.success or 0.0))
    assert first.rank is not None
    share = f"{percent(first.success)} of its examples succeed on models that it was not made on, on average"
    if first.rank.high == 1:
        yield f"{first.name} is the best source: {share}."
        yield f"Each other source is shown to be worse on shared targets ({PAIRED})."
    elif first.rank.low > 1:
        yield f"{first.name} has the highest success: {share}."
        yield f"No source is shown to be the best ({PAIRED})."
    else:
        yield f"{first.name} has the highest success: {share}."
        yield f"{listed(first.rivals)} may be as good ({PAIRED})."


def _affected(result: TransferResult) -> str:
    """The models on which examples made on other models succeed least and most on these samples."""
    models = sorted((model for model in result.per_model if model.success is not None), key=lambda model: model.success or 0.0)
    if len(models) < 2:
        return ""
    low, high = (f"{percent(model.success)} ({model.model})" for model in (models[0], models[-1]))
    return f"Examples made on other models succeed on {low} to {high} of the samples."


def budget(result: TransferResult) -> str:
    """The budget of examples that were made, and the largest change of a benchmark set, which has none."""
    made = [f"{distance(result.request.norm)} up to {result.facts.eps_text}"] * (result.facts.attack is not None)
    sources = zip(result.sources, result.facts.sources, strict=True)
    changes = [source.max_linf for source, facts in sources if facts.kind == "set" and source.max_linf is not None]
    sets = [f"benchmark sets with changes up to {short(max(changes))} in Linf"] if changes else []
    return ", ".join(made + sets)
