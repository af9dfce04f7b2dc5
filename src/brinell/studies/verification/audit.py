"""Carries an audit out again: every check on all samples, and the attacks on the samples that the verifier has drawn.

Stored files cannot prove that an attack failed, what it cost, or how near it came. So the drawn samples are attacked again, stage
by stage, each stage from the rows that are recorded before it; and the model judges each stored input again. By induction over
the stages, a run whose rows all agree is that of its request.

An answer to a batch depends on the size of the batch by rounding, and some attacks amplify that until a path splits. So where a
row of a stage comes out differently, the stage runs once more in the company that it had, on all of its samples.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.checks import Code
from brinell.core.eot import EOT
from brinell.core.errors import BrinellError, RequestError
from brinell.core.norms import per_sample
from brinell.core.record import CLEAN, Array, Outcome, Records, columns_of, has_broken
from brinell.core.threat import size, tolerance
from brinell.engine import provenance
from brinell.engine.audit import run_audit
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.consistency import ANSWER_TOLERANCE
from brinell.engine.group_attack import level_of, make_criterion, predict
from brinell.engine.model_audit import ModelAudit
from brinell.engine.plan import Plan
from brinell.engine.progress import SilentProgress
from brinell.engine.quantise import quantise
from brinell.engine.stage_run import AttackRun
from brinell.engine.state import State, is_open, spared_samples
from brinell.store import rows
from brinell.store.folder import MANIFEST, PARTS
from brinell.store.run import ACCUMULATED, NO_ROWS, Run
from brinell.studies.verification.differences import Claims, Comparison, are_close, compare_json

MIN_SAMPLES, MIN_RANDOM, SHARE = 8, 24, 0.05
"""Samples drawn by default: at least so many, of a random model more, and at least this share of those that were attacked."""
TOLERANCE = 1e-3
"""Differences that rounding explains: of margins as a share of the clean margin, of sizes as a share of size or budget."""
NEAR, MOST_DEVIATIONS = 0.05, 0.05
"""On another machine a sample may break otherwise whose margin is at most this share of the clean one, and this share of the
drawn rows may come out differently (`benchmarks/verify.py` measures it)."""
CHANCE = 1e-3
"""A random model is refused if its drawn samples break this improbably more often earlier in the repetition than later."""
CHUNK = 256
ROUNDINGS = 128
"""Tolerance of margins, in what float32 may round a decision."""
CHANCE_ERRORS, LOOKS = 5.0, 32
"""Tolerance for a random model, in standard errors of its mean logits, and answers that show how far they scatter. It is wide
because the run kept the best of many means."""
PROBES, PROBE_LOOKS = 64, 3
"""Clean inputs and answers to each that show whether a model answers at random."""
SIZES = ("linf", "l2", "l1", "l0")
NUMBER = re.compile(r"\d+(\.\d+)?(e-?\d+)?")


@dataclass
class Repetition:
    """A run that is carried out again, and what came of it.

    Args:
        run: the run.
        plan: its plan, rebuilt from its request.
        count: samples of each model to attack again; None for 8 or 5 %, whichever is more, and for at least 24 of a random model.
        comparison: collects differences.
        claims: what the run may claim.
    """

    run: Run
    plan: Plan
    count: int | None
    comparison: Comparison
    claims: Claims
    attacked: dict[str, int] = field(default_factory=dict)
    """By model, how many samples were attacked."""
    drawn: dict[str, int] = field(default_factory=dict)
    """By model, how many of them were attacked again."""
    random: set[str] = field(default_factory=set)
    """Models that answer at random."""
    predictions: int = 0
    successes: int = 0
    replayed: int = 0
    unsettled: list[str] = field(default_factory=list)
    """What rounding on another machine, or chance, left open, as clauses."""

    def __post_init__(self) -> None:
        machine = provenance.machine_facts(self.plan.device)
        is_same = all(self.run.manifest.get(key) == machine[key] for key in ("versions", "hardware"))
        self.is_exact = self.plan.device.type == "cpu" and is_same
        """True where the run states the libraries, the processor and the threads of this machine: every row comes out again."""

    def carry_out(self, folder: Path) -> None:
        """Carry the audit out in a folder, and compare its manifest."""
        recorded, command = self.run.manifest, str(self.run.manifest["command"])
        repetition = run_audit(self.plan, folder, SilentProgress(), command=command, audit=partial(RepeatedAudit, self)).manifest
        take_served(repetition, recorded)
        self._compare_gallery(Run(folder, repetition))
        for name in self.drawn:
            if not self.is_exact or name in self.random:
                self._settle_checks(name, repetition)
        exempt = ("files", "failed", "extras")  # the digests are those of the files; the others are compared with the rows
        first, second = ({key: value for key, value in entry.items() if key not in exempt} for entry in (recorded, repetition))
        for manifest in (first, second):
            manifest["warnings"] = sorted(manifest["warnings"], key=lambda warning: (str(warning["model"]), warning["code"]))
        compare_json(MANIFEST, first, second, self.claims, self.comparison)
        if self.comparison.boundary > max(1, MOST_DEVIATIONS * self.replayed):
            self.comparison.note(MANIFEST, f"{self.comparison.boundary} of {self.replayed} rows come out differently")

    def _compare_gallery(self, repetition: Run) -> None:
        """Note clean inputs of the gallery that are not those of the data."""
        stored, loaded = self.run.clean(), repetition.clean()
        odd = [
            i
            for i in sorted(stored.keys() | loaded.keys())
            if i not in stored or i not in loaded or _differ(stored[i], loaded[i])
        ]
        if odd:
            self.comparison.note("arrays", "a clean input is not that of the data", odd)

    def _settle_checks(self, name: str, repetition: dict[str, Any]) -> None:
        """Note checks that came out otherwise; where rounding or chance explains it, the recorded ones stand."""
        recorded, turned = self.run.manifest, set[str]()
        first, second = ({check["code"]: check for check in entry["checks"].get(name, [])} for entry in (recorded, repetition))
        for code in sorted(code for code in first.keys() | second.keys() if first.get(code) != second.get(code)):
            entry, counterpart = first.get(code), second.get(code)
            if entry is None or counterpart is None or not _may_be(counterpart, entry, name in self.random):
                self.comparison.note(f"{name} checks", f"{code} comes out differently")
                continue
            turned |= {code} if entry["passed"] != counterpart["passed"] else set()
            self.unsettled.append(f"{name}: the figure and the sentence of {code}; here {counterpart['text']!r} comes out")
        stated, remade = (
            [warning for warning in entry["warnings"] if warning["model"] == name] for entry in (recorded, repetition)
        )
        texts = {check["text"] for check in first.values()} | {warning["text"] for warning in remade}
        codes, codes_again = ({warning["code"] for warning in warnings} - turned for warnings in (stated, remade))
        if codes != codes_again or any(warning["text"] not in texts for warning in stated):
            self.comparison.note(f"{name} checks", "the warnings come out differently")
        repetition["warnings"] = [*stated, *(warning for warning in repetition["warnings"] if warning["model"] != name)]
        repetition["checks"][name] = recorded["checks"].get(name, [])
        if turned:
            self.unsettled.append(f"{name}: the repair of the gradients")
            repetition["repairs"] = recorded.get("repairs", {})


def _may_be(repeated: Mapping[str, Any], recorded: Mapping[str, Any], is_random: bool) -> bool:
    """True if rounding on another machine, or the chance of a random model, explains another outcome of a check."""
    (figure, limit), (counterpart, other_limit) = (
        [check.get(key) for key in ("figure", "limit")] for check in (repeated, recorded)
    )
    if (figure is None, limit is None) != (counterpart is None, other_limit is None):
        return False
    figure, limit, counterpart, other_limit = (value or 0.0 for value in (figure, limit, counterpart, other_limit))
    if repeated["passed"] != recorded["passed"]:
        return repeated["code"] != Code.RANDOM and (is_random or abs(figure - limit) <= max(abs(limit), abs(figure)) / 10 > 0)
    texts = ([NUMBER.sub("#", str(check.get(key))) for key in ("text", "cause", "reason")] for check in (repeated, recorded))
    if len({tuple(text) for text in texts}) > 1:
        return is_random and repeated["passed"] is None
    is_close = abs(figure - counterpart) <= max(abs(figure), abs(limit)) / 2 and bool(
        np.isclose(limit, other_limit, rtol=TOLERANCE)
    )
    return is_random or is_close


class Answers:
    """A model's answers to some inputs, with what chance may change of their mean."""

    def __init__(self, audited: AuditedModel, x: Tensor, eot: int, looks: int) -> None:
        with torch.no_grad():
            parts = [EOT(audited.model, looks).answers(part) for part in torch.split(x, audited.plan.request.batch_size)]
        self.looks = torch.cat(parts, 1)
        """(looks, n, classes)"""
        self.logits = self.looks.mean(0)
        self._errors = CHANCE_ERRORS * (1 / eot + 1 / looks) ** 0.5

    def names(self, claimed: Array) -> Array:
        """(n,) bool: whether the claimed class (n,) leads, but for rounding and chance."""
        y = torch.as_tensor(np.asarray(claimed), device=self.logits.device).long()
        rival = self.logits.scatter(1, y[:, None], -torch.inf).argmax(1)
        index = torch.arange(len(y), device=y.device)
        slack = losses.rounding(self.logits, y) + self.chance(self.looks[:, index, rival] - self.looks[:, index, y])
        return np.asarray((losses.margin(self.logits, y) <= slack).cpu().numpy())

    def chance(self, values: Tensor) -> Tensor:
        """(n,) how far chance may move the mean of values (looks, n)."""
        return self._errors * values.std(0) if len(values) > 1 else torch.zeros_like(values[0])


class RepeatedAudit(ModelAudit):
    """The audit of one model on the drawn samples, from the recorded rows of all."""

    def __init__(self, repetition: Repetition, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.repetition, self.recorded, self.name = repetition, repetition.run, self.source.name
        self.is_random = False
        self.levels = np.full((2, len(self.plan.ids)), len(self.plan.levels))
        """(2, n) smallest levels at which the drawn samples break, in the run and now."""

    def __call__(self) -> dict[str, str]:
        """Run the whole audit; return the failed checks, by code, each with its text."""
        failed = super().__call__()
        earlier, later = int((self.levels[1] < self.levels[0]).sum()), int((self.levels[1] > self.levels[0]).sum())
        if self.is_random and sign_chance(earlier, later) < CHANCE:
            samples = self.plan.ids[self.levels[1] < self.levels[0]]
            self._note("repetition", "samples break at smaller budgets than recorded, more often than chance explains", samples)
        return failed

    def _note(self, stage: str, description: str, samples: Array) -> None:
        if len(samples):
            self.repetition.comparison.note(f"{self.name} {stage}", description, samples.tolist())

    def _check_clean(self) -> State:
        recorded, repetition = self.recorded.part(self.name, CLEAN), self.repetition
        self.is_random = self._answers_at_random(recorded.sample_id[recorded.outcome != Outcome.FAILED][:PROBES])
        repetition.random |= {self.name} if self.is_random else set()
        candidates = np.flatnonzero(is_open(recorded.outcome) & (self.plan.units > 0) & bool(len(self.plan.levels)))
        least = MIN_RANDOM if self.is_random else MIN_SAMPLES
        count = max(least, round(SHARE * len(candidates))) if repetition.count is None else repetition.count
        self.drawn = np.zeros(len(self.plan.ids), bool)
        self.drawn[np.random.default_rng().choice(candidates, min(count, len(candidates)), replace=False)] = True
        repetition.attacked[self.name], repetition.drawn[self.name] = len(candidates), int(self.drawn.sum())
        super()._check_clean()
        repeated = self.audited.rows[CLEAN]
        repetition.predictions += int((repeated.outcome != Outcome.FAILED).sum())
        self._compare_clean(recorded, repeated)
        self.audited.rows[CLEAN] = recorded
        return State.from_clean(recorded, self.plan.levels, targeted=self.plan.targeting is not None)

    def _answers_at_random(self, ids: Array) -> bool:
        """True if two answers to the same clean inputs differ. What the run says of it is not used."""
        try:
            first, *repetitions = (predict(self.audited.model, self.audited.load(ids), CHUNK) for _ in range(PROBE_LOOKS))
        except BrinellError:
            return False
        scale = first.abs().max().clamp_min(1e-12) if len(first) else 1.0
        return any(bool(((first - counterpart).abs() > ANSWER_TOLERANCE * scale).any()) for counterpart in repetitions)

    def _compare_clean(self, recorded: Records, repeated: Records) -> None:
        """Note clean rows that differ by more than rounding or chance explains; then nothing is attacked."""
        ids, values = recorded.sample_id, [np.ma.filled(side.margin, 0.0).astype(float) for side in (recorded, repeated)]
        scale = float(np.median(np.abs(values[1]))) if len(ids) else 0.0
        is_tie = np.all([np.abs(value) <= TOLERANCE * scale for value in values], axis=0) & (not self.repetition.is_exact)
        for name in ("label", "unit", "target", "clean_pred", "outcome", "forwards"):
            differs = _differing(recorded, repeated, name)
            if name in ("clean_pred", "outcome", "target"):
                differs &= ~is_tie & ~self._leads(recorded, differs)
            self._note(CLEAN, f"column {name} comes out differently", ids[differs])
        if not self.is_random:
            distant = np.abs(values[0] - values[1]) > TOLERANCE * np.maximum(np.abs(values[1]), scale)
            self._note(CLEAN, "column margin comes out differently", ids[distant])
            shares = np.abs(recorded.clean_confidence - repeated.clean_confidence) > TOLERANCE
            self._note(CLEAN, "column clean_confidence comes out differently", ids[shares])
        self._stop_at_differences()

    def _leads(self, recorded: Records, differs: Array) -> Array:
        """(n,) bool: rows of a random model whose recorded class may lead."""
        leads = np.zeros(len(recorded), bool)
        for index in _chunks(np.flatnonzero(differs & (recorded.clean_pred >= 0))) if self.is_random else ():
            x = self.audited.load(recorded.sample_id[index])
            leads[index] = Answers(self.audited, x, self.plan.eot, LOOKS).names(recorded.clean_pred[index])
        return leads

    def _stop_at_differences(self) -> None:
        if self.repetition.comparison.differences:
            raise RequestError("the repetition stops at what is false")

    def _stage_rows(self, stage: Stage, state: State) -> Records:
        """Attack the drawn samples again, judge the stored inputs of all, and go on with what is recorded."""
        if stage.name in self.source.skipped:
            return NO_ROWS
        recorded, before = self.recorded.part(self.name, stage.name), self._state_before(stage, state)
        idle = self._check_turn(stage, before, recorded)
        repeated = self._attack(stage, before, idle | ~self.drawn)
        deviates, is_near = self._compare(*self._align(recorded, repeated, stage), before)
        if deviates.any() and not self.is_random:
            repeated = self._attack(stage, before, idle)
            deviates, is_near = self._compare(*self._align(recorded, repeated, stage), before)
        self._judge_drawn(stage, recorded, repeated, deviates, is_near)
        broken = np.flatnonzero(has_broken(recorded))
        for index in _chunks(broken):
            self._judge_stored(stage, rows.take(recorded, index))
        self.repetition.successes += len(broken)
        for file in self.recorded.array_files(self.name, stage.name):  # checks look at stored inputs
            (self.run.path / "arrays").mkdir(exist_ok=True)
            shutil.copyfile(file, self.run.path / "arrays" / file.name)
        return recorded

    def _check_turn(self, stage: Stage, before: State, recorded: Records) -> Array:
        """The samples that a stage spares, (n,) bool; notes those that the run attacked, or not, or at another budget."""
        attacked = np.zeros(len(self.plan.ids), bool)
        is_attacked = recorded.outcome != Outcome.SPARED
        index = np.searchsorted(self.plan.ids, recorded.sample_id[is_attacked])
        attacked[index] = True
        waits = stage.waits and not attacked.any() if self.is_random else self.checks.waits(stage)
        idle = spared_samples(self.plan, stage, before, waits=waits)
        open_ = before.correct & (before.broken > 0)
        wrong = attacked != (open_ & ~idle)
        wrong |= np.isin(self.plan.ids, recorded.sample_id[~is_attacked]) != (open_ & idle & attacked.any())
        level = np.searchsorted(self.plan.levels, np.ma.getdata(recorded.attacked)[is_attacked])
        wrong[index] |= level != before.broken[index] - 1
        description = "the stage attacked or spared the sample, or its budget is another, than by the rows before it"
        self._note(stage.name, description, self.plan.ids[wrong])
        self._stop_at_differences()
        return idle

    def _attack(self, stage: Stage, before: State, idle: Array) -> Run:
        """A hidden folder with the rows of a stage on the samples that are not spared."""
        place = self.run.path / PARTS / f"again-{len(list((self.run.path / PARTS).glob('again-*')))}"
        scratch = Run(place, {**self.run.manifest, **{key: {} for key in ACCUMULATED}, "answers": self.run.manifest["answers"]})
        audited = AuditedModel(
            self.plan, self.source, self.audited.model, scratch, self.progress, self.audited.sizer, self.audited.surrogates
        )
        AttackRun(audited, stage, before, idle, self.checks.gradient_models.get(stage.gradient, self.audited.model))()
        return scratch

    def _align(self, recorded: Records, repeated: Run, stage: Stage) -> tuple[Records, Records]:
        """The rows of the drawn samples that the run and its repetition attacked."""
        repetition = repeated.part(self.name, stage.name)
        ids = [records.sample_id[records.outcome != Outcome.SPARED] for records in (recorded, repetition)]
        common = np.intersect1d(np.intersect1d(*ids), self.plan.ids[self.drawn])
        first, second = (rows.take(records, np.isin(records.sample_id, common)) for records in (recorded, repetition))
        return first, second

    def _compare(self, recorded: Records, repeated: Records, before: State) -> tuple[Array, Array]:
        """(m,) bool each: rows that rounding does not explain, and those of them near the boundary, where paths may split."""
        margins = before.clean_margin[np.searchsorted(self.plan.ids, recorded.sample_id)]
        scale = np.maximum(np.abs(margins), np.finfo(np.float32).tiny)
        deviates = np.zeros(len(recorded), bool)
        for name in columns_of(recorded):
            if name in ("adv_margin", "margin", *SIZES, "adv_confidence"):
                entry, counterpart = (np.ma.filled(getattr(side, name), 0).astype(float) for side in (recorded, repeated))
                size_ = np.maximum(np.abs(entry), np.ma.filled(recorded.broken, 0) * recorded.unit) if name in SIZES else scale
                size_ = np.ones(len(recorded)) if name == "adv_confidence" else size_
                missing = np.ma.getmaskarray(getattr(recorded, name)) != np.ma.getmaskarray(getattr(repeated, name))
                deviates |= missing | (np.abs(entry - counterpart) > TOLERANCE * size_)
            elif name != "seconds":
                deviates |= _differing(recorded, repeated, name)
        lead = np.maximum(np.abs(np.ma.filled(repeated.adv_margin, 0)), np.abs(np.ma.filled(repeated.margin, 0)))
        return deviates, ~_differing(recorded, repeated, "broken") | (lead <= NEAR * scale)

    def _judge_drawn(self, stage: Stage, recorded: Records, repetition: Run, deviates: Array, is_near: Array) -> None:
        """Note the drawn rows that differ by more than is explained, and other stored extras or reasons of failures."""
        first, second = self._align(recorded, repetition, stage)
        for side, records in enumerate((first, second)):
            is_broken = has_broken(records)
            index = np.searchsorted(self.plan.ids, records.sample_id[is_broken])
            np.minimum.at(self.levels[side], index, np.searchsorted(self.plan.levels, records.broken[is_broken]))
        self.repetition.replayed += len(second)
        if self.is_random:
            return
        excused = is_near & (not self.repetition.is_exact)
        self.repetition.comparison.boundary += int((deviates & excused).sum())
        ids = second.sample_id
        self._note(stage.name, "the attack comes out differently", ids[deviates & ~excused])
        legends = [run.legend(self.name, stage.name) for run in (self.recorded, repetition)]
        if len(ids) and legends[0] != legends[1]:
            self._note(stage.name, "what the stored numbers mean comes out differently", ids[:1])
        stated, findings = (run.extras(self.name, stage.name, ids[~deviates].tolist()) for run in (self.recorded, repetition))
        counterpart = [sample for sample in ids[~deviates].tolist() if not _same_extras(stated.get(sample), findings.get(sample))]
        self._note(stage.name, "what the attack stores comes out differently", np.array(counterpart))
        stated, findings = (run.manifest["failed"].get(self.name, {}).get(stage.name, {}) for run in (self.recorded, repetition))
        counterpart = [sample for sample in ids.tolist() if stated.get(str(sample)) != findings.get(str(sample))]
        self._note(stage.name, "the reason of a failure comes out differently", np.array(counterpart))

    def _judge_stored(self, stage: Stage, records: Records) -> None:
        """Note rows of broken samples whose stored input is missing, does not succeed, or shows another value."""
        plan, domain = self.plan, self.plan.dataset.domain
        stored = self.recorded.adversarial(self.name, stage.name, records.sample_id.tolist())
        shape = tuple(domain.shape)
        wrong = np.array([sample not in stored or stored[sample].shape != shape for sample in records.sample_id.tolist()])
        self._note(stage.name, f"the adversarial input is not stored, or not of shape {shape}", records.sample_id[wrong])
        records = rows.take(records, ~wrong)
        if not len(records):
            return
        ids = records.sample_id
        x = torch.as_tensor(np.stack([stored[sample] for sample in ids.tolist()]), device=plan.device)
        x0, units = self.audited.load(ids), torch.as_tensor(records.unit[:, None], device=x.device)
        low, high = domain.bounds(x)
        in_bounds = ((x >= low - domain.slack) & (x <= high + domain.slack)).flatten(1).all(1).cpu().numpy()
        self._note(stage.name, "the stored input leaves the bounds of the data", ids[~in_bounds])
        levels = (units * torch.as_tensor(plan.levels, device=x.device)).float()
        level = level_of(size(plan.distance, x, x0), levels, plan.distance, domain).cpu().numpy()
        self._note(stage.name, f"the stored input is farther than eps in {plan.distance.name}", ids[level == levels.shape[1]])

        answers = self._answer(x, stage.eot)
        y = torch.as_tensor(records.label, device=x.device).long()
        target = None if plan.targeting is None else np.ma.getdata(records.target)
        criterion = make_criterion(target, x.device, self.source.reject, plan.threshold)
        margins = torch.stack([criterion.margin(logits, y, x) for logits in answers.looks])
        slack = (losses.rounding(answers.logits, y) + answers.chance(margins)).cpu().numpy()
        margin = criterion.margin(answers.logits, y, x).cpu().numpy()
        self._note(stage.name, "the stored input is no success", ids[margin < -slack])
        eps = torch.as_tensor(np.ma.getdata(records.broken) * records.unit, dtype=torch.float32, device=x.device)
        limit = eps + tolerance(eps, plan.distance, domain)
        quantised = torch.as_tensor(np.ma.filled(records.quantised_within, False), device=x.device)
        rounded = torch.where(per_sample(quantised, x), quantise(x, x0, limit, plan.distance, domain), domain.round(x))
        is_rough = plan.request.precision != "float32" or self.is_random
        confidence = losses.decision(answers.logits)[0].cpu().numpy()
        holds = {
            name: np.isclose(getattr(records, name), getattr(norms, name)(x - x0).cpu().numpy(), rtol=1e-4, atol=domain.slack)
            for name in SIZES
        } | {
            "broken": np.append(plan.levels, np.inf)[level] == np.ma.getdata(records.broken),
            "adv_pred": answers.names(np.ma.filled(records.adv_pred, 0)),
            "adv_confidence": is_rough | (np.abs(records.adv_confidence - confidence) <= TOLERANCE),
            "adv_margin": is_rough | (np.abs(np.ma.filled(records.adv_margin, np.nan) - margin) <= ROUNDINGS * slack),
            "quantised_pred": self._answer(rounded, stage.eot).names(np.ma.filled(records.quantised_pred, 0)),
            "quantised_within": (size(plan.distance, rounded, x0) <= limit).cpu().numpy() == quantised.cpu().numpy(),
        }
        for name, is_true in holds.items():
            self._note(stage.name, f"column {name} is not what the stored input shows", ids[~np.ma.filled(is_true, False)])

    def _answer(self, x: Tensor, eot: int) -> Answers:
        return Answers(self.audited, x, eot, max(eot, LOOKS) if self.is_random else eot)


def take_served(repeated: dict[str, Any], recorded: Mapping[str, Any]) -> None:
    """Put what servers said of themselves in the place of what they say now."""
    for key in ("models", "surrogates"):
        for facts, stated in zip(repeated.get(key, ()), recorded.get(key) or (), strict=False):
            if "served" in facts and "served" in stated:
                facts["served"] = stated["served"]


def sign_chance(earlier: int, later: int) -> float:
    """The probability of so many samples that break earlier rather than later, if both are as likely (a sign test)."""
    n = earlier + later
    return float(sum(comb(n, k) for k in range(earlier, n + 1)) / 2**n)


def _differing(first: Any, second: Any, name: str) -> Array:
    """(rows,) bool: rows with another value in a column, or that have one in only one of both."""
    entry, counterpart = getattr(first, name), getattr(second, name)
    missing, missing_again = np.ma.getmaskarray(entry), np.ma.getmaskarray(counterpart)
    return np.asarray((missing != missing_again) | (~missing & (np.ma.getdata(entry) != np.ma.getdata(counterpart))))


def _same_extras(stated: Mapping[str, Array] | None, findings: Mapping[str, Array] | None) -> bool:
    stated, findings = stated or {}, findings or {}
    return stated.keys() == findings.keys() and not any(_differ(stated[name], findings[name]) for name in findings)


def _differ(first: Array, second: Array) -> bool:
    return first.shape != second.shape or not are_close(first, second)


def _chunks(index: Array) -> Iterator[Array]:
    """Consecutive parts of an index array, small enough to load at once."""
    return (index[start : start + CHUNK] for start in range(0, len(index), CHUNK))
