"""The checks on one model before and after the stages of an audit, and the consequences of an alarm."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.checks import COARSE, DETACHED, Code, Finding
from brinell.core.contracts import Remark
from brinell.core.errors import BatchError, SampleError
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.record import Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.engine import clean_accuracy, consistency, rejection
from brinell.engine.adaptive import GRADIENT_FAILURES, REPAIRABLE, conditions, needless_stages
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell
from brinell.engine.checks import SAMPLES, CheckResults, make_checks
from brinell.engine.deciding import find_deciding_scores, with_scores_of
from brinell.engine.fresh_copy import Copies, check_fresh_copy
from brinell.engine.plan import GROUP_BYTES
from brinell.engine.reached_inputs import collect_points
from brinell.engine.repair import Repair, find_repair, with_surrogate
from brinell.engine.shard import make_criterion, predict
from brinell.engine.state import State
from brinell.engine.surrogates import mean_of
from brinell.engine.survivors import EXAMPLES, SURVIVORS, check_survivors
from brinell.store import rows

DRIFT_SAMPLES = 16
"""Number of clean inputs that the model answers once more at the end."""
CONFIDENCE_TOLERANCE = 1e-3
"""Tolerance of confidences, and of logits as a share of the largest."""


class ModelChecks:
    """The checks on one model, kept in the manifest of its run."""

    def __init__(self, audited: AuditedModel) -> None:
        self.audited, self.plan, self.source, self.model = audited, audited.plan, audited.source, audited.model
        self.run, self.progress, self._sizer = audited.run, audited.progress, audited.sizer
        self.conditions: set[str] = set()
        """Conditions of waiting stages that hold (`engine.adaptive.When`)."""
        self.needless: frozenset[str] = frozenset()
        """Conditions whose stages cannot help on the model."""
        self.is_flat = False
        """True if no clean input has a gradient: stages for masked gradients that follow the model's own are left out."""
        self.needless_reason = ""
        """Why stages are left out, as a clause."""
        self.pace: float | None = None
        """Evaluations per second during the checks; None if these were read from the folder."""
        self._repair_record: dict[str, Any] = {"forwards": 0, "backwards": 0}
        """What the manifest says of repairs."""
        self._surrogate = mean_of(audited.surrogates) if audited.surrogates else None
        self.gradient_models: dict[str, Model] = {"own": self.model}
        """Model to query, by the gradient that a stage follows (`engine.adaptive.Source`)."""
        if self._surrogate is not None:
            self.gradient_models["surrogate"] = with_surrogate(self.model, self._surrogate)

    @property
    def _seeks_scores(self) -> bool:
        """True if scores may take the place of the shown ones: they have the model's class, but not its probabilities."""
        return self.plan.threshold is None

    def _right(self, state: State) -> Array:
        """(n,) bool: samples that attacks may break and that the model classifies correctly, as the checks need them."""
        return np.asarray(state.correct & (state.clean_pred == self.plan.labels))

    def waits(self, stage: Stage) -> bool:
        """True if the stage waits for a condition that does not hold, or cannot help."""
        when = stage.turn.when
        holds = when is None or (when in self.conditions and when not in self.needless)
        follows = stage.gradient == "own" and stage.attack.access == Access.GRADIENTS
        return not holds or stage.gradient not in self.gradient_models or (when == "masked" and self.is_flat and follows)

    def failed_checks(self, state: State) -> dict[str, str]:
        """Failed checks by code. A resumed run keeps its findings, because a random model would answer differently."""
        name, manifest = self.source.name, self.run.manifest
        checks, costs = manifest.setdefault("checks", {}), manifest.setdefault("probes", {})
        if name not in checks:
            record = self._sizer.fit(lambda: self._probe_record(state))
            checks[name], passes = record["checks"], record["passes"]
            previous = costs.get(name, {})
            costs[name] = {kind: previous.get(kind, 0) + count for kind, count in passes.items()}
            self.run.save_manifest()
        failures = {str(check["code"]): str(check["text"]) for check in checks[name] if check["passed"] is False}
        for text in failures.values():
            self.progress.warn(f"{name}: {text}")
        return failures

    def _probe_record(self, state: State) -> dict[str, Any]:
        """Results and costs of the checks, for the manifest."""
        start = time.perf_counter()
        checks, passes = self.probe(state).manifest()
        self.pace = sum(passes.values()) / max(time.perf_counter() - start, 1e-9)
        return {"checks": checks, "passes": passes}

    def survivor_checks(self, state: State) -> dict[str, str]:
        """Check the margin on robust samples; return it by its code if it failed. A failure starts waiting stages."""
        name, records = self.source.name, self.run.manifest["checks"][self.source.name]
        known = {str(record["code"]): record for record in records}
        if not self._right(state).any() or not len(self.plan.levels):
            return {}
        if Code.SURVIVORS not in known:
            record = self._sizer.fit(lambda: self._survivor_record(state, known))
            known[Code.SURVIVORS] = record["check"]
            records.append(record["check"])
            for kind, count in record["passes"].items():
                self.run.manifest["probes"][name][kind] += count
            self.run.save_manifest()
        finding = known[Code.SURVIVORS]
        if finding["passed"] is not False:
            return {}
        self.adapt({Code.SURVIVORS: str(finding["text"])}, state, late=True)
        self.progress.warn(f"{name}: {finding['text']}")
        return {str(Code.SURVIVORS): str(finding["text"])}

    def _survivor_record(self, state: State, checks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Result and cost of the check on robust samples, for the manifest."""
        finding, forwards, backwards = self._check_survivors(state, checks)
        return {"check": asdict(finding), "passes": {"forwards": forwards, "backwards": backwards}}

    def _check_survivors(self, state: State, checks: Mapping[str, Mapping[str, Any]]) -> tuple[Finding, int, int]:
        """Make the check on robust samples, unless the check on decision boundaries failed or could not run."""
        plan = self.plan
        robust = np.flatnonzero(self._right(state) & (state.broken == len(plan.levels)) & (plan.units > 0))
        boundary = checks.get(Code.BOUNDARY, {})
        if boundary.get("passed") is False or boundary.get("reason"):
            reason = str(boundary.get("reason") or "the scores do not decide on lines between clean inputs already")
            return Finding.not_made(Code.SURVIVORS, reason), 0, 0
        if not len(robust):
            return Finding(code=Code.SURVIVORS, passed=True, text="no sample is robust"), 0, 0
        index = robust[consistency.evenly_spaced(len(robust), SURVIVORS)]
        x = self.audited.load(plan.ids[index])
        y = torch.as_tensor(plan.labels[index], device=x.device).long()
        survivors = Batch(ids=torch.arange(len(x), device=x.device), x=x, y=y)
        return check_survivors(
            self.model,
            survivors,
            self._adversarial_examples(),
            plan.distance,
            float(plan.levels[-1] * np.median(plan.units[index])),
            batch_size=self._sizer.size,
        )

    def _adversarial_examples(self) -> tuple[Tensor, Tensor]:
        """Clean inputs (m, *shape) of a few samples with an adversarial example in the run folder, and these examples."""
        records = self.run.records_in_place()
        made = [stage.name for stage in self.plan.stages if not stage.waits]  # a replay knows the rows of later stages, too
        rows_ = np.flatnonzero(
            (records.model == self.source.name) & (records.outcome == Outcome.FOOLED) & np.isin(records.attack.astype(str), made)
        )
        rows_ = rows_[np.unique(records.sample_id[rows_], return_index=True)[1]]
        rows_ = rows_[consistency.evenly_spaced(len(rows_), EXAMPLES)] if len(rows_) else rows_
        examples: dict[int, Array] = {}
        for attack in np.unique(records.attack[rows_].astype(str)):
            ids = records.sample_id[rows_[records.attack[rows_] == attack]].tolist()
            examples |= self.run.adversarial(self.source.name, str(attack), ids)
        ids = np.array(sorted(examples), dtype=np.int64)
        if not len(ids):
            none = torch.zeros(0, *self.plan.dataset.domain.shape, device=self.plan.device)
            return none, none
        inputs = torch.as_tensor(np.stack([examples[int(sample)] for sample in ids]), device=self.plan.device)
        return self.audited.load(ids), inputs

    def final_checks(self, digest: str, state: State) -> dict[str, str]:
        """Check that the model did not change since `digest` was made; return the failed checks by code."""
        records = self.run.manifest["checks"][self.source.name]
        if all(record["code"] == Code.CLEAN for record in records) or any(record["code"] == Code.WEIGHTS for record in records):
            return {}  # nothing was attacked, or these checks exist already
        checks = {str(record["code"]): record for record in records}
        results = [
            consistency.check_weights(digest, self.model.digest()),
            self._check_device(),
            self._check_drift(checks),
            self._check_fresh_copy(checks, state),
        ]
        findings = [result for result in results if result is not None]
        codes = {finding.code for finding in findings}
        records[:] = [record for record in records if record["code"] not in codes] + [asdict(finding) for finding in findings]
        self.run.save_manifest()
        failures = {str(finding.code): finding.text for finding in findings if finding.passed is False}
        for text in failures.values():
            self.progress.warn(f"{self.source.name}: {text}")
        return failures

    def _check_device(self) -> Finding:
        """Check that the model gives the same answers to a few clean inputs on the CPU as on the device of the audit."""
        clean = self.run.part_in_place(clean_cell(self.plan, self.source))
        index = clean.sample_id[clean.outcome != Outcome.FAILED]
        ids = index[consistency.evenly_spaced(len(index), consistency.SINGLES)]
        if self.plan.device.type != "cpu":
            self.run.manifest["probes"][self.source.name]["forwards"] += 2 * len(ids)
        x, processor = self.plan.dataset.load(ids.tolist()), torch.device("cpu")
        return self._sizer.fit(lambda: consistency.check_device(self.model, x[: self._sizer.size], self.plan.device, processor))

    def _check_drift(self, checks: Mapping[str, Mapping[str, Any]]) -> Finding | None:
        """Failed check of a model whose answers changed since the beginning; None if they did not, or are not comparable."""
        clean = self.run.part_in_place(clean_cell(self.plan, self.source))
        index = np.flatnonzero(clean.outcome != Outcome.FAILED)
        unsure = any(checks[code]["passed"] is False for code in consistency.PREREQUISITES if code in checks)
        if self.plan.eot > 1 or unsure or not len(index):
            return None
        rows_ = rows.take(clean, index[consistency.evenly_spaced(len(index), DRIFT_SAMPLES)])
        limit = float(checks.get(Code.DRIFT, {}).get("limit") or 0)
        self.run.manifest["probes"][self.source.name]["forwards"] += len(rows_)
        return self._sizer.fit(
            lambda: check_drift(self.model, self.audited.load(rows_.sample_id), rows_, self._sizer.size, limit)
        )

    def _check_fresh_copy(self, checks: Mapping[str, Mapping[str, Any]], state: State) -> Finding:
        """Check that copies of the model which have answered nothing give its answers."""
        if self.model.info.server is not None:
            return Finding.not_made(Code.FRESH, "the model runs on another machine, where no copy can be made")
        if self.plan.eot > 1:
            return Finding.not_made(Code.FRESH, "attacks judge by the mean of several answers")
        points, streams = collect_points(self.audited, state)
        if not len(points.survivors) + len(points.examples):
            return Finding.not_made(Code.FRESH, "no attack reached an input")
        copies = Copies(
            open=self.source.copy, kind=self.model.info.answers, device=self.plan.device, reopened=bool(self.source.spec)
        )
        limit = float(checks.get(Code.DRIFT, {}).get("limit") or consistency.ANSWER_TOLERANCE)
        finding, forwards, backwards = self._sizer.fit(
            lambda: check_fresh_copy(
                self.model,
                copies,
                points,
                self.plan.distance,
                streams,
                limit=limit,
                batch_size=self._sizer.size,
                attacks=[stage.attack for stage in self.plan.stages if self._is_direct(stage)],
                alone=self.plan.request.fresh or 0,
                random=checks.get(Code.RANDOM, {}).get("passed") is False,
            )
        )
        for kind, count in (("forwards", forwards), ("backwards", backwards)):
            self.run.manifest["probes"][self.source.name][kind] += count
        return finding

    def _is_direct(self, stage: Stage) -> bool:
        """True for a stage whose attack runs in this process and asks the model itself."""
        own = stage.gradient == "own" and stage.name not in self.source.skipped
        return own and not stage.waits and type(stage.attack).__module__.startswith("brinell.attacks.")

    def warn_of_extra_class(self) -> dict[str, str]:
        """Warn if attacks end in the one class that the data does not have; it may be a reject class.

        A network with several extra classes was made for more than this data, and errs towards them as towards any class.
        """
        classes = max(len(self.plan.dataset.classes), int(self.plan.labels.max(initial=0)) + 1)
        if self.source.reject is not None or classes < 2 or self.model.classes != classes + 1:
            return {}
        warnings = rejection.extra_class_warning(self.run.records_in_place(), self.source.name, classes)
        for text in warnings.values():
            self.progress.warn(f"{self.source.name}: {text}")
        return warnings

    def adapt(self, failed: dict[str, str], state: State, *, late: bool = False) -> None:
        """Decide which waiting stages run, and with which gradients; `late` is true if attacks have run.

        If the scores that decide are found before the first attack, all attacks follow them, and what the checks say of the
        scores that are shown does not matter.
        """
        if not late:
            self.needless, self.is_flat, self.needless_reason = needless_stages(self.run.manifest["checks"][self.source.name])
        waiting = [stage for stage in self.plan.stages if stage.waits and stage.name not in self.source.skipped]
        waits = any(stage.gradient == "repaired" for stage in waiting)
        needs_repair = failed.keys() & ((REPAIRABLE if waits else frozenset()) | (frozenset() if late else DETACHED | COARSE))
        seeks = waits and not late and self._seeks_scores and bool(state.correct.any())  # that nobody shows, and that may decide
        repaired = self._sizer.fit(lambda: self._repair(failed, state)) if needs_repair or seeks else None
        if repaired is not None and repaired.decides and not late and failed.keys() & (DETACHED | COARSE):
            self._follow_deciding_scores(repaired.model, state)
            self.is_flat, self.needless_reason = False, ""
            failed, repaired = {code: text for code, text in failed.items() if code == Code.RANDOM}, None
        plain = {stage.name for stage in self.plan.stages if not stage.waits}
        self.conditions |= conditions(
            failed,
            incomplete=bool(plain & self.source.skipped.keys()),
            repaired=repaired,
            labels_only=self.model.access == Access.LABELS,
        )
        if self._surrogate is not None and self._seeks_scores and "detached" in self.conditions:
            self.gradient_models["surrogate"] = with_scores_of(self.model, self._surrogate)

    def _follow_deciding_scores(self, model: Model, state: State) -> None:
        """Let all attacks follow the scores that decide, and measure the lead on clean inputs by them."""
        self.gradient_models["own"] = self.gradient_models.pop("repaired")
        index = np.flatnonzero(state.correct)
        for part in np.array_split(index, max(1, math.ceil(len(index) / self._sizer.size))):
            x = self.audited.load(self.plan.ids[part])
            y = torch.as_tensor(self.plan.labels[part], device=x.device).long()
            criterion = make_criterion(None if state.target is None else state.target[part], x.device, self.source.reject)
            margin = criterion.margin(predict(model, x, self._sizer.size), y, x).cpu().numpy()
            state.clean_margin[part], state.nearest[part] = -margin, margin
        self._repair_record |= {"from_start": True, "forwards": self._repair_record["forwards"] + len(index)}
        self.run.manifest["repairs"][self.source.name] = self._repair_record
        self.run.save_manifest()

    def _repair(self, failed: dict[str, str], state: State) -> Repair | None:
        """Find a repair of the gradient or reject class that failed its check; record it in the manifest with its cost."""
        (batch, streams), repaired = self._check_batch(state), None
        distance, eps, batch_size = self.plan.distance, self._eps(state), self._sizer.size
        broken = failed.keys() & (REPAIRABLE | COARSE)
        kind, passes = ("repair", 120 * len(batch)) if broken else ("inner scores", 256)
        self.progress.stage(self.source.name, kind, len(batch), passes)
        costs, drops = np.zeros(2, dtype=int), list[str]()
        if self._sizer.reduced:  # the fit uses all of these inputs at once
            subset = batch.ids[:batch_size]
            batch, streams = batch.select(subset), streams.select(subset)
        if self.model.access == Access.GRADIENTS and self._seeks_scores:
            repaired, *cost = find_deciding_scores(
                self.model, batch, distance, eps, streams, batch_size=batch_size, on_drop=drops.append
            )
            costs += cost
            repaired = repaired if repaired is None or repaired.decides or failed.keys() & (DETACHED | COARSE) else None
        if repaired is None and failed.keys() & GRADIENT_FAILURES:
            repaired, *cost = find_repair(self.model, batch, distance, eps, streams, batch_size=batch_size, on_drop=drops.append)
            costs += cost
        if drops:
            text = f"of the ways around the gradient, the model fails with: {'; '.join(dict.fromkeys(drops))}"
            self.audited.note("checks", [Remark("ways-dropped", text)])
        self.progress.count_passes(int(costs[0]), int(costs[1]))
        record = self._repair_record
        record |= {"forwards": record["forwards"] + int(costs[0]), "backwards": record["backwards"] + int(costs[1])}
        if repaired is not None:
            self.gradient_models["repaired"] = repaired.model
            self.audited.note("checks", [Remark("gradient-repaired", repaired.text)])
            record |= {"way": repaired.substitute, "disagreement": _finite(repaired.disagreement)}
        self.run.manifest.setdefault("repairs", {})[self.source.name] = record
        self.run.save_manifest()
        return repaired

    def probe(self, state: State) -> CheckResults:
        """Make the checks before the attacks; only that of clean accuracy if the model is right on no sample."""
        clean, forwards = self._clean_accuracy(state)
        probed = self._probe(state) if self._right(state).any() else CheckResults([], 0, 0)
        return CheckResults([*clean, *probed.findings], forwards + probed.forwards, probed.backwards)

    def _probe(self, state: State) -> CheckResults:
        """Make the checks on a few samples."""
        batch, streams = self._check_batch(state)
        self.progress.stage(self.source.name, "checks", len(batch), 29 * len(batch))
        distance, eps, batch_size = self.plan.distance, self._eps(state), self._sizer.size
        stages = [stage for stage in self.plan.stages if stage.name not in self.source.skipped]
        results = make_checks(
            self.model,
            batch,
            distance,
            eps,
            streams,
            batch_size=batch_size,
            on_pass=self.progress.count_passes,
            black_box=any(stage.attack.access < Access.GRADIENTS for stage in stages),
        )
        if self.source.reject is None or self.model.access != Access.GRADIENTS:
            return results
        finding, forwards, backwards = rejection.check_rejection(
            self.model, batch, distance, eps, self.source.reject, batch_size=batch_size
        )
        return CheckResults([*results.findings, finding], results.forwards + forwards, results.backwards + backwards)

    def _clean_accuracy(self, state: State) -> tuple[list[Finding], int]:
        """Check clean accuracy on the samples without failures; return the finding (or none) and the forwards."""
        index = np.flatnonzero(~state.failed)
        if not len(index):
            return [], 0
        finding, forwards = clean_accuracy.check_clean_accuracy(
            self.model,
            state.clean_pred[index],
            self.plan.labels[index],
            lambda rows: self.audited.load(self.plan.ids[index[rows]]),
            spec=self.source.spec,
            classes=self.plan.dataset.classes,
            batch_size=self._sizer.size,
        )
        self.progress.count_passes(forwards, 0)
        return [finding], forwards

    def _check_positions(self, state: State) -> Array:
        """Positions of the samples on which the checks run.

        They are spread over the data, which may be sorted by class. They do not depend on the batch size.
        """
        right = np.flatnonzero(self._right(state))
        count = min(SAMPLES, len(right), max(2, GROUP_BYTES // (4 * int(np.prod(self.plan.dataset.domain.shape)))))
        return np.asarray(right[consistency.evenly_spaced(len(right), count)])

    def _check_batch(self, state: State) -> tuple[Batch, Streams]:
        index = self._check_positions(state)
        ids = self.plan.ids[index]
        x = self.audited.load(ids)
        y = torch.as_tensor(self.plan.labels[index], device=x.device).long()
        streams = Streams.of(self.plan.request.seed, torch.as_tensor(ids, device=x.device)).fold("checks")
        return Batch(ids=torch.arange(len(x), device=x.device), x=x, y=y), streams

    def _eps(self, state: State) -> float:
        """Largest budget of the samples on which the checks run; infinity if there is none."""
        plan = self.plan
        return float(plan.levels[-1] * np.median(plan.units[self._check_positions(state)])) if len(plan.levels) else math.inf


def _finite(value: float) -> float | None:
    """The value; None if it is infinite or NaN."""
    return value if math.isfinite(value) else None


def check_drift(model: Model, x: Tensor, clean: Records, batch_size: int, limit: float) -> Finding | None:
    """Failed check of a model whose answers to clean inputs (n, *shape) changed since the beginning; None if they did not.

    `clean` are their rows of the clean check; `limit` is the tolerance of logits, as a share of the largest.
    """
    try:
        logits = predict(model, x, batch_size)
    except (SampleError, BatchError) as error:
        text = f"the model fails on a clean input that it answered at the beginning: {error}"
        return Finding(code=Code.DRIFT, passed=False, text=text)
    confidence, pred = losses.decision(logits)
    first_pred = torch.as_tensor(clean.clean_pred, device=logits.device).long()
    close = max(CONFIDENCE_TOLERANCE, limit)
    lead = logits.gather(1, pred[:, None]) - logits.gather(1, first_pred[:, None])
    changed = lead[:, 0] > close * losses.scale(logits, first_pred)
    changed |= (confidence - torch.as_tensor(clean.clean_confidence, device=logits.device)).abs() > close
    if not changed.any():
        return None
    reason = "the model keeps something of what it is asked: audit it with that state fixed"
    if model.info.server is not None:
        reason = "it answers at random, or another one took its place in between: audit it again"
    count = f"{int(changed.sum())} of {len(x)}"
    text = f"at the end the model answers {count} clean inputs differently than at the beginning: {reason}"
    return Finding(code=Code.DRIFT, passed=False, text=text)
