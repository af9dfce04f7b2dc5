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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell.analysis.curve import RIGHT, UNJUDGED, grid, worst_case
from brinell.analysis.spot_checks import (
    MISSED,
    change_to_see,
    draws_to_see,
    miss_probability,
    most_earlier,
)
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
from brinell.engine.context import ANSWER_TOLERANCE
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
from brinell.store.run import ACCUMULATED, NO_ROWS, Run, array_files, read_extras
from brinell.studies.audits import run_audit
from brinell.studies.differences import (
    DERIVED,
    TOLERANCE,
    FolderComparison,
    Statements,
    are_close,
    compare_json,
    differing,
)

MIN_SAMPLES, MIN_RANDOM, SHARE = 8, 100, 0.05
"""Samples drawn by default: at least so many, of a random model more, at least this share of those
that were attacked, and as many as find a change by the width of the printed interval."""
TENTH = 0.1
"""Share of the attacked samples of a random model that may not be false unseen."""
NEAR_SHARE, MOST_DEVIATIONS = 0.05, 0.05
"""On another machine a sample may break otherwise whose margin is at most this share of the
clean one, and this share of the drawn rows may come out differently (`benchmarks/verify.py`
measures it)."""
CHUNK = 256
ROUNDINGS = 128
"""Tolerance of margins, in what float32 may round a decision."""
CHANCE_ERRORS, LOOKS = 5.0, 32
"""Tolerance for a random model, in standard errors of its mean logits, and answers that show how
far they scatter. It is wide because the run kept the best of many means."""
PROBES, PROBE_LOOKS = 64, 3
"""Clean inputs and answers to each that show whether a model answers at random."""
SIZES = ("linf", "l2", "l1", "l0")
EXACT = ("label", "unit", "target", "clean_pred", "outcome", "forwards")
ROUNDED = ("margin", "clean_confidence")
"""Columns of clean rows that are compared; the latter not of a random model."""
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


class RepeatedRun:
    """A run that is carried out again, and what came of it.

    Args:
        run: the run.
        plan: its plan, rebuilt from its request.
        comparison: collects differences; its count is that of the samples of each model to attack
            again, by default 8 or 5 %, whichever is more, and at least 24 of a random model.
    """

    def __init__(self, run: Run, plan: Plan, comparison: FolderComparison) -> None:
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
        has_differences = bool(self.comparison.differences)
        unverified: list[str] = []
        if has_differences:
            unverified.append("every figure, since something is false")
        for audit in self.audits:
            if audit.attacked and not audit.drawn.any():
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
            attacked=sum(audit.attacked for audit in self.audits),
            coverage="; ".join(audit.coverage for audit in self.audits if audit.attacked),
            undecided="; ".join(audit.undecided for audit in self.audits if audit.undecided),
        )

    def _sentences(self) -> Iterator[str]:
        """Statements about an audit that holds."""
        predictions = sum(audit.predictions for audit in self.audits)
        successes = sum(audit.successes for audit in self.audits)
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

        for audit in (audit for audit in self.audits if audit.drawn.any()):
            yield (
                f"{audit.name}: a single forged sample is missed with probability "
                f"{audit.miss_probability(1):.2g}"
            )

    def carry_out(self, folder: Path) -> None:
        """Carry the audit out in a folder, which then holds what the run may hold."""
        recorded = self.run.manifest
        self._check_plan()
        make_audit, command = partial(RepeatedAudit, self), str(recorded["command"])
        run = run_audit(self.plan, folder, SilentProgress(), command=command, audit=make_audit)
        repeated = dict(run.manifest)

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
        facts = json.loads(json.dumps(plan_facts(self.plan)))
        stated = {key: self.run.manifest.get(key) for key in facts}
        compare_json(MANIFEST, stated, facts, self.comparison, self.comparison.claims.manifest)
        for source in () if self.comparison.differences else self.plan.models:
            if self.run.of_stage(source.name, CLEAN).sample_id.tolist() != self.plan.ids.tolist():
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
        # Where one of both has further checks, the comparison of the manifests says so.
        name, checks = audit.name, repeated["checks"].get(audit.name, [])
        for first, second in zip(self.run.manifest["checks"].get(name, []), checks, strict=False):
            is_settled = first["code"] == second["code"] and _may_be(second, first, audit.is_random)
            if first == second or not is_settled:
                continue
            self.unsettled.append(
                f"{name}: the figure and the sentence of {first['code']}; here "
                f"{second['text']!r} comes out"
            )
            if first["passed"] != second["passed"]:
                # What was repaired follows from the checks, so it stands or goes with them.
                repeated.pop("repairs", None)
                if "repairs" in self.run.manifest:
                    repeated["repairs"] = self.run.manifest["repairs"]
            second.update(first)

        # Warnings repeat the checks that failed.
        warnings = [
            entry
            for entry in repeated["warnings"]
            if entry["model"] != name or entry["code"] not in tuple(Code)
        ]
        failed = [
            {"code": check["code"], "model": name, "text": check["text"]}
            for check in checks
            if check["passed"] is False
        ]
        repeated["warnings"] = warnings + failed


def _may_be(repeated: Mapping[str, Any], recorded: Mapping[str, Any], is_random: bool) -> bool:
    """True if rounding on another machine, or the chance of a random model, explains another
    outcome of a check.
    """
    # No rounding makes a figure or a limit appear or vanish.
    for key in ("figure", "limit"):
        if (repeated.get(key) is None) != (recorded.get(key) is None):
            return False
    figure, limit = repeated.get("figure") or 0.0, repeated.get("limit") or 0.0
    if repeated["passed"] != recorded["passed"]:
        # Within a tenth of its limit a figure may fall on either side; two zeros are no figure.
        is_near = abs(figure - limit) <= max(abs(limit), abs(figure)) / 10 > 0
        # Whether a model answers at random is the excuse itself, and has none.
        return repeated["code"] != Code.RANDOM and (is_random or is_near)

    text, stated = _words_of(repeated), _words_of(recorded)
    if NUMBER.split(text) != NUMBER.split(stated):
        return is_random and repeated["passed"] is None
    # Each number may move by half of itself, the figure also by half of its limit.
    numbers = [figure, *map(float, NUMBER.findall(text))]
    counterparts = [recorded.get("figure") or 0.0, *map(float, NUMBER.findall(stated))]
    are_near = all(
        abs(first - second) <= max(abs(first), abs(limit) * (first == figure)) / 2
        for first, second in zip(numbers, counterparts, strict=True)
    )
    return is_random or (
        are_near and abs(limit - (recorded.get("limit") or 0.0)) <= TOLERANCE * abs(limit)
    )


def _words_of(check: Mapping[str, Any]) -> str:
    """All that a check says in words."""
    return " ".join(str(check.get(key)) for key in ("text", "cause", "reason"))


class JudgedAnswers:
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
        # The run took the mean of `eot` answers, and this is one of `looks`: both scatter.
        self._errors = CHANCE_ERRORS * (1 / eot + 1 / looks) ** 0.5

    def names(self, claimed: Array) -> Array:
        """(n,) bool: whether the claimed class (n,) leads, but for rounding and chance."""
        y = torch.as_tensor(np.asarray(claimed), device=self.logits.device).long()
        # The strongest other class, which leads where the margin is above 0.
        rival = self.logits.scatter(1, y[:, None], -torch.inf).argmax(1)
        index = torch.arange(len(y), device=y.device)
        slack = losses.rounding(self.logits, y) + self.chance(
            self.looks[:, index, rival] - self.looks[:, index, y]
        )
        return np.asarray((losses.margin(self.logits, y) <= slack).cpu().numpy())

    def chance(self, values: Tensor) -> Tensor:
        """(n,) how far chance may move the mean of values (looks, n)."""
        return self._errors * values.std(0) if len(values) > 1 else torch.zeros_like(values[0])


class Pair(NamedTuple):
    """Rows of the same samples in a run and in its repetition."""

    recorded: Records
    repeated: Records
    margins: Array
    """(rows,) the clean margins, above 0."""
    deviates: Array
    """(rows,) bool: where both differ by more than rounding explains."""


class Attempt(NamedTuple):
    """The result of a stage on some samples."""

    rows: Records
    facts: Mapping[str, Any]
    files: Sequence[Path]
    """The files of its arrays."""


class RepeatedAudit(ModelAudit):
    """The audit of one model on the drawn samples, from the recorded rows of all."""

    def __init__(self, repetition: RepeatedRun, audited: AuditedModel, spread: int) -> None:
        super().__init__(audited, spread)
        self.repetition, self.recorded, self.name = repetition, repetition.run, self.source.name
        self.is_random = False
        self.change = 0
        """False samples that the repetition is to find; 0 where none counts as robust."""
        self.attacked = self.predictions = self.successes = self.replayed = 0
        """Samples that were attacked, clean predictions and adversarial inputs that were judged,
        rows that were made again."""
        self._attempts = 0
        """Stages that were attacked again."""
        self.drawn = np.zeros(len(self.plan.ids), bool)
        self.levels = np.full((2, len(self.plan.ids)), len(self.plan.levels))
        """(2, n) smallest levels at which the drawn samples break, in the run and now; the number of
        levels where none does."""
        repetition.audits.append(self)

    def pieces(self) -> Checks:
        """The pieces of the whole audit; returns the failed checks, by code, each with its text."""
        failed: dict[str, str] = yield from super().pieces()
        # The first row is of the run, the second of the repetition.
        earlier = self.levels[1] < self.levels[0]
        if self.is_random and earlier.sum() > most_earlier(self._count_turned()):
            text = "samples break at smaller budgets than recorded, more often than chance explains"
            self._note("repetition", text, self.plan.ids[earlier])
        return failed

    @property
    def coverage(self) -> str:
        """The share of the samples that was attacked again, and the chance to miss false ones."""
        scatter = " by how its answers scatter," if self.is_random else ""
        width = "" if self.is_random else ", a change by the width of the printed interval,"
        miss = (
            f"{scatter} this misses {self.change} false ones{width} with probability "
            f"{self.miss_probability(self.change):.2g}"
        )
        return (
            f"{self.name}: {self.drawn.sum()} of {self.attacked} attacked samples were attacked "
            f"again from the start;{miss if self.change else ' none counts as robust'}"
        )

    @property
    def undecided(self) -> str:
        """The reason for which the repetition decides nothing; empty if it decides."""
        earlier = int((self.levels[1] < self.levels[0]).sum())
        if self.is_random and earlier > most_earlier(self._count_turned(), MISSED):
            return (
                f"{self.name}: {earlier} samples break earlier than recorded, which may be chance"
            )
        if self.change and self.miss_probability(self.change) > MISSED:
            return f"{self.name}: {self.change} false samples would be missed too easily"
        return ""

    def _count_turned(self) -> int:
        """How many samples break at another level than recorded, or only in one of both."""
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
        """Put the recorded inputs of a stage, and its words about samples, into the repetition."""
        for file in self.recorded.array_files(self.name, stage):
            place = self.audited.folder / file.relative_to(self.recorded.path)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
        for key in ("failed", "extras") if stage != CLEAN else ():
            if stage in self.recorded.manifest[key].get(self.name, {}):
                self.audited.section(key)[stage] = self.recorded.manifest[key][self.name][stage]

    def _check_clean(self) -> Generator[Sequence[Piece], PieceAnswer, State]:
        recorded = self.recorded.of_stage(self.name, CLEAN)
        readable = recorded.sample_id[recorded.outcome != Outcome.FAILED]
        self.is_random = self._answers_at_random(readable[:PROBES])
        self._draw(recorded)

        yield from super()._check_clean()
        repeated = self.audited.rows[CLEAN]
        self.predictions = int((repeated.outcome != Outcome.FAILED).sum())
        self._compare_clean(recorded, repeated)
        # From here on each stage starts at what is recorded, not at what came out now.
        self._accept(CLEAN)
        self.audited.rows[CLEAN] = recorded
        return State.from_clean(
            recorded, self.plan.levels, targeted=self.plan.targeting is not None
        )

    def _draw(self, clean: Records) -> None:
        """Draw the samples that are attacked again; no seed tells whoever made the run which."""
        # A sample without a budget above 0 is attacked by nobody.
        candidates = np.flatnonzero(
            is_open(clean.outcome) & (self.plan.units > 0) & bool(len(self.plan.levels))
        )
        self.attacked = len(candidates)
        if not self.attacked:
            return
        least = self._samples_to_draw()
        count = self.repetition.comparison.count
        count = max(least, round(SHARE * len(candidates))) if count is None else count
        choice = np.random.default_rng().choice(
            candidates, min(count, len(candidates)), replace=False
        )
        self.drawn[choice] = True

    def _samples_to_draw(self) -> int:
        """How many samples are drawn where nobody says it: so many that the change is found which
        a verification has to find.
        """
        states = worst_case(grid(self.recorded.rows, self.recorded.manifest, self.name))
        # The levels are the budgets above 0: without the column of 0, where the run has one.
        states = states[:, -len(self.plan.levels) :]
        robust, judged = (states == RIGHT).sum(0), (states != UNJUDGED).sum(0)
        change = min(self.attacked, change_to_see(robust.tolist(), judged.tolist()))
        if not self.is_random:
            self.change = change
            return max(MIN_SAMPLES, draws_to_see(self.attacked, change))

        self.change = min(change, max(1, round(TENTH * self.attacked)))
        return MIN_RANDOM

    def _answers_at_random(self, ids: Array) -> bool:
        """True if two answers to the same clean inputs differ.

        The statement of the run on it is not used.
        """
        try:
            looks = torch.stack(
                [
                    predict(self.audited.model, self.audited.load(ids), CHUNK)
                    for _ in range(PROBE_LOOKS)
                ]
            )
        except BrinellError:
            return False
        if not len(ids):
            return False
        scale = looks[0].abs().max().clamp_min(1e-12)
        return bool(((looks - looks[0]).abs() > ANSWER_TOLERANCE * scale).any())

    def _compare_clean(self, recorded: Records, repeated: Records) -> None:
        """Note clean rows that differ by more than rounding or chance explains; then nothing is
        attacked.
        """
        margins = np.abs(np.ma.filled(repeated.margin, 0.0).astype(float))
        scales = {"margin": float(np.median(margins)) if len(margins) else 0.0, "share": 1.0}
        for name in EXACT if self.is_random else (*EXACT, *ROUNDED):
            differs = differing(recorded, repeated, name, scales)
            # These follow from the class that leads, which rounding or chance may decide.
            if name in ("clean_pred", "outcome", "target"):
                differs &= ~self._leads(recorded, differs)
            description = f"column {name} comes out differently"
            self._note(CLEAN, description, recorded.sample_id[differs])
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
        recorded = self.recorded.of_stage(self.name, stage.name)
        before = self._state_before(stage, state)
        idle = self._check_turn(stage, before, recorded)

        attempt = yield from self._attack(stage, before, idle | ~self.drawn)
        pair = self._compare(recorded, attempt.rows, before)
        if pair.deviates.any() and not self.is_random:
            # Rounding depends on the size of the batch: again in the company that the run had.
            attempt = yield from self._attack(stage, before, idle)
            pair = self._compare(recorded, attempt.rows, before)
        self._judge_drawn(stage, attempt, pair)

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

        # A sample that broke at the smallest level, 0, leaves nothing to attack.
        open_ = before.correct & (before.broken > 0)
        wrong = attacked != (open_ & ~idle)
        # A stage that attacked any sample has a row for each that it spared, too.
        wrong |= np.isin(self.plan.ids, recorded.sample_id[~is_attacked]) != (
            open_ & idle & attacked.any()
        )
        level = np.searchsorted(self.plan.levels, np.ma.getdata(recorded.attacked)[is_attacked])
        # The next level below the one that broke the sample before.
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
    ) -> Generator[Sequence[Piece], PieceAnswer, Attempt]:
        """Attack the samples that are not spared, in a hidden folder."""
        # Records of its own, but for the answers, which the parent knows already.
        self._attempts += 1
        parent, name = self.audited, self.audited.key(f"again-{self._attempts}")
        audited = AuditedModel(
            self.plan,
            self.source,
            (parent.model, *parent.surrogates),
            parent.folder / PARTS / name,
            {key: {} for key in ACCUMULATED} | {"answers": parent.entries["answers"]},
            self.progress,
            parent.sizer,
        )

        audited.parts = parent.parts
        followed = self.checks.gradient_models.get(stage.gradient, parent.model)
        run = StageRun(audited, stage, before, idle, followed, prefix=f"{name}-")
        answer = yield from audited.resume_stage(stage.name, run.key, run.pieces())
        files = array_files(audited.folder, audited.file(stage.name))

        return Attempt(answer.rows, answer.facts, files)

    def _compare(self, recorded: Records, repeated: Records, before: State) -> "Pair":
        """The rows of the drawn samples that a run and its repetition attacked."""
        common = np.intersect1d(_attacked_ids(recorded), _attacked_ids(repeated))
        common = np.intersect1d(common, self.plan.ids[self.drawn])
        recorded = rows.take(recorded, np.isin(recorded.sample_id, common))
        repeated = rows.take(repeated, np.isin(repeated.sample_id, common))

        clean = np.abs(before.clean_margin[np.searchsorted(self.plan.ids, recorded.sample_id)])
        margins = np.maximum(clean, np.finfo(np.float32).tiny)
        sizes = np.ma.filled(recorded.broken, 0) * recorded.unit
        scales = {"margin": margins, "size": sizes, "share": 1.0}
        differs = [
            differing(recorded, repeated, name, scales)
            for name in columns_of(recorded)
            if name != "seconds"
        ]
        return Pair(recorded, repeated, margins, np.any(differs, axis=0))

    def _judge_drawn(self, stage: Stage, attempt: Attempt, pair: "Pair") -> None:
        """Note the drawn rows that differ by more than is explained, and other stored extras or
        reasons of failures.
        """
        repeated, ids = pair.repeated, pair.repeated.sample_id
        # The smallest level of all stages so far, in the run (0) and in the repetition (1).
        for side, records in enumerate((pair.recorded, repeated)):
            is_broken = has_broken(records)
            index = np.searchsorted(self.plan.ids, records.sample_id[is_broken])
            levels = np.searchsorted(self.plan.levels, records.broken[is_broken])
            np.minimum.at(self.levels[side], index, levels)
        self.replayed += len(repeated)
        if self.is_random:
            return

        # Near the boundary, rounding on another machine may decide whether a sample breaks.
        lead = np.maximum(
            np.abs(np.ma.filled(repeated.adv_margin, 0)), np.abs(np.ma.filled(repeated.margin, 0))
        )
        # Budgets are compared exactly: no scale allows for rounding.
        turns = differing(pair.recorded, repeated, "broken", scales={})
        excused = pair.deviates & (~turns | (lead <= NEAR_SHARE * pair.margins))
        excused &= not self.repetition.is_exact
        self.repetition.comparison.boundary += int(excused.sum())
        self._note(stage.name, "the attack comes out differently", ids[pair.deviates & ~excused])

        legend = self.recorded.legend(self.name, stage.name)
        if len(ids) and legend != attempt.facts.get("legend", {}):
            # The legend is one for all samples, so one of them stands for it.
            self._note(stage.name, "what the stored numbers mean comes out differently", ids[:1])
        # Of rows that deviate the stored numbers deviate, too.
        alike = ids[~pair.deviates].tolist()
        arrays = self.recorded.extras(self.name, stage.name, alike)
        counterparts = read_extras(attempt.files, alike)
        odd = [
            sample
            for sample in alike
            if not _same_extras(
                arrays.get(sample, {}),
                counterparts.get(sample, {}),
                self.repetition.comparison.scale,
            )
        ]
        self._note(stage.name, "what the attack stores comes out differently", np.array(odd))
        reasons = self.recorded.manifest["failed"].get(self.name, {}).get(stage.name, {})
        repetitions = attempt.facts.get("failed", {})
        odd = [
            sample
            for sample in ids.tolist()
            if reasons.get(str(sample)) != repetitions.get(str(sample))
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
        description = f"the adversarial input is not stored, or not of shape {shape}"
        self._note(stage.name, description, records.sample_id[wrong])
        records = rows.take(records, ~wrong)
        ids = records.sample_id
        if not len(ids):
            return

        inputs = np.stack([stored[sample] for sample in ids.tolist()])
        x, x0 = torch.as_tensor(inputs, device=plan.device), self.audited.load(ids)
        low, high = domain.bounds(x)
        in_bounds = ((x >= low - domain.slack) & (x <= high + domain.slack)).flatten(1).all(1)
        units = torch.as_tensor(records.unit[:, None], device=x.device)
        levels = (units * torch.as_tensor(plan.levels, device=x.device)).float()
        # The number of levels for an input that lies within none.
        level = level_of(size(plan.distance, x, x0), levels, plan.distance, domain).cpu().numpy()

        answers = self._answer(x, stage.eot)
        y = torch.as_tensor(records.label, device=x.device).long()
        target = None if plan.targeting is None else np.ma.getdata(records.target)
        criterion = make_criterion(target, x.device, self.source.reject, plan.threshold)
        margins = torch.stack([criterion.margin(logits, y, x) for logits in answers.looks])
        slack = (losses.rounding(answers.logits, y) + answers.chance(margins)).cpu().numpy()
        margin = criterion.margin(answers.logits, y, x).cpu().numpy()
        conditions = {
            "the stored input leaves the bounds of the data": in_bounds.cpu().numpy(),
            f"the stored input is farther than eps in {plan.distance.name}": level
            < levels.shape[1],
            "the stored input is no success": margin >= -slack,
        }

        # Coarse or random answers allow no comparison of single figures.
        is_rough = plan.request.precision != "float32" or self.is_random
        confidence = losses.decision(answers.logits)[0].cpu().numpy()
        adv_margin = np.ma.filled(records.adv_margin, np.nan)
        # Each entry is true in the rows whose column is what the stored input shows.
        columns = {
            "broken": np.append(plan.levels, np.inf)[level] == np.ma.getdata(records.broken),
            "adv_pred": answers.names(np.ma.filled(records.adv_pred, 0)),
            "adv_confidence": is_rough | (np.abs(records.adv_confidence - confidence) <= TOLERANCE),
            "adv_margin": is_rough | (np.abs(adv_margin - margin) <= ROUNDINGS * slack),
            **self._rounded_columns(stage, records, x, x0),
        }
        for name in SIZES:
            length = getattr(norms, name)(x - x0).cpu().numpy()
            stated = getattr(records, name)
            columns[name] = np.isclose(stated, length, rtol=1e-4, atol=domain.slack)

        for name, is_true in columns.items():
            conditions[f"column {name} is not what the stored input shows"] = is_true
        for description, is_true in conditions.items():
            self._note(stage.name, description, ids[~np.ma.filled(is_true, False)])

    def _rounded_columns(
        self, stage: Stage, records: Records, x: Tensor, x0: Tensor
    ) -> dict[str, Array]:
        """(rows,) bool: whether the columns of stored inputs x, rounded to the levels of their
        storage, are what these show.
        """
        distance, domain = self.plan.distance, self.plan.dataset.domain
        eps = torch.as_tensor(np.ma.getdata(records.broken) * records.unit, device=x.device).float()
        limit = eps + tolerance(eps, distance, domain)
        quantised = torch.as_tensor(np.ma.filled(records.quantised_within, False), device=x.device)
        # Where the run found a rounding within the budget it took that one, else the nearest.
        towards = quantise(x, x0, limit, distance, domain)
        rounded = torch.where(per_sample(quantised, x), towards, domain.round(x))
        is_within = size(distance, rounded, x0) <= limit
        answers = self._answer(rounded, stage.eot)
        return {
            "quantised_pred": answers.names(np.ma.filled(records.quantised_pred, 0)),
            "quantised_within": (is_within == quantised).cpu().numpy(),
        }

    def _answer(self, x: Tensor, eot: int) -> JudgedAnswers:
        """Answers to inputs, of a random model so many that their scatter shows."""
        return JudgedAnswers(self.audited, x, eot, max(eot, LOOKS) if self.is_random else eot)


def _attacked_ids(records: Records) -> Array:
    """The samples that a stage attacked."""
    return np.asarray(records.sample_id[records.outcome != Outcome.SPARED])


def _same_extras(stated: Mapping[str, Array], found: Mapping[str, Array], scale: float) -> bool:
    return stated.keys() == found.keys() and all(
        are_close(stated[name], found[name], scale) for name in found
    )


def _chunks(index: Array) -> Iterator[Array]:
    """Consecutive parts of an index array, small enough to load at once."""
    return (index[start : start + CHUNK] for start in range(0, len(index), CHUNK))
