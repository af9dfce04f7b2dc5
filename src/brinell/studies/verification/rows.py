"""Checks the rows of a run against labels, plan, stored arrays and each other, without querying the model.

What every reader checks is in `store.row_rules`. Which samples a stage attacks, and at which budget, follows from the first check
and from the rows of the stages before, and is compared. What came of an attack is for `claims` and `replay`.
"""

import numpy as np

from brinell.core.errors import RequestError
from brinell.core.record import CLEAN, Array, Outcome, Records, has_broken
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.state import State, spared_samples
from brinell.store.run import Run
from brinell.studies.verification.result import Notes


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

    def check(self) -> None:
        """Check all rows, stage by stage."""
        location, cell = f"{self.source.name} {CLEAN}", clean_cell(self.plan, self.source)
        if not self.run.has_part(cell):
            self._notes.note(location, "its records are missing, or belong to another request, data or model")
            return
        clean = self._load(cell, location)
        if clean is None or not self._check_clean(location, clean):
            return
        state = State.from_clean(clean, self.plan.levels, targeted=self.plan.targeting is not None)
        for stage in self.plan.stages if len(self.plan.levels) else ():
            location = f"{self.source.name} {stage.name}"
            records = self._load(stage_cell(self.plan, self.source, stage), location)
            if records is None or not np.isin(records.sample_id, self.plan.ids).all():
                return
            self._check_stage(location, stage, state, records)
            state.update(records, self.plan.ids, self.plan.levels)

    def _load(self, cell: str, location: str) -> Records | None:
        """The rows of a cell; None, with a problem noted, if they cannot be read."""
        try:
            records = self.run.part(cell)
        except RequestError as error:
            self._notes.note(location, str(error))
            return None
        self.row_count += len(records)
        return records

    def _check_clean(self, location: str, records: Records) -> bool:
        """Check the clean rows; returns True if there is one row for each sample."""
        if records.sample_id.tolist() != self.plan.ids.tolist():
            self._notes.note(location, f"{len(records)} rows, not one for each of {len(self.plan.ids)} samples in order")
            return False
        forwards = np.where(records.outcome == Outcome.FAILED, 0, self.plan.eot)
        for description, wrong in (
            ("the row's label is not that of the data", records.label != self.plan.labels),
            ("the row's unit is not that of the sample's budgets", ~np.isclose(records.unit, self.plan.units, rtol=1e-9)),
            ("the row's cost is not that of a first check", records.forwards != forwards),
        ):
            self._notes.note(location, description, records.sample_id[wrong])
        return True

    def _check_stage(self, location: str, stage: Stage, state: State, records: Records) -> None:
        """Check the rows of a stage against the state before it, the costs of the plan, and the arrays."""
        plan, levels = self.plan, self.plan.levels
        index, broken = np.searchsorted(plan.ids, records.sample_id), has_broken(records)
        is_spared = records.outcome == Outcome.SPARED
        before = np.full(len(plan.ids), len(levels)) if stage.turn.alone else state.broken
        attacked = np.zeros(len(plan.ids), bool)
        attacked[index[~is_spared]] = True
        expected = state.correct & (before > 0) & ~self._exempt(stage, state, attacked)
        self._notes.note(
            location, "the stage attacked the sample, or not, other than the rows before it say", plan.ids[attacked != expected]
        )
        level = np.searchsorted(levels, np.ma.filled(records.attacked, 0))
        wrong = ~is_spared & (level != before[index] - 1)
        self._notes.note(
            location, "the stage attacked the sample at another budget than the rows before it say", records.sample_id[wrong]
        )

        forwards, backwards = plan.cost_once(self.source, stage)
        forwards += stage.eot * int(np.ceil(np.log2(len(levels) + 1)))
        lowest = np.searchsorted(levels, np.ma.filled(records.broken, 0))
        attacks = np.where(broken & (stage.attack.family != "minimal"), level - np.maximum(lowest - 1, 0) + 1, 1)
        excess = (records.forwards > attacks * forwards) | (records.backwards > attacks * backwards)
        description = f"an attack costs at most {forwards} forwards and {backwards} backwards on a sample"
        self._notes.note(location, description, records.sample_id[excess])
        self._check_arrays(location, stage, records.sample_id[broken], records.sample_id[~is_spared])

    def _exempt(self, stage: Stage, state: State, attacked: Array) -> Array:
        """(n,) bool: samples that the stage spares."""
        if stage.name in self.source.skipped:
            return np.ones(len(attacked), bool)
        if self.run.manifest.get("repairs", {}).get(self.source.name, {}).get("from_start"):
            return ~attacked  # by the lead of other scores than the recorded ones; the replay repeats it
        return spared_samples(self.plan, stage, state, waits=stage.waits and not attacked.any())

    def _check_arrays(self, location: str, stage: Stage, broken: Array, attacked: Array) -> None:
        """Check that inputs are stored for the broken samples alone, and other arrays for the attacked ones alone."""
        try:
            stored = self.run.stored(self.source.name, stage.name)
            extras = self.run.stored_extras(self.source.name, stage.name)
        except (RequestError, ValueError) as error:
            self._notes.note(location, str(error))
            return
        unexpected = sorted(stored - set(broken.tolist()))
        self._notes.note(location, "an adversarial input is stored, but no row says that the sample is broken", unexpected)
        legend = self.run.legend(self.source.name, stage.name)
        unexpected = sorted(extras - set(attacked.tolist())) if legend else sorted(extras)
        self._notes.note(
            location, "arrays of the sample are stored, but it was not attacked or nothing says what they mean", unexpected
        )
