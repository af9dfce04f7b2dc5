"""The rows of a transfer, accuracy and success of every source on every model, how sources rank,
and the report.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.attainable import pairs, shortfall, smallest_mcnemar, smallest_mean
from brinell.analysis.compare import paired
from brinell.analysis.folder_result import Result
from brinell.analysis.inference import Rank, holm, significant
from brinell.analysis.means import EXACT_GROUPS, mean_difference, sign_flips
from brinell.analysis.results import PairedRate, Rate, Share
from brinell.analysis.robust_accuracy import mean, rate, share
from brinell.analysis.statements import Statement, Subject, state
from brinell.core.record import Array
from brinell.reports.numbers import counted, distance, p_value, percent, points, short
from brinell.reports.samples import where
from brinell.reports.statements import sentence
from brinell.reports.values import Detail, Note, Percent, Report, Step, Table
from brinell.store import parquet, rows
from brinell.store.table import ROWS, Folder
from brinell.studies.result import FolderResult
from brinell.studies.transfer import TransferRequest
from brinell.studies.transfer.rows import ExampleRows, SourceFacts, TransferFacts
from brinell.studies.transfer.samples import samples_block

PAIRED = "paired on the same samples, corrected for all pairs"
NO_ORDER = (
    "No order of the sources is shown: some share no target, so they cannot be "
    "compared. Add a model."
)
RANKS = (
    "Ranks order the sources made in this transfer, which share their samples. "
    "Each two are compared on the models that neither "
    "was made on; where two share none, no source has a rank. Means over others are of different "
    "models and samples, so that their order may be another one. The 95 % intervals "
    "of the ranks hold together: they follow from "
    "paired comparisons of all sources, corrected for their number."
)


class SourceResult(Result):
    """A source of adversarial examples."""

    name: str
    """Its name in `facts.sources`: the model or models that the examples were made on, or SET
    and its level."""
    n: int
    missing: int
    """Number of samples without an example; in a set, the robust ones. No figure of this source
    counts them."""
    median_l2: float | None
    max_linf: float | None
    success: float | None
    """Mean success on the models that are not members of the source; null if all are members."""
    rank: Rank | None
    """Rank by success among the sources made in this transfer, by comparisons of each two on the
    models that neither was made on; null unless each two share such a model with an eligible
    sample. Two models share none."""
    rivals: list[str]
    """Sources made in this transfer whose success on the shared targets does not differ
    significantly; empty without a rank."""
    forwards: int
    """Forward evaluations that making the examples cost; 0 for a set."""
    backwards: int


class Cell(Result):
    """Evaluation of one model on one source's examples."""

    accuracy: Rate
    """What is left of the model on the examples."""
    success: Share
    """Share of misclassified examples, among those whose clean inputs this model and every
    evaluated member of the source classify correctly."""
    source: str
    model: str
    white_box: bool
    clean: Rate
    """The accuracy on the clean inputs of these examples."""
    change: PairedRate | None
    """The examples (A) and their clean inputs (B), with McNemar's exact p-value corrected for
    the number of cells (Holm); null without examples."""


class TransferResult(FolderResult):
    """What `brinell transfer --json` prints."""

    request: TransferRequest
    facts: TransferFacts
    sources: list[SourceResult]
    """The sources, which are the rows of the matrix."""
    statements: list[Statement]
    """The source with the highest success; empty if no order is shown."""
    cells: list[Cell]
    """One cell for each source and model, source by source."""
    notes: list[str]
    """Limits on comparing figures, one sentence each."""

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        attack = f"; made by {self.facts.attack}" if self.facts.attack else ""
        answers = parquet.load_rows(ExampleRows, Path(self.folder) / ROWS)
        size = f"{counted(len(self.sources), 'source')}, {counted(len(self.models), 'model')}"

        return Report(
            verb="transfer",
            title="Transfer of adversarial examples between models",
            subject=f"{self.data}; {budget(self)}{attack}; {size}",
            sentences=sentences(self),
            blocks=[
                *_matrices(self),
                samples_block(self, self.request.norm, self.facts, answers),
                _sources(self.sources),
                _cells(self.cells),
            ],
            notes=[Note("coverage", "note", text) for text in self.notes],
            steps=[
                Step(
                    "Have the figures made again before you pass them on.", "brinell verify FOLDER"
                )
            ],
        )


def summarise(folder: Folder[ExampleRows]) -> TransferResult:
    """Figures of a folder from its rows."""
    head = folder.head()
    facts = folder.facts
    models = folder.models
    answers = {source.name: _by_model(folder.rows, source.name, models) for source in facts.sources}
    cells = [
        _cell(source, model, answers[source.name]) for source in facts.sources for model in models
    ]

    p_values = iter(holm([cell.change.p for cell in cells if cell.change is not None]))
    # Sets have samples of their own, so only sources on the same samples are put in an order.
    ranks = _ranks(
        [source for source in facts.sources if can_rank(source, models)], answers, models
    )

    sources = [
        _source(source, answers[source.name], cells, *ranks.get(source.name, (None, [])))
        for source in facts.sources
    ]
    impossible = shortfalls(facts.sources, models, max(source.n for source in sources))
    return TransferResult(
        **head,
        sources=sources,
        statements=statements_of(sources, facts.eps_text),
        cells=[
            # A cell without a change takes no p-value.
            cell.model_copy(
                update={
                    "change": cell.change and cell.change.model_copy(update={"p": next(p_values)})
                }
            )
            for cell in cells
        ],
        notes=[*_notes(facts.sources, sources), *impossible],
    )


def can_rank(source: SourceFacts, models: Sequence[str]) -> bool:
    """True for a source made here, which shares its samples with the others, if a model is not its
    member.
    """
    return source.folder is None and bool(set(models) - set(source.white_box))


def shortfalls(sources: Sequence[SourceFacts], models: Sequence[str], n: int) -> list[str]:
    """What `n` samples cannot show, of the sources made here and of cells."""
    # A claim about two sources rests on the models that neither was made on: two models leave one
    # at most, and no rank.
    of_sources = (
        pairs(sum(can_rank(source, models) for source in sources)) if len(models) > 2 else 0
    )
    claims = [
        shortfall(
            "source can be shown to have more success than another",
            of_sources,
            "samples",
            n,
            smallest_mean,
        ),
        shortfall(
            "loss of accuracy can be shown in a cell",
            len(sources) * len(models),
            "samples",
            n,
            smallest_mcnemar,
        ),
    ]
    return [claim for claim in claims if claim]


def _by_model(answers: ExampleRows, source: str, models: Sequence[str]) -> dict[str, ExampleRows]:
    """The rows of a source by model, each in the order of the samples, so that they pair."""
    parts = {
        model: np.flatnonzero((answers.source == source) & (answers.model == model))
        for model in models
    }
    return {
        model: rows.take(answers, part[np.argsort(answers.sample_id[part])])
        for model, part in parts.items()
    }


def _eligible(source: SourceFacts, model: str, answers: Mapping[str, ExampleRows]) -> Array:
    """(n,) bool: clean inputs that the model and every evaluated member of the source classify
    correctly.
    """
    right = [answers[name].clean_pred == answers[name].label for name in (model, *source.white_box)]
    return np.asarray(np.all(right, axis=0))


def _cell(source: SourceFacts, model: str, answers: Mapping[str, ExampleRows]) -> Cell:
    """Counts of a source on a model, p-values not yet corrected."""
    table, eligible = answers[model], _eligible(source, model, answers)
    clean, right = table.clean_pred == table.label, table.pred == table.label

    return Cell(
        source=source.name,
        model=model,
        white_box=model in source.white_box,
        clean=rate(int(clean.sum()), len(table)),
        change=paired(right, clean, eps=0.0) if len(table) else None,
        accuracy=rate(int(right.sum()), len(table)),
        success=share((~right[eligible]).tolist()),
    )


def _source(
    source: SourceFacts,
    answers: Mapping[str, ExampleRows],
    cells: Sequence[Cell],
    rank: Rank | None,
    rivals: list[str],
) -> SourceResult:
    """The figures of a source, whose examples are the same for every model."""
    table = next(iter(answers.values()))
    return SourceResult(
        name=source.name,
        n=len(table),
        missing=source.samples - len(table),
        median_l2=float(np.median(table.l2)) if len(table) else None,
        max_linf=float(table.linf.max()) if len(table) else None,
        # On its own model a source shows how well it was made, and not that it transfers.
        success=mean(
            [
                cell.success.value
                for cell in cells
                if cell.source == source.name and not cell.white_box
            ]
        ),
        rank=rank,
        rivals=rivals,
        forwards=int(table.forwards.sum()),
        backwards=int(table.backwards.sum()),
    )


def _ranks(
    sources: Sequence[SourceFacts],
    answers: Mapping[str, Mapping[str, ExampleRows]],
    models: Sequence[str],
) -> dict[str, tuple[Rank, list[str]]]:
    """Each source by success on the models that neither of two was made on, with those that are not
    told from it.
    """

    def samples(source: SourceFacts, model: str) -> tuple[Array, Array]:
        """(n,) bool each: true if a sample is eligible, and if its example is misclassified."""
        table = answers[source.name][model]
        return _eligible(source, model, answers[source.name]), table.pred != table.label

    def compare(a: SourceFacts, b: SourceFacts) -> "Comparison | None":
        targets = [model for model in models if model not in {*a.white_box, *b.white_box}]
        return compare_cells([(samples(a, model), samples(b, model)) for model in targets])

    # Each source with those before it, so that every pair is compared once.
    comparisons = [[compare(a, b) for b in sources[:index]] for index, a in enumerate(sources)]
    return rank_by([source.name for source in sources], comparisons)


Comparison = tuple[float, float]
"""The difference of two objects, and its p-value."""


def compare_cells(
    pairs: Sequence[tuple[tuple[Array, Array], tuple[Array, Array]]],
) -> Comparison | None:
    """Compare pairs of cells, each on the samples that are eligible in both: mean difference of the
    rates, and its p-value.

    Samples that are eligible in no pair, or on which the cells agree, are no evidence: up to
    `EXACT_GROUPS` others, the p-value is at least that of all patterns of their signs.

    Args:
        pairs: of each pair of cells, the eligible samples (n,) and the successes (n,).

    Returns:
        None if no pair has an eligible sample.
    """
    differences, is_eligible = [], []
    for (eligible_a, success_a), (eligible_b, success_b) in pairs:
        eligible = eligible_a & eligible_b
        if eligible.any():
            differences.append((success_a.astype(float) - success_b) * eligible / eligible.sum())
            is_eligible.append(eligible)
    if not differences:
        return None

    # Samples on which both agree cancel out of the difference, and carry no evidence of it.
    values = np.mean(differences, axis=0)
    discordant = values[np.abs(values) > 1e-12]
    estimate = mean_difference(values[np.any(is_eligible, axis=0)])
    assert estimate is not None
    p = max(estimate.p, sign_flips(discordant)) if len(discordant) <= EXACT_GROUPS else estimate.p
    return float(values.sum()), p


def rank_by(
    names: Sequence[str], comparisons: Sequence[Sequence[Comparison | None]]
) -> dict[str, tuple[Rank, list[str]]]:
    """Rank of each object by its comparisons with those before it, the largest first, and those not
    told from it.

    Empty unless there are two objects and each pair can be compared: an order needs all pairs.
    """
    k = len(names)
    found = [comparison for row in comparisons for comparison in row if comparison is not None]
    if k < 2 or len(found) < pairs(k):
        return {}

    # The lower triangle holds the comparisons; the upper one is its mirror image.
    difference = np.zeros((k, k))
    shown = np.zeros((k, k), dtype=bool)
    lower = np.tril_indices(k, -1)
    difference[lower] = [value for value, _ in found]
    shown[lower] = [significant(p) for p in holm([p for _, p in found])]
    difference = difference - difference.T
    shown = (shown | shown.T) & (difference != difference.T)
    # Each entry compares the object of its row with that of its column.
    behind = difference < 0
    ahead = difference > 0
    others = ~np.eye(k, dtype=bool)
    return {
        name: (
            # The middle of the places of a tie; the ends count what is shown alone.
            Rank(
                value=1 + behind[i].sum() + (others & ~behind & ~ahead)[i].sum() / 2,
                low=1 + (shown & behind)[i].sum(),
                high=k - (shown & ahead)[i].sum(),
            ),
            [names[j] for j in np.flatnonzero((others & ~shown)[i]).tolist()],
        )
        for i, name in enumerate(names)
    }


def _notes(facts: Sequence[SourceFacts], sources: Sequence[SourceResult]) -> Iterator[str]:
    """Samples without examples, and sources whose rows are of different samples."""
    for source in sources:
        if source.missing:
            yield (
                f"{source.name}: {source.missing} of its "
                f"{source.missing + source.n} samples have no example; its "
                "figures are "
                f"over the other {source.n}"
            )
    # Sources that are made here share their samples, and a set has its own.
    if (
        len({(source.n, fact.folder is None) for source, fact in zip(sources, facts, strict=True)})
        > 1
    ):
        yield "the sources cover different samples: do not compare figures between rows"


def _matrices(result: TransferResult) -> list[Table]:
    """The tables with a row for each source and a column for each model."""
    heads = [
        f"{model} (hardened)" if model in result.facts.hardened else model for model in result.names
    ]
    of_source = {
        source.name: [cell for cell in result.cells if cell.source == source.name]
        for source in result.sources
    }

    hardened = (
        " Hardened: its weights are of a folder of brinell harden." if heads != result.names else ""
    )
    white_box = f"White-box cells: the examples were made on this model.{hardened}"

    # What a click on a cell shows, the name of its row first: the samples behind the figure.
    opens = [
        [where(attack=source), *(where(model=name, attack=source) for name in result.names)]
        for source in of_source
    ]

    def marked(cell: Cell, value: Rate | Share) -> Any:
        return Detail(value, "white-box") if cell.white_box else value

    def change(cell: Cell) -> Detail:
        pair = cell.change
        text = (
            ""
            if pair is None
            else f"{points(pair.difference)} ({points(pair.low)} to "
            f"{points(pair.high)}), p {p_value(pair.p)}"
        )
        return Detail(percent(cell.accuracy.value), text)

    return [
        Table(
            title="Accuracy, source by victim",
            columns=("made on", *heads),
            rows=[
                # The first cells are those of the first source, one for each model.
                ("clean", *(cell.clean for cell in result.cells[: len(heads)])),
                *(
                    (source, *(marked(cell, cell.accuracy) for cell in cells))
                    for source, cells in of_source.items()
                ),
            ],
            text="Accuracy of the model in the column on each source's examples, and on the clean "
            f"inputs of the first source. {white_box}",
            name="accuracy",
            opens=[["", *(where(model=name, outcome="wrong") for name in result.names)], *opens],
            heat=True,
            terminal=True,
            intervals=True,
        ),
        Table(
            title="Success, source by victim",
            columns=("made on", *heads, "others, mean", "rank"),
            rows=[
                (
                    source.name,
                    *(marked(cell, cell.success) for cell in of_source[source.name]),
                    Percent(source.success),
                    source.rank,
                )
                for source in result.sources
            ],
            text="Examples that the model in the column misclassifies, among those "
            "whose clean inputs this model and the source "
            f"both classify correctly. {white_box} {RANKS}",
            name="success",
            opens=opens,
            heat=True,
            reverse=True,
            terminal=True,
        ),
        Table(
            title="Change from the clean inputs",
            columns=("made on", *heads),
            rows=[(source, *map(change, cells)) for source, cells in of_source.items()],
            text="Accuracy of the model in the column on each source's examples. "
            "Below it: the change from the clean inputs of "
            "the same samples, in points, with its interval and McNemar's exact "
            "p, corrected for the number of cells (Holm).",
            opens=opens,
            folded=True,
        ),
    ]


def _sources(sources: Sequence[SourceResult]) -> Table:
    head = (
        "source",
        "examples",
        "without example",
        "L2, median",
        "Linf, largest",
        "success on others, mean",
    )

    return Table(
        title="The sources",
        columns=(*head, "forwards", "backwards"),
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
            for source in sources
        ],
        name="sources",
    )


def _cells(cells: Sequence[Cell]) -> Table:
    columns = ("source", "model", "white_box", "accuracy", "success")
    rows = [tuple(getattr(cell, name) for name in columns) for cell in cells]
    return Table(title="Cells", columns=columns, rows=rows, name="cells", page=False)


def sentences(result: TransferResult) -> list[str]:
    """The best source, and where examples made on other models succeed least and most; that no
    order is shown comes last.
    """
    found = list(_best_source(result))
    cells = [cell for cell in result.cells if cell.success.n and not cell.white_box]
    if cells:
        ends = (choose(cells, key=lambda cell: cell.success.value or 0.0) for choose in (min, max))
        low, high = map(_success_text, ends)
        found.append(
            f"Examples made on other models succeed on {low} to {high} of the samples that the source "
            "and the model classify correctly without them."
        )

    return sorted(found, key=lambda sentence: sentence == NO_ORDER)


def _success_text(cell: Cell) -> str:
    """The success in a cell, and which examples on which model it is of."""
    return f"{percent(cell.success.value)} ({cell.source} on {cell.model})"


def _best_source(result: TransferResult) -> Iterator[str]:
    ranks = [source.rank for source in result.sources if source.rank is not None]
    if not ranks:
        facts = zip(result.sources, result.facts.sources, strict=True)
        if sum(fact.folder is None and source.success is not None for source, fact in facts) > 1:
            yield NO_ORDER
    elif result.statements:
        # The brackets come before the full stop of the sentence.
        yield f"{sentence(result.statements[0])[:-1]} ({PAIRED})."
    else:
        yield f"No source is shown to have the highest success ({PAIRED})."


def statements_of(sources: Sequence[SourceResult], eps_text: str) -> list[Statement]:
    """The source with the highest success; empty if another one is ahead of it on the models that
    both can be shown to: their means are of different models and samples.
    """
    ranked = [(source, source.rank) for source in sources if source.rank is not None]
    if not ranked:
        return []

    # Sources may share rank 1: the one surely at it goes before one that may be at it.
    first, rank = max(ranked, key=lambda entry: (entry[1].high == 1, entry[0].success or 0.0))
    if rank.low > 1 or rank.value > min(entry.value for _, entry in ranked):
        return []

    leader = state(
        "most",
        subjects=[Subject(name=first.name, value=first.success or 0.0)],
        quantity="success on models that it was not made on",
        eps_text=eps_text,
        n=first.n,
        rivals=first.rivals,
        compared=len(ranked) - 1,
        family=pairs(len(ranked)),
        supported=rank.high == 1,
    )
    return [leader]


def budget(result: TransferResult) -> str:
    """The budget of examples that were made, and the largest change of a benchmark set, which has
    none.
    """
    made = []
    if result.facts.attack is not None:
        made = [f"{distance(result.request.norm)} up to {result.facts.eps_text}"]

    sources = zip(result.sources, result.facts.sources, strict=True)
    changes = [
        source.max_linf
        for source, facts in sources
        if facts.folder is not None and source.max_linf is not None
    ]
    sets = [f"benchmark sets with changes up to {short(max(changes))} in Linf"] if changes else []
    return ", ".join(made + sets)
