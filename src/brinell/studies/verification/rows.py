"""Checks the rows of a run against labels, plan, stored arrays and each other, without querying the model.

What every reader checks is in `store.row_rules`. An attacked row records the outcome of an attack. All other rows follow from
these and from the first check, by `engine.state.implied_rows`, and are recomputed. A changed row therefore contradicts another
row, or it is an attacked row, whose content `claims` and `replay` test.
"""

from collections.abc import Callable

import numpy as np

from brinell.core.errors import RequestError
from brinell.core.record import CLEAN, Array, Outcome, Records, columns_of
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.state import State, implied_rows, spared_samples
from brinell.store.run import Run
from brinell.studies.verification.result import Notes

ATTACKED = np.array([str(outcome) for outcome in (Outcome.FOOLED, Outcome.FOOLED_BELOW, Outcome.SURVIVED)])
"""Outcomes of rows that an attack of the stage decided."""
NoteProblem = Callable[[str, Array], None]
"""Notes a problem of the rows that a mask (rows,) bool selects."""


class RowCheck:
    """Checks the rows of one model.

    Args:
        run: the run.
        plan: its plan, rebuilt from its request.
        source: the model.
        notes: collects problems.
    """

    def __init__(self, run: Run, plan: Plan, source: ModelSource, notes: Notes) -> None:
        self.run, self.plan, self.source, self._notes = run, plan, source, notes
        self.row_count = 0
        """Rows that were checked."""
        self.broken: Array | None = None
        """(n,) index of the smallest level at which any stage claims success; None if rows are missing."""

    def check(self) -> State | None:
        """Check all rows, stage by stage; returns the state after the clean predictions, or None if their rows are missing."""
        clean = self.load_part(clean_cell(self.plan, self.source), f"{self.source.name} {CLEAN}")
        if clean is None or not self._check_clean(f"{self.source.name} {CLEAN}", clean):
            return None
        initial = State.from_clean(clean, self.plan.levels, targeted=self.plan.targeting is not None)
        state = State.from_clean(clean, self.plan.levels, targeted=self.plan.targeting is not None)
        for stage in self.plan.stages if len(self.plan.levels) else ():
            location = f"{self.source.name} {stage.name}"
            records = self.load_part(stage_cell(self.plan, self.source, stage), location)
            if records is None or not self._check_grid(location, records):
                return initial
            self._check_stage(location, stage, state, clean, records)
            state.update([records], self.plan.ids, self.plan.levels)
        self.broken = state.broken
        return initial

    def load_part(self, key: str, location: str) -> Records | None:
        """All rows of a stage; None, with a problem noted, if they cannot be read."""
        if not self.run.has_part(key):
            self._notes.note(location, "its records are missing, or belong to another request, data or model")
            return None
        try:
            return self.run.part(key)
        except RequestError as error:
            self._notes.note(location, str(error))
            return None

    # The first check

    def _check_clean(self, location: str, records: Records) -> bool:
        """Check the clean rows; returns True if there is one row for each sample."""
        self.row_count += len(records)
        if records.sample_id.tolist() != self.plan.ids.tolist():
            self._notes.note(location, f"{len(records)} rows, not one for each of {len(self.plan.ids)} samples in order")
            return False
        forwards = np.where(records.outcome == Outcome.FAILED, 0, self.plan.eot)
        for description, wrong in (
            ("the row's label is not that of the data", records.label != self.plan.labels),
            ("the row's cost is not that of a first check", records.forwards != forwards),
        ):
            self._notes.note(location, description, records.sample_id[wrong])
        return True

    # Stages

    def _check_grid(self, location: str, records: Records) -> bool:
        """Check the radii; returns True if there is one row for each sample and budget."""
        self.row_count += len(records)
        units = self.plan.units[np.searchsorted(self.plan.ids, records.sample_id).clip(0, len(self.plan.ids) - 1)]
        wrong = records.sample_id[~np.isclose(records.radius, records.eps * units, rtol=1e-9)]
        self._notes.note(location, "the row's radius is not the budget of the sample", np.unique(wrong))
        expected = sorted((sample, eps) for sample in self.plan.ids.tolist() for eps in self.plan.levels.tolist())
        if sorted(zip(records.sample_id.tolist(), records.eps.tolist(), strict=True)) != expected:
            self._notes.note(
                location,
                f"{len(records)} rows, not one for each of {len(self.plan.ids)} samples x {len(self.plan.levels)} budgets",
            )
            return False
        return True

    def _check_stage(self, location: str, stage: Stage, state: State, clean: Records, records: Records) -> None:
        """Check the rows of a stage against the clean rows, the state before the stage, each other, costs and arrays."""
        plan, count = self.plan, len(self.plan.levels)
        order = np.lexsort((records.eps, records.sample_id))
        sample_index, level = np.repeat(np.arange(len(plan.ids)), count), np.tile(np.arange(count), len(plan.ids))
        ids = plan.ids[sample_index]

        def note(description: str, wrong: Array) -> None:
            """Note a problem with some samples."""
            self._notes.note(location, description, np.unique(ids[wrong]))

        outcome = records.outcome[order].astype(str)
        columns = {name: getattr(records, name)[order] for name in columns_of(records)}
        self._check_outcomes(note, stage, state, outcome, sample_index, level)
        self._check_costs(note, stage, outcome, columns)
        self._check_arrays(location, stage, ids[outcome == Outcome.FOOLED], ids[np.isin(outcome, ATTACKED)])

    def _check_outcomes(
        self, note: NoteProblem, stage: Stage, state: State, outcome: Array, sample_index: Array, level: Array
    ) -> None:
        """Check that attacked rows form a descent over the levels, and that all others follow from them."""
        plan, count = self.plan, len(self.plan.levels)
        broken_before = np.full(len(plan.ids), count) if stage.turn.alone else state.broken
        grid, attacked = outcome.reshape(-1, count), np.isin(outcome, ATTACKED)
        lowest = np.where(grid == Outcome.FOOLED, np.arange(count), count).min(1)
        broken = np.minimum(broken_before, lowest)
        failures = _sample_ids(self.run.manifest.get("failed", {}).get(self.source.name, {}).get(stage.name, {}))
        stopped = np.isin(plan.ids, failures)
        failed = np.where(grid == Outcome.FAILED, np.arange(count), -1).max(1)
        failed = np.where(stopped & (failed >= 0), failed, 0)
        attacked_samples = np.asarray(attacked.reshape(-1, count).any(1))
        if stage.name in self.source.skipped:
            exempt = None
        elif self.run.manifest.get("repairs", {}).get(self.source.name, {}).get("from_start"):
            exempt = ~attacked_samples  # by the lead of other scores than the recorded ones; the replay repeats it
        else:
            exempt = spared_samples(plan, stage, state, waits=stage.waits and not attacked_samples.any())
            exempt &= ~attacked_samples | ~np.full(len(attacked_samples), stage.waits)
        state_before = State(**(vars(state) | {"broken": broken_before}))
        implied = implied_rows(plan, self.source, stage, state_before, broken, exempt, failed)
        expected = np.full(len(outcome), "", dtype=object)
        expected[np.searchsorted(plan.ids, implied.sample_id) * count + np.searchsorted(plan.levels, implied.eps)] = (
            implied.outcome
        )
        # Rows that the attack decides: from the row below its lowest success up to the highest level that was open.
        open_rows = expected == ""
        highest = broken_before[sample_index] - 1
        required = np.where(level == lowest[sample_index] - 1, str(Outcome.SURVIVED), "")
        required = np.where((level == highest) & (lowest[sample_index] > highest), str(Outcome.SURVIVED), required)
        required = np.where(level == lowest[sample_index], str(Outcome.FOOLED), required)
        intermediate = (level > lowest[sample_index]) & (level <= highest)
        consistent = np.where(intermediate, np.isin(outcome, ATTACKED[:2]), outcome == required)
        recorded_failure = stopped[sample_index] & (outcome == Outcome.FAILED)
        note("the row contradicts the first check or the other rows", ~open_rows & (outcome != expected))
        note("the rows of the attack contradict each other", open_rows & ~consistent & ~recorded_failure)
        note(
            "the sample is recorded as failed, but the manifest gives no reason",
            (outcome == Outcome.FAILED) & ~recorded_failure & open_rows,
        )

    def _check_costs(self, note: NoteProblem, stage: Stage, outcome: Array, columns: dict[str, Array]) -> None:
        """Check that no row costs more than the plan allows."""
        if stage.name in self.source.skipped:
            return
        forwards, backwards = columns["forwards"], columns["backwards"]
        attacked = (outcome == Outcome.FOOLED) | (outcome == Outcome.SURVIVED)
        limits = self.plan.cost_once(self.source, stage)
        shrink_forwards = stage.eot * int(np.ceil(np.log2(len(self.plan.levels) + 1)))
        excess = (forwards > limits[0] + shrink_forwards) | (backwards > limits[1])
        note(
            f"an attack costs at most {limits[0] + shrink_forwards} forwards and {limits[1]} backwards on a sample",
            attacked & excess,
        )

    def _check_arrays(self, location: str, stage: Stage, fooled: Array, attacked: Array) -> None:
        """Check that inputs are stored for the fooled samples alone, and other arrays for the attacked ones alone."""
        try:
            stored = self.run.stored(self.source.name, stage.name)
            extras = self.run.stored_extras(self.source.name, stage.name)
        except (RequestError, ValueError) as error:
            self._notes.note(location, str(error))
            return
        unexpected = sorted(stored - set(fooled.tolist()))
        self._notes.note(location, "an adversarial input is stored, but no row is fooled", unexpected)
        legend = self.run.legend(self.source.name, stage.name)
        unexpected = sorted(extras - set(attacked.tolist())) if legend else sorted(extras)
        self._notes.note(
            location, "arrays of the sample are stored, but it was not attacked or nothing says what they mean", unexpected
        )


def _sample_ids(failures: dict[str, str]) -> Array:
    """(n,) samples of a mapping from sample to reason of failure."""
    return np.array([int(sample) for sample in failures], dtype=np.int64)
