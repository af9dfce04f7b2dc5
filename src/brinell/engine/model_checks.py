"""The checks on one model before and after the stages of an audit, and the consequences of an
alarm.
"""

import math
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import COARSE, DETACHED, TOO_FEW, Code, Finding
from brinell.core.contracts import Remark
from brinell.core.errors import ModelError, TimeUpError
from brinell.core.fresh import FreshProcess
from brinell.core.model import Access, Model
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch
from brinell.core.record import CLEAN, Array, Outcome, has_broken
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine import boundary, fit, plateau
from brinell.engine.adaptive import GRADIENT_FAILURES, REPAIRABLE, conditions
from brinell.engine.after_attacks import (
    INPUTS,
    NEAREST,
    AfterContext,
    Identity,
    answer_anew,
    reason_without_process,
)
from brinell.engine.audited_model import AuditedModel, facts_of
from brinell.engine.cascade import Stage
from brinell.engine.checks import BEFORE_ATTACKS, SAMPLES
from brinell.engine.context import CheckContext, NotMadeError, evenly_spaced
from brinell.engine.deciding import find_deciding_scores, with_scores_of
from brinell.engine.group_attack import make_criterion, predict
from brinell.engine.piece import Piece, PieceAnswer, make_alone
from brinell.engine.plan import GROUP_BYTES
from brinell.engine.probe_ahead import SAMPLES as COMPARED
from brinell.engine.probe_ahead import check_lead, is_ahead
from brinell.engine.repair import Repair, find_repair, with_surrogate
from brinell.engine.state import State
from brinell.engine.surrogates import mean_of
from brinell.store import rows
from brinell.store.parts import PieceResult
from brinell.store.run import array_files, read_inputs

CheckResult = tuple[Sequence[Finding], int, int]
"""Findings, and the forwards and backwards that they cost."""
Checks = Generator[Sequence[Piece], PieceAnswer, dict[str, str]]
"""Pieces that make checks; it returns the failed ones by code, each with its text."""
NO_ROBUST_SAMPLE = "no sample is robust"
FORECAST = 400
"""Evaluations of the first looks before the attacks."""
DRIFT_SAMPLES = 16
"""Number of clean inputs that the model answers once more at the end."""
OF_SCORES = DETACHED | COARSE
"""Failed checks that say that the shown scores do not lead to the decision."""


class ModelChecks:
    """The checks on one model, kept in the manifest of its run."""

    def __init__(self, audited: AuditedModel) -> None:
        self.audited, self.plan, self.source = audited, audited.plan, audited.source
        self.model, self.progress = audited.model, audited.progress
        self._sizer = audited.sizer
        self._seeks_scores = self.plan.threshold is None
        """True if scores may take the place of the shown ones: they have the model's class, but
        not its probabilities."""
        self.conditions: set[str] = set()
        """Conditions of waiting stages that hold (`engine.adaptive.When`)."""
        self.is_flat = False
        """True if no clean input has a gradient: stages for masked gradients that follow the
        model's own are left out."""
        self._fresh: FreshProcess | None = None
        self._repair_record: dict[str, Any] = {"forwards": 0, "backwards": 0}

        self._surrogate = mean_of(audited.surrogates) if audited.surrogates else None
        self.gradient_models: dict[str, Model] = {"own": self.model}
        """Model to query, by the gradient that a stage follows (`engine.adaptive.Source`)."""
        if self._surrogate is not None:
            self.gradient_models["surrogate"] = with_surrogate(self.model, self._surrogate)

    def _right(self, state: State) -> Array:
        """(n,) bool: samples that attacks may break and that the model classifies correctly, as the
        checks need them.
        """
        return np.asarray(state.correct & (state.clean_pred == self.plan.labels))

    def waits(self, stage: Stage) -> bool:
        """True if the stage waits for a condition that does not hold, or cannot help."""
        # Masked gradients call for attacks along them only where there are any.
        when = stage.turn.when
        follows = stage.gradient == "own" and stage.attack.access == Access.GRADIENTS
        holds = when is None or (
            when in self.conditions and not (when == "masked" and self.is_flat and follows)
        )
        return not holds or stage.gradient not in self.gradient_models

    # Checks as pieces

    def _make(
        self, name: str, *checks: Callable[[], CheckResult]
    ) -> Generator[Sequence[Piece], PieceAnswer, list[str]]:
        """Make checks as a piece of this process, and keep their findings in the manifest; returns
        their codes.

        A resumed run keeps its findings, because a random model would answer differently.
        """

        def make() -> PieceResult:
            records = []
            costs = {"forwards": 0, "backwards": 0}
            for check in checks:
                findings, forwards, backwards = self._sizer.fit(check)
                records += [asdict(finding) for finding in findings]
                costs["forwards"] += forwards
                costs["backwards"] += backwards
            facts = facts_of(self.audited.model, self.audited.shortages)
            return PieceResult(facts={"findings": records, "costs": costs, **facts})

        key = self.audited.key(f"checks-{name}")
        try:
            answer = yield from make_alone(Piece(name="checks", key=key, make=make))
        except TimeUpError:
            return []  # the run that goes on makes them
        self.audited.take("checks", answer.facts)
        self._keep(answer.facts["findings"], answer.facts["costs"])
        return [finding["code"] for finding in answer.facts["findings"]]

    def _keep(self, findings: Sequence[Mapping[str, Any]], costs: Mapping[str, int]) -> None:
        """Keep findings in the manifest in the place of earlier ones of the same code, and add
        their cost.
        """
        entries, name = self.audited.entries, self.source.name
        records = entries["checks"].setdefault(name, [])
        codes = {finding["code"] for finding in findings}
        records[:] = [record for record in records if record["code"] not in codes] + [*findings]

        total = entries["probes"].setdefault(name, dict.fromkeys(costs, 0))
        for kind, count in costs.items():
            total[kind] += count

    @property
    def _known(self) -> dict[str, Mapping[str, Any]]:
        """The findings so far by code."""
        findings = self.audited.entries["checks"].get(self.source.name, ())
        return {str(record["code"]): record for record in findings}

    def _failures(self, codes: Collection[str] = tuple(Code)) -> dict[str, str]:
        """The failed ones among some checks by code, each with its text, of which the run warns."""
        failures = {
            code: str(finding["text"])
            for code, finding in self._known.items()
            if code in codes and finding["passed"] is False
        }
        for text in failures.values():
            self.progress.warn(f"{self.source.name}: {text}")
        return failures

    # Before the attacks

    def failed_checks(self, state: State) -> Checks:
        """Make the checks before the attacks; return the failed ones by code."""
        yield from self._make(
            "before",
            partial(self._check_clean_accuracy, state),
            partial(self._check_before_attacks, state),
        )
        return self._failures()

    def _check_clean_accuracy(self, state: State) -> CheckResult:
        """Check that the model is right where nothing attacks it."""
        index = np.flatnonzero(~state.failed)
        # A low accuracy on distorted data is a result, and no mistake.
        if not len(index) or self.plan.dataset.info.distorted:
            return [], 0, 0

        finding, forwards = fit.check_clean_accuracy(
            self.model,
            state.clean_pred[index],
            self.plan.labels[index],
            lambda rows: self.audited.load(self.plan.ids[index[rows]]),
            spec=self.source.spec,
            classes=self.plan.dataset.classes,
            batch_size=self._sizer.size,
            expect=self.plan.request.expect,
        )
        self.progress.count_passes(forwards, 0)
        return [finding], forwards, 0

    def _check_before_attacks(self, state: State) -> CheckResult:
        """Make the checks on samples that the model classifies correctly."""
        if not self._right(state).any():
            return [], 0, 0
        context = self._context(state)
        n = len(context.batch)
        self.progress.stage(self.source.name, "checks", n, FORECAST + 3 * n)
        findings = context.make(BEFORE_ATTACKS)
        return findings, *context.costs

    def _context(self, state: State) -> CheckContext:
        """The model on a few clean samples that it classifies correctly.

        They are spread over the data, which may be sorted by class. They do not depend on the batch
        size.
        """
        plan = self.plan
        right = np.flatnonzero(self._right(state))
        fit = GROUP_BYTES // (4 * int(np.prod(plan.dataset.domain.shape)))
        index = right[evenly_spaced(len(right), min(SAMPLES, len(right), max(2, fit)))]
        eps = math.inf
        if len(plan.levels):
            eps = float(plan.levels[-1] * np.median(plan.units[index]))

        return CheckContext(
            self.model,
            self._batch(index),
            plan.distance,
            eps,
            self._streams(index).fold("checks"),
            batch_size=self._sizer.size,
            on_pass=self.progress.count_passes,
            climbs_margins=any(map(_climbs_margin, self._own_stages())),
        )

    def _own_stages(self) -> Iterator[Stage]:
        """The stages that run whatever the checks say."""
        for stage in self.plan.stages:
            if not stage.waits and stage.name not in self.source.skipped:
                yield stage

    def _streams(self, index: Array) -> Streams:
        """Random numbers of the samples at these positions."""
        ids = torch.as_tensor(self.plan.ids[index], device=self.plan.device)
        return Streams.of(self.plan.request.seed, ids)

    def _batch(self, index: Array) -> Batch:
        """The samples at these positions, with ids 0 to n-1."""
        x = self.audited.load(self.plan.ids[index])
        return Batch.of(x, torch.as_tensor(self.plan.labels[index], device=x.device).long())

    def _threat(self, index: Array, level: Array, state: State) -> Threat:
        """The threat of the samples at these positions, at the budgets of their levels (n,)."""
        plan = self.plan
        eps = plan.levels[level] * plan.units[index]
        target = None if state.target is None else state.target[index]
        return Threat(
            distance=plan.distance,
            eps=torch.as_tensor(eps, dtype=torch.float32, device=plan.device),
            domain=self.model.domain,
            criterion=make_criterion(target, plan.device, self.source.reject, plan.threshold),
        )

    # On robust samples

    def survivor_checks(self, state: State) -> Checks:
        """Make the checks on robust samples that those before the attacks leave open; return the
        failed ones by code.

        A failure starts waiting stages.
        """
        if not self._right(state).any() or not len(self.plan.levels):
            return {}

        codes = yield from self._make(
            "survivors",
            partial(self._check_survivors, state),
            partial(self._check_plateaus, state),
        )
        failures = self._failures(codes)
        if failures:
            self.adapt(failures, state, late=True)
        return failures

    def _robust(self, state: State, most: int) -> Array:
        """Positions of at most so many samples, evenly spaced, that are right untouched and robust
        at the largest budget, if it is above 0.
        """
        is_robust = self._right(state) & (state.broken == len(self.plan.levels))
        robust = np.flatnonzero(is_robust & (self.plan.units > 0))
        return robust[evenly_spaced(len(robust), most)]

    def _check_survivors(self, state: State) -> CheckResult:
        """Look at the margin once more, on lines between robust samples, others and adversarial
        examples.

        Where scores do not decide near some samples, these are a large part of those that are
        robust in the end.
        """
        robust = self._robust(state, len(self.plan.ids))
        # A check that failed stays failed, and one that could not be made cannot be made now,
        # unless only samples were missing.
        before = self._known.get(Code.BOUNDARY, {})
        decided = before.get("passed") is not True and before.get("reason") != TOO_FEW
        if decided or not len(robust):
            return [], 0, 0

        costs = np.zeros(2, dtype=np.int64)
        for most, examples in boundary.AFTER_ATTACKS:
            index = robust[evenly_spaced(len(robust), most)]
            clean, adversarial = self._adversarial_examples(examples)
            x = torch.cat([self.audited.load(self.plan.ids[index]), clean, adversarial])
            # True classes do not matter: a lead is that of whatever class the model answers.
            ids = torch.arange(len(x), device=x.device)
            context = CheckContext(
                self.model,
                Batch(ids=ids, x=x, y=torch.zeros_like(ids)),
                self.plan.distance,
                math.inf,
                Streams.of(self.plan.request.seed, ids),
                batch_size=self._sizer.size,
            )
            is_first = most < len(robust)
            look = partial(boundary.margin_of, description=boundary.LEFT, is_first=is_first)
            (finding,) = context.make({Code.BOUNDARY: look})
            costs += context.costs
            if finding.passed or not is_first:
                break

        # A look that cannot tell leaves what the one before the attacks said.
        if finding.passed and before["passed"]:
            finding = replace(finding, text=f"{before['text']}; {finding.text}")
        forwards, backwards = costs.tolist()
        return [finding] if finding.passed is not None else [], forwards, backwards

    def _check_plateaus(self, state: State) -> CheckResult:
        """Look at where a short attack on robust samples ends, if a first look did not say."""
        is_plain = state.target is None and self.source.reject is None and self._seeks_scores
        if is_plain and self._known.get(Code.PLATEAU, {}).get("passed"):
            return [], 0, 0
        robust = self._robust(state, plateau.SAMPLES)
        right = np.flatnonzero(self._right(state))
        if not len(robust):
            return [Finding(code=Code.PLATEAU, passed=True, text=NO_ROBUST_SAMPLE)], 0, 0

        # At the largest budget, whose level is the last, -1.
        try:
            finding, forwards, backwards = plateau.check_plateaus(
                self.gradient_models["own"],
                self._batch(robust),
                self._threat(robust, np.full(len(robust), -1), state),
                self._batch(right[evenly_spaced(len(right), SAMPLES)]),
                self._streams(robust).fold("plateau"),
                self._sizer.size,
            )
        except (NotMadeError, ModelError) as error:
            return [Finding.not_made(Code.PLATEAU, str(error))], 0, 0
        return [finding], forwards, backwards

    def _adversarial_examples(self, most: int) -> tuple[Tensor, Tensor]:
        """Clean inputs (m, *shape) of at most so many samples with an adversarial example in the run
        folder, and these examples.
        """
        records = self.audited.all_rows()
        names = [stage.name for stage in self.plan.stages if not stage.waits]
        is_found = has_broken(records) & np.isin(records.attack.astype(str), names)
        # The first example of each sample, at places spread over all.
        places = np.flatnonzero(is_found)
        places = places[np.unique(records.sample_id[places], return_index=True)[1]]
        places = places[evenly_spaced(len(places), most)]

        examples: dict[int, Array] = {}
        for attack in np.unique(records.attack[places].astype(str)):
            of_attack = places[records.attack[places] == attack]
            ids = records.sample_id[of_attack].tolist()
            files = array_files(self.audited.folder, self.audited.file(str(attack)))
            examples |= read_inputs(files, ids)
        if not examples:
            none = torch.zeros(0, *self.plan.dataset.domain.shape, device=self.plan.device)
            return none, none
        samples = sorted(examples)
        inputs = np.stack([examples[sample] for sample in samples])
        return (
            self.audited.load(np.array(samples, dtype=np.int64)),
            torch.as_tensor(inputs, device=self.plan.device),
        )

    # After the attacks

    def begin(self) -> None:
        """Keep what the model is before its first question, for the checks after the last."""
        self._beginning = Identity.of(self.model)
        if not reason_without_process(self.plan, self.model):
            self._fresh = FreshProcess(partial(answer_anew, self.source))

    def end(self) -> None:
        """End the process that `begin` made."""
        if self._fresh is not None:
            self._fresh.close()

    def final_checks(self, state: State) -> Checks:
        """Check that the model is the one of the beginning; return the failed checks by code."""
        if self._known.keys() <= {Code.CLEAN}:
            return {}  # nothing was attacked

        codes = yield from self._make("after", partial(self._check_after_attacks, state))
        return self._failures(codes)

    def _check_after_attacks(self, state: State) -> CheckResult:
        """Ask again about clean inputs, and a new process about inputs like those of the run."""
        clean = self.audited.rows[CLEAN]
        index = np.flatnonzero(clean.outcome != Outcome.FAILED)
        clean = rows.take(clean, index[evenly_spaced(len(index), DRIFT_SAMPLES)])

        context = AfterContext(
            model=self.model,
            beginning=self._beginning,
            plan=self.plan,
            source=self.source,
            batch_size=self._sizer.size,
            checks=self._known,
            x=self.plan.dataset.load(clean.sample_id.tolist()),
            clean=clean,
            kept=self._inputs_like_those_of_run(state),
            fresh=self._fresh,
        )
        findings = context.make()
        return findings, context.forwards, 0

    def _inputs_like_those_of_run(self, state: State) -> Tensor:
        """(m, *shape): clean inputs, adversarial ones, and points near robust samples, as attacks
        that fail ask about them; at most `INPUTS` of each.
        """
        plan = self.plan
        domain = self.model.domain
        robust = self._robust(state, INPUTS)
        clean, adversarial = self._adversarial_examples(INPUTS)
        x = self.audited.load(plan.ids[robust])
        if not len(x) or not len(plan.levels):
            return torch.cat([clean, adversarial])

        # Points in random directions, at a random share of the budget from `NEAREST` on.
        rng = self._streams(robust).fold("near robust samples")
        eps = torch.as_tensor(plan.levels[-1] * plan.units[robust], dtype=x.dtype, device=x.device)
        length = eps * (NEAREST + (1 - NEAREST) * rng.fold("length").uniform(1)[:, 0])
        change = plan.distance.direction(rng, x.shape[1:]) * per_sample(length, x)
        # Only the part of inputs that attacks may change moves.
        if not domain.is_free:
            change = domain.merge(torch.zeros_like(change), domain.part(change))
        near = domain.clamp(x + change)
        return torch.cat([clean, x, adversarial, near])

    # Beside an attack that does not climb the loss

    def probe_ahead(
        self, stage: Stage, state: State, level: Array, reach: Array, compared: int, passes: int
    ) -> Checks:
        """Check that a probe does not outdo the attacks before it that climb the loss; a failure
        starts waiting stages.

        `level` (n,) is that at which it attacked each sample, `reach` (n,) the margin from which
        others come as near as it came: infinite for samples that it broke, NaN for those on which
        it is not ahead. It attacked `compared` samples and spends at most `passes` forwards and
        backwards on one.
        """
        recorded = self._known.get(Code.PROBE_AHEAD, {})
        index = np.flatnonzero(~np.isnan(reach))
        if recorded.get("passed") is False or not is_ahead(len(index), compared, self._probes):
            return {}

        check = partial(self._compare_probe, stage, state, level, reach, compared, passes)
        yield from self._make(f"probe-{self.plan.stages.index(stage)}", check)
        failures = self._failures([Code.PROBE_AHEAD])
        self.conditions |= {"masked"} if failures else set()
        return failures

    def _compare_probe(
        self, stage: Stage, state: State, level: Array, reach: Array, compared: int, passes: int
    ) -> CheckResult:
        """Compare a probe with an attack that climbs the margin; arguments as for `probe_ahead`."""
        compared_rows = np.flatnonzero(~np.isnan(reach))
        index = compared_rows[evenly_spaced(len(compared_rows), COMPARED)]

        finding, forwards, backwards = check_lead(
            self.gradient_models["own"],
            f"{self.audited.short_name(stage.name)}, ",
            self._batch(index),
            self._threat(index, level[index], state),
            torch.as_tensor(reach[index], dtype=torch.float32, device=self.plan.device),
            (len(compared_rows), compared),
            self._probes,
            passes,
            self._streams(index).fold("probe ahead"),
            self._sizer.size,
        )
        return [finding], forwards, backwards

    @property
    def _probes(self) -> int:
        """How many stages of the plan may be compared with those that climb the loss."""
        return max(1, sum(not stage.climbs for stage in self.plan.stages))

    # Consequences

    def adapt(self, failed: dict[str, str], state: State, *, late: bool = False) -> None:
        """Decide which waiting stages run, and with which gradients; `late` is true if attacks have
        run.

        If the scores that decide are found before the first attack, all attacks follow them, and
        what the checks say of the scores that are shown does not matter.
        """
        if not late:
            # The figure of the check is the share of samples without a gradient.
            self.is_flat = Code.ZERO in failed and self._known[Code.ZERO]["figure"] == 1
            # Votes fail no check, and lead attacks as little as rounded answers.
            if self._known.get(Code.ANSWERS, {}).get("figure"):
                failed = failed | {Code.ANSWERS: str(self._known[Code.ANSWERS]["text"])}

        repaired = self._seek_repair(failed, state, late=late)
        finds_scores = repaired is not None and repaired.decides and not late
        if repaired is not None and finds_scores and failed.keys() & OF_SCORES:
            self._follow_deciding_scores(repaired.model, state)
            self.is_flat = False
            failed = {code: text for code, text in failed.items() if code == Code.RANDOM}
            repaired = None

        plain = {stage.name for stage in self.plan.stages if not stage.waits}
        self.conditions |= conditions(
            failed,
            incomplete=bool(plain & self.source.skipped.keys()),
            repaired=repaired,
            labels_only=self.model.access == Access.LABELS,
        )
        if self._surrogate is not None and self._seeks_scores and "detached" in self.conditions:
            self.gradient_models["surrogate"] = with_scores_of(self.model, self._surrogate)

    def _seek_repair(self, failed: dict[str, str], state: State, *, late: bool) -> Repair | None:
        """Look for a repair if a failed check calls for one, or a stage waits for one that may be
        there.
        """
        waits = any(
            stage.gradient == "repaired" and stage.name not in self.source.skipped
            for stage in self.plan.stages
        )
        causes = (REPAIRABLE if waits else frozenset()) | (frozenset() if late else OF_SCORES)
        # Scores that nobody shows may decide, although no check of the shown ones failed.
        is_hopeful = waits and not late and self._seeks_scores and bool(state.correct.any())
        if not failed.keys() & causes and not is_hopeful:
            return None
        return self._sizer.fit(lambda: self._repair(failed, state))

    def _repair(self, failed: dict[str, str], state: State) -> Repair | None:
        """Find a repair of the gradient or reject class that failed its check; record it in the
        manifest with its cost.
        """
        context = self._context(state)
        n = len(context.batch)
        is_broken = bool(failed.keys() & (REPAIRABLE | COARSE))
        # About as many passes as the search takes, for the progress that is shown.
        title, passes = ("repair", 120 * n) if is_broken else ("inner scores", 256)
        self.progress.stage(self.source.name, title, n, passes)

        repaired = None
        if self.model.access == Access.GRADIENTS and self._seeks_scores:
            scores = find_deciding_scores(context)
            if scores is not None and (scores.decides or failed.keys() & OF_SCORES):
                repaired = scores
        if repaired is None and failed.keys() & GRADIENT_FAILURES:
            repaired = find_repair(context)

        record = self._repair_record
        forwards, backwards = context.costs
        record["forwards"] += forwards
        record["backwards"] += backwards
        if repaired is not None:
            self.gradient_models["repaired"] = repaired.model
            self.audited.note("checks", [Remark("gradient-repaired", repaired.text)])
            figure = repaired.disagreement
            record["way"] = repaired.substitute
            record["disagreement"] = figure if math.isfinite(figure) else None
        self.audited.entries.setdefault("repairs", {})[self.source.name] = record
        return repaired

    def _follow_deciding_scores(self, model: Model, state: State) -> None:
        """Let all attacks follow the scores that decide, and measure the lead on clean inputs by
        them.
        """
        self.gradient_models["own"] = self.gradient_models.pop("repaired")
        index = np.flatnonzero(state.correct)
        for part in np.array_split(index, max(1, math.ceil(len(index) / self._sizer.size))):
            batch = self._batch(part)
            target = None if state.target is None else state.target[part]
            # Without a threshold: such a run never looks for scores that decide.
            criterion = make_criterion(target, batch.x.device, self.source.reject)
            logits = predict(model, batch.x, self._sizer.size)
            margin = criterion.margin(logits, batch.y, batch.x).cpu().numpy()
            state.clean_margin[part] = -margin
            state.nearest[part] = margin

        self._repair_record["from_start"] = True
        self._repair_record["forwards"] += len(index)
        self.audited.entries["repairs"][self.source.name] = self._repair_record


def _climbs_margin(stage: Stage) -> bool:
    """True if a stage follows gradients of another loss than the cross-entropy."""
    # A stage that names no loss follows the usual one of its family.
    usual = "ce" if stage.attack.family == "budgeted" else "margin"
    return stage.attack.access == Access.GRADIENTS and stage.settings().get("loss", usual) != "ce"
