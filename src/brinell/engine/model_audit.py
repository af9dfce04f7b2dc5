"""The audit of one model: the clean check, then the stages, in which each sample descends through
the budgets.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from brinell.core.checks import TIME_UP
from brinell.core.contracts import Remark
from brinell.core.errors import option
from brinell.core.model import Access
from brinell.core.record import CLEAN, Array, Records, has_broken
from brinell.engine.audited_model import OF_MODEL, AuditedModel, facts_of
from brinell.engine.cascade import Stage
from brinell.engine.clean_run import clean_pieces
from brinell.engine.model_checks import Checks, ModelChecks
from brinell.engine.piece import Piece, PieceAnswer
from brinell.engine.probe_ahead import AHEAD
from brinell.engine.stage_costs import cost_text, costs_of
from brinell.engine.stage_run import StageRun
from brinell.engine.state import State, draw_shares, spared_samples
from brinell.store.parts import PieceResult
from brinell.store.run import NO_ROWS, save_clean

MAX_LISTED = 4
GALLERY_BYTES = 64 * 2**20
GALLERY_SAMPLES = 2000
"""Clean inputs that a run keeps for the pictures of its report."""


class ModelAudit:
    """Runs the plan on one model.

    Args:
        audited: the state of its audit.
        spread: the number of groups over which a stage is spread; above 1, workers attack them.
    """

    def __init__(self, audited: AuditedModel, spread: int = 1) -> None:
        self.audited, self.spread = audited, spread
        self.plan, self.source = audited.plan, audited.source
        self.progress, self.limit = audited.progress, audited.limit
        self._unfinished: list[str] = []
        """Names of the stages that the time was too short for, in order; the first may have been cut
        in its middle."""
        self.checks = ModelChecks(audited)

    def pieces(self) -> Checks:
        """The pieces of the whole audit, one stage after another; returns the failed checks, by
        code, each with its text.
        """
        self.checks.begin()
        try:
            state = yield from self._check_clean()
            self._say_cost(state)
            # Models share the time that is left: what one does not use is there for the next.
            self.limit.begin_share(len(self.plan.models) - self.plan.models.index(self.source))
            failed = yield from self.checks.failed_checks(state)
            self._note_skipped_stages()
            self.checks.adapt(failed, state)

            plain = [stage for stage in self.plan.stages if not stage.waits]
            # Without a budget above 0 there is nothing to attack.
            for stage in self.plan.stages if len(self.plan.levels) else ():
                failed |= yield from self._run_stage(stage, state)
                # What the stages that run in any case leave decides whether others follow.
                if plain and stage is plain[-1] and not self.plan.grows:
                    failed |= yield from self.checks.survivor_checks(state)

            self.limit.lift()
            if self.plan.grows and not self._unfinished:
                # Further waves follow, and then the checks of what all have left.
                self.audited.entries.setdefault("left", {})[self.source.name] = []
                return failed
            self._keep_gallery()
            if self._unfinished:
                failed |= self._note_unfinished_stages()
            else:
                failed |= yield from self.checks.final_checks(state)
        finally:
            self.checks.end()

        if server := self.audited.model.info.server:
            self.audited.note(OF_MODEL, server.remarks())
        # What was counted and noted in no stage.
        self.audited.take("", facts_of(self.audited.model, self.audited.shortages))
        return failed | self.audited.failure_warning()

    def _check_clean(self) -> Generator[Sequence[Piece], PieceAnswer, State]:
        """Have the clean inputs answered; returns the state of their samples."""
        n = len(self.plan.ids)
        pieces = clean_pieces(self.audited)
        answer = yield from self.audited.resume_stage(CLEAN, self.audited.file(CLEAN), pieces)
        clean = answer.rows
        self.audited.rows[CLEAN] = clean
        state = State.from_clean(clean, self.plan.levels, targeted=self.plan.targeting is not None)

        if self.source.reject is not None:
            k = int((state.clean_pred == self.source.reject).sum())
            share = f" ({100 * k / n:.1f} %)" if n else ""
            text = (
                f"{k} of {n} clean inputs{share} are rejected (class "
                f"{self.source.reject}) and count as not correct; no rejected "
                "input is a success"
            )
            self.audited.note(CLEAN, [Remark("rejected", text)])
        return state

    def _say_cost(self, state: State) -> None:
        """Say what the attacks cost at most, at the pace of the clean inputs."""
        clean = self.audited.rows[CLEAN]
        paces = clean.seconds[clean.forwards > 0] / clean.forwards[clean.forwards > 0]
        if not len(paces) or not len(self.plan.levels):
            return
        # The first group may wait for files and for the device.
        pace = float(paces.min())
        right = replace(self.plan, ids=self.plan.ids[state.correct])
        text = cost_text(list(costs_of(right, self.source, pace)))
        share = " on one worker" if self.spread > 1 else ""
        self.progress.note(f"{self.source.name}: the attacks cost {text}{share}")

    def _note_skipped_stages(self) -> None:
        """Say which stages cannot run on this model, once for each reason."""
        waits = {stage.name for stage in self.plan.stages if stage.waits}
        skipped = {
            name: reason for name, reason in self.source.skipped.items() if name not in waits
        }
        for reason in dict.fromkeys(skipped.values()):
            names = [self.audited.short_name(name) for name in skipped if skipped[name] == reason]
            listing = "; ".join(names[:MAX_LISTED])
            if len(names) > MAX_LISTED:
                listing += f" and {len(names) - MAX_LISTED} more"
            self.progress.note(f"{self.source.name}: left out {listing}: {reason}")

    def _note_unfinished_stages(self) -> dict[str, str]:
        """Record the stages that are not finished; returns the warning, by its code."""
        self.audited.entries.setdefault("left", {})[self.source.name] = self._unfinished
        titles = list(dict.fromkeys(map(self.audited.short_name, self._unfinished)))
        more = f" and {len(titles) - MAX_LISTED} more" if len(titles) > MAX_LISTED else ""
        text = (
            f"the time was up before the end of {'; '.join(titles[:MAX_LISTED])}{more}: what was "
            f"found so far is an upper bound; go on with brinell audit {option('resume')} "
            f"{option('out', str(self.audited.folder))}"
        )
        self.progress.warn(f"{self.source.name}: {text}")
        return {TIME_UP: text}

    def _keep_gallery(self) -> None:
        """Save the clean inputs of some fooled samples for the gallery: classes in turn, closest
        examples first.
        """
        records = self.audited.all_rows()
        fooled = np.flatnonzero(has_broken(records))
        ids = records.sample_id[fooled]
        labels = records.label[fooled]
        fit = GALLERY_BYTES // (4 * int(np.prod(self.plan.dataset.domain.shape)))
        limit = max(1, min(GALLERY_SAMPLES, fit))

        # The closest example of each sample comes first, and is the one that counts.
        order = np.lexsort((ids, records.broken[fooled]))
        order = order[np.sort(np.unique(ids[order], return_index=True)[1])]
        # Sorted, the first of each class come before the second of any.
        turns = [
            (turn, label, row)
            for label in np.unique(labels).tolist()
            for turn, row in enumerate(order[labels[order] == label][:limit].tolist())
        ]

        samples = [int(ids[row]) for _, _, row in sorted(turns)[:limit]]
        if samples:
            inputs = self.plan.dataset.load(samples).numpy()
            arrays = dict(zip(samples, inputs, strict=True))
            save_clean(self.audited.folder, self.audited.file(CLEAN), arrays)

    def _run_stage(self, stage: Stage, state: State) -> Checks:
        """Run a stage, or load its rows, and update the state.

        Returns the checks that the stage failed.
        """
        records = yield from self._stage_rows(stage, state)
        self.audited.rows[stage.name] = records
        open_ = state.correct & (state.broken > 0)
        nearest = state.nearest
        level = state.broken - 1  # at which the stage attacks each sample
        fooled = state.update(records, self.plan.ids, self.plan.levels)

        if stage.turn.when == "suspected" and stage.turn.share < 1 and len(fooled):
            self.checks.conditions.add("masked")
        if not self._is_probe(stage) or stage.turn.alone:
            return {}
        if len(fooled):
            self.checks.conditions.add("suspected")

        # How near other attacks must come, so that the probe is not ahead of them on a sample:
        # leads are negative short of the boundary, so less is farther from it. Where they came as
        # near before, and where the probe did not attack, there is nothing to compare.
        reach = state.last - AHEAD * state.clean_margin
        reach[fooled] = np.inf
        compared = open_ & (draw_shares(self.plan, stage) < stage.turn.share)
        reach[~compared | (reach <= nearest)] = np.nan
        passes = sum(self.plan.cost_once(self.source, stage))
        failed: dict[str, str] = yield from self.checks.probe_ahead(
            stage, state, level, reach, int(compared.sum()), passes
        )
        return failed

    def _stage_rows(
        self, stage: Stage, state: State
    ) -> Generator[Sequence[Piece], PieceAnswer, Records]:
        """The rows of a stage; none of one that does not fit the model."""
        if stage.name in self.source.skipped:
            return NO_ROWS
        key, pieces = self.audited.file(stage.name), self._stage_pieces(stage, state)
        answer = yield from self.audited.resume_stage(stage.name, key, pieces)
        self._unfinished += [stage.name] if "cut" in answer.facts else []
        records: Records = answer.rows
        return records

    def _stage_pieces(
        self, stage: Stage, state: State
    ) -> Generator[Sequence[Piece], PieceAnswer, PieceResult]:
        """Have a stage begun and made, if there is time."""
        if self.limit.is_up:
            # A stage whose condition does not hold misses nothing.
            is_left = not self.checks.waits(stage)
            return PieceResult(rows=NO_ROWS, facts={"cut": True} if is_left else {})

        before = self._state_before(stage, state)
        followed = self.checks.gradient_models.get(stage.gradient, self.audited.model)
        # What checks built stays in this process.
        spread = self.spread if followed is self.audited.model else 1
        spared = self._spared_samples(stage, before)
        run = StageRun(self.audited, stage, before, spared, followed, spread=spread)

        self._announce_stage(stage, len(run.samples), before)
        return (yield from run.pieces())

    def _state_before(self, stage: Stage, state: State) -> State:
        """The state that a stage begins with: one that runs alone takes no notice of what others
        broke.
        """
        if not stage.turn.alone:
            return state
        return replace(state, broken=np.full_like(state.broken, len(self.plan.levels)))

    def _spared_samples(self, stage: Stage, state: State) -> Array:
        return spared_samples(self.plan, stage, state, waits=self.checks.waits(stage))

    def _is_probe(self, stage: Stage) -> bool:
        """True if the stage does not ascend the loss along gradients and an earlier stage does."""
        earlier = self.plan.stages[: self.plan.stages.index(stage)]
        has_gradients = self.audited.model.access == Access.GRADIENTS
        return has_gradients and not stage.climbs and any(before.climbs for before in earlier)

    def _announce_stage(self, stage: Stage, samples: int, state: State) -> None:
        """Report the start of a stage: its number, its samples, and the forecast of the stages
        after it.
        """
        stages = self.plan.stages
        number = stages.index(stage) + 1
        passes = samples * sum(self.plan.cost_once(self.source, stage))
        title = f"{number}/{len(stages)} {stage.short or stage.name}"
        self.progress.stage(self.source.name, title, samples, passes)

        # The forecast takes the samples that are near the boundary now for those that later stages
        # will find there.
        current = replace(state, last=state.nearest)
        open_ = state.correct & (state.broken > 0)
        forecast = {stage.name: passes}
        for later in stages[number:]:
            if later.name not in self.source.skipped and not self.checks.waits(later):
                count = int((open_ & ~self._spared_samples(later, current)).sum())
                forecast[later.name] = count * sum(self.plan.cost_once(self.source, later))
        models = len(self.plan.models) - self.plan.models.index(self.source) - 1  # after this one
        self.progress.forecast(forecast, models)
