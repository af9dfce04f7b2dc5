"""Makes the rows of an audit again from the model's answers to clean and to stored inputs.

A recorded class stays where it leads, and a recorded value where it holds, up to `losses.rounding` and, for a model that answers
at random, up to chance. Everywhere else stands what came out, so that a comparison finds the difference.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.criterion import Criterion
from brinell.core.eot import EOT
from brinell.core.errors import BrinellError
from brinell.core.model import Model
from brinell.core.norms import per_sample
from brinell.core.record import Array, Outcome, Records, columns_of, has_broken
from brinell.core.threat import size, tolerance
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.consistency import ANSWER_TOLERANCE
from brinell.engine.group_attack import level_of, make_criterion, predict
from brinell.engine.quantise import quantise
from brinell.engine.targeting import LEAST_LIKELY
from brinell.store.differences import Comparison

CHUNK_SAMPLES = 256
ROUNDINGS = 128
"""Tolerance of margins, in what float32 may round a decision."""
CONFIDENCE_TOLERANCE = 1e-3
CHANCE_ERRORS, LOOKS = 5.0, 32
"""Tolerance for a random model, in standard errors of its mean logits, and answers at least that show how far they scatter. It is
wide because the run kept the best of many means."""
PROBES, PROBE_LOOKS = 64, 3
"""Clean inputs and answers to each that show whether a model answers at random."""
SIZES = ("linf", "l2", "l1", "l0")


class Answers:
    """A model's answers to some inputs, with what chance may change of their mean."""

    def __init__(self, model: Model, x: Tensor, batch_size: int, eot: int, looks: int) -> None:
        with torch.no_grad():
            parts = [EOT(model, looks).answers(part) for part in torch.split(x, batch_size)]
        self.x, self.looks = x, torch.cat(parts, 1)
        """(looks, n, classes)"""
        self.logits = self.looks.mean(0)
        self._errors = CHANCE_ERRORS * (1 / eot + 1 / looks) ** 0.5

    def names(self, claimed: Array) -> Array:
        """(n,) bool: whether the claimed class (n,) leads, but for rounding and chance."""
        y = torch.as_tensor(np.asarray(claimed), device=self.x.device).long()
        rival = self.logits.scatter(1, y[:, None], -torch.inf).argmax(1)
        index = torch.arange(len(y), device=y.device)
        slack = losses.rounding(self.logits, y) + self._chance(self.looks[:, index, rival] - self.looks[:, index, y])
        return np.asarray((losses.margin(self.logits, y) <= slack).cpu().numpy())

    def margin(self, criterion: Criterion, y: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) margin of the criterion, and by how much rounding and chance may move it."""
        margins = torch.stack([criterion.margin(logits, y, self.x) for logits in self.looks])
        return criterion.margin(self.logits, y, self.x), losses.rounding(self.logits, y) + self._chance(margins)

    def _chance(self, values: Tensor) -> Tensor:
        return self._errors * values.std(0) if len(values) > 1 else torch.zeros_like(values[0])


class Judge:
    """Judges the rows of one model again."""

    def __init__(self, audited: AuditedModel, comparison: Comparison) -> None:
        self.audited, self.plan, self.comparison = audited, audited.plan, comparison
        self.is_random = False

    def look(self, ids: Array) -> None:
        """See whether two answers to the same clean inputs differ. What the run says of it is not used."""
        try:
            first, *others = (
                predict(self.audited.model, self.audited.load(ids[:PROBES]), CHUNK_SAMPLES) for _ in range(PROBE_LOOKS)
            )
        except BrinellError:
            return
        scale = first.abs().max().clamp_min(1e-12) if len(first) else 1.0
        self.is_random = any(bool(((first - other).abs() > ANSWER_TOLERANCE * scale).any()) for other in others)

    def judge_clean(self, repeated: Records, recorded: Records) -> Records:
        """The rows `made` of the first check, with recorded values where the answers bear them out; both are aligned."""
        differs = np.any([differing(repeated, recorded, name) for name in columns_of(repeated) if name != "seconds"], axis=0)
        is_failed = (repeated.outcome == Outcome.FAILED) | (recorded.outcome == Outcome.FAILED)
        for index in chunks(np.flatnonzero(differs & ~is_failed)):
            answers = self._answer(self.audited.load(repeated.sample_id[index]), self.plan.eot)
            targets, holds_target = self._targets(repeated, recorded, index, answers)
            values, slack = self._values(answers, recorded, index, targets)
            named = answers.names(recorded.clean_pred[index])
            outcome = named if self.plan.threshold is None else np.abs(values["margin"]) <= slack
            repeated = settled(repeated, recorded, index, values, {
                "target": holds_target,
                "clean_pred": named,
                "outcome": outcome,
                "clean_confidence": self._holds(recorded.clean_confidence[index], values["confidence"], CONFIDENCE_TOLERANCE),
                "margin": self._holds(recorded.margin[index], values["margin"], ROUNDINGS * slack),
            }, {"clean_confidence": "confidence", "margin": "margin"})  # fmt: skip
        return repeated

    def judge_stored(self, location: str, stage: Stage, rows: Records, stored: Mapping[int, Array]) -> Records:
        """The rows of a stage with what its stored inputs show; notes inputs that are missing, misplaced or no success."""
        shape, domain = tuple(self.plan.dataset.domain.shape), self.plan.dataset.domain
        broken = rows.sample_id[has_broken(rows)].tolist()
        wrong = [sample for sample in broken if sample not in stored or stored[sample].shape != shape]
        self._note(location, f"the adversarial input is not stored, or not of shape {shape}", wrong)
        index = np.flatnonzero(np.isin(rows.sample_id, sorted(set(broken) - set(wrong))))
        if not len(index):
            return rows
        ids = rows.sample_id[index]
        x = torch.as_tensor(np.stack([stored[sample] for sample in ids.tolist()]), device=self.plan.device)
        x0, units = self.audited.load(ids), torch.as_tensor(rows.unit[index, None], device=x.device)
        low, high = domain.bounds(x)
        inside = ((x >= low - domain.slack) & (x <= high + domain.slack)).flatten(1).all(1)
        self._note(location, "the stored input leaves the bounds of the data", ids[~inside.cpu().numpy()])
        levels = (units * torch.as_tensor(self.plan.levels, device=x.device)).float()
        level = level_of(size(self.plan.distance, x, x0), levels, self.plan.distance, domain).cpu().numpy()
        self._note(location, f"the stored input is farther than eps in {self.plan.distance.name}", ids[level == levels.shape[1]])

        answers = self._answer(x, stage.eot)
        targets = None if self.plan.targeting is None else np.ma.getdata(rows.target)[index]
        values, slack = self._values(answers, rows, index, targets)
        self._note(location, "the stored input is no success", ids[values["margin"] < -slack])
        eps = torch.as_tensor(np.ma.getdata(rows.broken)[index] * rows.unit[index], dtype=torch.float32, device=x.device)
        limit = eps + tolerance(eps, self.plan.distance, domain)
        within = torch.as_tensor(np.ma.filled(rows.quantised_within[index], False), device=x.device)
        rounded = torch.where(per_sample(within, x), quantise(x, x0, limit, self.plan.distance, domain), domain.round(x))
        of_rounded = self._answer(rounded, stage.eot)
        values |= {name: getattr(norms, name)(x - x0).cpu().numpy() for name in SIZES}
        values |= {
            "adv_pred": answers.logits.argmax(1).cpu().numpy(),
            "broken": np.append(self.plan.levels, np.inf)[level],
            "quantised_pred": of_rounded.logits.argmax(1).cpu().numpy(),
            "quantised_within": (size(self.plan.distance, rounded, x0) <= limit).cpu().numpy(),
        }
        is_rough = self.plan.request.precision != "float32"
        confidence = self._holds(rows.adv_confidence[index], values["confidence"], CONFIDENCE_TOLERANCE)
        holds = {name: np.isclose(getattr(rows, name)[index], values[name], rtol=1e-4, atol=domain.slack) for name in SIZES} | {
            "adv_pred": answers.names(np.ma.filled(rows.adv_pred[index], 0)),
            "quantised_pred": of_rounded.names(np.ma.filled(rows.quantised_pred[index], 0)),
            "adv_confidence": confidence | is_rough,
            "adv_margin": is_rough | self._holds(rows.adv_margin[index], values["margin"], ROUNDINGS * slack),
            "broken": level == levels.shape[1],
            "quantised_within": np.zeros(len(index), bool),
        }
        return settled(rows, rows, index, values, holds, {"adv_confidence": "confidence", "adv_margin": "margin"})

    def _answer(self, x: Tensor, eot: int) -> Answers:
        return Answers(self.audited.model, x, self.plan.request.batch_size, eot, max(eot, LOOKS) if self.is_random else eot)

    def _values(self, answers: Answers, rows: Records, index: Array, targets: Array | None) -> tuple[dict[str, Array], Array]:
        """Margin and confidence of answers, and the slack of the margin; each (n,)."""
        y = torch.as_tensor(rows.label[index], device=answers.x.device).long()
        criterion = make_criterion(targets, answers.x.device, self.audited.source.reject, self.plan.threshold)
        margin, slack = (column.cpu().numpy() for column in answers.margin(criterion, y))
        return {"margin": margin, "confidence": losses.decision(answers.logits)[0].cpu().numpy()}, slack

    def _holds(self, recorded: Array, value: Array, slack: Any) -> Array:
        """(n,) bool: recorded values that are the ones found. Those of a random model differ each time."""
        return np.asarray((np.abs(np.ma.filled(recorded, np.nan) - value) <= slack) | self.is_random)

    def _targets(self, repeated: Records, recorded: Records, index: Array, answers: Answers) -> tuple[Array | None, Array]:
        """Target classes of clean rows, those recorded where the answers leave them open, and which are."""
        if self.plan.targeting is None:
            return None, np.ones(len(index), bool)
        classes, claimed = (torch.as_tensor(np.ma.getdata(rows.target)[index]).long() for rows in (repeated, recorded))
        mean = answers.logits.cpu()
        apart = (mean.gather(1, claimed[:, None]) - mean.gather(1, classes[:, None]))[:, 0].abs()
        by_answers = self.plan.targeting.text == LEAST_LIKELY
        holds = (claimed == classes) | (by_answers & ((apart <= losses.rounding(mean, claimed)) | self.is_random))
        return torch.where(holds, claimed, classes).numpy(), holds.numpy()

    def _note(self, location: str, description: str, samples: Any) -> None:
        if len(samples):
            self.comparison.note(location, description, np.asarray(samples).tolist())


def settled(
    rows: Records,
    recorded: Records,
    index: Array,
    values: Mapping[str, Array],
    holds: Mapping[str, Array],
    names: Mapping[str, str],
) -> Records:
    """Rows with new values at `index` (m,), and with recorded ones where they hold.

    Args:
        rows: the rows.
        recorded: rows aligned with them.
        index: positions of the rows.
        values: (m,) new values; a column without any keeps its own.
        holds: by column, (m,) bool.
        names: the names of columns in `values`, where they differ.
    """
    columns = {}
    for name, is_true in holds.items():
        column, value = getattr(rows, name).copy(), values.get(names.get(name, name))
        if value is not None:
            column[index[~is_true]] = value[~is_true]
        column[index[is_true]] = getattr(recorded, name)[index[is_true]]
        columns[name] = column
    return replace(rows, **columns)


def differing(first: Any, second: Any, name: str) -> Array:
    """(rows,) bool: rows with another value in a column, or that have one in only one of both."""
    one, other = getattr(first, name), getattr(second, name)
    missing, missing_again = np.ma.getmaskarray(one), np.ma.getmaskarray(other)
    return np.asarray((missing != missing_again) | (~missing & (np.ma.getdata(one) != np.ma.getdata(other))))


def chunks(rows: Array) -> Iterator[Array]:
    """Consecutive parts of an index array, small enough to load at once."""
    return (rows[start : start + CHUNK_SAMPLES] for start in range(0, len(rows), CHUNK_SAMPLES))
