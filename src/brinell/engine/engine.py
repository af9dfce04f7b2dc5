"""The audit of one model: the first check, then stage by stage, each sample descending through the budgets."""

from dataclasses import replace

import numpy as np

from brinell.core.checks import Code
from brinell.core.contracts import Remark
from brinell.core.intervals import wilson
from brinell.core.model import Access, Model
from brinell.core.record import CLEAN, Array, Outcome, Records
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.model_checks import ModelChecks
from brinell.engine.peers import Peers
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.engine.stage_run import AttackRun, CleanRun
from brinell.engine.state import State, draw, implied, spared
from brinell.store.joining import blocks
from brinell.store.run import Run

AHEAD = 0.1
"""An attack is ahead of others on a sample when it left this share of the clean margin less than they did."""
NAMED = 4
"""How many stages a line names that are left out for one reason."""
ALARM = 0.05
"""Share of the robust samples on which an attack without gradients may be ahead of those with them: on networks whose gradients
lead, none to 4 % were seen, on masked ones 10 % and more (design/0005-fast.md)."""
GALLERY_BYTES = 16 * 2**20
GALLERY_SAMPLES = 24
"""Clean inputs that a run keeps for the gallery of its report."""


class ModelAudit:
    """Runs the plan on one model."""

    def __init__(
        self,
        plan: Plan,
        source: ModelSource,
        model: Model,
        run: Run,
        progress: Progress,
        surrogate: Model | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.plan, self.source, self.run, self.progress = plan, source, run, progress
        self.audited = AuditedModel(plan, source, model, run, progress, peers)
        self.checks = ModelChecks(self.audited, surrogate)

    def __call__(self) -> dict[str, str]:
        """Everything that the plan asks of this model. Returns the failed checks, by name, each with a line."""
        digest = self.audited.model.digest()
        try:
            state = self._clean()
            failed = self.checks.failed(state)
            self._tell_left_out()
            self.checks.adapt(failed, state)
            for stage in self.plan.stages:
                if len(self.plan.levels):
                    failed |= self._stage(stage, state)
            self._keep_gallery()
            return failed | self.checks.afterwards(digest) | self.checks.beyond_labels() | self.audited.failure_warning()
        finally:
            self.audited.keep_server()

    def _clean(self) -> State:
        """The first check, run or looked up."""
        key, n = clean_cell(self.plan, self.source), len(self.plan.ids)
        if not self.run.has_part(key):
            self.progress.stage(self.source.name, CLEAN, n, n * self.plan.eot)
            CleanRun(self.audited)()
        self.run.drop_shards(key)
        state = State.of(self.run.part_in_place(key), self.plan.levels, targeted=self.plan.targeting is not None)
        if self.source.reject is not None:
            self.audited.note(CLEAN, [_rejected(state.clean_pred, self.source.reject)])
        return state

    def _tell_left_out(self) -> None:
        """Name the stages that cannot run on the model, by the reason."""
        waits = {stage.name for stage in self.plan.stages if stage.waits}
        skipped = {name: why for name, why in self.source.skipped.items() if name not in waits}
        for why in dict.fromkeys(skipped.values()):
            names = [self.audited.short_name(name) for name in skipped if skipped[name] == why]
            some = "; ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
            self.progress.note(f"{self.source.name}: left out {some}: {why}")

    def _keep_gallery(self) -> None:
        """Keep the clean inputs of some fooled samples, class by class in turn, the closest finds first."""
        records = self.run.records_in_place()
        fooled = np.flatnonzero((records.outcome == Outcome.FOOLED) & (records.model == self.source.name))
        ids, eps, labels = records.sample_id[fooled], records.eps[fooled], records.label[fooled]
        order = np.lexsort((ids, eps))
        order = order[np.sort(np.unique(ids[order], return_index=True)[1])]  # of each sample its closest find
        most = max(1, min(GALLERY_SAMPLES, GALLERY_BYTES // (4 * int(np.prod(self.plan.dataset.domain.shape)))))
        turns = [
            (turn, label, row)
            for label in np.unique(labels).tolist()
            for turn, row in enumerate(order[labels[order] == label][:most].tolist())
        ]
        kept = [int(ids[row]) for _, _, row in sorted(turns)[:most]]
        if kept:
            inputs = self.plan.dataset.load(kept).numpy()
            self.run.save_clean(clean_cell(self.plan, self.source), dict(zip(kept, inputs, strict=True)))

    # One stage

    def _stage(self, stage: Stage, state: State) -> dict[str, str]:
        """Run a stage, or look up what it found, and note what is known of each sample now. Returns the checks that it failed."""
        key = stage_cell(self.plan, self.source, stage)
        if not self.run.has_part(key):
            unbroken = np.full_like(state.broken, len(self.plan.levels))
            seen = replace(state, broken=unbroken) if stage.turn.alone else state
            if stage.name in self.source.skipped:
                self._skip(key, stage, seen)
            else:
                self._attack(stage, seen)
        self.run.drop_shards(key)
        open_, before = state.correct & (state.broken > 0), state.nearest
        fooled = state.note(self.run.part_in_groups(key), self.plan.ids, self.plan.levels)
        if stage.turn.when == "suspected" and len(fooled):
            self.checks.conditions.add("masked")
        if not self._is_probe(stage):
            return {}
        if len(fooled) and stage.attack.access < Access.GRADIENTS:
            self.checks.conditions.add("suspected")
        ahead = state.last > before + AHEAD * state.clean_margin
        ahead[fooled] = True
        looked = open_ & (draw(self.plan, stage) < stage.turn.share)
        return self._alarm(stage, int((ahead & looked).sum()), int(looked.sum()))

    def _skip(self, key: str, stage: Stage, state: State) -> None:
        def skipped(index: Array, shards: object) -> Records:
            return implied(self.plan, self.source, stage, state, state.broken, None, of=index)

        self.run.save_part(key, blocks([], self.plan.ids, len(self.plan.levels), skipped))

    def _attack(self, stage: Stage, state: State) -> None:
        followed = self.checks.followed.get(stage.gradient, self.audited.model)
        run = AttackRun(self.audited, stage, state, self._spared(stage, state), followed)
        self._begin(stage, len(run.samples), state)
        run()

    def _spared(self, stage: Stage, state: State) -> Array:
        """(n,) bool: which samples earlier stages left too far from the boundary for this one."""
        return spared(self.plan, stage, state, waits=self.checks.waits(stage))

    def _is_probe(self, stage: Stage) -> bool:
        """Whether a stage works otherwise than by climbing the loss, after stages that climbed it."""
        climbs = [one.attack.access == Access.GRADIENTS and one.attack.family == "budgeted" for one in self.plan.stages]
        at = self.plan.stages.index(stage)
        return self.audited.model.access == Access.GRADIENTS and not climbs[at] and any(climbs[:at])

    def _alarm(self, stage: Stage, ahead: int, looked: int) -> dict[str, str]:
        """Whether an attack that does not climb the loss does so well beside those that do that gradients must mislead."""
        interval = wilson(ahead, looked)
        if interval is None or interval.low <= ALARM:
            return {}
        name = self.audited.short_name(stage.name)
        text = (
            f"{name}, which does not climb the loss, broke {ahead} of {looked} samples or came nearer to it than the attacks "
            "before it that do: the gradients mislead, and attacks that follow them say too much good of the model"
        )
        if "masked" not in self.checks.conditions:
            self.progress.warn(f"{self.source.name}: {text}")
        self.checks.conditions.add("masked")
        return {Code.AHEAD: text}

    def _begin(self, stage: Stage, samples: int, state: State) -> None:
        """Tell that a stage begins on so many samples: its place among those that may run, and what is expected after it."""
        expected = self._expected()
        at = self.plan.stages.index(stage)
        later = [one for one in expected if self.plan.stages.index(one) > at]
        place = f"{len(expected) - len(later)}/{len(expected)} " if stage in expected else ""
        passes = samples * self._once(stage)
        self.progress.stage(self.source.name, f"{place}{stage.short or stage.name}", samples, passes)
        # What a stage that is kept to samples near the boundary will find there is what is near it now.
        now = replace(state, last=state.nearest)
        open_ = state.correct & (state.broken > 0)
        left = {one.name: int((open_ & ~self._spared(one, now)).sum()) * self._once(one) for one in later}
        self.progress.ahead({stage.name: passes} | left, self._models_after())

    def _expected(self) -> list[Stage]:
        """The stages that run on this model as far as is known now: those that wait for an alarm are none before there is one."""
        return [one for one in self.plan.stages if one.name not in self.source.skipped and not self.checks.waits(one)]

    def _models_after(self) -> int:
        names = [source.name for source in self.plan.models]
        return len(names) - names.index(self.source.name) - 1

    def _once(self, stage: Stage) -> int:
        """Forwards and backwards of a sample that a stage tries at one budget to the end."""
        return sum(self.plan.cost_once(self.source, stage))


def _rejected(clean_pred: Array, reject: int) -> Remark:
    """How many clean inputs (n,) a model rejects."""
    k, n = int((clean_pred == reject).sum()), len(clean_pred)
    share = f" ({100 * k / n:.1f} %)" if n else ""
    text = (
        f"{k} of {n} clean inputs{share} are rejected (class {reject}) and count as not correct; no rejected input is a success"
    )
    return Remark("rejected", text)
