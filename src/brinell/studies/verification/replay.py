"""Replays a finished audit on samples that the verifier draws: every check anew, and every stage on the drawn samples.

Stored files cannot prove that an attack failed, what it cost, or how near it came. So the whole audit of a model is repeated from
its request. What depends on all samples (checks, alarms, conditions of waiting stages, repairs, warnings) is derived again from
the model and from the recorded rows of all samples. The attacks themselves run on the drawn samples alone, with the same random
streams, and each of their rows is compared. By induction over the stages, a run whose rows all agree is the run of its request.

An answer to a batch depends on the size of the batch by rounding, and some attacks amplify that until a path splits. So where a
row of a stage comes out differently, the stage runs once more in the company that it had, on all of its samples.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.model import Model
from brinell.core.record import Array, Outcome, Records
from brinell.engine.audit import ACCUMULATED_KEYS
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.engine import ModelAudit
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.engine.stage_run import AttackRun
from brinell.engine.state import State
from brinell.store import rows
from brinell.store.run import NO_ROWS, Run
from brinell.studies.verification.comparison import compare_rows

DERIVED_KEYS = (*ACCUMULATED_KEYS, "repairs")
"""Keys of the manifest, by model, that an audit fills while it runs."""


class Draft(Run):
    """A finished run whose rows stay in its files, with a manifest that is filled again in memory and never written.

    The failed samples stay, because `Claims` tries each of them again.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run.path, {**run.manifest, **{key: {} for key in DERIVED_KEYS if key != "failed"}})
        self.gallery: dict[str, Mapping[int, Array]] = {}
        """Clean inputs that the audit would have kept, by cell and sample."""

    def save_manifest(self) -> None:
        """Write nothing."""

    def drop_groups(self, cell: str) -> None:
        """Delete nothing."""

    def save_clean(self, cell: str, arrays: Mapping[int, Array]) -> None:
        """Keep the clean inputs that the run should have written."""
        self.gallery[cell] = arrays


class Scratch(Run):
    """A folder for the rows of replayed stages, in place of the run's."""

    def __init__(self, path: Path, run: Run) -> None:
        super().__init__(path, {**run.manifest, **{key: {} for key in DERIVED_KEYS}, "state": "running", "files": {}})

    def save_manifest(self) -> None:
        """Write nothing: only rows and arrays are read again."""


class ReplayedAudit(ModelAudit):
    """The audit of one model over the recorded rows, in which each stage also runs on the drawn samples.

    Args:
        run: the recorded run.
        plan: its plan, rebuilt from its request.
        source: the model.
        model: the model, opened.
        progress: reports progress.
        surrogates: the networks whose gradients some stages follow.
        drawn: (n,) bool: samples to attack again.
        folder: a folder for the new rows.
    """

    def __init__(
        self,
        run: Run,
        plan: Plan,
        source: ModelSource,
        model: Model,
        progress: Progress,
        surrogates: tuple[Model, ...],
        drawn: Array,
        folder: Path,
    ) -> None:
        self.draft = Draft(run)
        super().__init__(plan, source, model, self.draft, progress, surrogates)
        self.scratches = Scratch(folder / "drawn", run), Scratch(folder / "all", run)
        self._again = [
            AuditedModel(plan, source, model, scratch, progress, sizer=self.audited.sizer, surrogates=surrogates)
            for scratch in self.scratches
        ]
        self._drawn, self._clean_margins = drawn, np.zeros(len(plan.ids))
        self._recorded: dict[str, Records] = {}
        self._replayed: dict[str, tuple[Records, ...]] = {}
        """By stage, the new rows of the drawn samples, and where they came out otherwise those in the company that they had."""
        self.attacking = set[str]()
        """Stages that attacked a drawn sample again."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The records that the audit would have written: checks, probes, repairs and answers, made anew."""
        return self.draft.manifest

    def gallery_differs(self) -> bool:
        """True if the clean inputs for the gallery are not those that the audit keeps."""
        cell = clean_cell(self.plan, self.source)
        stored, made = self.draft.clean(cell), self.draft.gallery.get(cell, {})
        return stored.keys() != made.keys() or not all(np.array_equal(stored[sample], made[sample]) for sample in made)

    def _stage_rows(self, stage: Stage, state: State) -> Records:
        """Attack the drawn samples again, then go on with the recorded rows of all samples."""
        self._clean_margins = state.clean_margin
        if stage.name in self.source.skipped:
            return NO_ROWS
        recorded, before = self.run.part(stage_cell(self.plan, self.source, stage)), self._state_before(stage, state)
        followed = self.checks.gradient_models.get(stage.gradient, self.audited.model)
        spared = self._spared_samples(stage, before)
        drawn = AttackRun(self._again[0], stage, before, spared | ~self._drawn, followed)
        if len(drawn.samples):
            self.attacking.add(stage.name)
        self._recorded[stage.name] = self._of_drawn(recorded)
        self._replayed[stage.name] = (self._of_drawn(drawn()),)
        rows_, _ = self.stage_rows(stage) or (None, None)
        if rows_ is not None and compare_rows(*rows_, self.clean_margin(rows_[0].sample_id)).deviates.any():
            in_company = AttackRun(self._again[1], stage, before, spared, followed)()
            self._replayed[stage.name] += (self._of_drawn(in_company),)
        return recorded

    def scratch(self, stage: Stage) -> Scratch:
        """Folder with the records and arrays of the replayed stage."""
        return self.scratches[len(self._replayed[stage.name]) - 1]

    def clean_margin(self, ids: Array) -> Array:
        """(m,) lead of the true class on the clean inputs of samples, by their ids."""
        return np.asarray(self._clean_margins[np.searchsorted(self.plan.ids, ids)])

    def stage_rows(self, stage: Stage) -> tuple[tuple[Records, Records], Array] | None:
        """The recorded and the new rows of the drawn samples in a stage, aligned, and the samples that only one of both attacked.

        None for a stage that was skipped.
        """
        if stage.name not in self._replayed:
            return None
        return _align(self._recorded[stage.name], self._replayed[stage.name][-1])

    def unstable_rows(self, stage: Stage, ids: Array, clean_margin: Array) -> Array:
        """(m,) bool: rows of the drawn samples `ids` (m,) that come out differently in other company."""
        if len(self._replayed[stage.name]) == 1:
            return np.zeros(len(ids), bool)
        rows_, _ = _align(*self._replayed[stage.name])
        lead = dict(zip(ids.tolist(), clean_margin.tolist(), strict=True))
        comparison = compare_rows(*rows_, np.array([lead.get(sample, 1.0) for sample in rows_[0].sample_id.tolist()]))
        return np.isin(ids, comparison.samples[comparison.deviates])

    def _of_drawn(self, records: Records) -> Records:
        """The rows of the drawn samples that a stage attacked."""
        is_drawn = np.isin(records.sample_id, self.plan.ids[self._drawn])
        return rows.take(records, is_drawn & (records.outcome != Outcome.SPARED))


def _align(first: Records, second: Records) -> tuple[tuple[Records, Records], Array]:
    """The rows of the samples that both have, and the ids of the others."""
    common = np.intersect1d(first.sample_id, second.sample_id)
    aligned = tuple(rows.take(records, np.isin(records.sample_id, common)) for records in (first, second))
    return (aligned[0], aligned[1]), np.setxor1d(first.sample_id, second.sample_id)
