"""The transfer matrix: accuracy and success of every source on every model, and how the sources rank."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from brinell.analysis.attainable import Attainable, attainable, pairs, sentences, smallest_mcnemar, smallest_mean
from brinell.analysis.inference import holm, significant
from brinell.analysis.means import EXACT_GROUPS, mean_difference, pseudo_values, sign_flips
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.robust_accuracy import class_name, mean, rate, share
from brinell.core.errors import RequestError
from brinell.core.record import Array
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.transfer.records import Answers
from brinell.studies.transfer.results import (
    Cell,
    ClassCell,
    DistortionCell,
    EvaluatedModel,
    Place,
    SourceResult,
    TransferResult,
)


def summarise(transfer: Folder[Answers]) -> TransferResult:
    """Compute the result of a transfer from its folder."""
    manifest = transfer.manifest
    models = [str(entry["name"]) for entry in manifest["models"]]
    names = [str(name) for name in manifest["data"]["classes"]]
    answers = {source["name"]: _rows_by_model(transfer.rows, source, models) for source in manifest["sources"]}
    criterion = manifest.get("criterion")
    missing = np.stack([np.ma.getmaskarray(column) for column in (transfer.rows.clean_margin, transfer.rows.margin)])
    if (missing != (criterion is None)).any():
        raise RequestError(f"{transfer.path} has rows that do not belong to its criterion: make the transfer again")
    cells = [
        _cell(source, model, answers[source["name"]], names, criterion) for source in manifest["sources"] for model in models
    ]
    made = _list_made(manifest, models)
    possible = families(
        len(made),
        len(models) if made else 0,
        len(cells),
        max(int(source["n"]) for source in manifest["sources"]),
        criterion,
    )
    return TransferResult(
        folder=str(transfer.path),
        data=str(manifest["data"]["name"]),
        criterion=criterion,
        distance=str(manifest["distance"]),
        eps=float(manifest["eps"]),
        eps_text=str(manifest["eps_text"]),
        attack=manifest["attack"],
        sources=_sources(manifest, answers, cells, models),
        models=_models(manifest, answers, models),
        cells=_correct_p_values(cells),
        passes=int(manifest["passes"]),
        seconds=float(manifest["seconds"]),
        attainable=possible,
        notes=[*_notes(manifest), *sentences(possible)],
    )


def families(sources: int, models: int, cells: int, n: int, criterion: str | None = None) -> list[Attainable]:
    """The comparisons on `n` samples: of the sources made here, of the models that they are tried on, and of cells."""
    effect = "loss of accuracy" if criterion is None else f"effect on {criterion}"
    claims = [
        ("source can be shown to be better than another", pairs(sources) if models > 2 else 0, smallest_mean),
        ("model can be shown to be more affected than another", pairs(models) if models > 2 else 0, smallest_mean),
        (f"{effect} can be shown in a cell", cells, smallest_mcnemar),
    ]
    return [attainable(claim, count, "samples", n, smallest_p) for claim, count, smallest_p in claims if count]


def _rows_by_model(answers: Answers, source: Mapping[str, Any], models: Sequence[str]) -> dict[str, Answers]:
    source_rows = rows.take(answers, answers.source == source["name"])
    by_model = {model: rows.take(source_rows, source_rows.model == model) for model in models}
    return {model: rows.take(group, np.argsort(group.sample_id, kind="stable")) for model, group in by_model.items()}


def _is_left(answers: Answers, *, clean: bool) -> Array:
    """(n,) bool: inputs that the model classifies correctly or, with a criterion of probability, that do not meet it."""
    margin, pred = (answers.clean_margin, answers.clean_pred) if clean else (answers.margin, answers.pred)
    is_missing = np.ma.getmaskarray(margin)
    return np.asarray(np.where(is_missing, pred == answers.label, np.ma.getdata(margin) <= 0))


def _both_right(source: Mapping[str, Any], model: str, by_model: Mapping[str, Answers]) -> Array:
    """(n,) bool: clean inputs of which all is left (`_is_left`) on the model and on every evaluated member of the source."""
    right = _is_left(by_model[model], clean=True)
    for member in source["white_box"]:
        right = right & _is_left(by_model[member], clean=True)
    return np.asarray(right)


def _cell(
    source: Mapping[str, Any], model: str, by_model: Mapping[str, Answers], names: Sequence[str], criterion: str | None
) -> Cell:
    answers, eligible = by_model[model], _both_right(source, model, by_model)
    clean_right, example_right = _is_left(answers, clean=True), _is_left(answers, clean=False)
    right_right, wrong_right = (int((clean & example_right).sum()) for clean in (clean_right, ~clean_right))
    right_wrong, wrong_wrong = (int((clean & ~example_right).sum()) for clean in (clean_right, ~clean_right))
    interval = paired_difference(right_right, wrong_right, right_wrong, wrong_wrong)

    quantity = "accuracy" if criterion is None else f"share that does not meet {criterion}"

    def figures(mask: Array) -> dict[str, Any]:
        left = rate(int(example_right[mask].sum()), int(mask.sum()), quantity=quantity)
        return {"accuracy": left, "success": share((~example_right[mask & eligible]).tolist())}

    distortions = sorted(set(answers.distortion.tolist()) - {""})
    return Cell(
        source=str(source["name"]),
        model=model,
        white_box=model in source["white_box"],
        clean=rate(int(clean_right.sum()), len(answers), quantity=quantity),
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


def _correct_p_values(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with their p-values corrected for multiple comparisons (Holm)."""
    p_values = iter(holm([cell.p for cell in cells if cell.p is not None]))
    return [cell if cell.p is None else cell.model_copy(update={"p": next(p_values)}) for cell in cells]


def _sources(
    manifest: Mapping[str, Any], answers: Mapping[str, Mapping[str, Answers]], cells: Sequence[Cell], models: Sequence[str]
) -> list[SourceResult]:
    transferred = {
        source["name"]: [
            cell.success.value
            for cell in cells
            if cell.source == source["name"] and not cell.white_box and cell.success.value is not None
        ]
        for source in manifest["sources"]
    }
    ranked = _list_made(manifest, models)
    compare = [[_compare_sources(a, b, answers, models) for b in ranked] for a in ranked]
    places = _ranks([source["name"] for source in ranked], compare)
    results = []
    for source in manifest["sources"]:
        any_model = answers[source["name"]][models[0]]
        place, rivals = places.get(source["name"], NO_PLACE)
        results.append(
            SourceResult(
                name=source["name"],
                kind=source["kind"],
                members=source["members"],
                white_box=source["white_box"],
                level=source["level"],
                n=source["n"],
                missing=source["missing"],
                median_l2=float(np.median(any_model.l2)) if len(any_model) else None,
                max_linf=float(any_model.linf.max()) if len(any_model) else None,
                success=mean(transferred[source["name"]]),
                min_success=min(transferred[source["name"]], default=None),
                rank=place,
                rivals=rivals,
                forwards=int(source["forwards"]),
                backwards=int(source["backwards"]),
                seconds=float(source["seconds"]),
            )
        )
    return results


def _list_made(manifest: Mapping[str, Any], models: Sequence[str]) -> list[Mapping[str, Any]]:
    """The sources made here, which share their samples, with a model that is not their member."""
    return [source for source in manifest["sources"] if source["kind"] == "made" and set(models) - set(source["white_box"])]


def _success_values(source: Mapping[str, Any], model: str, answers: Mapping[str, Mapping[str, Answers]]) -> Array:
    """(n,) pseudo-values of the success rate of a source on a model, by sample; NaN if no sample is eligible."""
    by_model = answers[source["name"]]
    eligible = _both_right(source, model, by_model)
    return pseudo_values(eligible & ~_is_left(by_model[model], clean=False), eligible)


def _mean_of_cells(cells: Sequence[Array]) -> Array:
    """(n,) mean of pseudo-values over the cells that have any; NaN without one."""
    complete = [cell for cell in cells if len(cell) and not np.isnan(cell).any()]
    return np.asarray(np.mean(complete, axis=0)) if complete else np.full(len(cells[0]) if cells else 0, np.nan)


Comparison = tuple[float, float]
"""The difference of two objects, and its p-value."""
NO_PLACE: tuple[Place | None, list[str]] = (None, [])
"""The rank and the rivals of a source that is not ordered."""


def _compare_sources(
    a: Mapping[str, Any], b: Mapping[str, Any], answers: Mapping[str, Mapping[str, Answers]], models: Sequence[str]
) -> Comparison | None:
    """Success of two sources on the models that neither was made on; None without such a model."""
    targets = [model for model in models if model not in {*a["white_box"], *b["white_box"]}]
    return compare_cells([tuple(_cell_samples(source, model, answers) for source in (a, b)) for model in targets])


def _compare_models(
    a: str, b: str, answers: Mapping[str, Mapping[str, Answers]], sources: Sequence[Mapping[str, Any]]
) -> Comparison | None:
    """Success on two models of the sources that were made on neither; None without such a source."""
    shared = [source for source in sources if not {a, b} & set(source["white_box"])]
    return compare_cells([tuple(_cell_samples(source, model, answers) for model in (a, b)) for source in shared])


def _cell_samples(source: Mapping[str, Any], model: str, answers: Mapping[str, Mapping[str, Answers]]) -> tuple[Array, Array]:
    """(n,) bool each, by sample: True if it is eligible, and if its example is misclassified."""
    by_model = answers[source["name"]]
    return _both_right(source, model, by_model), ~_is_left(by_model[model], clean=False)


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


def _ranks(names: Sequence[str], compare: Sequence[Sequence[Comparison | None]]) -> dict[str, tuple[Place | None, list[str]]]:
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
    ranks: dict[str, tuple[Place | None, list[str]]] = {}
    for i in count:
        others = [j for j in count if j != i]
        shown = {j for j in others if difference[i, j] and significant(corrected[max(i, j), min(i, j)])}
        better, worse = ([j for j in others if sign * difference[i, j] > 0] for sign in (-1, 1))
        place = Place(
            rank=1 + len(better) + (len(others) - len(better) - len(worse)) / 2,
            low=1 + len(shown.intersection(better)),
            high=len(names) - len(shown.intersection(worse)),
        )
        ranks[names[i]] = place, [names[j] for j in others if j not in shown]
    return ranks


def _models(
    manifest: Mapping[str, Any], answers: Mapping[str, Mapping[str, Answers]], names: Sequence[str]
) -> list[EvaluatedModel]:
    """The models, with the mean success of the sources made here without them."""
    sources = [source for source in manifest["sources"] if source["kind"] == "made"]
    values = [
        _mean_of_cells([_success_values(source, name, answers) for source in sources if name not in source["white_box"]])
        for name in names
    ]
    comparisons = [[_compare_models(a, b, answers, sources) for b in names] for a in names]
    ranks = _ranks(names, comparisons)
    rivals = {name: ranks[name][1] if ranks else [other for other in names if other != name] for name in names}
    return [
        EvaluatedModel(
            model=str(entry["name"]),
            architecture=entry.get("architecture"),
            parameters=entry.get("parameters"),
            success=float(column.mean()) if len(column) and not np.isnan(column).any() else None,
            rivals=rivals[entry["name"]],
            rank=ranks[entry["name"]][0] if ranks else None,
        )
        for entry, column in zip(manifest["models"], values, strict=True)
    ]


def _notes(manifest: Mapping[str, Any]) -> list[str]:
    """Notes on samples without examples and on sources that differ."""
    notes = [
        f"{source['name']}: {source['missing']} of its {source['missing'] + source['n']} samples have no example; its figures "
        f"are over the other {source['n']}"
        for source in manifest["sources"]
        if source["missing"]
    ]
    if len({source["n"] for source in manifest["sources"]}) > 1 or len({source["kind"] for source in manifest["sources"]}) > 1:
        notes.append("the sources cover different samples: do not compare figures between rows")
    return notes
