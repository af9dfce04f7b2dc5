"""The checks on one model in an audit: before the stages and after them, and what an alarm changes."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import EXTRA, Code, Finding
from brinell.core.contracts import Remark
from brinell.core.errors import BatchError, SampleError
from brinell.core.intervals import wilson
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.record import CLEAN, Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.engine import clean_accuracy, consistency, rejection
from brinell.engine.adaptive import BROKEN, MENDED, Repair, conditions, find_repair, smooth_rejection
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell
from brinell.engine.checks import MASKING, SAMPLES, Checked, make_checks
from brinell.engine.plan import GROUP_BYTES
from brinell.engine.repair import along
from brinell.engine.shard import predict
from brinell.engine.state import State
from brinell.store import rows

AGAIN = 16
"""Clean inputs that the model is asked about once more at the end."""
CLOSE = 1e-3
"""How far two confidences may lie apart, and two logits as a share of the largest."""
SHARE = 0.1
"""Share of the fooled samples above which a class beside those of the data is reported. Of the classes of a network that knows
many more than the data has, none attracts as many by itself."""


class ModelChecks:
    """The checks on one model, kept in the manifest of its run; `surrogate` is the model whose gradients some stages follow."""

    def __init__(self, audited: AuditedModel, surrogate: Model | None = None) -> None:
        self.audited, self.plan, self.source, self.model = audited, audited.plan, audited.source, audited.model
        self.run, self.progress, self._room = audited.run, audited.progress, audited.room
        self.conditions: set[str] = set()
        """What stages that wait are waiting for, as far as it holds (`engine.adaptive.When`)."""
        self.followed: dict[str, Model] = {"own": self.model}
        """The model to ask, by whose gradient a stage follows (`engine.adaptive.Source`)."""
        if surrogate is not None:
            self.followed["surrogate"] = along(self.model, surrogate)

    def waits(self, stage: Stage) -> bool:
        """Whether a stage waits for something that does not hold."""
        when = stage.turn.when
        return stage.gradient not in self.followed or (when is not None and when not in self.conditions)

    def failed(self, state: State) -> dict[str, str]:
        """The failed checks, by code. A run that goes on keeps what it saw: a random model would not answer alike again."""
        name, manifest = self.source.name, self.run.manifest
        checks, spent = manifest.setdefault("checks", {}), manifest.setdefault("probes", {})
        if name not in checks:
            made = self.audited.peers.once(
                f"checks-{clean_cell(self.plan, self.source)}", lambda: self._room.fit(lambda: self._made(state))
            )
            checks[name], passes = made["checks"], made["passes"]
            before = spent.get(name, {})
            spent[name] = {kind: before.get(kind, 0) + count for kind, count in passes.items()}
            self.run.save_manifest()
        found = {str(check["code"]): str(check["text"]) for check in checks[name] if check["passed"] is False}
        for text in found.values():
            self.progress.warn(f"{name}: {text}")
        return found

    def _made(self, state: State) -> dict[str, Any]:
        checks, passes = self.probe(state).manifest()
        return {"checks": checks, "passes": passes}

    def afterwards(self, digest: str) -> dict[str, str]:
        """The failed checks of whether the model is at the end what it was at the beginning, when its digest was made."""
        kept = self.run.manifest["checks"][self.source.name]
        if all(one["code"] == Code.CLEAN for one in kept) or any(one["code"] == Code.WEIGHTS for one in kept):
            return {}  # no sample is right, so that nothing was attacked; or the run has come to its end before
        checks = {str(one["code"]): one for one in kept}
        ended = [consistency.weights(digest, self.model.digest()), self._elsewhere(), self._drifted(checks)]
        made = [one for one in ended if one is not None]
        kept[:] = [one for one in kept if one["code"] not in {one.code for one in made}] + [asdict(one) for one in made]
        self.run.save_manifest()
        found = {str(one.code): one.text for one in made if one.passed is False}
        for text in found.values():
            self.progress.warn(f"{self.source.name}: {text}")
        return found

    def _elsewhere(self) -> Finding:
        """The check of whether the model answers a few clean inputs on the processor as on the device of the audit."""
        clean = self.run.part_in_place(clean_cell(self.plan, self.source))
        judged = clean.sample_id[clean.outcome != Outcome.FAILED]
        ids = judged[consistency.evenly(len(judged), consistency.ALONE)]
        if self.plan.device.type != "cpu":
            self.run.manifest["probes"][self.source.name]["forwards"] += 2 * len(ids)
        return consistency.elsewhere(self.model, self.plan.dataset.load(ids.tolist()), self.plan.device, torch.device("cpu"))

    def _drifted(self, checks: Mapping[str, Mapping[str, Any]]) -> Finding | None:
        """The failed check of a model that answers otherwise than at the beginning; None where it does not, or never did."""
        clean = self.run.part_in_place(clean_cell(self.plan, self.source))
        judged = np.flatnonzero(clean.outcome != Outcome.FAILED)
        unsure = any(checks[code]["passed"] is False for code in consistency.UNSURE if code in checks)
        if self.plan.eot > 1 or unsure or not len(judged):
            return None
        rows_ = rows.take(clean, judged[consistency.evenly(len(judged), AGAIN)])
        limit = float(checks.get(Code.DRIFT, {}).get("limit") or 0)
        self.run.manifest["probes"][self.source.name]["forwards"] += len(rows_)
        return self._room.fit(lambda: drifted(self.model, self.audited.load(rows_.sample_id), rows_, self._room.size, limit))

    def beyond_labels(self) -> dict[str, str]:
        """The warning that attacks end in the one class that the data has not, which may be one by which the model rejects.

        A network that knows several classes more was made for more than this data, and errs towards them as towards any.
        """
        known = max(len(self.plan.dataset.classes), int(self.plan.labels.max(initial=0)) + 1)
        if self.source.reject is not None or known < 2 or self.model.classes != known + 1:
            return {}
        found = beyond_labels(self.run.records_in_place(), self.source.name, known)
        for text in found.values():
            self.progress.warn(f"{self.source.name}: {text}")
        return found

    def adapt(self, failed: dict[str, str], state: State) -> None:
        """Decide which stages that wait will run, and with whose gradients."""
        waiting = [stage for stage in self.plan.stages if stage.waits and stage.name not in self.source.skipped]
        mends = failed.keys() & MENDED and any(stage.gradient == "repaired" for stage in waiting)
        repaired = self._room.fit(lambda: self._repair(failed, state)) if mends else None
        plain = {stage.name for stage in self.plan.stages if not stage.waits}
        self.conditions = conditions(
            failed, incomplete=bool(plain & self.source.skipped.keys()), masking=MASKING, repaired=repaired
        )

    def _repair(self, failed: dict[str, str], state: State) -> Repair | None:
        """The way around a gradient or a reject class that failed its check, kept in the manifest with its cost."""
        (batch, streams), repaired = self._checked(state), None
        distance, eps, batch_size = self.plan.distance, self._eps(state), self._room.size
        self.progress.stage(self.source.name, "repair", len(batch), 120 * len(batch))
        spent, dropped = np.zeros(2, dtype=int), list[str]()
        if self._room.short:  # a network is fitted to all of these at once
            few = batch.ids[:batch_size]
            batch, streams = batch.select(few), streams.select(few)
        if failed.keys() & BROKEN:
            repaired, *cost = find_repair(
                self.model, batch, distance, eps, streams, batch_size=batch_size, dropped=dropped.append
            )
            spent += cost
        reject = self.source.reject
        if Code.REJECTION in failed and reject is not None:
            repaired, *cost = smooth_rejection(
                self.model, repaired, batch, distance, eps, streams, reject, batch_size=batch_size, dropped=dropped.append
            )
            spent += cost
        if dropped:
            text = "; ".join(dict.fromkeys(dropped))
            self.audited.note(
                "checks", [Remark("ways-dropped", f"of the ways around the gradient, the model fails with: {text}")]
            )
        told: dict[str, Any] = {"forwards": int(spent[0]), "backwards": int(spent[1])}
        if repaired is not None:
            self.followed["repaired"] = repaired.model
            self.audited.note("checks", [Remark("gradient-repaired", repaired.text)])
            told |= {"way": repaired.way, "disagreement": _finite(repaired.disagreement)}
        self.run.manifest.setdefault("repairs", {})[self.source.name] = told
        self.run.save_manifest()
        return repaired

    def probe(self, state: State) -> Checked:
        """The checks before the attacks, made now; beside that of clean accuracy none where the model is right on no sample."""
        clean, forwards = self._clean_accuracy(state)
        probed = self._probe(state) if state.correct.any() else Checked([], 0, 0)
        return Checked([*clean, *probed.findings], forwards + probed.forwards, probed.backwards)

    def _probe(self, state: State) -> Checked:
        batch, streams = self._checked(state)
        self.progress.stage(self.source.name, "checks", len(batch), 29 * len(batch))
        distance, eps, batch_size = self.plan.distance, self._eps(state), self._room.size
        made = make_checks(self.model, batch, distance, eps, streams, batch_size=batch_size, on_pass=self.progress.passes)
        if self.source.reject is None or self.model.access != Access.GRADIENTS:
            return made
        found, forwards, backwards = rejection.checked(
            self.model, batch, distance, eps, self.source.reject, batch_size=batch_size
        )
        return Checked([*made.findings, found], made.forwards + forwards, made.backwards + backwards)

    def _clean_accuracy(self, state: State) -> tuple[list[Finding], int]:
        """The check of clean accuracy, on the samples that could be judged, and its forwards."""
        judged = np.flatnonzero(~state.failed)
        if not len(judged):
            return [], 0
        found, forwards = clean_accuracy.check(
            self.model,
            state.clean_pred[judged],
            self.plan.labels[judged],
            lambda at: self.audited.load(self.plan.ids[judged[at]]),
            spec=self.source.spec,
            classes=self.plan.dataset.classes,
            batch_size=self._room.size,
        )
        self.progress.passes(forwards, 0)
        return [found], forwards

    def _checked_at(self, state: State) -> Array:
        """Positions of the samples that the checks look at.

        They are spread over the data, which may be sorted by class, and never by the batch size, which decides no result.
        """
        right = np.flatnonzero(state.correct)
        most = min(SAMPLES, len(right), max(2, GROUP_BYTES // (4 * int(np.prod(self.plan.dataset.domain.shape)))))
        return np.asarray(right[consistency.evenly(len(right), most)])

    def _checked(self, state: State) -> tuple[Batch, Streams]:
        at = self._checked_at(state)
        ids = self.plan.ids[at]
        x = self.audited.load(ids)
        y = torch.as_tensor(self.plan.labels[at], device=x.device).long()
        streams = Streams.of(self.plan.request.seed, torch.as_tensor(ids, device=x.device)).fold("checks")
        return Batch(ids=torch.arange(len(x), device=x.device), x=x, y=y), streams

    def _eps(self, state: State) -> float:
        """The largest budget of the samples that the checks look at; infinite where there is none."""
        plan = self.plan
        return float(plan.levels[-1] * np.median(plan.units[self._checked_at(state)])) if len(plan.levels) else math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def drifted(model: Model, x: Tensor, clean: Records, batch_size: int, limit: float) -> Finding | None:
    """The failed check of a model that no longer answers clean inputs (n, *shape) as it did at the beginning; None where it does.

    `clean` are their rows of the first check; `limit` is how far two logits may lie apart by the model's own rounding, as a
    share of the largest.
    """
    try:
        logits = predict(model, x, batch_size)
    except (SampleError, BatchError) as error:
        text = f"the model fails on a clean input that it answered at the beginning: {error}"
        return Finding(code=Code.DRIFT, passed=False, text=text)
    confidence, pred = logits.softmax(1).max(1)
    before = torch.as_tensor(clean.clean_pred, device=logits.device).long()
    close = max(CLOSE, limit)
    lead = logits.gather(1, pred[:, None]) - logits.gather(1, before[:, None])
    other = lead[:, 0] > close * logits.abs().amax(1)
    other |= (confidence - torch.as_tensor(clean.clean_confidence, device=logits.device)).abs() > close
    if not other.any():
        return None
    why = "the model keeps something of what it is asked: audit it with that state fixed"
    if model.info.server is not None:
        why = "it answers at random, or another one took its place in between: audit it again"
    text = f"at the end the model answers {int(other.sum())} of {len(x)} clean inputs otherwise than at the beginning: {why}"
    return Finding(code=Code.DRIFT, passed=False, text=text)


def beyond_labels(records: Records, model: str, known: int) -> dict[str, str]:
    """The warning about the class from `known` on that most fooled samples are taken for, if that is a share that matters."""
    mine = records.model == model
    fooled = mine & (records.outcome == Outcome.FOOLED) & ~np.ma.getmaskarray(records.adv_pred)
    first = np.unique(records.sample_id[fooled], return_index=True)[1]
    seen = np.ma.getdata(records.adv_pred)[fooled][first]
    extra, counts = np.unique(seen[seen >= known], return_counts=True)
    if not len(extra):
        return {}
    top, k = int(extra[counts.argmax()]), int(counts.max())
    interval = wilson(k, len(seen))
    if interval is None or interval.low <= SHARE:
        return {}
    clean = int((np.ma.getdata(records.clean_pred)[mine & (records.attack == CLEAN)] == top).sum())
    text = (
        f"{k} of {len(seen)} adversarial inputs and {clean} clean ones are taken for class {top}, which the data has not: if the "
        f"model rejects inputs by it, give --reject-class {top}, and such an input is no success; otherwise it is a class as any"
    )
    return {EXTRA: text}
