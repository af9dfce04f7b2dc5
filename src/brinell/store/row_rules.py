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

from brinell.core.record import Array, Outcome, Records, columns_of, has_broken
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
    rows = _Rows(manifest, records)
    disorders = list(rows.find_disorders())
    yield from disorders
    # Rules compare rows with others by their order: without it they would mean nothing.
    rules = {} if disorders else rows.rules()
    # By model and stage, and for each only the rules that any row breaks.
    broken_rules = {text: breaks for text, breaks in rules.items() if breaks.any()}
    for place in np.unique(rows.place) if broken_rules else ():
        for description, breaks in broken_rules.items():
            samples = rows.ids[breaks & (rows.place == place)]
            if len(samples):
                yield Violation(" ".join(rows.places[place]), description, samples)


class _Rows:
    """The rows of a run, with what its rules speak of. A rule is (rows,) bool: where it is broken.

    Args:
        manifest: the manifest of the run.
        records: its rows.
    """

    def __init__(self, manifest: Mapping[str, Any], records: Records) -> None:
        self.manifest, self.ids = manifest, records.sample_id
        self.criterion: Mapping[str, Any] = manifest.get("criterion", {})
        self.is_targeted = self.criterion.get("name") == "targeted"
        self.column = {name: np.ma.getdata(getattr(records, name)) for name in columns_of(records)}
        self.present = {name: ~np.ma.getmaskarray(getattr(records, name)) for name in self.column}
        self.broken = has_broken(records)

        self.places = stages_of(manifest)
        numbers = {place: number for number, place in enumerate(self.places)}
        names = zip(records.model, records.attack, strict=True)
        self.place = np.array([numbers.get(name, -1) for name in names], np.int64)
        """(rows,) model and stage, as their number in the order of the manifest; -1 for others."""
        self.model, self.stage = np.divmod(self.place, 1 + len(manifest["stages"]))
        """(rows,) each by its number; stage 0 is the first check."""
        self.failed = np.zeros(len(records), bool)
        self.first = np.zeros(len(records), np.int64)
        """(rows,) index of the row of the same sample in the first check of the model."""
        self.broken_before = np.full(len(records), np.inf)
        """(rows,) smallest budget at which an earlier stage broke the sample."""

    def find_disorders(self) -> Iterator[Violation]:
        """Rows that are not of models and stages in their order, and stages whose rows are not one for
        each sample; for the others find what the first check, earlier stages and the manifest say of
        the samples.
        """
        if (self.place < 0).any() or (np.diff(self.place) < 0).any():
            description = "they are not of its models and stages, in this order"
            yield Violation("rows", description, np.zeros(0, np.int64))
            return

        broken = np.where(self.broken, self.column["broken"], np.inf)
        smallest = np.full(len(self.ids), np.inf)
        for place, (model, stage) in enumerate(self.places):
            # The first check of a model is where its samples are listed; stages may have fewer.
            # Each model has the first check and all stages, so its check is at a multiple.
            check = place - place % (1 + len(self.manifest["stages"]))
            start, end = np.searchsorted(self.place, [check, check + 1])
            rows = self.place == place
            ids = self.ids[rows]
            is_whole = place != check or len(ids) == self.manifest["data"]["n"]
            is_ascending = bool((np.diff(ids) > 0).all())
            if not is_whole or not is_ascending or not np.isin(ids, self.ids[start:end]).all():
                description = "the rows are not one for each sample of the run, ascending"
                yield Violation(f"{model} {stage}", description, np.zeros(0, np.int64))
                continue

            reasons = self.manifest.get("failed", {}).get(model, {}).get(stage, {})
            self.failed[rows] = np.isin(ids, sorted(map(int, reasons)))
            first = start + np.searchsorted(self.ids[start:end], ids)
            self.first[rows] = first
            # In the order of the stages: each is compared with the smallest budget of those before
            # it.
            self.broken_before[rows] = smallest[first]
            smallest[first] = np.minimum(smallest[first], broken[rows])

    def rules(self) -> dict[str, Array]:
        """All rules, by description."""
        is_check = self.stage == 0
        is_right = self.column["clean_pred"] == self.column["label"]
        # With a criterion of probability the margin decides, and the class does not.
        check = np.where(is_right, str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED))
        if "text" in self.criterion:
            check = np.where(self.column["margin"] > 0, str(Outcome.MET), str(Outcome.UNMET))
        attack = np.where(self.broken, str(Outcome.BROKEN), str(Outcome.SURVIVED))
        attack = np.where(self.present["attacked"], attack, str(Outcome.SPARED))
        outcome = np.where(self.failed, str(Outcome.FAILED), np.where(is_check, check, attack))

        of_attacks = self._rules_of_attack() | self._rules_of_repetition()
        return {
            **self._rules_of_all(),
            **{text: breaks & is_check for text, breaks in self._rules_of_check().items()},
            **{text: breaks & ~is_check for text, breaks in of_attacks.items()},
            "the row's outcome contradicts its other values, or the manifest's reasons of "
            "failures": self.column["outcome"].astype(str) != outcome,
        }

    def _rules_of_all(self) -> dict[str, Array]:
        """Rules of the rows of any stage."""
        column, present = self.column, self.present
        classes = np.array([model["classes"] for model in self.manifest["models"]])[self.model]
        is_negative = [present[name] & (column[name] < 0) for name in SIZES]
        is_refund = [column[name] < 0 for name in (*COSTS, "seconds")]
        # A model that failed on a sample has no class there, which is no error of the row.
        has_no_answer = self.failed & (column["clean_pred"] == -1)
        answers = {name: column[name] for name in ("label", "target", "adv_pred", "quantised_pred")}
        answers["clean_pred"] = np.where(has_no_answer, 0, column["clean_pred"])
        shares = {name: column[name] for name in ("clean_confidence", "adv_confidence")}
        finite = ("adv_margin", "margin", *SIZES, "seconds", "unit")
        return {
            "the row belongs to another distance": column["distance"] != self.manifest["distance"],
            "the row has a target class, or lacks one": ~self.failed
            & (present["target"] != self.is_targeted),
            "a size is negative": np.any(is_negative, axis=0),
            "a cost is negative": np.any(is_refund, axis=0),
            **{
                f"the row's {name} is no class of the model": present[name]
                & ((values < 0) | (values >= classes))
                for name, values in answers.items()
            },
            **{
                f"the row's {name} is no probability": present[name]
                & ~((values >= 0) & (values <= 1 + 1e-6))
                for name, values in shares.items()
            },
            **{
                f"the row's {name} is not finite": present[name] & ~np.isfinite(column[name])
                for name in finite
            },
            **{
                f"the row lacks {name}, or has it though no attack succeeded": present[name]
                != self.broken
                for name in SUCCESS_COLUMNS
            },
        }

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
        # Infinite where nothing was attacked or broken, so that comparisons hold without
        # exceptions.
        column, present, broken = self.column, self.present, self.broken
        attacked = present["attacked"]
        attacked_at = np.where(attacked, column["attacked"], np.inf)
        broken_at = np.where(broken, column["broken"], np.inf)
        levels = [eps for eps in self.manifest["eps"] if eps > 0]
        stages = [{}, *self.manifest["stages"]]  # stage 0 is the first check, without settings
        # The mean of several answers is not the answer that a row states.
        is_single = np.array([stage.get("eot", 1) == 1 for stage in stages])[self.stage]
        is_right = column["adv_pred"] == column["label"]
        is_target = column["adv_pred"] == column["target"]
        rejects = [model.get("reject_class") is not None for model in self.manifest["models"]]
        # A reject class, or a target, makes the sign of a margin say less than success.
        has_margin = ~np.array(rejects)[self.model] & (not self.is_targeted)
        has_class = self.criterion.get("wrong_class") is None
        has_cost = np.any([column[name] != 0 for name in COSTS], axis=0)
        queries = column["queries_to_success"]
        is_outside = (queries > column["forwards"]) | (queries < 1) | ~broken
        # Distances are stored in float32, which rounds; budgets are multiples of the sample's unit.
        limit = np.where(broken, broken_at, 0.0) * column["unit"] * (1 + 1e-5) + 1e-6
        distance = self.manifest["distance"]
        size = column[distance] if distance in SIZES else 0.0
        return {
            "the row's attacked is no budget of the run": attacked & ~np.isin(attacked_at, levels),
            "the row's broken is no budget of the run": broken & ~np.isin(broken_at, levels),
            "the sample is broken at a budget above that of its attack": broken
            & (broken_at > attacked_at),
            "the row's class for the adversarial input is no success": broken
            & (~is_target if self.is_targeted else is_right)
            & is_single
            & has_class,
            "the row's margin for the adversarial input is no success": broken
            & (column["adv_margin"] < 0)
            & is_single
            & has_margin,
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
            "the row states a perturbation larger than its budget": broken & (size > limit),
        }

    def _rules_of_repetition(self) -> dict[str, Array]:
        """Rules about what a stage's rows may repeat: samples that were right in the first check and
        not broken since, with the same labels and clean answers.
        """
        # Indexed by `first`, a column has for each row the value of its sample's first check.
        column, present, first = self.column, self.present, self.first
        was_open = np.isin(
            column["outcome"][first].astype(str), [str(Outcome.CORRECT), str(Outcome.UNMET)]
        )
        turns = [{}, *(stage.get("turn", {}) for stage in self.manifest["stages"])]
        is_alone = np.array([bool(turn.get("alone")) for turn in turns])[self.stage]
        attacked_at = np.where(present["attacked"], column["attacked"], np.inf)
        return {
            # A cascade attacks what is left: who was wrong or broken before is not attacked again.
            # A stage that runs alone attacks every sample, as if none had run before it.
            "the sample was wrong or failed in the first check, and is not attacked": ~was_open,
            "an earlier attack broke the sample at this or a smaller budget": present["attacked"]
            & (self.broken_before <= attacked_at)
            & ~is_alone,
            **{
                f"the row has another {name} than the first check": (
                    column[name] != column[name][first]
                )
                & (present[name] | present[name][first])
                for name in ("label", "clean_pred", "clean_confidence", "target", "unit")
            },
        }
