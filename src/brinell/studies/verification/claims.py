"""Checks a run against its model: the clean predictions, and the success of each stored adversarial input."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.eot import EOT
from brinell.core.errors import BrinellError, RequestError
from brinell.core.model import Model
from brinell.core.norms import per_sample
from brinell.core.record import Outcome, Records, has_broken
from brinell.core.streams import Streams
from brinell.core.threat import size, tolerance
from brinell.engine.cascade import Stage
from brinell.engine.cells import clean_cell, stage_cell
from brinell.engine.consistency import ANSWER_TOLERANCE
from brinell.engine.group_attack import make_criterion, predict
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.quantise import quantise
from brinell.engine.state import is_open
from brinell.engine.targeting import LEAST_LIKELY
from brinell.store.run import Run
from brinell.studies.verification.result import Notes

Array = np.ndarray[Any, Any]
CHUNK_SAMPLES = 256
CONFIDENCE_TOLERANCE = 1e-3
MARGIN_TOLERANCE = 128
"""Tolerance of margins, in what float32 may round them."""
CHANCE_ERRORS = 5.0
"""Tolerance for a random model, in standard errors of its mean logits. It is wide because the run kept the best of many means."""
RANDOM_LOOKS = 32
"""Answers of a random model at least that show how far its answers scatter."""
PROBES, PROBE_LOOKS = 64, 3
"""Clean inputs and answers to each that show whether a model answers at random."""


class Claims:
    """Compares the recorded answers of a run with those of its models."""

    def __init__(self, run: Run, plan: Plan, notes: Notes) -> None:
        self.run, self.plan, self._notes = run, plan, notes
        self.successes = self.predictions = self.boundary = 0
        """Adversarial inputs and clean predictions that were recomputed, and clean predictions that differ by rounding alone."""
        self._is_random = False

    def check(self, source: ModelSource, model: Model) -> Array | None:
        """Repeat the clean predictions of a model, and judge its stored adversarial inputs again.

        Returns:
            (n,) bool: samples that attacks may break according to the run; None if rows are missing.
        """
        cells = [stage_cell(self.plan, source, stage) for stage in self.plan.stages if len(self.plan.levels)]
        if not self.run.has_part(clean_cell(self.plan, source)):
            return None
        clean = self.run.part(clean_cell(self.plan, source))
        self._is_random = self._answers_at_random(model, clean.sample_id[clean.outcome != Outcome.FAILED][:PROBES])
        self._check_clean(source, model, clean)
        for stage, cell in zip(self.plan.stages, cells, strict=False):
            self._check_adversarial(source, stage, model, self.run.part(cell))
        return is_open(clean.outcome)

    def _answers_at_random(self, model: Model, ids: Array) -> bool:
        """True if two answers to the same clean inputs differ. The claim of the run itself is not used."""
        if not len(ids):
            return False
        x = self._inputs(ids)
        try:
            first, *repeats = (predict(model, x, self.plan.request.batch_size) for _ in range(PROBE_LOOKS))
        except BrinellError:
            return False
        scale = first.abs().amax().clamp_min(1e-12)
        return any(bool((first - repeat).abs().amax() > ANSWER_TOLERANCE * scale) for repeat in repeats)

    def _check_clean(self, source: ModelSource, model: Model, records: Records) -> None:
        wrong: list[int] = []
        for rows in _chunks(np.flatnonzero(records.outcome != Outcome.FAILED)):
            ids = records.sample_id[rows]
            lead, rounding, chance = self._rival_lead(model, self._inputs(ids), records.clean_pred[rows], self.plan.eot)
            self.predictions += len(rows)
            self.boundary += int(((lead > 0) & (lead <= rounding + chance)).sum())
            wrong += ids[(lead > rounding + chance).cpu().numpy()].tolist()
            self._check_targets(source, model, records, rows)
            if self.plan.threshold is not None:
                margin, slack = self._criterion_margin(model, self._inputs(ids), records.label[rows], self.plan.eot)
                is_met = torch.as_tensor(records.outcome[rows] == Outcome.MET, device=margin.device)
                contradicts = torch.where(is_met, margin <= -slack, margin > slack).cpu().numpy()
                description = "the clean input meets the criterion, or fails to, other than recorded"
                self._notes.note(f"{source.name} clean", description, ids[contradicts].tolist())
            values = {"clean_confidence": records.clean_confidence[rows], "margin": records.margin[rows]}
            self._check_values(f"{source.name} clean", source, model, self._inputs(ids), records, rows, values, self.plan.eot)
        self._check_failed(source, model, records)
        self._notes.note(
            f"{source.name} clean", "the model predicts another class for the clean input than the one recorded", wrong
        )

    def _check_values(
        self,
        location: str,
        source: ModelSource,
        model: Model,
        x: Tensor,
        records: Records,
        rows: Array,
        values: Mapping[str, Array],
        eot: int,
    ) -> None:
        """Check the recorded confidence and margin of a model's answers to inputs `x`, (m, *shape), the inputs of some rows.

        The answers of a random model differ each time, so nothing is compared.
        """
        if self._is_random:
            return
        logits, ids = predict(model, x, self.plan.request.batch_size, eot), records.sample_id[rows]
        targets = None if self.plan.targeting is None else np.ma.getdata(records.target)[rows]
        labels = torch.as_tensor(records.label[rows], device=logits.device).long()
        margin = make_criterion(targets, logits.device, source.reject, self.plan.threshold).margin(logits, labels, x)
        confidence, rounding = losses.decision(logits)[0], losses.rounding(logits, labels)
        for name, recorded in values.items():
            is_margin = "margin" in name
            expected, slack = (margin, MARGIN_TOLERANCE * rounding) if is_margin else (confidence, CONFIDENCE_TOLERANCE)
            apart = torch.as_tensor(np.ma.filled(recorded, np.nan), device=logits.device) - expected
            wrong = ~(apart.abs() <= slack).cpu().numpy()
            self._notes.note(location, f"the row's {name} is not what the model's answer gives", ids[wrong])

    def _check_failed(self, source: ModelSource, model: Model, records: Records) -> None:
        """Query the model again for each sample recorded as failed, one at a time, since failed samples leave every rate."""
        samples = []
        for sample in records.sample_id[records.outcome == Outcome.FAILED].tolist():
            try:
                logits = predict(model, self._inputs(np.array([sample])), 1, self.plan.eot)
            except BrinellError:
                continue
            if bool(torch.isfinite(logits).all()):
                samples.append(sample)
        self._notes.note(f"{source.name} clean", "the sample is recorded as failed, but the model answers it", samples)

    def _check_targets(self, source: ModelSource, model: Model, records: Records, rows: Array) -> None:
        """Check that the target classes of some rows are those that the request implies."""
        if self.plan.targeting is None:
            return
        ids, claimed = records.sample_id[rows], np.ma.getdata(records.target)[rows]
        if self.plan.targeting.text == LEAST_LIKELY:
            # The target must be the least likely class, up to rounding.
            x = self._inputs(ids)
            with torch.no_grad():
                mean = EOT(model, self.plan.eot).answers(x).mean(0)
            target_logit = mean.gather(1, torch.as_tensor(claimed, device=x.device).long()[:, None])[:, 0]
            slack = losses.rounding(mean, torch.as_tensor(claimed, device=x.device).long())
            wrong = (target_logit - mean.amin(1) > slack).cpu().numpy() & (not self._is_random)
        else:
            streams = Streams.of(self.plan.request.seed, torch.as_tensor(ids))
            labels = torch.as_tensor(records.label[rows]).long()
            expected = self.plan.targeting.classes(torch.zeros(len(ids), model.classes), labels, streams)
            wrong = expected.numpy() != claimed
        self._notes.note(f"{source.name} clean", "the target class is not the one that the request implies", ids[wrong].tolist())

    def _inputs(self, ids: Array) -> Tensor:
        """(n, *shape) clean inputs on the device of the run."""
        return self.plan.dataset.load(ids.tolist()).to(self.plan.device)

    def _rival_lead(self, model: Model, x: Tensor, claimed: Array, eot: int) -> tuple[Tensor, Tensor, Tensor]:
        """Lead of the strongest other class over the claimed one, with two tolerances.

        Args:
            model: the model.
            x: (n, *shape) inputs.
            claimed: (n,) recorded classes.
            eot: answers of the model that are averaged.

        Returns:
            (n,) each: difference of mean logits, positive if another class wins; tolerance for rounding; tolerance for chance.
        """
        looks = max(eot, RANDOM_LOOKS) if self._is_random else eot
        eot_model = EOT(model, looks)
        with torch.no_grad():
            logits = torch.cat([eot_model.answers(batch) for batch in torch.split(x, self.plan.request.batch_size)], 1)
        mean, y = logits.mean(0), torch.as_tensor(np.asarray(claimed), device=x.device).long()
        lead = losses.margin(mean, y)
        rival = mean.scatter(1, y[:, None], -torch.inf).argmax(1)
        rows = torch.arange(len(x), device=x.device)
        differences = logits[:, rows, rival] - logits[:, rows, y]
        error = (1 / eot + 1 / looks) ** 0.5
        chance = CHANCE_ERRORS * error * differences.std(0) if looks > 1 else torch.zeros_like(lead)
        return lead, losses.rounding(mean, y), chance

    def _criterion_margin(self, model: Model, x: Tensor, labels: Array, eot: int) -> tuple[Tensor, Tensor]:
        """Margin of the criterion of probability of inputs `x` (n, *shape), (n,), and its tolerance for rounding and chance."""
        assert self.plan.threshold is not None
        criterion, y = self.plan.threshold, torch.as_tensor(np.asarray(labels), device=x.device).long()
        looks = max(eot, RANDOM_LOOKS) if self._is_random else eot
        eot_model = EOT(model, looks)
        with torch.no_grad():
            logits = torch.cat([eot_model.answers(batch) for batch in torch.split(x, self.plan.request.batch_size)], 1)
        mean = logits.mean(0)
        slack = losses.rounding(mean, y)
        if looks > 1:
            margins = torch.stack([criterion.margin(answers, y, x) for answers in logits])
            slack = slack + CHANCE_ERRORS * (1 / eot + 1 / looks) ** 0.5 * margins.std(0)
        return criterion.margin(mean, y, x), slack

    def _check_adversarial(self, source: ModelSource, stage: Stage, model: Model, records: Records) -> None:
        """Judge the stored input of each sample that the stage broke."""
        location = f"{source.name} {stage.name}"
        for rows in _chunks(np.flatnonzero(has_broken(records))):
            ids = records.sample_id[rows]
            try:
                stored = self.run.adversarial(source.name, stage.name, ids.tolist())
            except RequestError as error:
                self._notes.note(location, str(error))
                return
            missing = [sample for sample in ids.tolist() if sample not in stored]
            self._notes.note(location, "the adversarial input is not stored", missing)
            rows = rows[np.isin(ids, list(stored))]
            if len(rows):
                x = self._check_stored(location, model, records, rows, stored, stage.eot)
                if x is not None and self.plan.request.precision == "float32":
                    names = ("adv_confidence", "adv_margin")
                    values = {name: np.ma.filled(getattr(records, name)[rows], np.nan) for name in names}
                    self._check_values(location, source, model, x, records, rows, values, stage.eot)
                if source.reject is not None and x is not None:
                    lead, rounding, chance = self._rival_lead(model, x, np.full(len(rows), source.reject), stage.eot)
                    wrong = records.sample_id[rows][(lead < -rounding - chance).cpu().numpy()].tolist()
                    self._notes.note(location, "the model rejects the stored input", wrong)

    def _check_stored(
        self, location: str, model: Model, records: Records, rows: Array, stored: dict[int, Array], eot: int
    ) -> Tensor | None:
        """Judge the stored inputs of some rows again; returns them (n, *shape), or None if one has another shape."""
        ids, domain = records.sample_id[rows], self.plan.dataset.domain
        arrays = [stored[sample] for sample in ids.tolist()]
        misshapen = [sample for sample, array in zip(ids.tolist(), arrays, strict=True) if array.shape != tuple(domain.shape)]
        if misshapen:
            self._notes.note(location, f"the stored input is not of shape {domain.shape}", misshapen)
            return None
        x = torch.as_tensor(np.stack(arrays), device=self.plan.device)
        x0 = self._inputs(ids)
        self.successes += len(rows)

        def require(holds: Tensor, description: str) -> None:
            """Note a problem of the samples whose entry in `holds`, (n,) bool, is False."""
            self._notes.note(location, description, ids[~holds.cpu().numpy()].tolist())

        low, high = domain.bounds(x)
        in_bounds = (x >= low - domain.slack) & (x <= high + domain.slack)
        require(in_bounds.flatten(1).all(1), "the stored input leaves the bounds of the data")
        eps = torch.as_tensor(np.ma.getdata(records.broken)[rows] * records.unit[rows], dtype=torch.float32, device=x.device)
        limit = eps + tolerance(eps, self.plan.distance, domain)
        require(size(self.plan.distance, x, x0) <= limit, f"the stored input is farther than eps in {self.plan.distance.name}")
        for name in ("linf", "l2", "l1", "l0"):
            measured, recorded = getattr(norms, name)(x - x0), np.asarray(getattr(records, name)[rows])
            close = np.isclose(measured.cpu().numpy(), recorded, rtol=1e-4, atol=domain.slack)
            require(torch.as_tensor(close), f"the stored input has another {name} than the record states")
        lead, rounding, chance = self._rival_lead(model, x, np.ma.getdata(records.adv_pred)[rows], eot)
        require(lead <= rounding + chance, "the model predicts another class for the stored input than the one recorded")
        if self.plan.threshold is not None:
            margin, slack = self._criterion_margin(model, x, records.label[rows], eot)
            require(margin > -slack, "the stored input does not meet the criterion of probability")
        elif self.plan.targeting is None:
            lead, rounding, chance = self._rival_lead(model, x, records.label[rows], eot)
            require(lead >= -rounding - chance, "the model is right on the stored input")
        else:
            lead, rounding, chance = self._rival_lead(model, x, np.ma.getdata(records.target)[rows], eot)
            require(lead <= rounding + chance, "the model does not see the target class in the stored input")
        stored_within = torch.as_tensor(np.ma.filled(records.quantised_within[rows], False), device=x.device)
        quantised = quantise(x, x0, limit, self.plan.distance, domain)
        rounded = torch.where(per_sample(stored_within, x), quantised, domain.round(x))
        lead, rounding, chance = self._rival_lead(model, rounded, records.quantised_pred[rows], eot)
        require(lead <= rounding + chance, "the model predicts another class after rounding than the one recorded")
        return x


def _chunks(rows: Array) -> Iterable[Array]:
    """Consecutive parts of an index array, small enough to load at once."""
    return (rows[start : start + CHUNK_SAMPLES] for start in range(0, len(rows), CHUNK_SAMPLES))
