"""The rows of a run against the data's labels, the plan, each other and the stored arrays. No model is asked.

An attacked row says what an attack did; all other rows follow from these and from the first check, by the rules of
`engine.state.implied`, and are made again. So a row that was changed must either contradict another, or be an attacked row whose
claim `against_model` and `rerun` test.
"""

from collections.abc import Callable

import numpy as np

from brinell.core.criterion import ROUNDING
from brinell.core.errors import RequestError
from brinell.core.record import CLEAN, Array, Outcome, Records, columns_of
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.state import State, implied, spared
from brinell.store.run import Run
from brinell.studies.verification.result import Notes

ATTACKED = np.array([str(one) for one in (Outcome.FOOLED, Outcome.FOOLED_BELOW, Outcome.SURVIVED)])
"""Outcomes of rows that a stage's attack settled."""
FOUND = ("adv_pred", "adv_confidence", "adv_margin", "linf", "l2", "l1", "l0", "quantised_pred", "queries_to_success")
"""Columns that only a fooled row has."""
Noting = Callable[[str, Array], None]
"""Notes what is wrong with the chosen rows (rows,) bool, if any."""
COSTS = ("forwards", "backwards", "judge_forwards")


class Rows:
    """The rows of one model.

    Args:
        run: the run.
        plan: its plan, made again.
        source: the model.
        notes: where problems go.
    """

    def __init__(self, run: Run, plan: Plan, source: ModelSource, notes: Notes) -> None:
        self.run, self.plan, self.source, self._notes = run, plan, source, notes
        self.checked = 0
        """Rows that were looked at."""
        self.broken: Array | None = None
        """(n,) index of the smallest level that any stage claims to have broken a sample at; None where rows are missing."""

    def check(self) -> State | None:
        """Look at all rows, stage by stage; returns what they say of the clean inputs, None where those are missing."""
        clean = self.part(clean_cell(self.plan, self.source), f"{self.source.name} {CLEAN}")
        if clean is None or not self._clean(f"{self.source.name} {CLEAN}", clean):
            return None
        begin = State.of(clean, self.plan.levels, targeted=self.plan.targeting is not None)
        state = State.of(clean, self.plan.levels, targeted=self.plan.targeting is not None)
        for stage in self.plan.stages if len(self.plan.levels) else ():
            where = f"{self.source.name} {stage.name}"
            records = self.part(stage_cell(self.plan, self.source, stage), where)
            if records is None or not self._whole(where, records):
                return begin
            self._stage(where, stage, state, clean, records)
            state.note([records], self.plan.ids, self.plan.levels)
        self.broken = state.broken
        return begin

    def part(self, key: str, where: str) -> Records | None:
        """All rows of a stage; None, with a problem noted, where they cannot be read."""
        if not self.run.has_part(key):
            self._notes.note(where, "its records are missing, or belong to another request, data or model")
            return None
        try:
            return self.run.part(key)
        except RequestError as error:
            self._notes.note(where, str(error))
            return None

    # The first check

    def _clean(self, where: str, records: Records) -> bool:
        """Whether there is one row for each sample; what else is wrong with them is noted."""
        self.checked += len(records)
        if records.sample_id.tolist() != self.plan.ids.tolist():
            self._notes.note(where, f"{len(records)} rows, not one for each of {len(self.plan.ids)} samples in order")
            return False
        failed = records.outcome == Outcome.FAILED
        told = self.run.manifest.get("failed", {}).get(self.source.name, {}).get(CLEAN, {})
        right = records.clean_pred == self.plan.labels
        expected = np.where(right, str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED))
        for what, wrong in (
            ("the row's label is not that of the data", records.label != self.plan.labels),
            ("the row's outcome is not what its class and label make", ~failed & (records.outcome != expected)),
            ("the sample counts as failed, and the manifest does not say why", failed & ~np.isin(records.sample_id, _ids(told))),
            ("the row is not one of the first check", self._foreign(records, CLEAN) | (records.eps != 0) | (records.radius != 0)),
            ("the row costs otherwise than a first check does", self._odd_costs(records, failed)),
        ):
            self._notes.note(where, what, records.sample_id[wrong])
        return True

    def _odd_costs(self, records: Records, failed: Array) -> Array:
        forwards = np.where(failed, 0, self.plan.eot)
        return np.asarray((records.forwards != forwards) | (records.backwards != 0) | (records.judge_forwards != 0))

    def _foreign(self, records: Records, attack: str) -> Array:
        other = (records.model != self.source.name) | (records.attack != attack)
        return np.asarray(other | (records.distance != self.plan.distance.name))

    # One stage

    def _whole(self, where: str, records: Records) -> bool:
        """Whether there is one row for each sample and budget, at the sample's own radius."""
        self.checked += len(records)
        units = self.plan.units[np.searchsorted(self.plan.ids, records.sample_id).clip(0, len(self.plan.ids) - 1)]
        other = records.sample_id[~np.isclose(records.radius, records.eps * units, rtol=1e-9)]
        self._notes.note(where, "the row's radius is not the budget that the sample was given", np.unique(other))
        expected = sorted((sample, eps) for sample in self.plan.ids.tolist() for eps in self.plan.levels.tolist())
        if sorted(zip(records.sample_id.tolist(), records.eps.tolist(), strict=True)) != expected:
            self._notes.note(
                where, f"{len(records)} rows, not one for each of {len(self.plan.ids)} samples x {len(self.plan.levels)} budgets"
            )
            return False
        return True

    def _stage(self, where: str, stage: Stage, state: State, clean: Records, records: Records) -> None:
        plan, count = self.plan, len(self.plan.levels)
        order = np.lexsort((records.eps, records.sample_id))
        at, level = np.repeat(np.arange(len(plan.ids)), count), np.tile(np.arange(count), len(plan.ids))
        ids = plan.ids[at]

        def note(what: str, wrong: Array) -> None:
            self._notes.note(where, what, np.unique(ids[wrong]))

        outcome = records.outcome[order].astype(str)
        columns = {name: getattr(records, name)[order] for name in columns_of(records)}
        note("the row belongs to another model, attack or distance", self._foreign(records, stage.name)[order])
        for name in ("label", "clean_pred", "clean_confidence", "target"):
            mine, first = columns[name], getattr(clean, name)[at]
            same = np.ma.getdata(mine) == np.ma.getdata(first)
            note(f"the row has another {name} than the first check", ~(same | (_null(mine) & _null(first))))
        self._settled(note, stage, state, outcome, at, level)
        said(note, plan.distance.name, stage.eot, plan.targeting is not None, outcome, columns)
        self._costs(note, stage, outcome, columns)
        self._arrays(where, stage, ids[outcome == Outcome.FOOLED])

    def _settled(self, note: Noting, stage: Stage, state: State, outcome: Array, at: Array, level: Array) -> None:
        """The rows that the attack settled form a descent; all others are what follows from them."""
        plan, count = self.plan, len(self.plan.levels)
        before = np.full(len(plan.ids), count) if stage.turn.alone else state.broken
        grid, attacked = outcome.reshape(-1, count), np.isin(outcome, ATTACKED)
        lowest = np.where(grid == Outcome.FOOLED, np.arange(count), count).min(1)
        broken = np.minimum(before, lowest)
        told = _ids(self.run.manifest.get("failed", {}).get(self.source.name, {}).get(stage.name, {}))
        stopped = np.isin(plan.ids, told)
        failed = np.where(grid == Outcome.FAILED, np.arange(count), -1).max(1)
        failed = np.where(stopped & (failed >= 0), failed, 0)
        fought = np.asarray(attacked.reshape(-1, count).any(1))
        if stage.name in self.source.skipped:
            away = None
        else:
            away = spared(plan, stage, state, waits=stage.waits and not fought.any())
            away &= ~fought | ~np.full(len(fought), stage.waits)
        seen = State(**(vars(state) | {"broken": before}))
        made = implied(plan, self.source, stage, seen, broken, away, failed)
        expected = np.full(len(outcome), "", dtype=object)
        expected[np.searchsorted(plan.ids, made.sample_id) * count + np.searchsorted(plan.levels, made.eps)] = made.outcome
        here = expected == ""  # what the attack has to settle: from its lowest success, or the row below, up to what was open
        highest = before[at] - 1
        row = np.where(level == lowest[at] - 1, str(Outcome.SURVIVED), "")
        row = np.where((level == highest) & (lowest[at] > highest), str(Outcome.SURVIVED), row)
        row = np.where(level == lowest[at], str(Outcome.FOOLED), row)
        between = (level > lowest[at]) & (level <= highest)
        right = np.where(between, np.isin(outcome, ATTACKED[:2]), outcome == row)
        stop = stopped[at] & (outcome == Outcome.FAILED)
        note("the row says otherwise than the first check and the other rows make", ~here & (outcome != expected))
        note("the rows of the attack do not follow from each other", here & ~right & ~stop)
        note("the sample counts as failed, and the manifest does not say why", (outcome == Outcome.FAILED) & ~stop & here)

    def _costs(self, note: Noting, stage: Stage, outcome: Array, columns: dict[str, Array]) -> None:
        """No row costs more than the plan allows."""
        if stage.name in self.source.skipped:
            return
        forwards, backwards = columns["forwards"], columns["backwards"]
        paid = (outcome == Outcome.FOOLED) | (outcome == Outcome.SURVIVED)
        most = self.plan.cost_once(self.source, stage)
        shrinking = stage.eot * int(np.ceil(np.log2(len(self.plan.levels) + 1)))
        over = (forwards > most[0] + shrinking) | (backwards > most[1])
        note(f"an attack costs at most {most[0] + shrinking} forwards and {most[1]} backwards on a sample", paid & over)

    def _arrays(self, where: str, stage: Stage, fooled: Array) -> None:
        """An adversarial input is stored exactly where a row says that one was found."""
        try:
            stored = self.run.stored(self.source.name, stage.name)
        except RequestError as error:
            self._notes.note(where, str(error))
            return
        more = sorted(stored - set(fooled.tolist()))
        self._notes.note(where, "an adversarial input is stored, and no row says that one was found", more)


def said(note: Noting, distance: str, eot: int, targeted: bool, outcome: Array, columns: dict[str, Array]) -> None:
    """What the rows of a stage say by themselves.

    Only a fooled one speaks of an adversarial input, which is wrong and within the budget; a robust one has not crossed the
    boundary; what was not attacked costs nothing.

    Args:
        note: notes what is wrong with the chosen rows.
        distance: norm of the budgets.
        eot: answers by whose mean the stage judges.
        targeted: whether there are target classes.
        outcome: (rows,) texts.
        columns: (rows,) each, by name.
    """
    fooled, survived = outcome == Outcome.FOOLED, outcome == Outcome.SURVIVED
    for name in FOUND:
        note(f"the row has no {name}, or one that it cannot have", _null(columns[name]) == fooled)
    size = np.ma.getdata(columns[distance]) if distance in columns else None
    if size is not None:
        slack = 1e-5 * columns["radius"] + 1e-6
        note(
            "the adversarial input is farther than the budget by the row's own word",
            fooled & (size > columns["radius"] + slack),
        )
    label, seen = columns["label"], np.ma.getdata(columns["adv_pred"])
    if eot == 1:  # the mean of a random model's answers may come out otherwise a second time
        wrong = seen == label if not targeted else seen != np.ma.getdata(columns["target"])
        note("the row's own class for the adversarial input is no success", fooled & wrong)
    margin = np.ma.getdata(columns["best_margin"])
    crossed = survived & ~_null(columns["best_margin"]) & (margin > ROUNDING * 1e3)
    note("the row says that the boundary was crossed, and calls the sample robust", crossed)
    forwards = columns["forwards"]
    paid = (outcome == Outcome.FOOLED) | (outcome == Outcome.SURVIVED)
    idle = ~paid & (outcome != Outcome.FAILED)
    note("the sample was not attacked, and the row has a cost", idle & np.any([columns[name] != 0 for name in COSTS], axis=0))
    fooled = outcome == Outcome.FOOLED
    queries = np.ma.getdata(columns["queries_to_success"])
    note("the first success came after the last query", fooled & ((queries > forwards) | (queries < 1)))
    free = (outcome == Outcome.SURVIVED) & _null(columns["best_margin"])
    note("an attack cannot cost nothing", paid & ~free & (forwards < 1))
    note("costs cannot be below 0", np.any([columns[name] < 0 for name in (*COSTS, "seconds")], axis=0))


def _null(column: Array) -> Array:
    return np.asarray(np.ma.getmaskarray(column))


def _ids(told: dict[str, str]) -> Array:
    return np.array([int(sample) for sample in told], dtype=np.int64)
