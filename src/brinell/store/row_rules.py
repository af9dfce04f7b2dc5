"""Rules that the rows of a run obey whatever its model and data are.

A run that breaks one is refused by every command alike.

The first check has one row for each sample, and a stage at most one. A row repeats what the row of
the first check says. A stage attacks only samples that were right and that no earlier stage broke
at the smallest budget. Outcomes follow from the other values; values lie within their types and
meanings.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from brinell.core.record import CLEAN, Array, Outcome, Records, columns_of, has_broken

SIZES = ("linf", "l2", "l1", "l0")
SUCCESS_COLUMNS = (
    "adv_pred",
    "adv_confidence",
    "adv_margin",
    *SIZES,
    "quantised_pred",
    "quantised_within",
)
"""Columns that only rows of broken samples have."""
COSTS = ("forwards", "backwards", "judge_forwards", "surrogate_passes")


class Violation(NamedTuple):
    """A rule that rows break."""

    location: str
    """The model and the stage."""
    description: str
    samples: Array
    """Ids of the samples of these rows, ascending, without repetition."""


def find_violations(manifest: Mapping[str, Any], parts: Iterable[Records]) -> Iterator[Violation]:
    """The rules that the rows of a run break; `parts` are its rows by model and stage, in the order
    of the manifest.
    """
    records = iter(parts)
    for model in manifest["models"]:
        clean = next(records)
        yield from _find_violations(
            manifest, model, {"name": CLEAN}, clean, clean, np.full(len(clean), np.inf)
        )
        before = np.full(len(clean), np.inf)
        for stage in manifest["stages"]:
            rows = next(records)
            faults = list(_find_violations(manifest, model, stage, rows, clean, before))
            yield from faults
            if not faults:
                index = np.searchsorted(clean.sample_id, rows.sample_id)
                before[index] = np.minimum(before[index], np.ma.filled(rows.broken, np.inf))


def _find_violations(
    manifest: Mapping[str, Any],
    model: Mapping[str, Any],
    stage: Mapping[str, Any],
    rows: Records,
    clean: Records,
    before: Array,
) -> Iterator[Violation]:
    """The rules that the rows of a stage break; `before` (n,) are the smallest budgets broken by
    those before it.
    """
    location, ids, is_clean = (
        f"{model['name']} {stage['name']}",
        rows.sample_id,
        stage["name"] == CLEAN,
    )
    if (np.diff(ids) <= 0).any() or not np.isin(ids, clean.sample_id).all():
        yield Violation(
            location,
            "the rows are not one for each sample of the run, ascending",
            np.zeros(0, np.int64),
        )
        return
    column = {name: np.ma.getdata(getattr(rows, name)) for name in columns_of(rows)}
    present = {name: ~np.ma.getmaskarray(getattr(rows, name)) for name in column}
    index = np.searchsorted(clean.sample_id, ids)
    criterion = manifest.get("criterion", {})
    is_targeted, by_threshold = criterion.get("name") == "targeted", "text" in criterion
    reasons = manifest.get("failed", {}).get(model["name"], {}).get(str(stage["name"]), {})
    failed, outcome = np.isin(ids, sorted(map(int, reasons))), column["outcome"].astype(str)
    broken, attacked, is_right = (
        has_broken(rows),
        present["attacked"],
        column["clean_pred"] == column["label"],
    )
    levels = [eps for eps in manifest["eps"] if eps > 0]

    rules = {
        "the row belongs to another model, attack or distance": (column["model"] != model["name"])
        | (column["attack"] != stage["name"])
        | (column["distance"] != manifest["distance"]),
        "the row has a target class, or lacks one": ~failed & (present["target"] != is_targeted),
        "a size is negative": np.any(
            [present[name] & (column[name] < 0) for name in SIZES], axis=0
        ),
        "a cost is negative": np.any([column[name] < 0 for name in (*COSTS, "seconds")], axis=0),
    }
    for name in ("label", "target", "clean_pred", "adv_pred", "quantised_pred"):
        least = np.where(failed, -1, 0) if name == "clean_pred" else 0
        is_class = (column[name] >= least) & (column[name] < model["classes"])
        rules[f"the row's {name} is no class of the model"] = present[name] & ~is_class
    for name in ("clean_confidence", "adv_confidence"):
        is_share = (column[name] >= 0) & (column[name] <= 1 + 1e-6)
        rules[f"the row's {name} is no probability"] = present[name] & ~is_share
    for name in ("adv_margin", "margin", *SIZES, "seconds", "unit"):
        rules[f"the row's {name} is not finite"] = present[name] & ~np.isfinite(column[name])
    for name in SUCCESS_COLUMNS:
        rules[f"the row lacks {name}, or has it though no attack succeeded"] = (
            present[name] != broken
        )

    if is_clean:
        words = (
            (Outcome.MET, Outcome.UNMET)
            if by_threshold
            else (Outcome.CORRECT, Outcome.MISCLASSIFIED)
        )
        expected = np.where(column["margin"] > 0 if by_threshold else is_right, *map(str, words))
        answered = (column["clean_pred"] != -1) | (column["clean_confidence"] != 0)
        of_class = by_threshold & (column["label"] == criterion.get("wrong_class"))
        costs = np.any([column[name] != 0 for name in COSTS[1:]], axis=0)
        rules |= {
            "the row has an answer of a model that failed": failed & answered,
            "the row's margin is that of a failed sample, or is missing": present["margin"]
            == failed,
            "the row has the result or the cost of an attack": broken
            | attacked
            | present["queries_to_success"]
            | costs,
            "the sample is of the class of the criterion": of_class,
        }
    else:
        expected = np.where(
            ~attacked, Outcome.SPARED, np.where(broken, Outcome.BROKEN, Outcome.SURVIVED)
        ).astype(str)
        was_right = np.isin(
            clean.outcome[index].astype(str), [str(Outcome.CORRECT), str(Outcome.UNMET)]
        )
        attacked_at, broken_at = (
            np.where(attacked, column["attacked"], np.inf),
            np.where(broken, column["broken"], np.inf),
        )
        is_single, is_alone = stage.get("eot", 1) == 1, bool(stage.get("turn", {}).get("alone"))
        is_wrong = (
            column["adv_pred"] == column["target"]
            if is_targeted
            else column["adv_pred"] != column["label"]
        )
        has_margin = not (is_targeted or model.get("reject_class") is not None)
        queries, forwards = column["queries_to_success"], column["forwards"]
        rules |= {
            "the sample was wrong or failed in the first check, and is not attacked": ~was_right,
            "the row's attacked is no budget of the run": attacked & ~np.isin(attacked_at, levels),
            "the row's broken is no budget of the run": broken & ~np.isin(broken_at, levels),
            "the sample is broken at a budget above that of its attack": broken
            & (broken_at > attacked_at),
            "an earlier attack broke the sample at this or a smaller budget": attacked
            & (before[index] <= attacked_at)
            & (not is_alone),
            "the row's class for the adversarial input is no success": broken
            & ~is_wrong
            & (is_single and criterion.get("wrong_class") is None),
            "the row's margin for the adversarial input is no success": broken
            & (column["adv_margin"] < 0)
            & (is_single and has_margin),
            "the row states a crossed boundary, but a robust sample": ~broken
            & present["margin"]
            & (column["margin"] > 0),
            "the row has a margin or a cost, although nothing was attacked": ~attacked
            & (present["margin"] | np.any([column[name] != 0 for name in COSTS], axis=0)),
            "the row states an attack without a cost": attacked & ~failed & (forwards < 1),
            "the row states a first success outside its queries": present["queries_to_success"]
            & ((queries > forwards) | (queries < 1) | ~broken),
        }
        if manifest["distance"] in SIZES:
            limit = np.where(broken, broken_at, 0.0) * column["unit"] * (1 + 1e-5) + 1e-6
            rules["the row states a perturbation larger than its budget"] = broken & (
                column[manifest["distance"]] > limit
            )
        for name in ("label", "clean_pred", "clean_confidence", "target", "unit"):
            first = getattr(clean, name)[index]
            differs = (column[name] != np.ma.getdata(first)) & (
                present[name] | ~np.ma.getmaskarray(first)
            )
            rules[f"the row has another {name} than the first check"] = differs
    rules[
        "the row's outcome contradicts its other values, or the manifest's reasons of failures"
    ] = outcome != np.where(failed, str(Outcome.FAILED), expected)
    yield from (
        Violation(location, description, ids[rows])
        for description, rows in rules.items()
        if rows.any()
    )
