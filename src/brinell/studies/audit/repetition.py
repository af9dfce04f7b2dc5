"""Carries an audit out again: every check on all samples, and the attacks on the samples that the
verifier has drawn.

Stored files cannot prove that an attack failed, what it cost, or how near it came. So the drawn
samples are attacked again, stage by stage, each stage from the rows that are recorded before it;
and the model judges each stored input again. By induction over the stages, a run whose rows all
agree is that of its request.

An answer to a batch depends on the size of the batch by rounding, and some attacks amplify that
until a path splits. So where a row of a stage comes out differently, the stage runs once more in
the company that it had, on all of its samples.
"""

import json
import re
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
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
from brinell.engine.audit import plan_facts
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.consistency import ANSWER_TOLERANCE
from brinell.engine.group_attack import level_of, make_criterion, predict
from brinell.engine.model_audit import ModelAudit
from brinell.engine.model_checks import Checks
from brinell.engine.piece import Piece, PieceAnswer
from brinell.engine.plan import Plan
from brinell.engine.progress import SilentProgress
from brinell.engine.quantise import quantise
from brinell.engine.stage_run import StageRun
from brinell.engine.state import State, is_open, spared_samples
from brinell.store import rows
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, PARTS
from brinell.store.run import ACCUMULATED, NO_ROWS, Run
from brinell.studies.audits import run_audit
from brinell.studies.differences import (
    DERIVED,
    Comparison,
    Statements,
    are_close,
    compare_json,
)

MIN_SAMPLES, MIN_RANDOM, SHARE = 8, 24, 0.05
"""Samples drawn by default: at least so many, of a random model more, and at least this share of
those that were attacked."""
TOLERANCE = 1e-3
"""Differences that rounding explains: of margins as a share of the clean margin, of sizes as a
share of size or budget."""
NEAR, MOST_DEVIATIONS = 0.05, 0.05
"""On another machine a sample may break otherwise whose margin is at most this share of the
clean one, and this share of the drawn rows may come out differently (`benchmarks/verify.py`
measures it)."""
CHANCE = 1e-3
"""A random model is refused if its drawn samples break this improbably more often earlier in the
repetition than later."""
CHUNK = 256
ROUNDINGS = 128
"""Tolerance of margins, in what float32 may round a decision."""
CHANCE_ERRORS, LOOKS = 5.0, 32
"""Tolerance for a random model, in standard errors of its mean logits, and answers that show how
far they scatter. It is wide because the run kept the best of many means."""
PROBES, PROBE_LOOKS = 64, 3
"""Clean inputs and answers to each that show whether a model answers at random."""
SIZES = ("linf", "l2", "l1", "l0")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


class RepeatedRun:
    """A run that is carried out again, and what came of it.

    Args:
        run: the run.
        plan: its plan, rebuilt from its request.
        comparison: collects differences; its count is that of the samples of each model to attack
            again, by default 8 or 5 %, whichever is more, and at least 24 of a random model.
    """

    def __init__(self, run: Run, plan: Plan, comparison: Comparison) -> None:
        self.run, self.plan, self.comparison = run, plan, comparison
        self.audits: list[RepeatedAudit] = []
        self.unsettled: list[str] = []
        """Points that rounding on another machine, or chance, left open, as clauses."""
        machine = provenance.machine_facts(plan.device)
        is_same = all(run.manifest.get(key) == machine[key] for key in ("versions", "hardware"))
        self.is_exact = plan.device.type == "cpu" and is_same
        """True where the run states the libraries, the processor and the threads of this
        machine: every row comes out again."""

    @property
    def replayed(self) -> int:
        """Rows that were computed again from the start."""
        return sum(audit.replayed for audit in self.audits)

    def statements(self) -> Statements:
        """The statements that hold, and those that are left open."""
        has_differences, unverified = bool(self.comparison.differences), list[str]()
        if has_differences:
            unverified.append("every figure, since something is false")
        for audit in self.audits:
            if audit.attacked > audit.drawn.sum() == 0:
                unverified.append(
                    f"{audit.name}: the attacked samples, since none was to be repeated"
                )
            if audit.is_random:
                unverified.append(
                    f"{audit.name}: exact rows and costs, since the model answers at random"
                )
        is_repeated = self.comparison.count != 0 or not any(a.attacked for a in self.audits)
        return Statements(
            verified=[] if has_differences else list(self._sentences()),
            unverified=[*unverified, *self.unsettled],
            refusal="" if is_repeated else "no sample was to be attacked again",
            replayed=self.replayed,
            samples=sum(int(audit.drawn.sum()) for audit in self.audits),
        )

    def _sentences(self) -> Iterator[str]:
        """Statements about an audit that holds."""
        predictions, successes = (
            sum(getattr(audit, name) for audit in self.audits)
            for name in ("predictions", "successes")
        )
        yield (
            "the manifest follows from the request, the data and the models, and no "
            "file is missing, changed or foreign"
        )
        yield (
            f"the models predict the recorded classes for all {predictions:,} clean "
            "inputs, and checks come out as recorded"
        )
        yield f"each of {successes:,} stored adversarial inputs is a success within its budget"
        yield DERIVED
        for audit in self.audits:
            draws, tenth = int(audit.drawn.sum()), max(1, round(0.1 * audit.attacked))
            single, several = audit.miss_probability(1), audit.miss_probability(tenth)
            scatter = ", by how its answers scatter," if audit.is_random else ""
            if draws:
                yield (
                    f"{audit.name}: {draws} of {audit.attacked} attacked samples "
                    f"were attacked again;{scatter} this misses "
                    f"{tenth} forged samples with probability {several:.2g}, and "
                    f"a single one with {single:.2g}"
                )

    def carry_out(self, folder: Path) -> None:
        """Carry the audit out in a folder, which then holds what the run may hold."""
        recorded = self.run.manifest
        self._check_plan()
        make_audit, command = partial(RepeatedAudit, self), str(recorded["command"])
        repeated = run_audit(
            self.plan, folder, SilentProgress(), command=command, audit=make_audit
        ).manifest
        for audit in self.audits:
            if audit.is_random or not self.is_exact:
                self._settle_checks(audit, repeated)
        if sorted(map(str, recorded["warnings"])) == sorted(map(str, repeated["warnings"])):
            repeated["warnings"] = recorded["warnings"]
        write_text(folder / MANIFEST, json.dumps(repeated))
        if self.comparison.boundary > max(1, MOST_DEVIATIONS * self.replayed):
            self.comparison.note(
                MANIFEST, f"{self.comparison.boundary} of {self.replayed} rows come out differently"
            )

    def _check_plan(self) -> None:
        """Stop at a manifest or samples that are not those of the plan."""
        facts = json.loads(
            json.dumps(
                {key: value for key, value in plan_facts(self.plan).items() if key != "warnings"}
            )
        )
        compare_json(
            MANIFEST, {key: self.run.manifest.get(key) for key in facts}, facts, self.comparison
        )
        for source in () if self.comparison.differences else self.plan.models:
            if self.run.part(source.name, CLEAN).sample_id.tolist() != self.plan.ids.tolist():
                self.comparison.note(
                    f"{source.name} clean", "the rows are not one for each sample in order"
                )
        self.stop_at_differences()

    def stop_at_differences(self) -> None:
        """End the repetition where something is false already."""
        if self.comparison.differences:
            raise RequestError("the repetition stops at what is false")

    def _settle_checks(self, audit: "RepeatedAudit", repeated: dict[str, Any]) -> None:
        """Let the recorded checks of a model stand where rounding or chance explains how they
        differ.
        """
        name, checks = audit.name, repeated["checks"].get(audit.name, [])
        for first, second in zip(self.run.manifest["checks"].get(name, []), checks, strict=False):
            if (
                first != second
                and first["code"] == second["code"]
                and _may_be(second, first, audit.is_random)
            ):
                text = (
                    f"{name}: the figure and the sentence of {first['code']}; here "
                    f"{second['text']!r} comes out"
                )
                self.unsettled.append(text)
                if first["passed"] != second["passed"]:
                    # What was repaired follows from the checks, so it stands or goes with them.
                    repeated.pop("repairs", None)
                    if "repairs" in self.run.manifest:
                        repeated["repairs"] = self.run.manifest["repairs"]
                second.update(first)
        others = [
            entry
            for entry in repeated["warnings"]
            if entry["model"] != name or entry["code"] not in tuple(Code)
        ]
        failed = [
            {"code": one["code"], "model": name, "text": one["text"]}
            for one in checks
            if one["passed"] is False
        ]
        repeated["warnings"] = others + failed


def _may_be(repeated: Mapping[str, Any], recorded: Mapping[str, Any], is_random: bool) -> bool:
    """True if rounding on another machine, or the chance of a random model, explains another
    outcome of a check.
    """
    values, others = (
        [check.get(key) for key in ("figure", "limit")] for check in (repeated, recorded)
    )
    if [value is None for value in values] != [value is None for value in others]:
        return False
    figure, limit = (value or 0.0 for value in values)
    if repeated["passed"] != recorded["passed"]:
        return repeated["code"] != Code.RANDOM and (
            is_random or abs(figure - limit) <= max(abs(limit), abs(figure)) / 10 > 0
        )
    texts = [
        " ".join(str(check.get(key)) for key in ("text", "cause", "reason"))
        for check in (repeated, recorded)
    ]
    words, numbers = (
        [NUMBER.split(text) for text in texts],
        [NUMBER.findall(text) for text in texts],
    )
    if words[0] != words[1]:
        return is_random and repeated["passed"] is None
    pairs = zip(
        [figure, *map(float, numbers[0])], [others[0] or 0.0, *map(float, numbers[1])], strict=True
    )
    are_near = all(
        abs(first - second) <= max(abs(first), abs(limit) * (first == figure)) / 2
        for first, second in pairs
    )
    return is_random or (are_near and abs(limit - (others[1] or 0.0)) <= TOLERANCE * abs(limit))


class Answers:
    """A model's answers to some inputs, with what chance may change of their mean."""

    def __init__(self, audited: AuditedModel, x: Tensor, eot: int, looks: int) -> None:
        with torch.no_grad():
            parts = [
                EOT(audited.model, looks).answers(part)
                for part in torch.split(x, audited.plan.request.batch_size)
            ]
        self.looks = torch.cat(parts, 1)
        """(looks, n, classes)"""
        self.logits = self.looks.mean(0)
        self._errors = CHANCE_ERRORS * (1 / eot + 1 / looks) ** 0.5

    def names(self, claimed: Array) -> Array:
        """(n,) bool: whether the claimed class (n,) leads, but for rounding and chance."""
        y = torch.as_tensor(np.asarray(claimed), device=self.logits.device).long()
        rival = self.logits.scatter(1, y[:, None], -torch.inf).argmax(1)
        index = torch.arange(len(y), device=y.device)
        slack = losses.rounding(self.logits, y) + self.chance(
            self.looks[:, index, rival] - self.looks[:, index, y]
        )
        return np.asarray((losses.margin(self.logits, y) <= slack).cpu().numpy())

    def chance(self, values: Tensor) -> Tensor:
        """(n,) how far chance may move the mean of values (looks, n)."""
        return self._errors * values.std(0) if len(values) > 1 else torch.zeros_like(values[0])


class RepeatedAudit(ModelAudit):
    """The audit of one model on the drawn samples, from the recorded rows of all."""

    def __init__(self, repetition: RepeatedRun, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.repetition, self.recorded, self.name = repetition, repetition.run, self.source.name
        self.is_random = False
        self.attacked = self.predictions = self.successes = self.replayed = 0
        """Samples that were attacked, clean predictions and adversarial inputs that were judged,
        rows that were made again."""
        self._attempts = 0
        """Stages that were attacked again."""
        self.drawn = np.zeros(len(self.plan.ids), bool)
        self.levels = np.full((2, len(self.plan.ids)), len(self.plan.levels))
        """(2, n) smallest levels at which the drawn samples break, in the run and now."""
        repetition.audits.append(self)

    def pieces(self) -> Checks:
        """The pieces of the whole audit; returns the failed checks, by code, each with its text."""
        failed: dict[str, str] = yield from super().pieces()
        earlier = self.levels[1] < self.levels[0]
        if self.is_random and earlier.sum() > most_earlier(self._count_turned()):
            text = "samples break at smaller budgets than recorded, more often than chance explains"
            self._note("repetition", text, self.plan.ids[earlier])
        return failed

    def _count_turned(self) -> int:
        return int((self.levels[0] != self.levels[1]).sum())

    def miss_probability(self, forged: int) -> float:
        """The probability that the repetition misses so many samples of which the run says falsely
        that nothing broke them.
        """
        draws = int(self.drawn.sum())
        return miss_probability(
            self.attacked, draws, forged, self._count_turned() / draws if self.is_random else None
        )

    def _note(self, stage: str, description: str, samples: Array) -> None:
        if len(samples):
            self.repetition.comparison.note(f"{self.name} {stage}", description, samples.tolist())

    def _accept(self, stage: str) -> None:
        """Put the recorded rows and inputs of a stage, and its words about samples, into the
        repetition.
        """
        for file in self.recorded.stage_files(self.name, stage):
            place = self.run.path / file.relative_to(self.recorded.path)
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, place)
        for key in ("failed", "extras") if stage != CLEAN else ():
            if stage in self.recorded.manifest[key].get(self.name, {}):
                entry = self.recorded.manifest[key][self.name][stage]
                self.run.manifest[key].setdefault(self.name, {})[stage] = entry

    def _check_clean(self) -> Generator[Sequence[Piece], PieceAnswer, State]:
        recorded = self.recorded.part(self.name, CLEAN)
        self.is_random = self._answers_at_random(
            recorded.sample_id[recorded.outcome != Outcome.FAILED][:PROBES]
        )
        candidates = np.flatnonzero(
            is_open(recorded.outcome) & (self.plan.units > 0) & bool(len(self.plan.levels))
        )
        least, count = (
            MIN_RANDOM if self.is_random else MIN_SAMPLES,
            self.repetition.comparison.count,
        )
        count = max(least, round(SHARE * len(candidates))) if count is None else count
        self.drawn[
            np.random.default_rng().choice(candidates, min(count, len(candidates)), replace=False)
        ] = True
        self.attacked = len(candidates)
        yield from super()._check_clean()
        repeated = self.audited.rows[CLEAN]
        self.predictions = int((repeated.outcome != Outcome.FAILED).sum())
        self._compare_clean(recorded, repeated)
        self._accept(CLEAN)
        self.audited.rows[CLEAN] = recorded
        return State.from_clean(
            recorded, self.plan.levels, targeted=self.plan.targeting is not None
        )

    def _answers_at_random(self, ids: Array) -> bool:
        """True if two answers to the same clean inputs differ.

        The statement of the run on it is not used.
        """
        try:
            first, *repetitions = (
                predict(self.audited.model, self.audited.load(ids), CHUNK)
                for _ in range(PROBE_LOOKS)
            )
        except BrinellError:
            return False
        scale = first.abs().max().clamp_min(1e-12) if len(first) else 1.0
        return any(
            bool(((first - counterpart).abs() > ANSWER_TOLERANCE * scale).any())
            for counterpart in repetitions
        )

    def _compare_clean(self, recorded: Records, repeated: Records) -> None:
        """Note clean rows that differ by more than rounding or chance explains; then nothing is
        attacked.
        """
        ids, values = (
            recorded.sample_id,
            [np.ma.filled(side.margin, 0.0).astype(float) for side in (recorded, repeated)],
        )
        scale = float(np.median(np.abs(values[1]))) if len(ids) else 0.0
        for name in ("label", "unit", "target", "clean_pred", "outcome", "forwards"):
            differs = _differing(recorded, repeated, name)
            if name in ("clean_pred", "outcome", "target"):
                differs &= ~self._leads(recorded, differs)
            self._note(CLEAN, f"column {name} comes out differently", ids[differs])
        if not self.is_random:
            distant = np.abs(values[0] - values[1]) > TOLERANCE * np.maximum(
                np.abs(values[1]), scale
            )
            self._note(CLEAN, "column margin comes out differently", ids[distant])
            shares = np.abs(recorded.clean_confidence - repeated.clean_confidence) > TOLERANCE
            self._note(CLEAN, "column clean_confidence comes out differently", ids[shares])
        self.repetition.stop_at_differences()

    def _leads(self, recorded: Records, differs: Array) -> Array:
        """(n,) bool: rows that differ, whose recorded class leads but for rounding and chance."""
        leads = np.zeros(len(recorded), bool)
        for index in _chunks(np.flatnonzero(differs & (recorded.clean_pred >= 0))):
            answers = self._answer(self.audited.load(recorded.sample_id[index]), self.plan.eot)
            leads[index] = answers.names(recorded.clean_pred[index])
        return leads

    def _stage_rows(
        self, stage: Stage, state: State
    ) -> Generator[Sequence[Piece], PieceAnswer, Records]:
        """Attack the drawn samples again, judge the stored inputs of all, and go on with what is
        recorded.
        """
        if stage.name in self.source.skipped:
            return NO_ROWS
        recorded, before = (
            self.recorded.part(self.name, stage.name),
            self._state_before(stage, state),
        )
        idle = self._check_turn(stage, before, recorded)
        repetition = yield from self._attack(stage, before, idle | ~self.drawn)
        first, second, deviates = self._compare(stage, recorded, repetition, before)
        if deviates.any() and not self.is_random:
            repetition = yield from self._attack(stage, before, idle)
            first, second, deviates = self._compare(stage, recorded, repetition, before)
        self._judge_drawn(stage, repetition, first, second, deviates, before)
        broken = np.flatnonzero(has_broken(recorded))
        for index in _chunks(broken):
            self._judge_stored(stage, rows.take(recorded, index))
        self.successes += len(broken)
        self._accept(stage.name)
        return recorded

    def _check_turn(self, stage: Stage, before: State, recorded: Records) -> Array:
        """The samples that a stage spares, (n,) bool; notes those that the run attacked, or not, or
        at another budget.
        """
        attacked = np.zeros(len(self.plan.ids), bool)
        is_attacked = recorded.outcome != Outcome.SPARED
        index = np.searchsorted(self.plan.ids, recorded.sample_id[is_attacked])
        attacked[index] = True
        waits = stage.waits and not attacked.any() if self.is_random else self.checks.waits(stage)
        idle = spared_samples(self.plan, stage, before, waits=waits)
        open_ = before.correct & (before.broken > 0)
        wrong = attacked != (open_ & ~idle)
        wrong |= np.isin(self.plan.ids, recorded.sample_id[~is_attacked]) != (
            open_ & idle & attacked.any()
        )
        level = np.searchsorted(self.plan.levels, np.ma.getdata(recorded.attacked)[is_attacked])
        wrong[index] |= level != before.broken[index] - 1
        description = (
            "the stage attacked or spared the sample, or its budget is another, than "
            "by the rows before it"
        )
        self._note(stage.name, description, self.plan.ids[wrong])
        self.repetition.stop_at_differences()
        return idle

    def _attack(
        self, stage: Stage, before: State, idle: Array
    ) -> Generator[Sequence[Piece], PieceAnswer, Run]:
        """A hidden folder with the rows of a stage on the samples that are not spared."""
        self._attempts += 1
        name = self.audited.key(f"again-{self._attempts}")
        scratch = Run(
            self.run.path / PARTS / name,
            {
                **self.run.manifest,
                **{key: {} for key in ACCUMULATED},
                "answers": self.run.manifest["answers"],
            },
        )
        audited = AuditedModel(
            self.plan,
            self.source,
            self.audited.model,
            scratch,
            self.progress,
            self.audited.sizer,
            self.audited.surrogates,
        )
        audited.parts = self.audited.parts
        followed = self.checks.gradient_models.get(stage.gradient, self.audited.model)
        yield from StageRun(audited, stage, before, idle, followed, prefix=f"{name}-").pieces()
        return scratch

    def _compare(
        self, stage: Stage, recorded: Records, repetition: Run, before: State
    ) -> tuple[Records, Records, Array]:
        """The rows of the drawn samples that a run and its repetition attacked, and where rounding
        does not explain both.
        """
        repeated = repetition.part(self.name, stage.name)
        ids = [
            records.sample_id[records.outcome != Outcome.SPARED] for records in (recorded, repeated)
        ]
        common = np.intersect1d(np.intersect1d(*ids), self.plan.ids[self.drawn])
        recorded, repeated = (
            rows.take(records, np.isin(records.sample_id, common))
            for records in (recorded, repeated)
        )
        deviates, scale = np.zeros(len(recorded), bool), self._scale(recorded, before)
        for name in columns_of(recorded):
            if name in ("adv_margin", "margin", *SIZES, "adv_confidence"):
                entry, counterpart = (
                    np.ma.filled(getattr(side, name), 0).astype(float)
                    for side in (recorded, repeated)
                )
                size_ = (
                    np.maximum(np.abs(entry), np.ma.filled(recorded.broken, 0) * recorded.unit)
                    if name in SIZES
                    else scale
                )
                size_ = np.ones(len(recorded)) if name == "adv_confidence" else size_
                missing = np.ma.getmaskarray(getattr(recorded, name)) != np.ma.getmaskarray(
                    getattr(repeated, name)
                )
                deviates |= missing | (np.abs(entry - counterpart) > TOLERANCE * size_)
            elif name != "seconds":
                deviates |= _differing(recorded, repeated, name)
        return recorded, repeated, deviates

    def _scale(self, records: Records, before: State) -> Array:
        """(m,) the clean margins of rows, above 0."""
        margins = np.abs(before.clean_margin[np.searchsorted(self.plan.ids, records.sample_id)])
        return np.maximum(margins, np.finfo(np.float32).tiny)

    def _judge_drawn(
        self,
        stage: Stage,
        repetition: Run,
        recorded: Records,
        repeated: Records,
        deviates: Array,
        before: State,
    ) -> None:
        """Note the drawn rows that differ by more than is explained, and other stored extras or
        reasons of failures.
        """
        for side, records in enumerate((recorded, repeated)):
            is_broken = has_broken(records)
            index = np.searchsorted(self.plan.ids, records.sample_id[is_broken])
            np.minimum.at(
                self.levels[side],
                index,
                np.searchsorted(self.plan.levels, records.broken[is_broken]),
            )
        self.replayed += len(repeated)
        if self.is_random:
            return
        lead = np.maximum(
            np.abs(np.ma.filled(repeated.adv_margin, 0)), np.abs(np.ma.filled(repeated.margin, 0))
        )
        is_near = ~_differing(recorded, repeated, "broken") | (
            lead <= NEAR * self._scale(recorded, before)
        )
        excused = deviates & is_near & (not self.repetition.is_exact)
        self.repetition.comparison.boundary += int(excused.sum())
        ids = repeated.sample_id
        self._note(stage.name, "the attack comes out differently", ids[deviates & ~excused])
        first, second = self.recorded, repetition
        if len(ids) and first.legend(self.name, stage.name) != second.legend(self.name, stage.name):
            self._note(stage.name, "what the stored numbers mean comes out differently", ids[:1])
        stated, found = (
            run.extras(self.name, stage.name, ids[~deviates].tolist()) for run in (first, second)
        )
        odd = [
            sample
            for sample in ids[~deviates].tolist()
            if not _same_extras(stated.get(sample, {}), found.get(sample, {}))
        ]
        self._note(stage.name, "what the attack stores comes out differently", np.array(odd))
        reasons, again = (
            run.manifest["failed"].get(self.name, {}).get(stage.name, {}) for run in (first, second)
        )
        odd = [
            sample for sample in ids.tolist() if reasons.get(str(sample)) != again.get(str(sample))
        ]
        self._note(stage.name, "the reason of a failure comes out differently", np.array(odd))

    def _judge_stored(self, stage: Stage, records: Records) -> None:
        """Note rows of broken samples whose stored input is missing, does not succeed, or shows
        another value.
        """
        plan, domain = self.plan, self.plan.dataset.domain
        stored = self.recorded.adversarial(self.name, stage.name, records.sample_id.tolist())
        shape = tuple(domain.shape)
        wrong = np.array(
            [
                sample not in stored or stored[sample].shape != shape
                for sample in records.sample_id.tolist()
            ]
        )
        self._note(
            stage.name,
            f"the adversarial input is not stored, or not of shape {shape}",
            records.sample_id[wrong],
        )
        records = rows.take(records, ~wrong)
        if not len(records):
            return
        ids = records.sample_id
        x = torch.as_tensor(
            np.stack([stored[sample] for sample in ids.tolist()]), device=plan.device
        )
        x0, units = self.audited.load(ids), torch.as_tensor(records.unit[:, None], device=x.device)
        low, high = domain.bounds(x)
        in_bounds = ((x >= low - domain.slack) & (x <= high + domain.slack)).flatten(1).all(1)
        levels = (units * torch.as_tensor(plan.levels, device=x.device)).float()
        level = level_of(size(plan.distance, x, x0), levels, plan.distance, domain).cpu().numpy()
        answers = self._answer(x, stage.eot)
        y = torch.as_tensor(records.label, device=x.device).long()
        target = None if plan.targeting is None else np.ma.getdata(records.target)
        criterion = make_criterion(target, x.device, self.source.reject, plan.threshold)
        margins = torch.stack([criterion.margin(logits, y, x) for logits in answers.looks])
        slack = (losses.rounding(answers.logits, y) + answers.chance(margins)).cpu().numpy()
        margin = criterion.margin(answers.logits, y, x).cpu().numpy()
        eps = torch.as_tensor(
            np.ma.getdata(records.broken) * records.unit, dtype=torch.float32, device=x.device
        )
        limit = eps + tolerance(eps, plan.distance, domain)
        quantised = torch.as_tensor(np.ma.filled(records.quantised_within, False), device=x.device)
        rounded = torch.where(
            per_sample(quantised, x), quantise(x, x0, limit, plan.distance, domain), domain.round(x)
        )
        is_rough = plan.request.precision != "float32" or self.is_random
        confidence = losses.decision(answers.logits)[0].cpu().numpy()
        columns = {
            name: np.isclose(
                getattr(records, name),
                getattr(norms, name)(x - x0).cpu().numpy(),
                rtol=1e-4,
                atol=domain.slack,
            )
            for name in SIZES
        } | {
            "broken": np.append(plan.levels, np.inf)[level] == np.ma.getdata(records.broken),
            "adv_pred": answers.names(np.ma.filled(records.adv_pred, 0)),
            "adv_confidence": is_rough | (np.abs(records.adv_confidence - confidence) <= TOLERANCE),
            "adv_margin": is_rough
            | (np.abs(np.ma.filled(records.adv_margin, np.nan) - margin) <= ROUNDINGS * slack),
            "quantised_pred": self._answer(rounded, stage.eot).names(
                np.ma.filled(records.quantised_pred, 0)
            ),
            "quantised_within": (size(plan.distance, rounded, x0) <= limit).cpu().numpy()
            == quantised.cpu().numpy(),
        }
        conditions = {
            "the stored input leaves the bounds of the data": in_bounds.cpu().numpy(),
            f"the stored input is farther than eps in {plan.distance.name}": level
            < levels.shape[1],
            "the stored input is no success": margin >= -slack,
        } | {
            f"column {name} is not what the stored input shows": is_true
            for name, is_true in columns.items()
        }
        for description, is_true in conditions.items():
            self._note(stage.name, description, ids[~np.ma.filled(is_true, False)])

    def _answer(self, x: Tensor, eot: int) -> Answers:
        return Answers(self.audited, x, eot, max(eot, LOOKS) if self.is_random else eot)


def miss_probability(samples: int, draws: int, forged: int, turning: float | None = None) -> float:
    """Probability that a repetition of `draws` samples, of `samples`, misses `forged` false ones.

    One that is drawn is noticed; but of a random model, where a share `turning` of the true ones
    breaks otherwise by chance, only where more break earlier than `most_earlier`.
    """
    probability = 0.0
    for hits in range(max(0, draws - samples + forged), min(forged, draws) + 1):
        turned = round((turning or 0.0) * (draws - hits))
        most = 0 if turning is None else most_earlier(hits + turned)
        passing = sum(comb(turned, earlier) for earlier in range(most - hits + 1)) / 2**turned
        probability += (
            passing
            * comb(forged, hits)
            * comb(samples - forged, draws - hits)
            / comb(samples, draws)
        )
    return probability


def most_earlier(turned: int) -> int:
    """How many samples, of those that break at another budget than recorded, may break at a smaller
    one by a sign test.
    """
    most, tail = turned, 1
    while tail < CHANCE * 2**turned:
        most -= 1
        tail += comb(turned, most)
    return most


def _differing(first: Any, second: Any, name: str) -> Array:
    """(rows,) bool: rows with another value in a column, or that have one in only one of both."""
    entry, counterpart = getattr(first, name), getattr(second, name)
    missing, missing_again = np.ma.getmaskarray(entry), np.ma.getmaskarray(counterpart)
    return np.asarray(
        (missing != missing_again)
        | (~missing & (np.ma.getdata(entry) != np.ma.getdata(counterpart)))
    )


def _same_extras(stated: Mapping[str, Array], found: Mapping[str, Array]) -> bool:
    return stated.keys() == found.keys() and all(
        are_close(stated[name], found[name]) for name in found
    )


def _chunks(index: Array) -> Iterator[Array]:
    """Consecutive parts of an index array, small enough to load at once."""
    return (index[start : start + CHUNK] for start in range(0, len(index), CHUNK))
