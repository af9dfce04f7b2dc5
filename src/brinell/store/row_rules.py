"""Rules that the rows of a run obey whatever its model and data are.

A run that breaks one is refused by every command alike.

The first check has one row for each sample, and a stage at most one. A row repeats what the row of
the first check says. A stage attacks only samples that were right and that no earlier stage broke
at the smallest budget. Outcomes follow from the other values; values lie within their types and
meanings.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from brinell.core.record import CLEAN, Array, Outcome, Records, columns_of, has_broken
from brinell.store import rows
from brinell.store.run_manifest import stages_of
from brinell.store.table import Violation

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


def find_violations(manifest: Mapping[str, Any], records: Records) -> Iterator[Violation]:
    """The rules that the rows of a run break."""
    parts = _parts_of(records)
    places = {place: number for number, place in enumerate(stages_of(manifest))}
    order = [places.get(place, -1) for place, _ in parts]
    if order != sorted({*order} - {-1}):
        description = "they are not of its models and stages, in this order"
        yield Violation("rows", description, np.zeros(0, np.int64))
        return

    by_place = dict(parts)
    no_rows = rows.take(records, slice(0))
    for model in manifest["models"]:
        clean = by_place.get((model["name"], CLEAN), no_rows)
        before = np.full(len(clean), np.inf)
        yield from _Part(manifest, model, {"name": CLEAN}, clean, clean, before).violations()

        for stage in manifest["stages"]:
            part = by_place.get((model["name"], stage["name"]), no_rows)
            violations = list(_Part(manifest, model, stage, part, clean, before).violations())
            yield from violations
            if not violations:
                index = np.searchsorted(clean.sample_id, part.sample_id)
                before[index] = np.minimum(before[index], np.ma.filled(part.broken, np.inf))


def _parts_of(records: Records) -> list[tuple[tuple[str, str], Records]]:
    """Consecutive rows of a model and a stage, with the names of both."""
    changes = records.model[1:] != records.model[:-1]
    changes |= records.attack[1:] != records.attack[:-1]
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()] if len(records) else []
    ends = [*starts[1:], len(records)]
    return [
        ((records.model[start], records.attack[start]), rows.take(records, slice(start, end)))
        for start, end in zip(starts, ends, strict=False)
    ]


class _Part:
    """The rows of a model and a stage, with what its rules speak of.

    Args:
        manifest: the manifest of the run.
        model: the model, as the manifest has it.
        stage: the stage, likewise.
        part: the rows of the stage.
        clean: the rows of the first check, samples ascending.
        before: (n,) the smallest budgets broken by the stages before, for the samples of `clean`.
    """

    def __init__(
        self,
        manifest: Mapping[str, Any],
        model: Mapping[str, Any],
        stage: Mapping[str, Any],
        part: Records,
        clean: Records,
        before: Array,
    ) -> None:
        self.manifest, self.model, self.stage = manifest, model, stage
        self.clean, self.before = clean, before
        self.criterion: Mapping[str, Any] = manifest.get("criterion", {})
        self.is_targeted = self.criterion.get("name") == "targeted"

        self.ids = part.sample_id
        self.column = {name: np.ma.getdata(getattr(part, name)) for name in columns_of(part)}
        self.present = {name: ~np.ma.getmaskarray(getattr(part, name)) for name in self.column}
        reasons = manifest.get("failed", {}).get(model["name"], {}).get(str(stage["name"]), {})
        self.failed = np.isin(self.ids, sorted(map(int, reasons)))
        self.broken = has_broken(part)

    def violations(self) -> Iterator[Violation]:
        """The rules that these rows break, each with the samples of the rows."""
        location = f"{self.model['name']} {self.stage['name']}"
        is_whole = self.stage["name"] != CLEAN or len(self.ids) == self.manifest["data"]["n"]
        is_ascending = bool((np.diff(self.ids) > 0).all())
        if not is_whole or not is_ascending or not np.isin(self.ids, self.clean.sample_id).all():
            description = "the rows are not one for each sample of the run, ascending"
            yield Violation(location, description, np.zeros(0, np.int64))
            return

        rules = self._rules_of_all()
        if self.stage["name"] == CLEAN:
            rules |= self._rules_of_check()
            outcome = self._outcome_of_check()
        else:
            rules |= self._rules_of_attack()
            rules |= self._rules_of_repetition()
            outcome = np.where(self.broken, str(Outcome.BROKEN), str(Outcome.SURVIVED))
            outcome = np.where(self.present["attacked"], outcome, str(Outcome.SPARED))
        expected = np.where(self.failed, str(Outcome.FAILED), outcome)
        rules[
            "the row's outcome contradicts its other values, or the manifest's reasons of failures"
        ] = self.column["outcome"].astype(str) != expected
        for description, breaks in rules.items():
            if breaks.any():
                yield Violation(location, description, self.ids[breaks])

    def _rules_of_all(self) -> dict[str, Array]:
        """Rules of the rows of any stage, by description: (n,) bool, the rows that break each."""
        column, present = self.column, self.present
        is_other = column["distance"] != self.manifest["distance"]
        is_negative = [present[name] & (column[name] < 0) for name in SIZES]
        is_refund = [column[name] < 0 for name in (*COSTS, "seconds")]
        rules = {
            "the row belongs to another distance": is_other,
            "the row has a target class, or lacks one": ~self.failed
            & (present["target"] != self.is_targeted),
            "a size is negative": np.any(is_negative, axis=0),
            "a cost is negative": np.any(is_refund, axis=0),
        }

        for name in ("label", "target", "clean_pred", "adv_pred", "quantised_pred"):
            least = np.where(self.failed, -1, 0) if name == "clean_pred" else 0
            is_class = (column[name] >= least) & (column[name] < self.model["classes"])
            rules[f"the row's {name} is no class of the model"] = present[name] & ~is_class
        for name in ("clean_confidence", "adv_confidence"):
            is_share = (column[name] >= 0) & (column[name] <= 1 + 1e-6)
            rules[f"the row's {name} is no probability"] = present[name] & ~is_share
        for name in ("adv_margin", "margin", *SIZES, "seconds", "unit"):
            rules[f"the row's {name} is not finite"] = present[name] & ~np.isfinite(column[name])
        for name in SUCCESS_COLUMNS:
            rules[f"the row lacks {name}, or has it though no attack succeeded"] = (
                present[name] != self.broken
            )
        return rules

    def _outcome_of_check(self) -> Array:
        """(n,) the outcomes that follow from the margins or the classes of the first check."""
        if "text" in self.criterion:
            is_met = self.column["margin"] > 0
            return np.where(is_met, str(Outcome.MET), str(Outcome.UNMET))
        is_right = self.column["clean_pred"] == self.column["label"]
        return np.where(is_right, str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED))

    def _rules_of_check(self) -> dict[str, Array]:
        """Rules of the rows of the first check."""
        column, present = self.column, self.present
        answered = (column["clean_pred"] != -1) | (column["clean_confidence"] != 0)
        of_class = column["label"] == self.criterion.get("wrong_class")
        costs = np.any([column[name] != 0 for name in COSTS[1:]], axis=0)
        attacked = self.broken | present["attacked"] | present["queries_to_success"] | costs
        return {
            "the row has an answer of a model that failed": self.failed & answered,
            "the row's margin is that of a failed sample, or is missing": present["margin"]
            == self.failed,
            "the row has the result or the cost of an attack": attacked,
            "the sample is of the class of the criterion": ("text" in self.criterion) & of_class,
        }

    def _rules_of_attack(self) -> dict[str, Array]:
        """Rules about what an attack did to the sample of a row."""
        column, present, broken = self.column, self.present, self.broken
        attacked = present["attacked"]
        attacked_at = np.where(attacked, column["attacked"], np.inf)
        broken_at = np.where(broken, column["broken"], np.inf)
        levels = [eps for eps in self.manifest["eps"] if eps > 0]
        is_single = self.stage.get("eot", 1) == 1
        is_wrong = column["adv_pred"] != column["label"]
        if self.is_targeted:
            is_wrong = column["adv_pred"] == column["target"]
        has_margin = not self.is_targeted and self.model.get("reject_class") is None
        has_class = self.criterion.get("wrong_class") is None
        has_cost = np.any([column[name] != 0 for name in COSTS], axis=0)
        queries = column["queries_to_success"]
        is_outside = (queries > column["forwards"]) | (queries < 1) | ~broken

        rules = {
            "the row's attacked is no budget of the run": attacked & ~np.isin(attacked_at, levels),
            "the row's broken is no budget of the run": broken & ~np.isin(broken_at, levels),
            "the sample is broken at a budget above that of its attack": broken
            & (broken_at > attacked_at),
            "the row's class for the adversarial input is no success": broken
            & ~is_wrong
            & (is_single and has_class),
            "the row's margin for the adversarial input is no success": broken
            & (column["adv_margin"] < 0)
            & (is_single and has_margin),
            "the row states a crossed boundary, but a robust sample": ~broken
            & present["margin"]
            & (column["margin"] > 0),
            "the row has a margin or a cost, although nothing was attacked": ~attacked
            & (present["margin"] | has_cost),
            "the row states an attack without a cost": attacked
            & ~self.failed
            & (column["forwards"] < 1),
            "the row states a first success outside its queries": present["queries_to_success"]
            & is_outside,
        }
        if self.manifest["distance"] in SIZES:
            limit = np.where(broken, broken_at, 0.0) * column["unit"] * (1 + 1e-5) + 1e-6
            rules["the row states a perturbation larger than its budget"] = broken & (
                column[self.manifest["distance"]] > limit
            )
        return rules

    def _rules_of_repetition(self) -> dict[str, Array]:
        """Rules about the rows of the same samples in the first check and in earlier stages."""
        index = np.searchsorted(self.clean.sample_id, self.ids)
        outcome = self.clean.outcome[index].astype(str)
        was_open = np.isin(outcome, [str(Outcome.CORRECT), str(Outcome.UNMET)])
        is_alone = bool(self.stage.get("turn", {}).get("alone"))
        attacked = self.present["attacked"]
        attacked_at = np.where(attacked, self.column["attacked"], np.inf)
        rules = {
            "the sample was wrong or failed in the first check, and is not attacked": ~was_open,
            "an earlier attack broke the sample at this or a smaller budget": attacked
            & (self.before[index] <= attacked_at)
            & (not is_alone),
        }

        for name in ("label", "clean_pred", "clean_confidence", "target", "unit"):
            first = getattr(self.clean, name)[index]
            is_stated = self.present[name] | ~np.ma.getmaskarray(first)
            differs = (self.column[name] != np.ma.getdata(first)) & is_stated
            rules[f"the row has another {name} than the first check"] = differs
        return rules
