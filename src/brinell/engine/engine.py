"""The audit of one model: the first check, then stage by stage, each sample descending through the budgets.

Nothing here is remembered but what the run folder holds: on every start the same loop runs, and what a part or a shard already
answers is not computed again (design/0002-run-folder.md, design/0003-sweep.md).
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import Code
from brinell.core.contracts import Remark
from brinell.core.errors import ModelError
from brinell.core.intervals import wilson
from brinell.core.model import Access, Model
from brinell.core.record import CLEAN, Outcome, Records
from brinell.core.streams import Streams
from brinell.engine import extras, gallery, parallel, retry
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.checks import check_answers
from brinell.engine.implied import implied
from brinell.engine.model_checks import ModelChecks
from brinell.engine.peers import Alone, Cut, Descent, Known, Peers, Told, Work, make_all
from brinell.engine.plan import BATCHES, ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.engine.room import Room
from brinell.engine.shard import Group, Result, Setting, criterion_of, joined, null_or, predict
from brinell.engine.state import State
from brinell.store import rows
from brinell.store.joining import blocks, nobody
from brinell.store.run import Run, closest_shards, telling_shards

Array = np.ndarray[Any, Any]
ENDED = [str(Outcome.SURVIVED), str(Outcome.FAILED)]
"""After these an attack has nothing more to try on a sample at smaller budgets."""
AHEAD = 0.1
"""An attack is ahead of others on a sample when it left this share of the clean margin less than they did."""
NAMED = 4
"""How many stages a line names that are left out for one reason."""
ALARM = 0.05
"""Share of the robust samples on which an attack without gradients may be ahead of those with them: on networks whose gradients
lead, none to 4 % were seen, on masked ones 10 % and more (design/0005-fast.md)."""


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
        self.plan, self.source, self.model, self.run, self.progress = plan, source, model, run, progress
        self.peers: Peers = peers or Alone()
        self.room = Room(plan.request.batch_size, lambda one: self._note("memory", [one]))
        self.checks = ModelChecks(
            plan, source, model, surrogate, run, progress, load=self._load, note=self._note, once=self.peers.once, room=self.room
        )

    def __call__(self) -> dict[str, str]:
        """Everything that the plan asks of this model. Returns the failed checks, by name, each with a line."""
        digest = self.model.digest()
        try:
            state = self._clean()
            self._note(CLEAN, extras.rejected(state.clean_pred, self.source.reject))
            found = self.checks.failed(state)
            for why, names in self._left_out().items():
                some = "; ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
                self.progress.note(f"{self.source.name}: left out {some}: {why}")
            self.checks.adapt(found, state)
            for stage in self.plan.stages:
                if len(self.plan.levels):
                    found |= self._stage(stage, state)
            gallery.keep(self.plan, self.source, self.run)
            return (
                found
                | self.checks.afterwards(digest)
                | self.checks.beyond_labels()
                | retry.warning(self._failed(), len(self.plan.ids))
            )
        finally:
            self._keep_remarks()

    def _left_out(self) -> dict[str, list[str]]:
        waits = {stage.name for stage in self.plan.stages if stage.waits}
        skipped = {name: why for name, why in self.source.skipped.items() if name not in waits}
        return {why: [self._short(name) for name in skipped if skipped[name] == why] for why in skipped.values()}

    def _short(self, of: str) -> str:
        """What people call a stage; the first check and the like keep their names."""
        return next((one.short or of for one in self.plan.stages if one.name == of), of)

    def _keep_remarks(self) -> None:
        """Keep what a model on another machine has to say: how it was asked, and how much, which adds up when a run goes on."""
        server = self.model.info.server
        if server is None:
            return
        self._note("model", server.remarks())
        if self._traffic():
            self.run.save_manifest()

    def _traffic(self) -> dict[str, int]:
        """What a model on another machine has counted since it was last asked, which is added to the manifest's."""
        server = self.model.info.server
        found = {} if server is None else dict(server.traffic())
        if found:
            self._add_traffic(found)
        return found

    def _add_traffic(self, traffic: Mapping[str, int]) -> None:
        total = self.run.manifest.setdefault("traffic", {}).setdefault(self.source.name, {})
        total.update({what: total.get(what, 0) + count for what, count in traffic.items()})

    def _failed(self) -> dict[str, dict[str, str]]:
        """Stage to the samples that could not be judged there, each with the reason."""
        failed: dict[str, dict[str, str]] = self.run.manifest.setdefault("failed", {}).setdefault(self.source.name, {})
        return failed

    def _fail(self, stage: str, sample: int, why: str) -> None:
        self._failed().setdefault(stage, {})[str(sample)] = why
        self.run.save_manifest()
        self.progress.warn(f"{self.source.name}, {stage}: sample {sample} cannot be judged: {why}")

    def _clean(self) -> State:
        key = clean_cell(self.plan, self.source)
        if not self.run.has_part(key):
            self.progress.stage(self.source.name, CLEAN, len(self.plan.ids), len(self.plan.ids) * self.plan.eot)
            every, known, right = np.arange(len(self.plan.ids)), Known(len(self.plan.ids), 1), Counter[str]()
            answers = partial(retry.answers_somewhere, self.model, self.plan.device)

            def check(cut: Cut, name: str) -> tuple[Told, Records]:
                started, failed = time.perf_counter(), Failures(self, CLEAN)
                records = rows.concatenate(
                    retry.divided(self._check, cut.at, lambda at, error: self._unchecked(at, error, failed), answers)
                )
                self.run.save_shard(key, name, records, {})
                return Told(failed=failed.told, seconds=time.perf_counter() - started, traffic=self._traffic()), records

            def note(shard: Records) -> None:
                at = np.searchsorted(self.plan.ids, shard.sample_id)
                new = known.lacks(at, np.zeros_like(at))
                right[CLEAN] += int((shard.outcome[new] == Outcome.CORRECT).sum())
                known.note(at, np.zeros_like(at), np.ones_like(at), np.ones(len(at), bool))

            def open_(left: int) -> None:
                self.progress.open(left, right[CLEAN])

            size = self.peers.size(self.plan.group_size, len(every))
            descent = Descent(every, np.ones_like(every), size, self.peers.last)
            make_all(
                self.peers,
                self.run,
                self.plan.ids,
                Work(key, descent, known, note, check, partial(self._take_in, CLEAN), open_),
            )
            none = self._clean_rows(every[:0], clean_pred=-1, clean_confidence=0.0, outcome=str(Outcome.FAILED))
            self.run.save_part(key, blocks(self.run.shard_files(key), self.plan.ids, 1, lambda at, found: none))
        self.run.drop_shards(key)
        return State.of(self.run.part_in_place(key), self.plan.levels, targeted=self.plan.targeting is not None)

    def _check(self, at: Array) -> Records:
        started = time.perf_counter()
        x = self._load(self.plan.ids[at])
        logits = self.room.fit(lambda: predict(self.model, x, self.room.size, self.plan.eot))
        check_answers(logits, self.model)
        self.progress.passes(len(at) * self.plan.eot, 0)
        confidence, pred = (column.cpu().numpy() for column in logits.softmax(1).max(1))
        targets = self._targets(at, logits)
        margin = criterion_of(targets, logits.device, self.source.reject).margin(
            logits, torch.as_tensor(self.plan.labels[at], device=logits.device), logits
        )
        return self._clean_rows(
            at,
            target=null_or(targets, np.arange(len(at))),
            clean_pred=pred,
            clean_confidence=confidence,
            outcome=np.where(pred == self.plan.labels[at], str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED)),
            best_margin=margin.cpu().numpy(),
            forwards=self.plan.eot,
            seconds=(time.perf_counter() - started) / len(at),
        )

    def _targets(self, at: Array, logits: Tensor) -> Array | None:
        if self.plan.targeting is None:
            return None
        ids = torch.as_tensor(self.plan.ids[at], device=logits.device)
        labels = torch.as_tensor(self.plan.labels[at], device=logits.device)
        drawn = self.plan.targeting.classes(logits, labels, Streams.of(self.plan.request.seed, ids))
        return np.asarray(drawn.cpu().numpy())

    def _unchecked(self, at: int, error: ModelError, failed: Callable[[int, str], None]) -> Records:
        failed(int(self.plan.ids[at]), str(error))
        return self._clean_rows(np.array([at]), clean_pred=-1, clean_confidence=0.0, outcome=str(Outcome.FAILED))

    def _clean_rows(self, at: Array, **columns: Any) -> Records:
        return rows.build(
            Records,
            len(at),
            model=self.source.name,
            sample_id=self.plan.ids[at],
            label=self.plan.labels[at],
            attack=CLEAN,
            distance=self.plan.distance.name,
            eps=0.0,
            radius=0.0,
            **columns,
        )

    def _load(self, ids: Array) -> Tensor:
        return self.plan.dataset.load(ids.tolist()).to(self.plan.device)

    # One stage

    def _stage(self, stage: Stage, state: State) -> dict[str, str]:
        """Run a stage, or look up what it found, and note what is known of each sample now. Returns the checks that it failed."""
        key = stage_cell(self.plan, self.source, stage)
        if not self.run.has_part(key):
            unbroken = np.full_like(state.broken, len(self.plan.levels))
            seen = replace(state, broken=unbroken) if stage.turn.alone else state
            if stage.name in self.source.skipped:
                self.run.save_part(
                    key,
                    blocks(
                        [],
                        self.plan.ids,
                        len(self.plan.levels),
                        lambda at, found: implied(self.plan, self.source, stage, seen, seen.broken, None, of=at),
                    ),
                )
            else:
                self._descend(key, stage, seen)
        self.run.drop_shards(key)
        open_, before = state.correct & (state.broken > 0), state.nearest
        found = state.note(self.run.part_in_groups(key), self.plan.ids, self.plan.levels)
        if stage.turn.when == "suspected" and len(found):
            self.checks.conditions.add("masked")
        if not self._is_probe(stage):
            return {}
        if len(found) and stage.attack.access < Access.GRADIENTS:
            self.checks.conditions.add("suspected")
        ahead = state.last > before + AHEAD * state.clean_margin
        ahead[found] = True
        looked = open_ & (draw(self.plan, stage) < stage.turn.share)
        return self._alarm(stage, int((ahead & looked).sum()), int(looked.sum()))

    def _is_probe(self, stage: Stage) -> bool:
        """Whether a stage works otherwise than by climbing the loss, after stages that climbed it."""
        climbs = [one.attack.access == Access.GRADIENTS and one.attack.family == "budgeted" for one in self.plan.stages]
        at = self.plan.stages.index(stage)
        return self.model.access == Access.GRADIENTS and not climbs[at] and any(climbs[:at])

    def _alarm(self, stage: Stage, ahead: int, looked: int) -> dict[str, str]:
        """Whether an attack that does not climb the loss does so well beside those that do that gradients must mislead."""
        interval = wilson(ahead, looked)
        if interval is None or interval.low <= ALARM:
            return {}
        text = (
            f"{self._short(stage.name)}, which does not climb the loss, broke {ahead} of {looked} samples or came nearer to it "
            "than the attacks before it that do: the gradients mislead, and attacks that follow them say too much good of "
            "the model"
        )
        if "masked" not in self.checks.conditions:
            self.progress.warn(f"{self.source.name}: {text}")
        self.checks.conditions.add("masked")
        return {Code.AHEAD: text}

    def _descend(self, key: str, stage: Stage, state: State) -> None:
        """Attack group after group until no sample is open.

        The groups are cut by what came of the ones before (`Descent`), so a resumed run cuts the same ones: a group that a shard
        answers is looked up, and the floats of all others are computed in the same company. Another batch size cuts other groups;
        then the samples of a group that are known already are left out of it.
        """
        plan, known = self.plan, Known(len(self.plan.ids), len(self.plan.levels))
        setting, spared = self._setting(stage), self._spared(stage, state)
        samples = np.flatnonzero(state.correct & ~spared & (state.broken > 0))
        descent = Descent(samples, state.broken, self.peers.size(plan.group_size, len(samples)), self.peers.last)
        self._begin(stage, len(samples), state)

        def attack(cut: Cut, name: str) -> tuple[Told, Records]:
            started, failed = time.perf_counter(), Failures(self, stage.name)
            group = self._group(cut.at, state, cut.level)
            result = self.room.fit(lambda: self._attacked(setting, group, failed))
            self._note(stage.name, result.remarks, result.legend)
            self.run.save_shard(key, name, result.records, result.arrays, result.extras)
            told = Told(
                remarks=result.remarks,
                legend=result.legend,
                failed=failed.told,
                seconds=time.perf_counter() - started,
                traffic=self._traffic(),
            )
            return told, result.records

        def open_(left: int) -> None:
            self.progress.open(left, int((state.correct & (descent.broken == len(plan.levels))).sum()))

        def rest(at: Array, found: Mapping[str, Records]) -> Records:
            failed = np.zeros(len(plan.ids), np.int64)
            failed[at] = retry.failed_levels(found, plan.ids[at], plan.levels)
            return implied(plan, self.source, stage, state, descent.broken, spared, failed, at)

        work = Work(key, descent, known, partial(self._take_rows, known), attack, partial(self._take_in, stage.name), open_)
        make_all(self.peers, self.run, plan.ids, work)
        holders = telling_shards if self.run.legend(self.source.name, stage.name) else closest_shards
        holders = holders if self.peers.whole else nobody
        self.run.save_part(key, blocks(self.run.shard_files(key), plan.ids, len(plan.levels), rest, holders))

    def _attacked(self, setting: Setting, group: Group, failed: "Failures") -> Result:
        """What the stage finds in a group, in as many parts as one that was cut for batches of this size would be."""
        setting = replace(setting, batch_size=self.room.size)
        parts = np.split(np.arange(len(group.x)), range(BATCHES * self.room.size, len(group.x), BATCHES * self.room.size))
        return joined([parallel.attack(setting, group if len(parts) == 1 else group.select(at), failed) for at in parts])

    def _take_in(self, of: str, told: Told) -> None:
        """Keep what another process says of a shard of a stage."""
        self._note(of, told.remarks, told.legend)
        if told.traffic:
            self._add_traffic(told.traffic)
        for sample, why in told.failed.items():
            self._fail(of, int(sample), why)

    def _note(self, of: str, remarks: Sequence[Remark], legend: Mapping[str, Any] | None = None) -> None:
        """Keep what an attack, or the model, says of how it went, the first time of each; what a stopped run kept stays."""
        if legend and not self.run.legend(self.source.name, of):
            self.run.manifest.setdefault("extras", {}).setdefault(self.source.name, {})[of] = dict(legend)
            self.run.save_manifest()
        if not remarks:
            return
        kept = self.run.manifest.setdefault("remarks", {}).setdefault(self.source.name, {}).setdefault(of, {})
        new = {one.code: one.text for one in remarks if one.code not in kept}
        if new:
            kept.update(new)
            self.run.save_manifest()
        for text in new.values():
            self.progress.note(f"{self.source.name}, {self._short(of)}: {text}")

    def _take_rows(self, known: Known, shard: Records) -> None:
        """Note what the rows of a shard answer: each sample at the highest level that it has a row of, where it was attacked."""
        level = np.searchsorted(self.plan.levels, shard.eps)
        at, each = np.unique(np.searchsorted(self.plan.ids, shard.sample_id), return_inverse=True)
        attacked, reached = np.zeros(len(at), np.int64), np.full(len(at), len(self.plan.levels))
        np.maximum.at(attacked, each, level)
        fooled, ended = shard.outcome == Outcome.FOOLED, np.isin(shard.outcome.astype(str), ENDED)
        reached[each[fooled]] = level[fooled]
        closed = reached == 0
        closed[each[ended]] = True
        known.note(at, attacked, reached, closed)

    def _spared(self, stage: Stage, state: State) -> Array:
        """(n,) bool: which samples earlier stages left too far from the boundary for this one."""
        return spared(self.plan, stage, state, waits=self.checks.waits(stage))

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

    def _setting(self, stage: Stage) -> Setting:
        model = self.checks.followed.get(stage.gradient, self.model)
        return setting_of(self.plan, self.source, model, stage, self.progress.passes)

    def _group(self, at: Array, state: State, level: Array) -> Group:
        return Group(
            sample_id=self.plan.ids[at],
            label=self.plan.labels[at],
            target=None if state.target is None else state.target[at],
            clean_pred=state.clean_pred[at],
            clean_confidence=state.clean_confidence[at],
            level=level,
            x=self._load(self.plan.ids[at]),
            unit=self.plan.units[at],
        )


class Failures:
    """Samples of a shard that could not be judged, each kept in the manifest as it is told of."""

    def __init__(self, audit: ModelAudit, stage: str) -> None:
        self._audit, self._stage = audit, stage
        self.told: dict[str, str] = {}

    def __call__(self, sample: int, why: str) -> None:
        """This sample could not be judged."""
        self.told[str(sample)] = why
        self._audit._fail(self._stage, sample, why)


def setting_of(plan: Plan, source: ModelSource, model: Model, stage: Stage, on_pass: Callable[[int, int], None]) -> Setting:
    """What all shards of a stage share; `model` is the one whose gradients it follows."""
    return Setting(
        name=source.name,
        model=model,
        stage=stage,
        distance=plan.distance,
        domain=plan.dataset.domain,
        levels=plan.levels,
        seed=plan.request.seed,
        batch_size=plan.request.batch_size,
        queries=plan.request.queries,
        precision=plan.request.precision,
        reject=source.reject,
        on_pass=on_pass,
    )


def draw(plan: Plan, stage: Stage) -> Array:
    """(n,) a number from 0 to 1 for each sample, its own whatever the others are."""
    return Streams.of(plan.request.seed, torch.as_tensor(plan.ids)).fold(f"share {stage.name}").uniform().numpy()


def spared(plan: Plan, stage: Stage, state: State, *, waits: bool) -> Array:
    """(n,) bool: which samples earlier stages left too far from the boundary for this one, or all where it waits in vain."""
    far = stage.turn.spared(state.clean_margin, state.nearest, state.last, draw=draw(plan, stage), waits=waits)
    return np.asarray(far | (plan.units == 0))
