"""Sentences that summarise a transfer."""

from collections.abc import Sequence
from dataclasses import dataclass

from brinell.analysis.inference import significant
from brinell.pages.format import norm, percent, samples, short
from brinell.studies.transfer.results import Cell, EvaluatedModel, TransferResult


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Words for success, and for what is left of a model, by the criterion of a transfer."""

    success: str
    """When an example counts, and among which."""
    short: str
    """The same for a terminal."""
    rate: str
    """The share that is left of a model on the examples."""
    rate_lead: str
    """The sentence over the table of it."""
    column: str
    """Its name as a column."""
    loss: str
    """The name of an effect."""


def terms(result: TransferResult) -> Terms:
    """The words of a transfer."""
    if result.criterion is None:
        return Terms(
            success="Percentage of examples that the model in the column misclassifies, among those whose clean inputs this "
            "model and the source both classify correctly.",
            short="success in percent, among samples that both models classify correctly",
            rate="Accuracy on the examples",
            rate_lead="Accuracy of the model in the column on each source's examples, in percent.",
            column="accuracy",
            loss="loss of accuracy",
        )
    return Terms(
        success=f"Percentage of examples that meet {result.criterion} on the model in the column, among those whose clean inputs "
        "meet it neither on this model nor on the source.",
        short=f"examples that meet {result.criterion}, in percent, among samples that meet it on neither model untouched",
        rate=f"Examples that do not meet {result.criterion}",
        rate_lead=f"Share of each source's examples that do not meet {result.criterion} on the model in the column, in percent. "
        "It is not an accuracy.",
        column="unmet",
        loss=f"effect on {result.criterion}",
    )


MAX_NAMED = 3
"""Most sources or models that a clause names."""
PAIRED = "paired on the same samples, corrected for all pairs"
NO_ORDER = "No order of the sources is shown: two or more of them share no target, so they cannot be compared. Add a model."
"""The sentence on sources that cannot be compared."""


def sentences(result: TransferResult) -> list[str]:
    """Summarise the best sources, the most and least affected models, the white-box gap, and the cells without an effect."""
    return [
        sentence
        for summarise in (_best_source, _all_round, _most_affected, _white_box_gap, _harmless_cells)
        if (sentence := summarise(result))
    ]


def _best_source(result: TransferResult) -> str:
    """Sentence on the source whose examples transfer best."""
    ranked = [source for source in result.sources if source.rank is not None]
    if not ranked:
        made = [source for source in result.sources if source.kind == "made" and source.success is not None]
        return NO_ORDER if len(made) > 1 else ""
    first = max(ranked, key=lambda source: (source.rank is not None and source.rank.high == 1, source.success or 0.0))
    assert first.rank is not None
    share = f"{percent(first.success)} of its examples succeed on models that it was not made on, on average"
    if first.rank.high == 1:
        return f"{first.name} is the best source: {share}. Each other source is shown to be worse on shared targets ({PAIRED})."
    if first.rank.low > 1:
        return f"{first.name} has the highest success ({share}), but no source is shown to be the best ({PAIRED})."
    rivals = _abbreviate(first.rivals, len(ranked) - 1, "sources")
    return f"{first.name} has the highest success ({share}), but {rivals} may be as good ({PAIRED})."


def _all_round(result: TransferResult) -> str:
    """The source with the largest minimum success on these samples, unless it is also the best on average."""
    candidates = [source for source in result.sources if source.min_success is not None and source.rank is not None]
    if len(candidates) < 2:
        return ""
    best = max(candidates, key=lambda source: source.min_success or 0.0)
    if not best.min_success or best.rank is None or best.rank.rank == 1:
        return ""
    return (
        f"On these samples {best.name} has the highest minimum: at least {percent(best.min_success)} of its examples succeed on "
        "every other model."
    )


def _most_affected(result: TransferResult) -> str:
    """The models on which examples made on other models succeed least and most."""
    models = sorted((model for model in result.models if model.success is not None), key=lambda model: model.success or 0.0)
    if len(models) < 2:
        return ""
    lowest, highest = models[0], models[-1]
    if lowest.rank is None:
        return (
            f"Examples made on other models succeed on {percent(lowest.success)} ({lowest.model}) to {percent(highest.success)} "
            f"({highest.model}) of the samples; the models are not compared, because two or more share no source."
        )
    assert highest.rank is not None
    if highest.model in lowest.rivals or highest.rank.rank >= lowest.rank.rank:
        return (
            f"Examples made on other models succeed on {percent(lowest.success)} ({lowest.model}) to {percent(highest.success)} "
            f"({highest.model}) of the samples: these samples do not show that the models differ ({PAIRED})."
        )
    clauses = [
        f"{extreme} on {model.model} ({percent(model.success)} on average{_doubt(model, len(models))})"
        for extreme, model in (("least", lowest), ("most", highest))
    ]
    return f"Examples made on other models succeed {' and '.join(clauses)}."


def _doubt(model: EvaluatedModel, count: int) -> str:
    """A clause on the models that may be at the same end of the order; empty without one."""
    return f"; {_abbreviate(model.rivals, count - 1, 'models')} do not differ significantly" if model.rivals else ""


def _abbreviate(names: Sequence[str], total: int, noun: str) -> str:
    """A few names, or the number of many."""
    return ", ".join(names) if len(names) <= MAX_NAMED else f"{len(names)} of the other {total} {noun}"


def _white_box_gap(result: TransferResult) -> str:
    """Sentence on success on the model itself and on other models."""
    white_box = [cell.success.value for cell in result.cells if cell.white_box and cell.success.value is not None]
    black_box = [cell.success.value for cell in result.cells if not cell.white_box and cell.success.value is not None]
    if not white_box or not black_box:
        return ""
    white_share, black_share = percent(sum(white_box) / len(white_box)), percent(sum(black_box) / len(black_box))
    return (
        f"{white_share} of the examples succeed on the models that they were made on, and {black_share} on other models "
        f"(means over {len(white_box)} and {len(black_box)} cells)."
    )


def _harmless_cells(result: TransferResult) -> str:
    """Sentence on cells in which no loss of accuracy is shown, and on the loss that their intervals allow."""
    harmless = [
        cell
        for cell in result.cells
        if not cell.white_box and cell.p is not None and not (significant(cell.p) and _is_lower(cell))
    ]
    total = sum(not cell.white_box for cell in result.cells)
    if not harmless:
        return ""
    article = "a loss" if result.criterion is None else "one"
    largest = max(-100 * (cell.low or 0.0) for cell in harmless)
    return (
        f"In {len(harmless)} of the {total} black-box cells no {terms(result).loss} is shown by {_size(harmless)} (McNemar, "
        f"corrected for the number of cells); {article} of {largest:.1f} points is not excluded."
    )


def _is_lower(cell: Cell) -> bool:
    """True if less is left of the model on the examples."""
    return (cell.difference or 0.0) < 0


def budget(result: TransferResult) -> str:
    """The budget of examples that were made or read from runs, and the largest change of a benchmark set, which has none."""
    parts = []
    if any(source.kind != "set" for source in result.sources):
        parts.append(f"{norm(result.distance)} up to {result.eps_text}")
    changes = [source.max_linf for source in result.sources if source.kind == "set" and source.max_linf is not None]
    if changes:
        parts.append(f"benchmark sets with changes up to {short(max(changes))} in Linf")
    return ", ".join(parts)


def _size(cells: list[Cell]) -> str:
    """Largest number of samples of the cells as text."""
    return samples(max(cell.rate.n for cell in cells))
