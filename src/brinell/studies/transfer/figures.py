"""The figures of a transfer: accuracy and success of every source on every model, and how sources and models rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.analysis.attainable import pairs, shortfall, smallest_mcnemar, smallest_mean
from brinell.analysis.folder_result import Result
from brinell.analysis.inference import Rank, holm, significant
from brinell.analysis.means import EXACT_GROUPS, mean_difference, sign_flips
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.results import OfClass, Rate, Share
from brinell.analysis.robust_accuracy import class_name, mean, rate, share
from brinell.core.record import Array, column
from brinell.manifest import Amount, Content, Count, Facts, Listing, Number
from brinell.store import rows


class SourceFacts(Content):
    """A source of adversarial examples."""

    name: str
    """The name of the source in the rows."""
    kind: str
    """The kind of source: made (in this transfer) or set."""
    members: Listing[str]
    """The names of the models that the examples were made on."""
    white_box: Listing[str]
    """The names of the evaluated models that the examples were made on."""
    level: Number | None = None
    """The level of a benchmark set."""
    samples: Count
    """The number of samples, those without an example included."""
    folder: str | None
    """The folder of the set."""


class TransferFacts(Facts):
    """Facts that the request leaves open."""

    eps: Amount
    """The budget."""
    eps_text: str
    """The budget as it is written."""
    attack: str | None
    """The attack that made examples; null if none were made."""
    sources: Listing[SourceFacts]
    """The sources of adversarial examples."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The rows of a transfer as columns, each a (rows,) array."""

    source: Array = column("string", "name of the source")
    model: Array = column("string", "name of the model on which the example is evaluated")
    sample_id: Array = column("int64", "position of the sample in its data")
    label: Array = column("int32", "true class")
    distortion: Array = column("string", "distortions placed on it, names joined by +; empty for other attacks")
    linf: Array = column("float32", "largest change of a value, in the units of the data")
    l2: Array = column("float32", "Euclidean length of the change")
    clean_pred: Array = column("int32", "class that the model predicts for the clean input")
    pred: Array = column("int32", "class that the model predicts for the example")
    forwards: Array = column("int64", "forward evaluations that making the example cost; 0 for a set")
    backwards: Array = column("int64", "backward evaluations")

    def __len__(self) -> int:
        return len(self.sample_id)


class SourceResult(Result):
    """A source of adversarial examples."""

    name: str
    """Its name in `facts.sources`: the model or models that the examples were made on, or SET and its level."""
    n: int
    """Number of examples."""
    missing: int
    """Number of samples without an example; in a set, the robust ones. No figure of this source counts them."""
    median_l2: float | None
    """Median Euclidean length of the changes."""
    max_linf: float | None
    """Largest change of a value."""
    success: float | None
    """Mean success on the models that are not members of the source; null if all are members."""
    rank: Rank | None
    """Rank by success among the sources made in this transfer, by comparisons of each two on the models that neither was made on;
    null unless each two share such a model with an eligible sample. Two models share none."""
    rivals: list[str]
    """Sources made in this transfer whose success on the shared targets does not differ significantly; empty without a rank."""
    forwards: int
    """Forward evaluations that making the examples cost; 0 for a set."""
    backwards: int
    """Backward evaluations that making the examples cost; 0 for a set."""


class EvaluatedModel(Result):
    """A model on which the examples are evaluated."""

    model: str
    """Its name."""
    success: float | None
    """Mean success of the sources made in this transfer without it; null without one."""


class Figures(Result):
    """What is left of a model on examples, and how many of them succeed."""

    accuracy: Rate
    """Accuracy on these examples."""
    success: Share
    """Share of misclassified examples, among those whose clean inputs this model and every evaluated member of the source
    classify correctly."""


class ClassCell(Figures, OfClass):
    """The examples of one class."""


class DistortionCell(Figures):
    """The examples with one distortion, or with several placed together."""

    distortion: str
    """Names joined by +."""


class Cell(Figures):
    """Evaluation of one model on one source's examples."""

    source: str
    """The source."""
    model: str
    """The model."""
    white_box: bool
    """True if the examples were made on this model."""
    clean: Rate
    """The same quantity on the clean inputs of these examples."""
    difference: float | None
    """`accuracy` minus `clean`."""
    low: float | None
    """Lower end of its 95 % interval (Newcombe, paired)."""
    high: float | None
    """Upper end."""
    p: float | None
    """McNemar's exact p-value of that difference, corrected for the number of cells (Holm)."""
    per_class: list[ClassCell]
    """Classes with an example, by index."""
    per_distortion: list[DistortionCell]
    """Figures by distortion; empty for other attacks."""


def shortfalls(sources: int, models: int, cells: int, n: int) -> list[str]:
    """What `n` samples cannot show, of the sources made here and of cells."""
    of_sources = pairs(sources) if models > 2 else 0
    claims = [
        shortfall("source can be shown to be better than another", of_sources, "samples", n, smallest_mean),
        shortfall("loss of accuracy can be shown in a cell", cells, "samples", n, smallest_mcnemar),
    ]
    return [claim for claim in claims if claim]


def rows_by_model(answers: Answers, source: SourceFacts, models: Sequence[str]) -> dict[str, Answers]:
    """The rows of a source by model, samples ascending."""
    source_rows = rows.take(answers, answers.source == source.name)
    by_model = {model: rows.take(source_rows, source_rows.model == model) for model in models}
    return {model: rows.take(group, np.argsort(group.sample_id, kind="stable")) for model, group in by_model.items()}


def _both_right(source: SourceFacts, model: str, by_model: Mapping[str, Answers]) -> Array:
    """(n,) bool: clean inputs that the model and every evaluated member of the source classify correctly."""
    right = [by_model[name].clean_pred == by_model[name].label for name in (model, *source.white_box)]
    return np.asarray(np.all(right, axis=0))


def make_cell(source: SourceFacts, model: str, by_model: Mapping[str, Answers], names: Sequence[str]) -> Cell:
    """Counts of a source on a model, `p` not yet corrected; `names` are those of the classes."""
    answers, eligible = by_model[model], _both_right(source, model, by_model)
    clean_right, example_right = answers.clean_pred == answers.label, answers.pred == answers.label
    right_right, wrong_right = (int((clean & example_right).sum()) for clean in (clean_right, ~clean_right))
    right_wrong, wrong_wrong = (int((clean & ~example_right).sum()) for clean in (clean_right, ~clean_right))
    interval = paired_difference(right_right, wrong_right, right_wrong, wrong_wrong)

    def figures(mask: Array) -> dict[str, Any]:
        left = rate(int(example_right[mask].sum()), int(mask.sum()))
        return {"accuracy": left, "success": share((~example_right[mask & eligible]).tolist())}

    distortions = sorted(set(answers.distortion.tolist()) - {""})
    return Cell(
        source=source.name,
        model=model,
        white_box=model in source.white_box,
        clean=rate(int(clean_right.sum()), len(answers)),
        **figures(np.ones(len(answers), dtype=bool)),
        difference=None if not len(answers) else (wrong_right - right_wrong) / len(answers),
        low=interval and interval.low,
        high=interval and interval.high,
        p=mcnemar(wrong_right, right_wrong) if len(answers) else None,
        per_class=[
            ClassCell(class_=int(index), name=class_name(names, int(index)), **figures(answers.label == index))
            for index in np.unique(answers.label)
        ],
        per_distortion=[
            DistortionCell(distortion=distortion, **figures(answers.distortion == distortion)) for distortion in distortions
        ],
    )


def correct_p_values(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with their p-values corrected for multiple comparisons (Holm)."""
    p_values = iter(holm([cell.p for cell in cells if cell.p is not None]))
    return [cell if cell.p is None else cell.model_copy(update={"p": next(p_values)}) for cell in cells]


def source_results(
    sources: Sequence[SourceFacts], answers: Mapping[str, Mapping[str, Answers]], cells: Sequence[Cell], models: Sequence[str]
) -> list[SourceResult]:
    """Each source, with its rank among those made here."""
    transferred = {
        source.name: [
            cell.success.value
            for cell in cells
            if cell.source == source.name and not cell.white_box and cell.success.value is not None
        ]
        for source in sources
    }
    ranked = list_made(sources, models)
    compare = [[_compare_sources(a, b, answers, models) for b in ranked] for a in ranked]
    places = _ranks([source.name for source in ranked], compare)
    results = []
    for source in sources:
        any_model = answers[source.name][models[0]]
        place, rivals = places.get(source.name, NO_PLACE)
        results.append(
            SourceResult(
                name=source.name,
                n=len(any_model),
                missing=source.samples - len(any_model),
                median_l2=float(np.median(any_model.l2)) if len(any_model) else None,
                max_linf=float(any_model.linf.max()) if len(any_model) else None,
                success=mean(transferred[source.name]),
                rank=place,
                rivals=rivals,
                forwards=int(any_model.forwards.sum()),
                backwards=int(any_model.backwards.sum()),
            )
        )
    return results


def list_made(sources: Sequence[SourceFacts], models: Sequence[str]) -> list[SourceFacts]:
    """The sources made here, which share their samples, with a model that is not their member."""
    return [source for source in sources if source.kind == "made" and set(models) - set(source.white_box)]


Comparison = tuple[float, float]
"""The difference of two objects, and its p-value."""
NO_PLACE: tuple[Rank | None, list[str]] = (None, [])
"""The rank and the rivals of a source that is not ordered."""


def _compare_sources(
    a: SourceFacts, b: SourceFacts, answers: Mapping[str, Mapping[str, Answers]], models: Sequence[str]
) -> Comparison | None:
    """Success of two sources on the models that neither was made on; None without such a model."""
    targets = [model for model in models if model not in {*a.white_box, *b.white_box}]
    return compare_cells([tuple(_cell_samples(source, model, answers) for source in (a, b)) for model in targets])


def _cell_samples(source: SourceFacts, model: str, answers: Mapping[str, Mapping[str, Answers]]) -> tuple[Array, Array]:
    """(n,) bool each, by sample: True if it is eligible, and if its example is misclassified."""
    by_model = answers[source.name]
    return _both_right(source, model, by_model), by_model[model].pred != by_model[model].label


def compare_cells(pairs: Sequence[tuple[tuple[Array, Array], ...]]) -> Comparison | None:
    """Compare pairs of cells, each on the samples that are eligible in both: mean difference of the rates, and its p-value.

    Samples that are eligible in no pair, or on which the cells agree, are no evidence: up to `EXACT_GROUPS` others, the p-value
    is at least that of all patterns of their signs.

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
    values = np.mean(differences, axis=0)
    discordant = values[np.abs(values) > 1e-12]
    estimate = mean_difference(values[np.any(is_eligible, axis=0)])
    assert estimate is not None
    p = max(estimate.p, sign_flips(discordant)) if len(discordant) <= EXACT_GROUPS else estimate.p
    return float(values.sum()), p


def _ranks(names: Sequence[str], compare: Sequence[Sequence[Comparison | None]]) -> dict[str, tuple[Rank | None, list[str]]]:
    """Rank of each object by its comparisons with all others, the largest first, and those not told from it.

    Empty unless there are two objects and each pair can be compared: an order needs all pairs.
    """
    count = range(len(names))
    pairs = {(i, j): compare[i][j] for i in count for j in range(i)}
    complete = {pair: comparison for pair, comparison in pairs.items() if comparison is not None}
    if not pairs or len(complete) < len(pairs):
        return {}
    corrected = dict(zip(complete, holm([p for _, p in complete.values()]), strict=True))
    difference = {(i, j): value for (i, j), (value, _) in complete.items()}
    difference |= {(j, i): -value for (i, j), value in difference.items()}
    ranks: dict[str, tuple[Rank | None, list[str]]] = {}
    for i in count:
        others = [j for j in count if j != i]
        shown = {j for j in others if difference[i, j] and significant(corrected[max(i, j), min(i, j)])}
        better, worse = ([j for j in others if sign * difference[i, j] > 0] for sign in (-1, 1))
        place = Rank(
            value=1 + len(better) + (len(others) - len(better) - len(worse)) / 2,
            low=1 + len(shown.intersection(better)),
            high=len(names) - len(shown.intersection(worse)),
        )
        ranks[names[i]] = place, [names[j] for j in others if j not in shown]
    return ranks


def model_results(models: Sequence[str], sources: Sequence[SourceFacts], cells: Sequence[Cell]) -> list[EvaluatedModel]:
    """The models, with the mean success of the sources made here without them."""
    made = {source.name for source in sources if source.kind == "made"}
    others = [cell for cell in cells if cell.source in made and not cell.white_box]
    return [
        EvaluatedModel(model=model, success=mean([cell.success.value for cell in others if cell.model == model]))
        for model in models
    ]


def notes_on(facts: Sequence[SourceFacts], sources: Sequence[SourceResult]) -> list[str]:
    """Notes on samples without examples and on sources that differ."""
    notes = [
        f"{source.name}: {source.missing} of its {source.missing + source.n} samples have no example; its figures are over the "
        f"other {source.n}"
        for source in sources
        if source.missing
    ]
    if len({(source.n, fact.kind) for source, fact in zip(sources, facts, strict=True)}) > 1:
        notes.append("the sources cover different samples: do not compare figures between rows")
    return notes
