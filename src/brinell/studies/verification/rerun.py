"""Robust claims: a random part of the samples that a run calls robust is attacked again, from the same streams.

A claim that attacks failed cannot be checked by anything that is stored. Who changes `fooled` into `survived` and deletes the
input leaves rows that agree with each other; only attacks show it. The samples are drawn anew each time, so that nobody knows
beforehand which are attacked again.
"""

import tempfile
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path

import numpy as np

from brinell.core.checks import Code
from brinell.core.record import Array, Outcome, Records
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.runners import local, provenance
from brinell.store.run import Run
from brinell.studies.verification.result import Notes

LEAST, SHARE = 8, 0.02
"""Samples that are attacked again by default: this many, and this share of those that are called robust."""
NEAR = 0.05
"""A robust sample of whose clean margin so little was left may be broken by the rounding of another batch or machine."""
SLACK = 0.2
"""By how much the cost of an attack that failed again may differ."""


@dataclass(frozen=True)
class Rerun:
    """What came of it."""

    samples: int
    """Samples that were attacked again."""
    of: int
    """Samples that the run calls robust at some budget."""
    boundary: int
    """Those that were broken this time, and of which the run itself says that they lie at the boundary."""
    why: str = ""
    """Why none was; empty where some were."""

    def missed(self, forged: int) -> float:
        """The probability that so many forged claims are all among the samples that were not attacked again."""
        return comb(self.of - forged, self.samples) / comb(self.of, self.samples) if forged <= self.of else 0.0


def rerun(
    run: Run, plan: Plan, source: ModelSource, broken: Array, correct: Array, notes: Notes, progress: Progress, count: int | None
) -> Rerun:
    """Attack some samples again that the run calls robust, with every stage that waits for no alarm.

    Args:
        run: the run.
        plan: its plan, made again.
        source: the model.
        broken: (n,) index of the smallest level that any stage claims to have broken a sample at.
        correct: (n,) bool: samples that the model gets right.
        notes: where problems go.
        progress: told what goes on.
        count: how many samples; None for the default.
    """
    robust = np.flatnonzero(correct & (broken > 0) & (plan.units > 0))
    checks = {str(one["code"]): one["passed"] for one in run.manifest.get("checks", {}).get(source.name, [])}
    stages = tuple(stage for stage in plan.stages if not stage.waits and stage.name not in source.skipped)
    if plan.eot > 1 or checks.get(Code.RANDOM) is False:
        return Rerun(0, len(robust), 0, "the model answers at random, so that no attack ends twice alike")
    if not len(robust) or not stages or not len(plan.levels):
        return Rerun(0, len(robust), 0, "no sample is called robust")
    count = max(LEAST, round(SHARE * len(robust))) if count is None else count
    if count == 0:
        return Rerun(0, len(robust), 0, "nobody asked for it")
    at = np.sort(np.random.default_rng().choice(robust, min(count, len(robust)), replace=False))
    part = replace(plan, ids=plan.ids[at], labels=plan.labels[at], units=plan.units[at], stages=stages, models=(source,))
    with tempfile.TemporaryDirectory() as folder:
        again = local.run(part, Path(folder) / "again", progress, command="brinell verify").records()
    boundary = _compare(run, plan, source, at, broken, again, notes)
    return Rerun(len(at), len(robust), boundary)


def _compare(run: Run, plan: Plan, source: ModelSource, at: Array, broken: Array, again: Records, notes: Notes) -> int:
    before = run.records()
    mine = (before.model == source.name) & np.isin(before.sample_id, plan.ids[at])
    fooled = again.outcome == Outcome.FOOLED
    found = np.full(len(at), len(plan.levels))
    where = np.searchsorted(plan.ids[at], again.sample_id[fooled])
    np.minimum.at(found, where, np.searchsorted(plan.levels, again.eps[fooled]))
    near = _near(before, mine, plan.ids[at])
    lower = found < broken[at]
    wrong = lower & ~near
    boundary = int((lower & near).sum())
    if boundary > max(1, NEAR * len(at)):
        wrong |= lower
    notes.note(f"{source.name} attacked again", "an attack breaks what the run calls robust", plan.ids[at][wrong])
    if _same_machine(run, plan):
        notes.note(f"{source.name} attacked again", "an attack that fails again costs otherwise", _costs(before, mine, again))
    return boundary


def _near(records: Records, mine: Array, ids: Array) -> Array:
    """(n,) bool: samples of which the rows themselves say that little of the clean margin was left."""
    margin, robust = np.ma.getdata(records.best_margin), mine & ~np.ma.getmaskarray(records.best_margin)
    closest, clean = np.full(len(ids), -np.inf), np.full(len(ids), np.inf)
    survived = robust & (records.outcome == Outcome.SURVIVED)
    np.maximum.at(closest, np.searchsorted(ids, records.sample_id[survived]), margin[survived])
    first = robust & (records.outcome == Outcome.CORRECT)
    clean[np.searchsorted(ids, records.sample_id[first])] = -margin[first]
    return np.asarray(closest > -NEAR * clean)


def _costs(before: Records, mine: Array, again: Records) -> Array:
    """Samples of which an attack failed both times at the same budget, and of which the run states another cost."""
    known = {}
    for row in np.flatnonzero(mine & (before.outcome == Outcome.SURVIVED)):
        known[before.attack[row], before.sample_id[row], before.eps[row]] = row
    other = []
    for row in np.flatnonzero(again.outcome == Outcome.SURVIVED):
        match = known.get((again.attack[row], again.sample_id[row], again.eps[row]))
        if match is None:
            continue
        for name in ("forwards", "backwards"):
            now, then = getattr(again, name)[row], getattr(before, name)[match]
            if abs(now - then) > SLACK * max(now, then):
                other.append(int(again.sample_id[row]))
    return np.unique(np.array(other, dtype=np.int64))


def _same_machine(run: Run, plan: Plan) -> bool:
    """Whether the run was made with these versions on such a machine, where costs come out alike."""
    now = provenance.place(plan.device)
    return bool(run.manifest.get("versions") == now["versions"])
