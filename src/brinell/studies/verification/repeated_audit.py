"""Carries an audit out again in another folder: everything but the attacks on samples that the verifier has not drawn.

Stored files cannot prove that an attack failed, what it cost, or how near it came. So the audit is repeated from its request:
the first check and every check of the model on all samples, the attacks on the drawn ones. The rows of all others are those
recorded, after the model has judged each stored input again. By induction over the stages, a run whose rows all agree is that of
its request.

An answer to a batch depends on the size of the batch by rounding, and some attacks amplify that until a path splits. So where a
row of a stage comes out differently, the stage runs once more in the company that it had, on all of its samples.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.checks import Code
from brinell.core.record import CLEAN, Array, Outcome, Records, columns_of, has_broken
from brinell.engine import provenance
from brinell.engine.audit import run_audit
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.model_audit import ModelAudit
from brinell.engine.plan import Plan
from brinell.engine.progress import SilentProgress
from brinell.engine.stage_run import AttackRun
from brinell.engine.state import State, is_open, spared_samples
from brinell.store import rows
from brinell.store.differences import Comparison
from brinell.store.run import ACCUMULATED, LAYOUT, NO_ROWS, Run
from brinell.studies.verification.judgement import SIZES, Judge, chunks, differing

MIN_SAMPLES, SHARE = 8, 0.05
"""Samples drawn by default: at least this many, and at least this share of those that were attacked."""
TOLERANCE = 1e-3
"""Differences that rounding explains: of margins as a share of the clean margin, of sizes as a share of size or budget."""
NEAR, MOST_DEVIATIONS = 0.05, 0.05
"""On another machine a sample may break otherwise whose margin is at most this share of the clean one, and this share of the
drawn rows may come out differently (`benchmarks/verify.py` measures it)."""
LEAST_PROBES = 0.8
"""The least share of the cost of checks that another machine, or a random model, may have paid."""
SUSPICIOUS, REPEATS, DRAWS = 2, 11, 20_000
"""Excess of samples of a random model that break earlier after which it is repeated again, how often, and draws of the test."""
CHANCE = 1e-3
"""A random model is refused if its robust samples break this improbably more often in repetitions than others hold."""


@dataclass
class Repetition:
    """A run that is carried out again, and what came of it.

    Args:
        run: the run.
        plan: its plan, rebuilt from its request.
        count: samples of each model to attack again; None for 8 or 5 %, whichever is more.
        comparison: collects differences.
    """

    run: Run
    plan: Plan
    count: int | None
    comparison: Comparison
    is_repeated: bool = False
    """True where the run states the libraries, the processor and the threads of this machine, so that every row is repeated."""
    drawn: dict[str, Array] = field(default_factory=dict)
    """By model, (n,) bool: the samples to attack again."""
    attacked: dict[str, int] = field(default_factory=dict)
    """By model, how many samples were attacked."""
    random: set[str] = field(default_factory=set)
    """Models that answer at random."""
    levels: dict[str, Array] = field(default_factory=dict)
    """By model, (2, n) smallest levels at which the drawn samples break, in the run and now."""
    predictions: int = 0
    successes: int = 0
    replayed: int = 0
    unsettled: list[str] = field(default_factory=list)
    """What rounding on another machine, or chance, left open, as clauses."""

    def __post_init__(self) -> None:
        here = provenance.machine_facts(self.plan.device)
        is_same = all(self.run.manifest.get(key) == here[key] for key in ("versions", "hardware"))
        self.is_repeated = self.plan.device.type == "cpu" and is_same
        for source in self.plan.models if not self.drawn else ():
            clean = self.run.part(source.name, CLEAN)
            candidates = np.flatnonzero(is_open(clean.outcome) & (self.plan.units > 0) & bool(len(self.plan.levels)))
            count = max(MIN_SAMPLES, round(SHARE * len(candidates))) if self.count is None else self.count
            self.attacked[source.name], self.drawn[source.name] = len(candidates), np.zeros(len(self.plan.ids), bool)
            chosen = np.random.default_rng().choice(candidates, min(count, len(candidates)), replace=False)
            self.drawn[source.name][chosen] = True

    def carry_out(self, folder: Path) -> None:
        """Carry the audit out in a folder, and settle what its manifest says where rounding or chance explains a difference."""
        again = self._run(folder)
        manifest = again.manifest
        take_served(manifest, self.run.manifest)
        for source in self.plan.models:
            self._settle(source.name, manifest, self.run.manifest)
        LAYOUT.save(folder, manifest)
        for name in self.random:
            self._judge_chance(name)

    def _run(self, folder: Path) -> Run:
        command = str(self.run.manifest["command"])
        return run_audit(self.plan, folder, SilentProgress(), command=command, audit=partial(RepeatedAudit, self))

    def _judge_chance(self, name: str) -> None:
        """Compare how often the drawn samples of a random model break; where that is suspicious, repeat them several times."""
        levels = self.levels[name]
        if int((levels[1] < levels[0]).sum()) - int((levels[1] > levels[0]).sum()) < SUSPICIOUS:
            return
        for _ in range(REPEATS):
            further = Repetition(self.run, self.plan, self.count, Comparison(), drawn=self.drawn)
            with tempfile.TemporaryDirectory(prefix="brinell-") as place:
                further._run(Path(place) / "again")
            levels = np.vstack([levels, further.levels[name][1:]])
        if rank_chance(levels) < CHANCE:
            samples = self.plan.ids[(levels[1:] < levels[0]).mean(0) > 0.5].tolist()
            description = "samples break at smaller budgets than recorded, more often than chance explains"
            self.comparison.note(f"{name} repetition", description, samples)

    def _settle(self, name: str, repeated: dict[str, Any], recorded: Mapping[str, Any]) -> None:
        """Put what a run records of a model's checks in the place of what came out, where rounding or chance explains it.

        A run that was resumed may have paid for more checks.
        """
        is_random = name in self.random
        least = 1.0 if self.is_repeated and not is_random else LEAST_PROBES
        probes, stated = repeated["probes"].get(name, {}), recorded.get("probes", {}).get(name, {})
        for kind, count in probes.items():
            if stated.get(kind, 0) >= count * least:
                probes[kind] = stated[kind]
        if self.is_repeated and not is_random:
            return
        twins = {check["code"]: check for check in recorded.get("checks", {}).get(name, [])}
        turned = set[str]()
        for check in repeated["checks"].get(name, []):
            twin = twins.get(check["code"])
            if twin and twin != check and may_be(check, twin, is_random):
                turned |= {check["code"]} if check["passed"] != twin["passed"] else set()
                self.unsettled.append(f"{name}: the figure and the sentence of {check['code']}; here {check['text']!r} comes out")
                check.update(twin)
        stated_texts = {warning["code"]: warning for warning in recorded.get("warnings", []) if warning["model"] == name}
        others = [warning for warning in repeated["warnings"] if warning["model"] != name]
        texts = {warning["code"]: warning for warning in repeated["warnings"] if warning["model"] == name}
        if texts.keys() - turned == stated_texts.keys() - turned and all(
            is_alike(texts[code]["text"], stated_texts[code]["text"]) for code in texts.keys() & stated_texts.keys()
        ):
            place = next((i for i, warning in enumerate(repeated["warnings"]) if warning["model"] == name), len(others))
            repeated["warnings"] = [*others[:place], *stated_texts.values(), *others[place:]]
        if turned and repeated.get("repairs", {}).get(name) != recorded.get("repairs", {}).get(name):
            self.unsettled.append(f"{name}: the repair of the gradients")
            repeated["repairs"] = recorded.get("repairs", {})


class RepeatedAudit(ModelAudit):
    """The audit of one model on the drawn samples, and over the recorded rows of the others."""

    def __init__(self, repetition: Repetition, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.repetition, self.recorded, self.name = repetition, repetition.run, self.source.name
        self.drawn = repetition.drawn[self.name]
        self.judge = Judge(self.audited, repetition.comparison)
        self.levels = np.full((2, len(self.plan.ids)), len(self.plan.levels))

    def __call__(self) -> dict[str, str]:
        """Run the whole audit; return the failed checks, by code, each with its text."""
        failed = super().__call__()
        self.repetition.levels[self.name] = self.levels
        return failed

    def _check_clean(self) -> State:
        recorded = self.recorded.part(self.name, CLEAN)
        self.judge.look(recorded.sample_id[recorded.outcome != Outcome.FAILED])
        if self.judge.is_random:
            self.repetition.random.add(self.name)
        super()._check_clean()
        repeated = self.judge.judge_clean(self.audited.rows[CLEAN], recorded)
        self.run.save_part(self.name, CLEAN, repeated)
        self.repetition.predictions += int((repeated.outcome != Outcome.FAILED).sum())
        self.audited.rows[CLEAN] = repeated
        return State.from_clean(repeated, self.plan.levels, targeted=self.plan.targeting is not None)

    def _stage_rows(self, stage: Stage, state: State) -> Records:
        """Attack the drawn samples again, keep what is recorded of the others, and go on with what is recorded of all."""
        if stage.name in self.source.skipped:
            return NO_ROWS
        recorded, before = self.recorded.part(self.name, stage.name), self._state_before(stage, state)
        spared = self._check_turn(stage, before, recorded)
        with self._attacked(stage, before, spared | ~self.drawn) as repeated:
            deviates, _ = self._compare(*self._align(recorded, repeated, stage), before)
            if self.judge.is_random or not deviates.any():
                self._keep(stage, recorded, repeated, before)
                return recorded
        with self._attacked(stage, before, spared) as in_company:
            self._keep(stage, recorded, in_company, before)
        return recorded

    def _check_turn(self, stage: Stage, before: State, recorded: Records) -> Array:
        """The samples that a stage spares, (n,) bool; notes those that the run attacked, or not, or at another budget."""
        attacked = np.zeros(len(self.plan.ids), bool)
        is_attacked = recorded.outcome != Outcome.SPARED
        index = np.searchsorted(self.plan.ids, recorded.sample_id[is_attacked])
        attacked[index] = True
        waits = stage.waits and not attacked.any() if self.judge.is_random else self.checks.waits(stage)
        spared = spared_samples(self.plan, stage, before, waits=waits)
        open_ = before.correct & (before.broken > 0)
        wrong = attacked != (open_ & ~spared)
        wrong |= np.isin(self.plan.ids, recorded.sample_id[~is_attacked]) != (open_ & spared & attacked.any())
        level = np.searchsorted(self.plan.levels, np.ma.getdata(recorded.attacked)[is_attacked])
        wrong[index] |= level != before.broken[index] - 1
        if wrong.any():
            description = "the stage attacked or spared the sample, or its budget is another, than by the rows before it"
            self.repetition.comparison.note(f"{self.name} {stage.name}", description, self.plan.ids[wrong].tolist())
        return spared

    @contextmanager
    def _attacked(self, stage: Stage, before: State, spared: Array) -> Iterator[Run]:
        """A folder with the rows of a stage on the samples that are not spared."""
        with tempfile.TemporaryDirectory(prefix="brinell-") as place:
            scratch = Scratch(Path(place), {**self.run.manifest, **{key: {} for key in ACCUMULATED}, "files": {}})
            scratch.manifest["answers"] = self.run.manifest["answers"]
            audited = AuditedModel(
                self.plan, self.source, self.audited.model, scratch, self.progress, self.audited.sizer, self.audited.surrogates
            )
            AttackRun(audited, stage, before, spared, self.checks.gradient_models.get(stage.gradient, self.audited.model))()
            yield scratch

    def _align(self, recorded: Records, repeated: Run, stage: Stage) -> tuple[Records, Records]:
        """The rows of the drawn samples that the run and its repetition attacked."""
        again = repeated.part(self.name, stage.name)
        ids = [records.sample_id[records.outcome != Outcome.SPARED] for records in (recorded, again)]
        common = np.intersect1d(np.intersect1d(*ids), self.plan.ids[self.drawn])
        first, second = (rows.take(records, np.isin(records.sample_id, common)) for records in (recorded, again))
        return first, second

    def _compare(self, recorded: Records, repeated: Records, before: State) -> tuple[Array, Array]:
        """(m,) bool each: rows that rounding does not explain, and those of them near the boundary, where paths may split."""
        margins = before.clean_margin[np.searchsorted(self.plan.ids, recorded.sample_id)]
        scale = np.maximum(np.abs(margins), np.finfo(np.float32).tiny)
        deviates = np.zeros(len(recorded), bool)
        for name in columns_of(recorded):
            if name in ("adv_margin", "margin", *SIZES, "adv_confidence"):
                one, other = (np.ma.filled(getattr(side, name), 0).astype(float) for side in (recorded, repeated))
                size = np.maximum(np.abs(one), np.ma.filled(recorded.broken, 0) * recorded.unit) if name in SIZES else scale
                size = np.ones(len(recorded)) if name == "adv_confidence" else size
                missing = np.ma.getmaskarray(getattr(recorded, name)) != np.ma.getmaskarray(getattr(repeated, name))
                deviates |= missing | (np.abs(one - other) > TOLERANCE * size)
            elif name != "seconds":
                deviates |= differing(recorded, repeated, name)
        lead = np.maximum(np.abs(np.ma.filled(repeated.adv_margin, 0)), np.abs(np.ma.filled(repeated.margin, 0)))
        return deviates, ~differing(recorded, repeated, "broken") | (lead <= NEAR * scale)

    def _keep(self, stage: Stage, recorded: Records, repeated: Run, before: State) -> None:
        """Write the rows and arrays of a stage: those recorded, and those made where they differ by more than is explained."""
        place, repetition = (self.name, stage.name), self.repetition
        first, second = self._align(recorded, repeated, stage)
        for side, records in enumerate((first, second)):
            is_broken = has_broken(records)
            index = np.searchsorted(self.plan.ids, records.sample_id[is_broken])
            np.minimum.at(self.levels[side], index, np.searchsorted(self.plan.levels, records.broken[is_broken]))
        deviates, is_near = self._compare(first, second, before)
        excused = ~deviates | self.judge.is_random | (is_near & (not repetition.is_repeated))
        repetition.replayed += len(second)
        if not self.judge.is_random:
            repetition.comparison.boundary += int((deviates & excused).sum())
        again = second.sample_id[~excused]
        kept = rows.take(recorded, ~np.isin(recorded.sample_id, again))
        self._keep_facts(stage, repeated, second.sample_id)
        parts = [rows.take(second, ~excused)]
        for number, index in enumerate(chunks(np.arange(len(kept)))):
            part = rows.take(kept, index)
            ids = part.sample_id[part.outcome != Outcome.SPARED].tolist()
            stored = self.recorded.adversarial(self.name, stage.name, part.sample_id[has_broken(part)].tolist())
            extras = self.recorded.extras(self.name, stage.name, ids)
            part = self.judge.judge_stored(f"{self.name} {stage.name}", stage, part, stored)
            repetition.successes += int(has_broken(part).sum())
            if not self.judge.is_random:
                of_drawn = second.sample_id[excused & ~deviates].tolist()
                made_extras = repeated.extras(self.name, stage.name, [sample for sample in ids if sample in of_drawn])
                extras |= {
                    sample: arrays for sample, arrays in made_extras.items() if not _are_close(extras.get(sample, {}), arrays)
                }
            self.run.save_group(*place, f"{number:06d}", part, stored, extras)
            parts.append(part)
        ids = again.tolist()
        if ids:
            arrays, extras = repeated.adversarial(self.name, stage.name, ids), repeated.extras(self.name, stage.name, ids)
            self.run.save_group(*place, "again", parts[0], arrays, extras)
        whole = rows.concatenate([NO_ROWS, *parts])
        self.run.save_part(*place, rows.take(whole, np.argsort(whole.sample_id, kind="stable")))

    def _keep_facts(self, stage: Stage, repeated: Run, ids: Array) -> None:
        """Legend and failures: of drawn samples those that came out, else those recorded."""
        legends = [run.legend(self.name, stage.name) for run in (repeated, self.recorded)]
        if legend := legends[0] or (not len(ids) and legends[1]):
            self.run.manifest["extras"].setdefault(self.name, {})[stage.name] = legend
            if not len(ids):
                self.repetition.unsettled.append(f"{self.name}: what the numbers that {stage.name} stores mean")
        again = set(ids.tolist())
        stated, found = (
            run.manifest.get("failed", {}).get(self.name, {}).get(stage.name, {}) for run in (self.recorded, repeated)
        )
        failed = {sample: reason for sample, reason in stated.items() if int(sample) not in again}
        failed |= {sample: reason for sample, reason in found.items() if int(sample) in again}
        if failed:
            self.run.manifest["failed"].setdefault(self.name, {})[stage.name] = failed


class Scratch(Run):
    """A folder for the rows of attacks, whose manifest is never written."""

    def save_facts(self) -> None:
        """Write nothing."""


def take_served(repeated: dict[str, Any], recorded: Mapping[str, Any]) -> None:
    """Put what servers said of themselves in the place of what they say now."""
    for key in ("models", "surrogates"):
        for facts, stated in zip(repeated.get(key, ()), recorded.get(key) or (), strict=False):
            if "served" in facts and "served" in stated:
                facts["served"] = stated["served"]


def may_be(repeated: Mapping[str, Any], recorded: Mapping[str, Any], is_random: bool) -> bool:
    """True if rounding on another machine, or the chance of a random model, explains another outcome of a check."""
    figures = [check.get(name) for check in (repeated, recorded) for name in ("figure", "limit")]
    if [figure is None for figure in figures[:2]] != [figure is None for figure in figures[2:]]:
        return False
    figure, limit, other, other_limit = (value or 0.0 for value in figures)
    if repeated["passed"] != recorded["passed"]:
        is_near = figures[1] is not None and abs(figure - limit) <= max(abs(limit), abs(figure)) / 10
        return repeated["code"] != Code.RANDOM and (is_random or is_near)
    if not all(is_alike(str(repeated.get(name)), str(recorded.get(name))) for name in ("text", "cause", "reason")):
        return is_random and repeated["passed"] is None
    is_near = abs(figure - other) <= max(abs(figure), abs(limit)) / 2
    return is_random or (is_near and bool(np.isclose(limit, other_limit, rtol=TOLERANCE)))


def is_alike(text: str, other: str) -> bool:
    """True if two sentences are equal but for their numbers."""
    return bool(re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", text) == re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", other))


def rank_chance(levels: Array) -> float:
    """The probability that the first row ranks as high as it does if all rows were made alike.

    Rows that were made alike can be exchanged in each column. So the sum over the columns of how many rows the first one exceeds
    is compared with that of rows which are drawn at random in each column.

    Args:
        levels: (rows, n) index of the smallest budget that broke each sample, of the run and of its repetitions.
    """
    scores = np.sign(levels[:, None] - levels[None]).sum(1)
    drawn = np.random.default_rng(0).integers(0, len(levels), (DRAWS, levels.shape[1]))
    sums = scores[drawn, np.arange(levels.shape[1])].sum(1)
    return float(((sums >= scores[0].sum()).sum() + 1) / (DRAWS + 1))


def _are_close(recorded: Mapping[str, Array], repeated: Mapping[str, Array]) -> bool:
    """True if two sets of arrays are equal up to rounding."""
    return recorded.keys() == repeated.keys() and all(
        recorded[name].shape == repeated[name].shape
        and np.allclose(recorded[name], repeated[name], rtol=1e-3, atol=1e-5, equal_nan=True)
        for name in repeated
    )
