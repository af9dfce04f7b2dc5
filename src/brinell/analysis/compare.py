"""Models of runs on common samples and budgets, and pairs of them: which is robust where."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.curve import RIGHT, WRONG, Array, eps_index, grid, ran, worst_case
from brinell.analysis.families import joint_p_values
from brinell.analysis.inference import holm
from brinell.analysis.judgements import joint_interval
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.results import ClassComparison, CompareResult, PairedRate
from brinell.analysis.robust_accuracy import class_name, class_names, criterion
from brinell.core.errors import RequestError, option
from brinell.core.record import Records
from brinell.store.run import Run


@dataclass(frozen=True, kw_only=True)
class Side:
    """A model of a run folder, ready to be compared."""

    run: str
    manifest: Mapping[str, Any]
    records: Records
    model: str


def side(
    folder: Path, model: str | None, *, thresholds: bool = False, falls_back: bool = False
) -> Side:
    """One model of a run; of several one must be named.

    Args:
        folder: the run.
        model: the name of the model.
        thresholds: that of `Run.open`.
        falls_back: whether a name that the run does not hold counts as none.
    """
    run = Run.open(folder, thresholds=thresholds)

    names = [entry["name"] for entry in run.manifest["models"]]
    if falls_back and model not in names:
        model = None
    if model is None and len(names) > 1:
        raise RequestError(f"{folder} holds several models: name one of {', '.join(names)}")
    if model is not None and model not in names:
        raise RequestError(f"{folder} holds no model {model!r}, only {', '.join(names)}")
    return Side(run=str(folder), manifest=run.manifest, records=run.rows, model=model or names[0])


@dataclass(frozen=True, kw_only=True)
class Common:
    """Models on the samples that were judged on each of them at every common budget."""

    sides: Sequence[Side]
    labels: Array
    """(samples,)."""
    eps: Array
    """(budgets,) that all runs have, ascending."""
    texts: list[str]
    """The budgets as they were asked."""
    states: Array
    """(models, samples, 1 + budgets) RIGHT or WRONG, on clean inputs and in the worst case at
    each budget."""
    notes: list[str]
    """What is left out, and what else limits the comparison."""

    def pair(
        self, first: int, second: int, members: Array | slice = slice(None)
    ) -> list[PairedRate]:
        """Two of the models on some of the samples: on clean inputs, and at each budget."""
        a = self.states[first, members]
        b = self.states[second, members]
        budgets = (0.0, *self.eps.tolist())
        return [paired(a[:, index], b[:, index], eps) for index, eps in enumerate(budgets)]

    def joint_p_values(self, first: int, second: int) -> Array:
        """(1 + budgets,) p-values of two of the models, corrected for all comparisons together."""
        right = (self.states == RIGHT).astype(np.int8)
        return joint_p_values(right[first] - right[second])


def align(sides: Sequence[Side]) -> Common:
    """Several models on their common samples and budgets."""
    _check_fit(sides)
    eps = reduce(
        lambda common, budgets: common[eps_index(budgets, common) >= 0],
        [np.asarray(side.manifest["eps"], dtype=np.float64) for side in sides],
    )

    if not (eps > 0).any():
        raise RequestError(
            f"the runs share no eps above 0: audit all models with the same {option('eps')}"
        )
    # An attack that cannot run on a model takes no part in its worst case.
    cells = [grid(side.records, side.manifest, side.model) for side in sides]
    counted = [ran(of_model) for of_model in cells]
    states = []
    ids_by_model = []
    for of_model, stages in zip(cells, counted, strict=True):
        attacked = worst_case(of_model, stages)[:, eps_index(of_model.eps, eps)]
        rows = np.column_stack([of_model.clean, attacked])
        states.append(rows)
        ids_by_model.append(of_model.ids[(rows <= RIGHT).all(1)])
    # Samples that are RIGHT or WRONG everywhere, on every model.
    ids = reduce(np.intersect1d, ids_by_model)
    if not len(ids):
        raise RequestError(
            "no sample was judged on every model: audit all on the same samples, "
            "with an attack that applies to each"
        )

    rows_of_common = [
        rows[np.searchsorted(of_model.ids, ids)]
        for of_model, rows in zip(cells, states, strict=True)
    ]
    texts = dict(zip(sides[0].manifest["eps"], sides[0].manifest["eps_text"], strict=True))
    return Common(
        sides=sides,
        labels=cells[0].labels[np.searchsorted(cells[0].ids, ids)],
        eps=eps,
        texts=[str(texts[budget]) for budget in eps.tolist()],
        states=np.stack(rows_of_common),
        notes=[*_left_out(sides, len(ids), len(eps)), *_differing_attacks(sides, counted)],
    )


FIT: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "data (by their digest)": lambda run: run["data"]["digest"],
    "distance": lambda run: run["distance"],
    "criterion": criterion,
    "budgets by sample": lambda run: (run.get("recommended") or {}).get("digest", "none"),
}
"""Entries of manifests that runs must have in common, with the function that reads each."""


def _check_fit(sides: Sequence[Side]) -> None:
    """Refuse runs that differ in what they must have in common."""
    first = sides[0]
    for side in sides[1:]:
        for subject, read in FIT.items():
            expected = read(first.manifest)
            value = read(side.manifest)
            if value != expected:
                raise RequestError(
                    f"{first.run} and {side.run} differ in their {subject}, "
                    f"{expected} and {value}: audit all models on the "
                    "same data, in the same way"
                )


def _left_out(sides: Sequence[Side], samples: int, budgets: int) -> list[str]:
    """Notes on the samples and budgets that are not common."""
    notes = []
    for side in sides:
        # Samples that were judged on one side only are left out of pairs, so their number is said.
        n = len(np.unique(side.records.sample_id[side.records.model == side.model]))
        if n > samples:
            notes.append(
                f"{n - samples} of the {n} samples of {side.model} in {side.run} "
                "were not judged on every model and are left out"
            )
        if len(side.manifest["eps"]) > budgets:
            notes.append(
                f"{len(side.manifest['eps']) - budgets} of the budgets of {side.run} are left out"
            )

    # Two sides of one run say the same.
    return list(dict.fromkeys(notes))


def _differing_attacks(sides: Sequence[Side], counted: Sequence[Sequence[int]]) -> list[str]:
    """A note where the models were attacked differently."""
    ways = {}
    for side, positions in zip(sides, counted, strict=True):
        stages = [side.manifest["stages"][position] for position in positions]
        settings = tuple(
            (str(stage["name"]), repr(sorted(stage.get("settings", {}).items())))
            for stage in stages
        )
        # Attacks of other settings are other attacks.
        ways[settings] = ", ".join(name for name, _ in settings)

    if len(ways) < 2:
        return []
    return [
        f"the models were attacked differently ({'; '.join(ways.values())}): a "
        "difference may be one of the attacks"
    ]


def compare(a: Side, b: Side) -> CompareResult:
    """Two models on the samples and budgets that both have; errors as in `align`."""
    return pair(align([a, b]), 0, 1)


def pair(common: Common, first: int, second: int) -> CompareResult:
    """Two of several models: counts at each budget with the difference A - B, and per class."""
    names = class_names(common.sides[first].manifest)
    rates = common.pair(first, second)
    joint = common.joint_p_values(first, second).tolist()
    corrected = [
        rate.model_copy(update={"p_joint": p}) for rate, p in zip(rates, joint, strict=True)
    ]
    clean = corrected[0]
    robust = corrected[1:]

    classes = {
        label: common.pair(first, second, common.labels == label)
        for label in np.unique(common.labels).tolist()
    }
    # The classes are one family of comparisons.
    class_p_values = holm([rates_of_class[0].p for rates_of_class in classes.values()])
    per_class = [
        ClassComparison(
            class_=label,
            name=class_name(names, label),
            n=rates_of_class[0].n,
            clean=rates_of_class[0],
            p_clean=p,
            robust=rates_of_class[1:],
        )
        for (label, rates_of_class), p in zip(classes.items(), class_p_values, strict=True)
    ]
    return CompareResult(
        a=common.sides[first].model,
        b=common.sides[second].model,
        n=len(common.labels),
        clean=clean,
        robust=robust,
        per_class=per_class,
        notes=common.notes,
    )


def paired(a: Array, b: Array, eps: float) -> PairedRate:
    """Paired rates of two models on the same samples, at least one of which is judged on both.

    Those samples count that are RIGHT or WRONG on both.
    """

    def count(state_of_a: int, state_of_b: int) -> int:
        return int(((a == state_of_a) & (b == state_of_b)).sum())

    both_robust = count(RIGHT, RIGHT)
    only_a = count(RIGHT, WRONG)
    only_b = count(WRONG, RIGHT)
    neither = count(WRONG, WRONG)
    # Samples that are not judged on one of the sides are in none of the four.
    n = both_robust + only_a + only_b + neither
    interval = paired_difference(both_robust, only_a, only_b, neither)
    assert interval is not None, "there is a sample"
    return PairedRate(
        eps=eps,
        both_robust=both_robust,
        only_a=only_a,
        only_b=only_b,
        neither=neither,
        n=n,
        value_a=(both_robust + only_a) / n,
        value_b=(both_robust + only_b) / n,
        difference=(only_a - only_b) / n,
        low=interval.low,
        high=interval.high,
        p=mcnemar(only_a, only_b),
    )


def simultaneous(pairs: Sequence[PairedRate]) -> list[PairedRate]:
    """Pairs that are read together: corrected p-values (Holm) and joint intervals (Bonferroni)."""
    together = []
    for pair, p in zip(pairs, holm([pair.p for pair in pairs]), strict=True):
        low, high = joint_interval(pair, p, len(pairs))
        together.append(pair.model_copy(update={"p": p, "low": low, "high": high}))
    return together
