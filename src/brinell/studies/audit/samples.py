"""The samples of an audit for its page: what each answered, what broke it, and its pictures."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from brinell.analysis.curve import eps_index
from brinell.analysis.robust_accuracy import class_name, class_names, sizes
from brinell.core.record import CLEAN, Array, Outcome, Records, has_broken
from brinell.reports.examples import TEXT, closest_rows, draw_examples
from brinell.reports.numbers import counted, distance, whole
from brinell.reports.values import Example, Picture, Samples
from brinell.store.rows import take
from brinell.store.run import Run

Maps = Callable[[Run, str, Collection[int]], Mapping[int, Picture]]
"""Finds saliency maps of some samples of a run for the model of a digest."""
MOST = 2000
"""Samples that a page holds."""
ROWS = (
    "model",
    "sample",
    "class",
    "clean",
    "sure",
    "state",
    "size",
    "queries",
    "attacked",
    "attackedSure",
    "broken",
)
"""The columns of a sample of a model: number of the model, the sample, its class, the class
predicted for the clean input and its probability, the state without an attack, then of the closest
adversarial input the distance, the queries, the class and its probability, and pairs of attack and
budget, by their numbers, that broke it."""
STATES = {
    Outcome.MISCLASSIFIED: "wrong",
    Outcome.MET: "wrong",
    Outcome.FAILED: "unjudged",
}
"""States without an attack other than `right`."""


def samples_block(run: Run, records: Records, models: Sequence[str], maps: Maps) -> Samples:
    """The samples of a run, at most `MOST`: of each class those that break at the smallest budget
    come first.
    """
    manifest, names = run.manifest, class_names(run.manifest)
    held = _most_telling(records)
    total = len(np.unique(records.sample_id))
    kept = take(records, np.flatnonzero(np.isin(records.sample_id, held)))
    clean = sorted(run.clean())

    rows, pictured = [], []
    for number, model in enumerate(models):
        of_model = take(kept, np.flatnonzero(kept.model == model))
        closest = take(of_model, closest_rows(of_model, model, str(manifest["distance"])))
        rows += _rows_of(manifest, number, of_model, closest)
        pictured.append(take(closest, np.isin(closest.sample_id, clean)))
    rows.sort(key=partial(_first_broken, len(manifest["eps"])))
    pictures = sum(map(len, pictured))
    kind = manifest["data"]["domain"]["kind"]

    text = f"All {counted(total, 'sample')}."
    if total > len(held):
        text = (
            f"{whole(len(held))} of {counted(total, 'sample')}: of each class those that break at "
            "the smallest budget first, then those that hold."
        )
    if pictures:
        share = f"{whole(pictures)} of {counted(len(rows), 'answer')}"
        text += f" Pictures show {share}: those to broken samples whose clean input the run keeps. "
        text += TEXT[kind]
    else:
        broken = has_broken(records).any()
        text += f" {'No kept sample was broken.' if broken else 'No adversarial input was found.'}"
    content = {
        "models": models,
        # All true classes, and in entries 3 and 8 of a row those that the model answered.
        "classes": {str(c): class_name(names, c) for c in np.unique(kept.label).tolist()}
        | {str(c): class_name(names, c) for row in rows for c in (row[3], row[8]) if c is not None},
        "attacks": [
            [stage["name"], stage.get("label", stage["name"])] for stage in manifest["stages"]
        ],
        "eps": list(manifest["eps_text"]),
        "distance": distance(str(manifest["distance"])),
        # The picture on a card, by its place: signals have one, others the example as the third.
        "card": 0 if kind == "signal" else 2,
        "columns": ROWS,
        "rows": rows,
    }
    return Samples(
        title="Sample by sample",
        text=text,
        content=content,
        draw=partial(_draw, run, pictured, held, maps),
    )


def _first_broken(budgets: int, row: Sequence[Any]) -> tuple[Any, ...]:
    """The order of rows, as `ROWS` has them: the smallest budget that breaks a sample, then its
    distance.
    """
    # Of a row the last entry is what broke it, 6 the distance, 1 the sample and 0 the model.
    level = min((level for _, level in row[-1]), default=budgets)
    return level, math.inf if row[6] is None else row[6], row[1], row[0]


def _draw(run: Run, pictured: Sequence[Records], held: Array, maps: Maps) -> dict[str, Example]:
    """The pictures of the chosen rows of each model, in the order of the held samples."""
    clean = {sample: x for sample, x in run.clean().items() if sample in held}
    drawn = []
    for entry, rows in zip(run.manifest["models"], pictured, strict=True):
        examples = draw_examples(run, rows, str(entry["name"]), clean)
        for sample, picture in maps(run, str(entry["digest"]), examples).items():
            example = examples[sample]
            examples[sample] = replace(example, pictures=[*example.pictures, picture])
        drawn.append(examples)
    return {
        f"{number}/{sample}": examples[sample]
        for sample in held.tolist()
        for number, examples in enumerate(drawn)
        if sample in examples
    }


def _most_telling(records: Records) -> Array:
    """(at most `MOST`,) ids: round after round the next sample of every class, broken
    ones first.
    """
    ids, first, inverse = np.unique(records.sample_id, return_index=True, return_inverse=True)
    labels = records.label[first]
    broken = np.full(len(ids), np.inf)
    np.minimum.at(broken, inverse, np.ma.filled(records.broken.astype(np.float64), np.inf))

    # Sorted by class and, within it, by the smallest budget; the last key counts first.
    order = np.lexsort((ids, broken, labels))
    # The place of a sample within its class is the round in which it is taken.
    starts = np.searchsorted(labels[order], labels[order])
    turns = np.arange(len(ids)) - starts
    # All rounds of broken samples, then those of samples that hold.
    rounds = np.lexsort((broken[order], turns, np.isinf(broken[order])))
    return np.asarray(ids[order[rounds[:MOST]]])


def _rows_of(
    manifest: Mapping[str, Any], number: int, records: Records, closest: Records
) -> list[list[Any]]:
    """The samples of a model, as `ROWS` has them."""
    attacks = {stage["name"]: number for number, stage in enumerate(manifest["stages"])}
    hit = take(records, np.flatnonzero(has_broken(records)))
    budgets = eps_index(np.asarray(manifest["eps"], np.float64), np.ma.getdata(hit.broken))
    broken: dict[int, list[tuple[int, int]]] = {}
    for sample, attack, budget in zip(hit.sample_id.tolist(), hit.attack, budgets, strict=True):
        broken.setdefault(sample, []).append((attacks[str(attack)], int(budget)))
    # A failure of any stage leaves the sample without a judgement.
    failed = set(records.sample_id[records.outcome == Outcome.FAILED].tolist())
    size = sizes(closest, str(manifest["distance"])).tolist()
    places = {sample: row for row, sample in enumerate(closest.sample_id.tolist())}

    # Each sample has one row of the first check; those that no attack broke have no example.
    rows = []
    for row in np.flatnonzero(records.attack == CLEAN).tolist():
        sample = int(records.sample_id[row])
        state = STATES.get(records.outcome[row], "unjudged" if sample in failed else "right")
        answer = [int(records.clean_pred[row]), _share(records.clean_confidence[row])]
        example: list[Any] = [None] * 4
        if sample in places:
            place = places[sample]
            queries = closest.queries_to_success[place]
            example = [
                float(f"{size[place]:.3g}") if math.isfinite(size[place]) else None,
                None if np.ma.is_masked(queries) else int(queries),
                None if np.ma.is_masked(closest.adv_pred[place]) else int(closest.adv_pred[place]),
                _share(closest.adv_confidence[place]),
            ]
        label = int(records.label[row])
        rows.append([number, sample, label, *answer, state, *example, broken.get(sample, [])])
    return rows


def _share(value: Any) -> float | None:
    """A probability in whole percent, as tables say it: the page, which shows no more, cannot
    round it a second time; None for one that is not stored.
    """
    if np.ma.is_masked(value) or not math.isfinite(value):
        return None
    return round(100 * float(value)) / 100
