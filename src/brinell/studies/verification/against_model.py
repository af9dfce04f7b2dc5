"""A run against its model: does it still predict the recorded classes, and is every stored input a success?"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.criterion import ROUNDING
from brinell.core.eot import EOT
from brinell.core.errors import BrinellError, RequestError
from brinell.core.model import Model
from brinell.core.norms import per_sample
from brinell.core.quantise import quantise
from brinell.core.record import Outcome, Records
from brinell.core.streams import Streams
from brinell.core.threat import size, tolerance
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.shard import predict
from brinell.engine.targeting import LEAST_LIKELY
from brinell.store.run import Run
from brinell.studies.verification.result import Notes

Array = np.ndarray[Any, Any]
CHUNK = 256
CHANCE = 5.0
"""Standard errors by which the mean of a random model's eot may differ from the run's, which was the best of many."""


class Claims:
    """What the records of a run claim that a model answered."""

    def __init__(self, run: Run, plan: Plan, notes: Notes) -> None:
        self.run, self.plan, self._notes = run, plan, notes
        self.successes = self.predictions = self.boundary = 0
        """Adversarial inputs and clean predictions that were asked again, and those of the latter that differ by rounding."""

    def check(self, source: ModelSource, model: Model) -> None:
        """Repeat the clean predictions, and judge each stored adversarial input anew."""
        clean = self._part(clean_cell(self.plan, source))
        if clean is None:
            return
        self._clean(source, model, clean)
        for stage in self.plan.stages if len(self.plan.levels) else ():
            records = self._part(stage_cell(self.plan, source, stage))
            if records is not None:
                self._adversarial(source, stage, model, records)

    def _part(self, key: str) -> Records | None:
        """All rows of a stage; None where they cannot be read, which `rows` has noted."""
        try:
            return self.run.part(key) if self.run.has_part(key) else None
        except RequestError:
            return None

    def _clean(self, source: ModelSource, model: Model, records: Records) -> None:
        wrong: list[int] = []
        for rows in _chunks(np.flatnonzero(records.outcome != Outcome.FAILED)):
            ids = records.sample_id[rows]
            lead, rounding, chance = self._lead(model, self._inputs(ids), records.clean_pred[rows], self.plan.eot)
            self.predictions += len(rows)
            self.boundary += int(((lead > 0) & (lead <= rounding + chance)).sum())
            wrong += ids[(lead > rounding + chance).cpu().numpy()].tolist()
            self._targets(source, model, records, rows)
        self._failed(source, model, records)
        self._notes.note(
            f"{source.name} clean", "the model predicts another class for the clean input than the record says", wrong
        )

    def _failed(self, source: ModelSource, model: Model, records: Records) -> None:
        """Samples that are said to have failed leave every rate, so the model is asked about each of them again, alone."""
        answered = []
        for sample in records.sample_id[records.outcome == Outcome.FAILED].tolist():
            try:
                logits = predict(model, self._inputs(np.array([sample])), 1, self.plan.eot)
            except BrinellError:
                continue
            if bool(torch.isfinite(logits).all()):
                answered.append(sample)
        self._notes.note(f"{source.name} clean", "the sample counts as failed, and the model answers it", answered)

    def _targets(self, source: ModelSource, model: Model, records: Records, rows: Array) -> None:
        if self.plan.targeting is None:
            return
        ids, claimed = records.sample_id[rows], np.ma.getdata(records.target)[rows]
        if self.plan.targeting.text == LEAST_LIKELY:
            # Another class that is less likely by more than rounding and chance.
            x = self._inputs(ids)
            with torch.no_grad():
                mean = EOT(model, self.plan.eot, self.plan.request.batch_size).every(x).mean(0)
            own = mean.gather(1, torch.as_tensor(claimed, device=x.device).long()[:, None])[:, 0]
            wrong = (own - mean.amin(1) > ROUNDING * mean.abs().amax(1)).cpu().numpy() & (self.plan.eot == 1)
        else:
            streams = Streams.of(self.plan.request.seed, torch.as_tensor(ids))
            labels = torch.as_tensor(records.label[rows]).long()
            asked = self.plan.targeting.classes(torch.zeros(len(ids), model.classes), labels, streams)
            wrong = asked.numpy() != claimed
        self._notes.note(f"{source.name} clean", "the target class is not the one that the request asks for", ids[wrong].tolist())

    def _inputs(self, ids: Array) -> Tensor:
        return self.plan.dataset.load(ids.tolist()).to(self.plan.device)

    def _lead(self, model: Model, x: Tensor, claimed: Array, eot: int) -> tuple[Tensor, Tensor, Tensor]:
        """Lead of another class over the claimed one in the mean of the eot, and what rounding and chance may have made of it."""
        asked = EOT(model, eot, self.plan.request.batch_size)
        with torch.no_grad():
            every = torch.cat([asked.every(part) for part in torch.split(x, asked.batch_size)], 1)
        mean, y = every.mean(0), torch.as_tensor(np.asarray(claimed), device=x.device).long()
        lead = losses.margin(mean, y)
        rival = mean.scatter(1, y[:, None], -torch.inf).argmax(1)
        rows = torch.arange(len(x), device=x.device)
        each = every[:, rows, rival] - every[:, rows, y]
        chance = CHANCE * each.std(0) / eot**0.5 if eot > 1 else torch.zeros_like(lead)
        return lead, ROUNDING * mean.abs().amax(1), chance

    def _adversarial(self, source: ModelSource, stage: Stage, model: Model, records: Records) -> None:
        where = f"{source.name} {stage.name}"
        found = np.flatnonzero(records.outcome == Outcome.FOOLED)
        order = found[np.lexsort((records.eps[found], records.sample_id[found]))]
        first = np.unique(records.sample_id[order], return_index=True)[1]
        for rows in _chunks(order[first]):
            ids = records.sample_id[rows]
            try:
                stored = self.run.adversarial(source.name, stage.name, ids.tolist())
            except RequestError as error:
                self._notes.note(where, str(error))
                return
            missing = [sample for sample in ids.tolist() if sample not in stored]
            self._notes.note(where, "the adversarial input is not stored", missing)
            rows = rows[np.isin(ids, list(stored))]
            if len(rows):
                x = self._judge(where, model, records, rows, stored, stage.eot)
                if source.reject is not None and x is not None:
                    lead, _, chance = self._lead(model, x, np.full(len(rows), source.reject), stage.eot)
                    wrong = records.sample_id[rows][(lead <= -chance).cpu().numpy()].tolist()
                    self._notes.note(where, "the model rejects the stored input", wrong)

    def _judge(
        self, where: str, model: Model, records: Records, rows: Array, stored: dict[int, Array], eot: int
    ) -> Tensor | None:
        """Judge the stored inputs of some rows anew; returns them (n, *shape), or nothing where they have another shape."""
        ids, domain = records.sample_id[rows], self.plan.dataset.domain
        arrays = [stored[sample] for sample in ids.tolist()]
        misshapen = [sample for sample, array in zip(ids.tolist(), arrays, strict=True) if array.shape != tuple(domain.shape)]
        if misshapen:
            self._notes.note(where, f"the stored input is not of shape {domain.shape}", misshapen)
            return None
        x = torch.as_tensor(np.stack(arrays), device=self.plan.device)
        x0 = self._inputs(ids)
        self.successes += len(rows)

        def claim(holds: Tensor, what: str) -> None:
            self._notes.note(where, what, ids[~holds.cpu().numpy()].tolist())

        low, high = domain.bounds(x)
        inside = (x >= low - domain.slack) & (x <= high + domain.slack)
        claim(inside.flatten(1).all(1), "the stored input leaves the bounds of the data")
        eps = torch.as_tensor(records.radius[rows], dtype=torch.float32, device=x.device)
        limit = eps + tolerance(eps, self.plan.distance, domain)
        claim(size(self.plan.distance, x, x0) <= limit, f"the stored input is farther than eps in {self.plan.distance.name}")
        for name in ("linf", "l2", "l1", "l0"):
            measured, recorded = getattr(norms, name)(x - x0), np.asarray(getattr(records, name)[rows])
            close = np.isclose(measured.cpu().numpy(), recorded, rtol=1e-4, atol=domain.slack)
            claim(torch.as_tensor(close), f"the stored input has another {name} than the record says")
        if self.plan.targeting is None:
            lead, _, chance = self._lead(model, x, records.label[rows], eot)
            claim(lead > -chance, "the model is right on the stored input")
        else:
            lead, rounding, chance = self._lead(model, x, np.ma.getdata(records.target)[rows], eot)
            claim(lead <= rounding + chance, "the model does not see the target class in the stored input")
        stored_within = torch.as_tensor(np.ma.filled(records.quantised_within[rows], False), device=x.device)
        inside = quantise(x, x0, limit, self.plan.distance, domain)
        rounded = torch.where(per_sample(stored_within, x), inside, domain.round(x))
        lead, rounding, chance = self._lead(model, rounded, records.quantised_pred[rows], eot)
        claim(lead <= rounding + chance, "the model predicts another class after rounding than the record says")
        return x


def _chunks(rows: Array) -> Iterable[Array]:
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))
