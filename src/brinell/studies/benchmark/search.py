"""Makes some samples of a benchmark set: runs the agent, grades the adversarial examples, and builds the rows.

One ledger counts every forward of the model. The costs in a row are therefore exact: first check, search, clean-up and the
evaluation of each level.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.attacks.rlab import RLAB
from brinell.core import norms
from brinell.core.criterion import MISCLASSIFIED, Criterion
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.oracle import Batch
from brinell.core.patches import PatchGrid
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine.checks import check_answers
from brinell.engine.progress import Progress
from brinell.rlab.distort import CLEAN, Variant
from brinell.rlab.grading import Graded, Path, path
from brinell.studies.benchmark import BenchmarkRequest
from brinell.studies.benchmark.answers import ClassReading, ReadModel, make_reading
from brinell.studies.benchmark.result import BenchmarkFacts
from brinell.studies.benchmark.rows import Form, Outcome
from brinell.studies.kit import Plan

ENLARGEMENTS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5)
"""Multiples of the distance after clean-up, tried in turn if the input in 8 bits is not adversarial."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan(Plan):
    """All that determines the content of a benchmark set."""

    request: BenchmarkRequest
    facts: BenchmarkFacts
    attack: RLAB
    grid: PatchGrid
    variants: tuple[Variant, ...]
    names: dict[int, str]
    """Spec of each distortion, by the identity of the object."""
    form: Form
    eps: float | None
    """Largest L2 distance of an adversarial example."""
    wrong_class: int | None = None
    """The wrong class that the criterion names."""
    criterion: Callable[[Sequence[int]], Criterion] = lambda samples: MISCLASSIFIED
    """The criterion of some samples, by their positions in the data."""


class Level(NamedTuple):
    """Inputs of one level, with the numbers of the answers to the exact inputs and to the stored ones."""

    inputs: Graded
    exact: Tensor
    stored: Tensor


class Search:
    """Makes some samples of a set.

    Args:
        plan: the plan of the set.
        span: the samples, as a slice of those of the plan.
        progress: counts the passes of the model.
    """

    def __init__(self, plan: BenchmarkPlan, span: slice, progress: Progress) -> None:
        self.rows: list[dict[str, Any]] = []
        """A row of data/ for each input, with its arrays."""
        self.arrays: dict[str, Array] = {}
        """Exact inputs and masks, by name."""
        self.ids: Array = plan.ids[span]
        x = plan.dataset.load(self.ids.tolist()).to(plan.device)
        device, domain = x.device, plan.dataset.domain
        y = torch.as_tensor(plan.labels[span], device=device)
        low, high = domain.bounds()
        # Without a cap, every input within the bounds is allowed.
        cap = plan.eps or float((high - low).expand(1, *domain.shape).norm())
        (model,) = plan.models.values()
        self._plan, self._model, criterion = plan, ReadModel(model), plan.criterion(self.ids.tolist())
        self._reading = make_reading(criterion, y)
        self._rng = Streams.of(plan.request.seed, torch.as_tensor(self.ids, device=device)).fold("benchmark")
        # minimal: levels exceed the cap of the adversarial example, so queries beyond it are allowed.
        self._ledger = Ledger(
            self._model,
            Batch(ids=torch.arange(len(x), device=device), x=x, y=y),
            Threat(
                distance=plugins.build("distance", "l2", {}),
                eps=torch.full((len(x),), cap, device=device),
                domain=domain,
                criterion=criterion,
            ),
            access=Access.SCORES,
            batch_size=plan.request.batch_size,
            minimal=True,
            on_pass=progress.count_passes,
        )
        self._oracle, self._batch, self._threat = self._ledger.oracle(), self._ledger.batch, self._ledger.threat
        self._clean = self._ask(torch.arange(len(x), device=device), self._batch.x)
        if plan.form.task is None:
            check_answers(self._clean, model)
        self.samples = self._run()
        """The columns of the samples by name."""

    def _ask(self, rows: Tensor, x: Tensor) -> Tensor:
        """(k, width): the numbers of the answers to inputs of the samples `rows` (k,)."""
        if isinstance(self._reading, ClassReading):
            return self._oracle.scores(self._batch.ids[rows], x)
        answers: list[Tensor] = []
        self._model.reader = answers.append
        scores = self._oracle.scores(self._batch.ids[rows], x)
        self._model.reader = lambda answer: None
        return torch.cat((scores, self._reading.read(torch.cat(answers).detach(), rows)), 1)

    def _margin(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """(k,) margins of the criterion, positive for an adversarial input."""
        return self._threat.criterion.margin(numbers[:, : self._reading.scores], self._batch.y[rows], self._batch.x[rows])

    def _run(self) -> dict[str, Any]:
        """Search adversarial examples, and build the rows."""
        clean = self._reading.columns(self._clean, torch.arange(len(self.ids), device=self._clean.device))
        outcome = self._clean_outcomes(clean)
        samples: dict[str, Any] = {
            "sample_id": self.ids,
            "outcome": outcome,
            "valid": clean["valid"],
            "clean_wrong": clean["wrong"],
            **({"label": clean["label"], "clean_prediction": clean["prediction"]} if "label" in clean else {}),
        }
        findings = {
            name: np.ma.MaskedArray(np.zeros(len(self.ids), kind), mask=True)
            for name, kind in (("queries_to_success", int), ("queries_to_refined", int), ("l2", float), ("patch_count", int))
        }
        searched = np.flatnonzero(outcome == "")
        if len(searched):
            rows = torch.as_tensor(searched, device=self._batch.x.device)
            outcome[searched] = Outcome.NOT_REACHED
            results = self._plan.attack.run_episodes(self._oracle, *self._select(rows))
            fooled = results.success.nonzero()[:, 0]
            if len(fooled):
                grid, variants = self._plan.grid, self._plan.variants
                paths = path(*self._select(rows[fooled]), grid=grid, variants=variants, results=results.select(fooled))
                example = self._final_examples(rows[fooled], paths)
                refined = self._ledger.costs.forwards.tolist()
                examples = self._grade(rows[fooled], paths, example)
                for index, steps in zip(rows[fooled].tolist(), results.steps[fooled].tolist(), strict=True):
                    if index in examples:
                        outcome[index] = Outcome.REACHED
                        # The first check, the agent's query of the clean input, and its steps.
                        findings["queries_to_success"][index] = 2 + steps
                        findings["queries_to_refined"][index] = refined[index]
                        findings["l2"][index] = examples[index]["l2"]
                        findings["patch_count"][index] = len(examples[index]["patches"])
        return samples | findings | {"queries": self._ledger.costs.forwards.cpu().numpy()}

    def _select(self, rows: Tensor) -> tuple[Batch, Threat, Streams]:
        return self._batch.select(rows), self._threat.select(rows), self._rng.select(rows)

    def _clean_outcomes(self, clean: dict[str, list[Any]]) -> Array:
        """(n,) outcomes that the clean inputs decide; empty for samples that the agent must distort."""
        y = self._batch.y
        outcome = np.full(len(y), "", dtype=object)
        outcome[(self._margin(torch.arange(len(y), device=y.device), self._clean) > 0).cpu().numpy()] = Outcome.ALREADY
        if self._plan.form.task is None:
            outcome[np.array(clean["wrong"]) > 0] = Outcome.MISCLASSIFIED
        if self._plan.wrong_class is not None:
            outcome[(y == self._plan.wrong_class).cpu().numpy()] = Outcome.OWN_CLASS
        return outcome

    def _final_examples(self, rows: Tensor, paths: Path) -> Level:
        """The adversarial examples after clean-up, enlarged if they are not adversarial in 8 bits.

        Args:
            rows: (k,) positions of the samples in the batch.
            paths: their paths from the clean input through the example.
        """
        strength = paths.fraction()[:, None] * (paths.standing != CLEAN)
        example = Graded(paths.flip(), torch.ones_like(rows, dtype=torch.bool), paths.standing.clone(), strength)
        exact, stored = self._query(rows, example.x)
        size = norms.l2(example.x - paths.clean)
        for factor in ENLARGEMENTS:
            adversarial = torch.minimum(self._margin(rows, exact), self._margin(rows, stored)) > 0
            farther = paths.grade(factor * size)
            within_cap = factor * size <= self._threat.eps[rows]
            remaining = (~adversarial & farther.reached & within_cap).nonzero()[:, 0]
            if not len(remaining):
                break
            answers = self._query(rows[remaining], farther.x[remaining])
            improved = torch.minimum(*(self._margin(rows[remaining], answer) for answer in answers)) > 0
            index = remaining[improved]
            for column, values in zip(example, farther, strict=True):
                column[index] = values[index].to(column.dtype)
            exact[index], stored[index] = (answer[improved] for answer in answers)
        valid = (self._margin(rows, exact) > 0) & (norms.l2(example.x - paths.clean) > 0)
        return Level(example._replace(reached=valid), exact, stored)

    def _query(self, rows: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Answers to the inputs, and to the inputs as they are stored."""
        exact = self._ask(rows, x)
        return exact, self._query_stored(rows, x, exact)

    def _query_stored(self, rows: Tensor, x: Tensor, exact: Tensor) -> Tensor:
        """Answers to the inputs as they are stored. Inputs that storage does not change keep the answers given."""
        form, stored = self._plan.form, exact.clone()
        if not form.pictures:
            return stored
        low, high = self._plan.dataset.domain.bounds(x)
        levels = torch.stack([torch.from_numpy(form.to_uint8(picture.cpu().numpy())) for picture in x]).to(x)
        decoded = low + (high - low) * (levels / 255)
        differs = (decoded != x).flatten(1).any(1)
        if bool(differs.any()):
            stored[differs] = self._ask(rows[differs], decoded[differs])
        return stored

    def _grade(self, rows: Tensor, paths: Path, example: Level) -> dict[int, dict[str, Any]]:
        """Add the rows of all levels and their arrays; returns the rows of level 1 by position in the batch.

        Args:
            rows: (k,) positions of the samples in the batch.
            paths: their paths from the clean input through the example.
            example: the adversarial examples, which are level 1.
        """
        valid = example.inputs.reached
        size = (example.inputs.x.double() - paths.clean.double()).flatten(1).norm(dim=1)
        farthest = (paths.farthest().double() / size.clamp_min(1e-300)).tolist()
        examples: dict[int, dict[str, Any]] = {}
        for number in (0.0, *self._plan.facts.levels):
            level = example if number == 1 else self._evaluate(rows, paths, valid, number, size)
            columns = self._reading.columns(level.exact, rows)
            columns["adversarial"] = (self._margin(rows, level.exact) > 0).tolist()
            if self._plan.form.pictures:
                columns["wrong_quantised"] = self._reading.columns(level.stored, rows)["wrong"]
            for position in valid.nonzero()[:, 0].tolist():
                index = int(rows[position])
                sample, truth = int(self.ids[index]), self._reading.truth(index)
                row = {"sample_id": sample, "level": number, "reached": False, "truth": truth, "farthest": farthest[position]}
                if "label" in columns:
                    row["label"] = columns["label"][position]
                if bool(level.inputs.reached[position]):
                    answer = {name: values[position] for name, values in columns.items()}
                    row |= answer | {"reached": True} | self._changes(position, index, level.inputs)
                    self.arrays |= {f"{sample}/{number:g}/{name}": row[name] for name in ("input", "mask")}
                if truth is not None:
                    self.arrays[f"{sample}/truth"] = truth
                self.rows.append(row)
                if number == 1:
                    examples[index] = row
        self.rows.sort(key=lambda row: (row["sample_id"], row["level"]))
        return examples

    def _evaluate(self, rows: Tensor, paths: Path, valid: Tensor, number: float, size: Tensor) -> Level:
        """Inputs of a level and the answers to them; zeros for inputs that the bounds do not allow.

        Args:
            rows: (k,) positions of the samples in the batch.
            paths: their paths from the clean input through the example.
            valid: (k,) bool: samples with an adversarial example.
            number: the multiple of the distance; 0 is the clean input.
            size: (k,) L2 distances of the adversarial examples.
        """
        if number == 0:
            clean = torch.full_like(paths.standing, CLEAN)
            inputs = Graded(paths.clean, valid, clean, torch.zeros_like(clean, dtype=torch.float32))
            index, exact = inputs.reached.nonzero()[:, 0], self._clean[rows]
        else:
            inputs = paths.grade(number * size)
            inputs = inputs._replace(reached=inputs.reached & valid)
            index, exact = inputs.reached.nonzero()[:, 0], torch.zeros_like(self._clean[rows])
            if len(index):
                exact[index] = self._ask(rows[index], inputs.x[index])
        stored = exact.clone()
        if len(index):
            stored[index] = self._query_stored(rows[index], inputs.x[index], exact[index])
        return Level(inputs, exact, stored)

    def _changes(self, position: int, index: int, inputs: Graded) -> dict[str, Any]:
        """Columns of the input `position` of a level, which belongs to the sample `index` of the batch."""
        ids = self._batch.ids[index : index + 1]
        x, clean = (
            self._ledger.full_inputs(ids, value[None])[0].cpu().numpy() for value in (inputs.x[position], self._batch.x[index])
        )
        delta = x.astype(np.float64) - clean
        patches = []
        for patch, (variant, strength) in enumerate(
            zip(inputs.variant[position].tolist(), inputs.strength[position].tolist(), strict=True)
        ):
            if variant != CLEAN:
                placement = self._plan.variants[variant]
                name = self._plan.names[id(placement.distortion)]
                entry = {"distortion": name, "severity": placement.severity, "draw": placement.draw}
                patches.append({"patch": patch, **entry, "strength": strength})
        return {
            "input": x,
            "mask": delta != 0,
            "l2": math.sqrt(float((delta**2).sum())),
            "linf": float(np.abs(delta).max()),
            "l1": float(np.abs(delta).sum()),
            "l0": int((delta != 0).sum()),
            "patches": patches,
        }
